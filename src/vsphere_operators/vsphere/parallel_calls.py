"""Runs many calls of one kind, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

# Enough to hide the round trip to the server. vCenter shares its threads among all clients.
MAX_CONCURRENT_CALLS = 8

T = TypeVar("T")
R = TypeVar("R")


async def gather_limited(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results in the order of the items. The first failure cancels all other calls."""
    results: dict[int, R] = {}
    queue = iter(enumerate(items))

    async def worker() -> None:
        for number, item in queue:
            results[number] = await work(item)

    # Not a TaskGroup: until Python 3.13, one that fails while it waits leaves its own cancellation
    # on the parent task, and before 3.11.3 asyncio.timeout takes that for a cancellation from
    # outside and ends its caller.
    workers = [asyncio.ensure_future(worker()) for _ in items[:MAX_CONCURRENT_CALLS]]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number in range(len(items))]
