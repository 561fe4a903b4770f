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

SETTLE_SECONDS = 1.0
PAUSE_SECONDS = 5.0
REST_PER_LOOK = 4.0


class Rhythm:
    """The times of one repeated look."""

    def __init__(
        self,
        interval_seconds: float,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds, self.settle_seconds, self.pause_seconds, self.clock = interval_seconds, settle_seconds, pause_seconds, clock
        self.asked = asyncio.Event()
        self.started = self.ended = clock() - pause_seconds
        self.failures = 0

    def soon(self) -> None:
        """Something has changed."""
        self.asked.set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Around each look; one that raises has failed."""
        # What is asked for from now on, this look may have missed.
        self.asked.clear()
        self.started = self.clock()
        self.failures += 1
        try:
            yield
            self.failures = 0
        finally:
            self.ended = self.clock()

    async def keep(self, look: Callable[[], Awaitable[None]]) -> NoReturn:
        """Look again and again, until cancelled."""
        while True:
            await look()
            await self.next()

    async def next(self) -> None:
        """Return when it is time for the next look."""
        if self.failures:
            await self.sleep_until(self.ended + self.patience_seconds())
            return
        try:
            await asyncio.wait_for(self.asked.wait(), max(0.001, self.started + self.interval_seconds - self.clock()))
        except TimeoutError:
            return
        rested_at = max(self.started + self.pause_seconds, self.ended + REST_PER_LOOK * (self.ended - self.started))
        await self.sleep_until(max(self.clock() + self.settle_seconds, rested_at))

    def patience_seconds(self) -> float:
        """How long to wait after so many failures."""
        return min(self.interval_seconds, self.pause_seconds * 2.0 ** min(self.failures - 1, 10))

    async def sleep_until(self, moment: float) -> None:
        """Sleep until the clock shows that moment."""
        await asyncio.sleep(max(0.0, moment - self.clock()))
