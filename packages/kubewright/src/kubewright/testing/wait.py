"""`eventually`: waits until a check succeeds, instead of for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

_T = TypeVar("_T")
# A longer wait is checked less often: a check may be a request or a process.
_MAX_INTERVAL_SECONDS, _INTERVAL_OF_WAIT = 0.25, 0.05


@overload
async def eventually(
    check: Callable[[], Awaitable[_T]], *, within: float = 30.0, every: float = 0.02
) -> _T: ...


@overload
async def eventually(
    check: Callable[[], _T], *, within: float = 30.0, every: float = 0.02
) -> _T: ...


async def eventually(check: Callable[[], Any], *, within: float = 30.0, every: float = 0.02) -> Any:
    """Call `check` every `every` seconds until its result is true, and return that result.

    The interval grows to 5 % of the time waited so far, up to 0.25 s. A check that raises counts as
    false. After `within` seconds, raises AssertionError with the last result or exception. Uses the
    time of the event loop, which `@pytest.mark.looptime` skips.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    while True:
        result, error = None, None
        try:
            result = check()
            if inspect.isawaitable(result):
                result = await result
        except Exception as exception:
            error = exception
        if error is None and result:
            return result
        waited = loop.time() - start
        if waited >= within:
            outcome = f"raised {error!r}" if error else f"returned {result!r}"
            raise AssertionError(
                f"not true within {within:g} s: the last check {outcome}"
            ) from error
        interval = max(every, min(waited * _INTERVAL_OF_WAIT, _MAX_INTERVAL_SECONDS))
        await asyncio.sleep(min(interval, within - waited))
