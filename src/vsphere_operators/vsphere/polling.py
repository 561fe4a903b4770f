"""When to look again at what vCenter does not push: by interval, and soon after somebody says that something has changed.

    rhythm = Rhythm(60)
    await rhythm.keep(look)                # every 60 s, or about a second after rhythm.soon(); look() works within rhythm.looking()

How soon is soon?  A second after the first word, since changes come in crowds and one look sees them all.
How often at most?  Every 5 s, and never more than a fifth of the time: a look that takes 3 s is followed by 12 s of rest. So a vCenter in
    which something changes all the time, or one that has become slow, is not asked without a pause.
What after a failed look?  It is tried again after 5, 10, 20... seconds, at most the interval; a word does not hurry it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

DEBOUNCE_SECONDS = 1.0
MIN_INTERVAL_SECONDS = 5.0
_IDLE_PER_POLL_RATIO = 4.0


class PollSchedule:
    """The times of one repeated look."""

    def __init__(
        self,
        interval_seconds: float,
        *,
        debounce_seconds: float = DEBOUNCE_SECONDS,
        min_interval_seconds: float = MIN_INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds, self.debounce_seconds, self.min_interval_seconds, self.clock = (
            interval_seconds,
            debounce_seconds,
            min_interval_seconds,
            clock,
        )
        self.triggered = asyncio.Event()
        self.started_at = self.ended_at = clock() - min_interval_seconds
        self.failures = 0

    def trigger(self) -> None:
        """Something has changed."""
        self.triggered.set()

    @contextmanager
    def track_poll(self) -> Iterator[None]:
        """Around each look; one that raises has failed."""
        # What is asked for from now on, this look may have missed.
        self.triggered.clear()
        self.started_at = self.clock()
        self.failures += 1
        try:
            yield
            self.failures = 0
        finally:
            self.ended_at = self.clock()

    async def run(self, look: Callable[[], Awaitable[None]]) -> NoReturn:
        """Look again and again, until cancelled."""
        while True:
            await look()
            await self.wait_for_next()

    async def wait_for_next(self) -> None:
        """Return when it is time for the next look."""
        if self.failures:
            await self._sleep_until(self.ended_at + self._backoff_seconds())
            return
        try:
            await asyncio.wait_for(
                self.triggered.wait(),
                max(0.001, self.started_at + self.interval_seconds - self.clock()),
            )
        except TimeoutError:
            return
        rested_at = max(
            self.started_at + self.min_interval_seconds,
            self.ended_at + _IDLE_PER_POLL_RATIO * (self.ended_at - self.started_at),
        )
        await self._sleep_until(max(self.clock() + self.debounce_seconds, rested_at))

    def _backoff_seconds(self) -> float:
        """How long to wait after so many failures."""
        return min(
            self.interval_seconds, self.min_interval_seconds * 2.0 ** min(self.failures - 1, 10)
        )

    async def _sleep_until(self, moment: float) -> None:
        """Sleep until the clock shows that moment."""
        await asyncio.sleep(max(0.0, moment - self.clock()))
