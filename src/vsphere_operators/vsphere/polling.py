"""When to poll what vCenter does not push: by interval, and soon after a change was noticed.

    schedule = PollSchedule(60)
    await schedule.run(poll)          # every 60 s, or about a second after schedule.trigger()

How soon?  One second after the first trigger: changes come in bursts, and one poll covers them all.
How often at most?  Every 5 s, and for at most a fifth of the time: a poll that takes 3 s is
    followed by a pause of 12 s. So a slow vCenter, or one that changes all the time, is not polled
    without pause.
What after a failure?  Another poll after 5, 10, 20... seconds, at most the interval. A trigger does
    not shorten this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

_DEBOUNCE_SECONDS = 1.0
_MIN_INTERVAL_SECONDS = 5.0
_IDLE_PER_POLL_RATIO = 4.0


class PollSchedule:
    """The timing of one repeated poll."""

    def __init__(
        self,
        interval_seconds: float,
        *,
        debounce_seconds: float = _DEBOUNCE_SECONDS,
        min_interval_seconds: float = _MIN_INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds, self._debounce_seconds = interval_seconds, debounce_seconds
        self._min_interval_seconds, self.clock = min_interval_seconds, clock
        self.triggered = asyncio.Event()
        self.started_at = self.ended_at = clock() - min_interval_seconds
        self.failures = 0

    def trigger(self) -> None:
        self.triggered.set()

    @contextmanager
    def track_poll(self) -> Iterator[None]:
        """Record the start, the end and the success of a poll."""
        # A trigger from now on may be for a change that this poll misses.
        self.triggered.clear()
        self.started_at = self.clock()
        self.failures += 1
        try:
            yield
            self.failures = 0
        finally:
            self.ended_at = self.clock()

    async def run(self, poll: Callable[[], Awaitable[None]]) -> NoReturn:
        while True:
            await poll()
            await self.wait_for_next()

    async def wait_for_next(self) -> None:
        if self.failures:
            backoff = self._min_interval_seconds * 2.0 ** min(self.failures - 1, 10)
            await self._sleep_until(self.ended_at + min(self.interval_seconds, backoff))
            return
        until_next = max(0.001, self.started_at + self.interval_seconds - self.clock())
        try:
            # Not wait_for: before Python 3.12 it ignores a cancellation that arrives together with
            # a trigger, and the manager would not end before its graceful-shutdown timeout.
            async with asyncio.timeout(until_next):
                await self.triggered.wait()
        except TimeoutError:
            return
        earliest = max(
            self.started_at + self._min_interval_seconds,
            self.ended_at + _IDLE_PER_POLL_RATIO * (self.ended_at - self.started_at),
        )
        await self._sleep_until(max(self.clock() + self._debounce_seconds, earliest))

    async def _sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.clock()))


def changed_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """The keys with another value, or with a value in only one of the two."""
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]
