"""`eventually`: waits until a check succeeds, instead of for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

_T = TypeVar("_T")
# A check is often a request to an API server, which takes 10 ms of CPU time.
_LONGEST_INTERVAL_SECONDS = 0.1
_GROWTH = 1.25


@overload
async def eventually(
    check: Callable[[], Awaitable[_T]], *, within: float = 30.0, every: float = 0.02
) -> _T: ...


@overload
async def eventually(
    check: Callable[[], _T], *, within: float = 30.0, every: float = 0.02
) -> _T: ...


async def eventually(check: Callable[[], Any], *, within: float = 30.0, every: float = 0.02) -> Any:
    """Call `check` until its result is true, and return that result.

    The second call is after `every` seconds. The time between calls grows up to 0.1 s, or is always
    `every` seconds if that is longer.

    A check that raises counts as false. After `within` seconds, raises AssertionError with the last
    result or exception. Uses the time of the event loop, which `@pytest.mark.looptime` skips.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    longest = max(every, _LONGEST_INTERVAL_SECONDS)
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
        if loop.time() >= deadline:
            outcome = f"raised {error!r}" if error else f"returned {result!r}"
            raise AssertionError(
                f"not true within {within:g} s: the last check {outcome}"
            ) from error
        await asyncio.sleep(every)
        every = min(longest, every * _GROWTH)
