"""Concurrent calls with a limit."""

from __future__ import annotations

import asyncio

import pytest

from vsphere_operators.vsphere.parallel_calls import MAX_CONCURRENT_CALLS, gather_limited


async def test_results_are_in_order_and_concurrency_is_limited() -> None:
    running = most = 0

    async def work(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(30 - item):
            await asyncio.sleep(0)
        running -= 1
        return item * item

    assert await gather_limited(range(30), work) == [item * item for item in range(30)]
    assert most == MAX_CONCURRENT_CALLS
    assert await gather_limited([], work) == []


async def test_first_failure_cancels_all_other_calls() -> None:
    """Before Python 3.11.3, a leftover cancellation would end the next wait with a timeout."""
    ended: list[int] = []

    async def work(item: int) -> None:
        if item == 2:
            raise ValueError("two")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(item)

    with pytest.raises(ValueError, match="two"):
        await gather_limited(range(5), work)
    assert sorted(ended) == [0, 1, 3, 4]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_cancelled_caller_leaves_nothing_running() -> None:
    ended: list[int] = []
    begun = asyncio.Event()

    async def work(item: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(item)

    task = asyncio.ensure_future(gather_limited(range(3), work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]
