"""The 16 specifications of controller-runtime's priority queue, as tests of ours.

They are in the order of pkg/controller/priorityqueue/priorityqueue_test.go, with its subjects as
names: an item there is a key here, a locked item is a key that is being processed.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from kubewright.metrics import Metrics, QueueMetrics
from kubewright.workqueue import WorkQueue

HOUR = 3600.0


class MeasuredQueue(WorkQueue[str]):
    def __init__(self) -> None:
        self.metrics = QueueMetrics(Metrics(), "test")
        super().__init__(self.metrics)

    @property
    def depths(self) -> dict[int, float]:
        """The depth metric of each priority that was ever used."""
        return {priority: s.value for priority, s in self.metrics.depth_by_priority.items()}

    @property
    def adds(self) -> float:
        return self.metrics.adds.value

    async def take(self) -> tuple[str, int]:
        entry = await asyncio.wait_for(self.get(), 30)
        assert entry is not None
        return entry


async def test_01_returns_a_key() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    assert await queue.take() == ("foo", 0)
    assert (queue.depths, queue.adds, queue.metrics.retries.value) == ({0: 0}, 1, 0)


async def test_02_returns_keys_in_order() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    queue.add("bar")
    assert [await queue.take(), await queue.take()] == [("foo", 0), ("bar", 0)]
    assert (queue.depths, queue.adds) == ({0: 0}, 2)


async def test_03_does_not_return_a_locked_key() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    await queue.take()
    queue.add("foo")
    queue.add("bar")
    assert await queue.take() == ("bar", 0)
    assert (queue.depths, queue.adds) == ({0: 1}, 3), "the locked key counts as waiting"


async def test_04_returns_a_key_as_soon_as_it_is_unlocked() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    await queue.take()
    queue.add("foo")
    queue.add("bar")
    assert await queue.take() == ("bar", 0)
    queue.add("baz")
    queue.done("foo")
    assert await queue.take() == ("foo", 0), "it was added before baz and kept its place"
    assert (queue.depths, queue.adds) == ({0: 1}, 4)


async def test_05_deduplicates_keys() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    queue.add("foo")
    assert (len(queue), queue._processing) == (1, {})
    assert (queue.depths, queue.adds) == ({0: 1}, 1)


async def test_06_enqueues_a_locked_key() -> None:
    queue = MeasuredQueue()
    queue.add("foo")
    assert len(queue) == 1
    assert await queue.take() == ("foo", 0)
    queue.add("foo")
    assert len(queue) == 1
    queue.done("foo")
    assert await queue.take() == ("foo", 0)
    assert (queue.depths, queue.adds) == ({0: 0}, 2)


async def test_07_retains_the_highest_priority() -> None:
    queue = MeasuredQueue()
    queue.add("foo", 1)
    queue.add("foo", 2)
    assert await queue.take() == ("foo", 2)
    assert len(queue) == 0
    assert (queue.depths, queue.adds) == ({1: 0, 2: 0}, 1)


async def test_08_does_not_decrease_the_priority() -> None:
    queue = MeasuredQueue()
    queue.add("foo", 2)
    queue.add("foo", 1)
    assert await queue.take() == ("foo", 2)
    assert len(queue) == 0
    assert (queue.depths, queue.adds) == ({2: 0}, 1)


async def test_09_moves_to_the_front_if_the_priority_increases() -> None:
    queue = MeasuredQueue()
    for key in ("foo", "bar", "baz"):
        queue.add(key)
    queue.add("baz", 1)
    assert await queue.take() == ("baz", 1)
    assert len(queue) == 2
    assert (queue.depths, queue.adds) == ({0: 2, 1: 0}, 3)


async def test_10_retains_the_shortest_delay() -> None:
    queue = MeasuredQueue()
    queue.add_after("foo", 0)
    queue.add_after("foo", HOUR)
    assert await queue.take() == ("foo", 0)
    assert (len(queue), queue._due_times) == (0, {})
    assert (queue.depths, queue.adds) == ({0: 0}, 1)


async def test_11_does_not_count_delayed_keys() -> None:
    queue = MeasuredQueue()
    queue.add_after("foo", 60)
    queue.add("baz")
    queue.add_after("bar", 60)
    queue.add("bal")
    assert len(queue) == 2
    assert queue.depths == {0: 2}


async def test_12_get_returns_after_the_queue_is_closed() -> None:
    queue = MeasuredQueue()
    queue.add("baz")
    queue.close()
    queue.add_after("foo", 1)
    assert [await queue.get(), await queue.get()] == [None, None]


async def test_13_returns_many_keys() -> None:
    queue = MeasuredQueue()
    numbers = random.Random(1)

    async def work() -> None:
        for _ in range(10):
            key, _ = await queue.take()
            await asyncio.sleep(0)
            queue.done(key)

    for _ in range(20):
        for index in range(1000):
            number = numbers.randrange(100)
            if number < 10:
                queue.add_after(f"foo{index}", number / 1000)
            else:
                queue.add(f"foo{index}", number)
        await asyncio.gather(*(work() for _ in range(100)))
        assert (len(queue), queue._due_times, sum(queue.depths.values())) == (0, {}, 0)


async def test_14_metrics_of_a_key_that_is_delayed_and_then_added() -> None:
    queue = MeasuredQueue()
    queue.add_after("foo", HOUR)
    assert (len(queue), queue.depths) == (0, {})
    queue.add("foo")
    assert (len(queue), queue.depths) == (1, {0: 1})
    await queue.take()
    assert (len(queue), queue.depths, queue.adds) == (0, {0: 0}, 1)


@pytest.mark.parametrize("delayed_priority", [0, 1])
async def test_15_metrics_of_a_delayed_key_that_is_added_with_another_priority(
    delayed_priority: int,
) -> None:
    queue = MeasuredQueue()
    queue.add_after("foo", HOUR, delayed_priority)
    assert (len(queue), queue.depths) == (0, {})
    queue.add("foo", 1 - delayed_priority)
    assert (len(queue), queue.depths) == (1, {1: 1}), "the higher of both priorities counts"
    assert await queue.take() == ("foo", 1)
    assert (len(queue), queue.depths) == (0, {1: 0})


async def test_16_key_with_a_new_priority_goes_behind_those_that_have_it() -> None:
    queue = MeasuredQueue()
    queue.add("foo", 0)
    queue.add("bar", 1)
    queue.add("foo", 1)
    assert len(queue) == 2
    assert await queue.take() == ("bar", 1)
    assert len(queue) == 1
    assert await queue.take() == ("foo", 1)
    assert len(queue) == 0
