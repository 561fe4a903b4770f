"""Many calls of one sort, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

# Enough to hide the way to the server and back; vCenter shares its threads with everybody else.
CALLS_AT_ONCE = 8

T = TypeVar("T")
R = TypeVar("R")


async def at_once(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results of some work on each item, in order; the first failure ends all, and nothing of it runs on."""
    results: dict[int, R] = {}
    queue = iter(enumerate(items))

    async def worker() -> None:
        for number, item in queue:
            results[number] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(CALLS_AT_ONCE, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[number] for number in range(len(items))]
