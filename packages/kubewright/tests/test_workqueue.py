"""The queue by itself: order, delays, back-off, and generated schedules against the one promise, never two workers on a key."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.workqueue import LOW_PRIORITY, MAX_BACKOFF_SECONDS, NORMAL_PRIORITY, WorkQueue


async def take_key(queue: WorkQueue[str]) -> str:
    taken = await queue.get()
    assert taken is not None
    return taken[0]


async def test_a_key_added_many_times_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await take_key(queue) == "a"
    assert len(queue) == 0


async def test_a_key_added_while_in_work_waits_until_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await take_key(queue)
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 1


async def test_an_edit_overtakes_a_backlog_of_five_thousand_keys() -> None:
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


async def test_a_lower_priority_does_not_sink_a_waiting_key() -> None:
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
    assert not queue.delays


@pytest.mark.looptime
async def test_back_off_doubles_from_5_ms_to_1000_s_and_starts_anew_after_success() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waits = [queue.add_rate_limited("a") for _ in range(20)]
    assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
    assert waits[-1] == MAX_BACKOFF_SECONDS
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.005


@pytest.mark.looptime
async def test_a_key_that_is_taken_up_early_forgets_its_delay() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add("a")
    queue.done(await take_key(queue))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await queue.get()


async def test_a_cancelled_worker_passes_its_wake_up_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == ("a", NORMAL_PRIORITY)


async def test_closing_sends_every_worker_home_and_takes_nothing_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*workers) == [None, None, None]
    queue.add("a")
    assert len(queue) == 0


@pytest.mark.looptime
async def test_forgotten_delays_do_not_pile_up() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5000):
        queue.add_after("a", 3600)
        queue.add("a")
        queue.done(await take_key(queue))
    assert len(queue.delay_heap) < 200


async def test_a_queue_that_is_not_open_takes_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue(accepting=False)
    queue.add("a")
    queue.add_after("b", 0.01)
    assert (len(queue), queue.delays) == (0, {})
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
def test_generated_schedules_never_run_a_key_twice_at_once_and_lose_none(
    steps: list[tuple[str, str, int, int]], workers: int, fails: set[int]
) -> None:
    asyncio.run(run_schedule(steps, workers, fails))


async def run_schedule(
    steps: list[tuple[str, str, int, int]], workers: int, fails: set[int]
) -> None:
    queue: WorkQueue[str] = WorkQueue()
    running: Counter[str] = Counter()
    wanted: dict[str, int] = {}
    served: dict[str, int] = {}
    clock = 0

    async def work() -> None:
        nonlocal clock
        while (taken := await queue.get()) is not None:
            key = taken[0]
            running[key] += 1
            assert running[key] == 1, f"{key} runs twice at once"
            clock += 1
            served[key] = clock
            try:
                for _ in range(ord(key) - ord("a") + 1):
                    await asyncio.sleep(0)
                if clock in fails:
                    queue.add_after(key, 0.0001)
            finally:
                running[key] -= 1
                queue.done(key)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for what, key, pauses, priority in steps:
        clock += 1
        if what == "add":
            wanted[key] = clock
            queue.add(key, priority)
        elif what == "later":
            wanted[key] = clock
            queue.add_after(key, 0.0001 * pauses, priority)
        elif what == "cancel" and len(tasks) > 1:
            idle = tasks.pop()
            idle.cancel()
            await asyncio.gather(idle, return_exceptions=True)
            tasks.append(asyncio.create_task(work()))
        for _ in range(pauses):
            await asyncio.sleep(0)
    while len(queue) or queue.delays or not queue.idle.is_set():
        for task in tasks:
            assert not task.done(), task
        await asyncio.sleep(0.0002)
    queue.close()
    await asyncio.gather(*tasks)
    assert all(served[key] > wanted[key] for key in wanted), (wanted, served)
