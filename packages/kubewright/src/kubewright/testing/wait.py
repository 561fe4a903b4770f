"""`eventually`: wait for a fact, not for a while."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(
    check: Callable[[], Awaitable[T]], *, within: float = 10.0, every: float = 0.02
) -> T: ...


@overload
async def eventually(check: Callable[[], T], *, within: float = 10.0, every: float = 0.02) -> T: ...


async def eventually(check: Callable[[], Any], *, within: float = 10.0, every: float = 0.02) -> Any:
    """Ask `check` every `every` seconds until its answer is true, and return that answer.

    A check that raises counts as "not yet". After `within` seconds the last answer or exception is told in an AssertionError.
    Time is the event loop's, so that it costs nothing under `@pytest.mark.looptime`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        answer, failure = await run_check(check)
        if failure is None and answer:
            return answer
        if loop.time() >= deadline:
            said = f"raised {failure!r}" if failure else f"answered {answer!r}"
            raise AssertionError(
                f"not true within {within:g} s: the last check {said}"
            ) from failure
        await asyncio.sleep(every)


async def run_check(check: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What one check said: its answer, or what it raised."""
    try:
        answer = check()
        return (await answer if inspect.isawaitable(answer) else answer), None
    except Exception as failure:
        return None, failure
