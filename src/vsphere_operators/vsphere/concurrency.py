"""Many calls of one sort, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

# Enough to hide the way to the server and back; vCenter shares its threads with everybody else.
MAX_CONCURRENT_CALLS = 8

T = TypeVar("T")
R = TypeVar("R")


async def gather_limited(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results of some work on each item, in order; the first failure ends all, and nothing of it runs on."""
    results: dict[int, R] = {}
    queue = iter(enumerate(items))

    async def worker() -> None:
        for number, item in queue:
            results[number] = await work(item)

    # Not a TaskGroup: one that fails while it waits leaves its own cancellation on the task until Python 3.13, and before 3.11.3
    # asyncio.timeout takes such a one for somebody else's and ends whoever goes on.
    workers = [asyncio.ensure_future(worker()) for _ in items[:MAX_CONCURRENT_CALLS]]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number in range(len(items))]
