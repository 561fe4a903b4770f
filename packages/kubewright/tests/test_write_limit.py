from __future__ import annotations

import asyncio
import random

import pytest

from kubewright.write_limit import WriteLimit, has_low_priority


class Writes:
    """Writes that run until they are released, by name."""

    def __init__(self, limit: WriteLimit) -> None:
        self._limit = limit
        self.running: list[str] = []
        self._released: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Names that begin with "low" have a low priority."""
        for name in names:
            self._released[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._write(name))
        await self._settle()

    async def _write(self, name: str) -> None:
        has_low_priority.set(name.startswith("low"))
        async with self._limit:
            self.running.append(name)
            try:
                await self._released[name].wait()
            finally:
                self.running.remove(name)

    async def release(self, name: str) -> None:
        self._released[name].set()
        await self._settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_low_priority_leaves_room() -> None:
    writes = Writes(WriteLimit(3, 2))
    await writes.start("low-1", "low-2", "low-3", "edit-1")
    assert writes.running == ["low-1", "low-2", "edit-1"]
    await writes.release("low-1")
    assert writes.running == ["low-2", "edit-1", "low-3"]


async def test_normal_priority_goes_first() -> None:
    writes = Writes(WriteLimit(2, 2))
    await writes.start("low-1", "low-2", "low-3", "edit-1", "edit-2")
    assert writes.running == ["low-1", "low-2"]
    await writes.release("low-1")
    assert writes.running == ["low-2", "edit-1"]
    await writes.release("low-2")
    assert writes.running == ["edit-1", "edit-2"]
    await writes.release("edit-1")
    assert writes.running == ["edit-2", "low-3"]


@pytest.mark.parametrize("cancelled", ["low-1", "low-2", "edit-1"])
async def test_cancelled_write_does_not_block_others(cancelled: str) -> None:
    writes = Writes(WriteLimit(1, 1))
    await writes.start("low-1", "low-2", "edit-1", "edit-2")
    await writes.cancel(cancelled)
    for name in ("low-1", "edit-1", "edit-2", "low-2"):
        await writes.release(name)
    results = await asyncio.gather(*writes.tasks.values(), return_exceptions=True)
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 1
    await writes.start("edit-3")
    assert writes.running == ["edit-3"]


async def test_write_that_is_cancelled_at_its_turn_passes_it_on() -> None:
    writes = Writes(WriteLimit(1, 1))
    await writes.start("edit-1", "edit-2", "edit-3")
    writes._released["edit-1"].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writes.tasks["edit-2"].cancel()
    await writes._settle()
    assert writes.running == ["edit-3"]


async def test_many_writes_of_both_priorities_end() -> None:
    limit, running = WriteLimit(4, 2), {"low": 0, "edit": 0}
    highest = dict(running)

    async def write(number: int) -> None:
        kind = "low" if number % 3 else "edit"
        has_low_priority.set(kind == "low")
        async with limit:
            running[kind] += 1
            highest[kind] = max(highest[kind], running[kind])
            assert running["low"] <= 2
            assert sum(running.values()) <= 4
            await asyncio.sleep(0)
            running[kind] -= 1

    await asyncio.gather(*(write(number) for number in range(300)))
    assert highest["low"] == 2


@pytest.mark.parametrize("seed", range(20))
async def test_writes_that_are_cancelled_at_any_moment_leave_the_limit_free(seed: int) -> None:
    rng, limit, running = random.Random(seed), WriteLimit(3, 1), 0

    async def write(is_low: bool) -> None:
        nonlocal running
        has_low_priority.set(is_low)
        async with limit:
            running += 1
            try:
                assert running <= 3
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                running -= 1

    tasks = [asyncio.create_task(write(rng.random() < 0.5)) for _ in range(60)]
    while not all(task.done() for task in tasks):
        # Several at once: their turns and the ends of other writes fall into one step of the loop.
        for task in rng.sample(tasks, 3):
            if rng.random() < 0.5:
                task.cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [result for result in results if result is not None]
    assert all(isinstance(error, asyncio.CancelledError) for error in errors), errors
    assert errors
    async with limit, limit, limit:
        assert running == 0
