from __future__ import annotations

import asyncio
import time

import pytest

from kubewright.loop_turns import LoopTurns
from kubewright.workqueue import WorkQueue

# Wall time of a piece of work that never waits.
WORK_SECONDS = 0.002


def compute() -> None:
    until = time.perf_counter() + WORK_SECONDS
    while time.perf_counter() < until:
        pass


class Iterations:
    """Counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def run_workers(turns: LoopTurns, workers: int, rounds: int) -> tuple[list[int], int]:
    """The workers in the order in which they worked, and the most of them in one iteration."""
    iterations, order, by_iteration = Iterations(), list[int](), dict[int, int]()

    async def run(number: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)
            await turns.wait()
            compute()
            order.append(number)
            by_iteration[iterations.count] = by_iteration.get(iterations.count, 0) + 1

    await asyncio.gather(*(run(number) for number in range(workers)))
    iterations.stop()
    return order, max(by_iteration.values())


async def test_workers_share_a_turn_up_to_its_limit() -> None:
    _, most = await run_workers(LoopTurns(turn_seconds=5 * WORK_SECONDS), workers=100, rounds=2)
    assert most <= 5


async def test_all_workers_run_in_one_turn_if_there_is_time() -> None:
    _, most = await run_workers(LoopTurns(turn_seconds=60.0), workers=20, rounds=2)
    assert most == 20


async def test_no_worker_is_overtaken_for_long() -> None:
    workers, rounds = 90, 4
    order, _ = await run_workers(LoopTurns(turn_seconds=3 * WORK_SECONDS), workers, rounds)
    for completed in range(rounds):
        # Each has worked once before any has worked three times.
        first = order[: workers * (completed + 2)]
        assert all(first.count(number) > completed for number in range(workers))


async def test_cancelled_waiter_leaves_its_turn_to_others() -> None:
    turns, worked = LoopTurns(turn_seconds=WORK_SECONDS), list[int]()

    async def run(number: int) -> None:
        await turns.wait()
        compute()
        worked.append(number)

    tasks = [asyncio.create_task(run(number)) for number in range(6)]
    await asyncio.sleep(0)
    assert worked == [0]
    tasks[1].cancel()
    tasks[4].cancel()
    await asyncio.wait(tasks)
    assert worked == [0, 2, 3, 5]


@pytest.mark.parametrize("iterations", range(1, 7))
async def test_worker_cancelled_while_it_waits_for_its_turn_loses_no_key(iterations: int) -> None:
    turns = LoopTurns(turn_seconds=WORK_SECONDS)
    queue: WorkQueue[str] = WorkQueue(turns=turns)
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    # The turn is used up when the key is added.
    await turns.wait()
    compute()
    queue.add("key")
    for _ in range(iterations):
        await asyncio.sleep(0)
    if first.done():
        assert first.result() == ("key", 0)
    else:
        first.cancel()
        assert await second == ("key", 0)
    for task in (first, second):
        task.cancel()
    await asyncio.wait([first, second])
