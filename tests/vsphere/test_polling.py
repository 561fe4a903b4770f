from __future__ import annotations

import asyncio

import pytest

from vsphere_operators.vsphere.polling import PollSchedule


class PollRecorder:
    """Records the times of polls; looptime advances the clock of the event loop."""

    def __init__(
        self, rhythm: PollSchedule, poll_seconds: float = 0.0, failure_count: int = 0
    ) -> None:
        self.schedule, self.poll_seconds, self.failure_count, self.poll_times = (
            rhythm,
            poll_seconds,
            failure_count,
            list[float](),
        )

    async def run(self, poll_count: int) -> list[float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while len(self.poll_times) < poll_count:
            self.poll_times.append(round(loop.time() - began, 1))
            try:
                with self.schedule.track_poll():
                    await asyncio.sleep(self.poll_seconds)
                    if len(self.poll_times) <= self.failure_count:
                        raise ValueError
            except ValueError:
                pass
            if len(self.poll_times) < poll_count:
                await self.schedule.wait_for_next()
        return self.poll_times


def make_schedule(interval_seconds: float) -> PollSchedule:
    return PollSchedule(interval_seconds, clock=asyncio.get_running_loop().time)


@pytest.mark.looptime
async def test_polls_by_interval() -> None:
    assert await PollRecorder(make_schedule(60)).run(3) == [0, 60, 120]


@pytest.mark.looptime
async def test_duration_of_a_poll_is_part_of_the_interval() -> None:
    assert await PollRecorder(make_schedule(60), poll_seconds=2).run(3) == [0, 60, 120]


@pytest.mark.looptime
async def test_trigger_brings_the_next_poll_forward() -> None:
    rhythm = make_schedule(60)
    asyncio.get_running_loop().call_later(20, rhythm.trigger)
    assert await PollRecorder(rhythm).run(3) == [0, 21, 81]


@pytest.mark.looptime
async def test_many_triggers_cause_one_poll() -> None:
    rhythm = make_schedule(60)
    for tenth in range(10):
        asyncio.get_running_loop().call_later(20 + tenth / 10, rhythm.trigger)
    assert await PollRecorder(rhythm).run(3) == [0, 21, 81]


@pytest.mark.looptime
async def test_constant_triggers_cause_a_poll_every_five_seconds() -> None:
    rhythm = make_schedule(60)
    for second in range(100):
        asyncio.get_running_loop().call_later(second / 2, rhythm.trigger)
    assert await PollRecorder(rhythm).run(5) == [0, 5, 10, 15, 20]


@pytest.mark.looptime
async def test_slow_poll_is_followed_by_a_long_pause() -> None:
    rhythm = make_schedule(60)
    for second in range(100):
        asyncio.get_running_loop().call_later(second / 2, rhythm.trigger)
    assert await PollRecorder(rhythm, poll_seconds=3).run(3) == [0, 15, 30]


@pytest.mark.looptime
async def test_trigger_during_a_poll_causes_another() -> None:
    rhythm = make_schedule(60)
    asyncio.get_running_loop().call_later(0.5, rhythm.trigger)
    assert await PollRecorder(rhythm, poll_seconds=1).run(2) == [0, 5]


@pytest.mark.looptime
async def test_backoff_grows_until_a_success() -> None:
    assert await PollRecorder(make_schedule(60), failure_count=5).run(8) == [
        0,
        5,
        15,
        35,
        75,
        135,
        195,
        255,
    ]


@pytest.mark.looptime
async def test_trigger_before_the_first_poll_is_enough() -> None:
    rhythm = make_schedule(60)
    asyncio.get_running_loop().call_later(3, rhythm.trigger)
    began = asyncio.get_running_loop().time()
    await rhythm.wait_for_next()
    assert asyncio.get_running_loop().time() - began == pytest.approx(4, abs=0.1)


@pytest.mark.looptime
@pytest.mark.parametrize("loop_iterations", range(4))
async def test_cancellation_at_the_moment_of_a_trigger_ends_the_loop(loop_iterations: int) -> None:
    schedule = make_schedule(60)
    polling = asyncio.create_task(PollRecorder(schedule).run(9))
    await asyncio.sleep(10)
    schedule.trigger()
    for _ in range(loop_iterations):
        await asyncio.sleep(0)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
