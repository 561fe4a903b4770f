"""Order, delays and back-off of the queue, and generated schedules against its promise: never two
workers on one key."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.workqueue import (
    LOW_PRIORITY,
    NORMAL_PRIORITY,
    Backoff,
    RateLimit,
    WorkQueue,
)


async def take_key(queue: WorkQueue[str]) -> str:
    entry = await queue.get()
    assert entry is not None
    return entry[0]


async def test_key_added_many_times_is_returned_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await take_key(queue) == "a"
    assert len(queue) == 0


async def test_key_added_while_processing_waits_until_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await take_key(queue)
    queue.add("a")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert (len(queue), waiting.done()) == (1, False)
    queue.done(key)
    assert await waiting == ("a", NORMAL_PRIORITY)


async def test_edit_overtakes_a_backlog_of_five_thousand_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(5000):
        queue.add(f"old-{number}", LOW_PRIORITY)
    queue.add("edited", NORMAL_PRIORITY)
    queue.add("old-4999", NORMAL_PRIORITY)
    assert [await take_key(queue), await take_key(queue), await take_key(queue)] == [
        "edited",
        "old-4999",
        "old-0",
    ]
    assert len(queue) == 4998


async def test_lower_priority_does_not_lower_a_waiting_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", NORMAL_PRIORITY)
    queue.add("b", NORMAL_PRIORITY)
    queue.add("a", LOW_PRIORITY)
    assert await take_key(queue) == "a"


@pytest.mark.looptime
async def test_of_two_delays_the_earlier_counts(looptime: object) -> None:
    queue: WorkQueue[str] = WorkQueue()
    start = asyncio.get_running_loop().time()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    await take_key(queue)
    assert asyncio.get_running_loop().time() - start == pytest.approx(3, abs=0.01)
    assert not queue._due_times


@pytest.mark.looptime
async def test_back_off_doubles_from_5_ms_to_1000_s_and_is_reset_by_success() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waits = [queue.add_rate_limited("a") for _ in range(20)]
    assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
    assert waits[-1] == 1000.0
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.005


@pytest.mark.looptime
async def test_back_off_and_rate_limit_can_be_chosen() -> None:
    queue: WorkQueue[str] = WorkQueue(
        backoff=Backoff(initial_seconds=1, max_seconds=3),
        rate_limit=RateLimit(per_second=0.5, burst=2),
    )
    # The bucket has two tokens, and one more every two seconds.
    assert [queue.add_rate_limited(key) for key in "aaabcd"] == [1, 2, 3, 4, 6, 8]
    await asyncio.sleep(20)
    assert queue.add_rate_limited("e") == 1


@pytest.mark.looptime
async def test_key_that_is_taken_early_loses_its_delay() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add("a")
    queue.done(await take_key(queue))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await queue.get()


async def test_cancelled_worker_passes_its_notification_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == ("a", NORMAL_PRIORITY)


async def test_close_ends_every_worker_and_accepts_no_more_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*workers) == [None, None, None]
    queue.add("a")
    assert len(queue) == 0


@pytest.mark.looptime
async def test_dropped_delays_do_not_accumulate() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5000):
        queue.add_after("a", 3600)
        queue.add("a")
        queue.done(await take_key(queue))
    assert len(queue._due_heap) < 200


async def test_queue_that_does_not_accept_drops_keys() -> None:
    queue: WorkQueue[str] = WorkQueue(accepting=False)
    queue.add("a")
    queue.add_after("b", 0.01)
    assert (len(queue), queue._due_times) == (0, {})
    queue.accepting = True
    queue.add("a")
    assert await take_key(queue) == "a"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "later", "fail", "cancel", "pass"]),
        st.sampled_from("abcd"),
        st.integers(0, 4),
        st.sampled_from([LOW_PRIORITY, NORMAL_PRIORITY]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, workers=st.integers(1, 6), fails=st.sets(st.integers(0, 30)))
def test_generated_schedules_never_run_a_key_twice_at_once_and_lose_no_key(
    steps: list[tuple[str, str, int, int]], workers: int, fails: set[int]
) -> None:
    asyncio.run(run_schedule(steps, workers, fails))


async def run_schedule(
    steps: list[tuple[str, str, int, int]], workers: int, fails: set[int]
) -> None:
    queue: WorkQueue[str] = WorkQueue()
    running: Counter[str] = Counter()
    added_at: dict[str, int] = {}
    processed_at: dict[str, int] = {}
    clock = 0

    async def work() -> None:
        nonlocal clock
        while (entry := await queue.get()) is not None:
            key = entry[0]
            running[key] += 1
            assert running[key] == 1, f"{key} runs twice at once"
            clock += 1
            processed_at[key] = clock
            try:
                for _ in range(ord(key) - ord("a") + 1):
                    await asyncio.sleep(0)
                if clock in fails:
                    queue.add_after(key, 0.0001)
            finally:
                running[key] -= 1
                queue.done(key)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for action, key, pauses, priority in steps:
        clock += 1
        if action == "add":
            added_at[key] = clock
            queue.add(key, priority)
        elif action == "later":
            added_at[key] = clock
            queue.add_after(key, 0.0001 * pauses, priority)
        elif action == "cancel" and len(tasks) > 1:
            idle = tasks.pop()
            idle.cancel()
            await asyncio.gather(idle, return_exceptions=True)
            tasks.append(asyncio.create_task(work()))
        for _ in range(pauses):
            await asyncio.sleep(0)
    while len(queue) or queue._due_times or not queue.idle.is_set():
        for task in tasks:
            assert not task.done(), task
        await asyncio.sleep(0.0002)
    queue.close()
    await asyncio.gather(*tasks)
    assert all(processed_at[key] > added_at[key] for key in added_at), (added_at, processed_at)
