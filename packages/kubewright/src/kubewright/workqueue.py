"""A queue of keys: each at most once, never two workers on one key, delays, back-off, and priorities.

    add -> waiting (by priority, then age) -> get -> in work -> done
             ^ delayed until its time             | added meanwhile: waits again as soon as it is done

A key that is taken up forgets a delay that was still running: the reconcile sees the present and asks anew.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count
from typing import Generic, TypeVar

from .metrics import QueueMetrics

K = TypeVar("K")

NORMAL, LOW = 0, -100
"""LOW is for the first list and resyncs, as in controller-runtime; a person's edit is NORMAL and overtakes them."""

FIRST_BACKOFF_SECONDS = 0.005
LONGEST_BACKOFF_SECONDS = 1000.0


class WorkQueue(Generic[K]):
    """For one event loop; nothing here awaits but `get` and `drained`."""

    def __init__(self, metrics: QueueMetrics | None = None, *, open: bool = True) -> None:
        """`open=False` takes nothing until it is set: a standby would only pile up keys."""
        self.metrics = metrics
        if metrics is not None:
            metrics.unfinished = self.unfinished
        self.loop = asyncio.get_running_loop()
        self.order = count()
        self.heap: list[tuple[int, int, K]] = []
        self.waiting: dict[K, tuple[int, float]] = {}
        """Priority and the time it was added, of each key that waits."""
        self.working: dict[K, float] = {}
        self.again: dict[K, int] = {}
        self.delays: dict[K, tuple[float, int]] = {}
        self.timers: list[tuple[float, int, K]] = []
        self.alarm: asyncio.TimerHandle | None = None
        self.failures: dict[K, int] = {}
        self.getters: deque[asyncio.Future[None]] = deque()
        self.idle = asyncio.Event()
        self.idle.set()
        self.open = open
        self.closed = False

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, key: K, priority: int = NORMAL) -> None:
        """Let the key be worked on, once, as soon as there is a worker; a higher priority than it waits with lifts it."""
        if self.closed or not self.open:
            return
        if key in self.working:
            self.again[key] = max(priority, self.again.get(key, priority))
            return
        before = self.waiting.get(key)
        if before is not None and before[0] >= priority:
            return
        since = self.loop.time() if before is None else before[1]
        self.waiting[key] = (priority, since)
        heapq.heappush(self.heap, (-priority, next(self.order), key))
        if self.metrics:
            if before is None:
                self.metrics.added(priority)
            else:
                self.metrics.lifted(before[0], priority)
        self.wake_one()

    def add_after(self, key: K, seconds: float, priority: int = NORMAL) -> None:
        """The same, later. Of two delays of one key the earlier counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        due = self.loop.time() + seconds
        known = self.delays.get(key)
        if self.closed or not self.open or (known is not None and known[0] <= due):
            return
        self.delays[key] = (due, priority)
        if self.metrics:
            self.metrics.retried()
        heapq.heappush(self.timers, (due, next(self.order), key))
        if len(self.timers) > 2 * len(self.delays) + 64:
            # Delays that were forgotten or overtaken stay in the heap until their time; they may not pile up.
            self.timers = [(due, next(self.order), each) for each, (due, _) in self.delays.items()]
            heapq.heapify(self.timers)
        self.set_alarm()

    def add_backed_off(self, key: K, priority: int = NORMAL) -> float:
        """The same after this key's own back-off, which doubles with each failure since `forget`; returns the seconds."""
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 30), LONGEST_BACKOFF_SECONDS)
        self.add_after(key, seconds, priority)
        return seconds

    def forget(self, key: K) -> None:
        """The key did well: its back-off starts anew."""
        self.failures.pop(key, None)

    async def get(self) -> tuple[K, int] | None:
        """The next key and its priority; None when the queue is closed."""
        while not self.closed:
            while self.heap:
                negative, _, key = heapq.heappop(self.heap)
                entry = self.waiting.get(key)
                if entry is not None and entry[0] == -negative:
                    return self.take(key, *entry)
            getter = self.loop.create_future()
            self.getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                self.give_up(getter)
                raise
        return None

    def take(self, key: K, priority: int, since: float) -> tuple[K, int]:
        """Move the key from waiting to in work."""
        del self.waiting[key]
        self.delays.pop(key, None)
        started = self.loop.time()
        self.working[key] = started
        self.idle.clear()
        if self.metrics:
            self.metrics.taken(priority, started - since)
        return key, priority

    def give_up(self, getter: asyncio.Future[None]) -> None:
        """A worker that was cancelled while waiting leaves; a wake-up that it already had goes to the next one."""
        if getter.done() and not getter.cancelled():
            self.wake_one()
        elif getter in self.getters:
            self.getters.remove(getter)

    def done(self, key: K) -> None:
        """The worker is finished with the key; if it was added meanwhile it waits again."""
        started = self.working.pop(key)
        if self.metrics:
            self.metrics.finished(self.loop.time() - started)
        if key in self.again:
            self.add(key, self.again.pop(key))
        if not self.working:
            self.idle.set()

    def wake_one(self) -> None:
        """Let one waiting worker look."""
        while self.getters:
            getter = self.getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def set_alarm(self) -> None:
        """One timer for all delays: the earliest."""
        due = self.timers[0][0]
        if self.alarm is None or self.alarm.when() > due:
            if self.alarm is not None:
                self.alarm.cancel()
            self.alarm = self.loop.call_at(due, self.ring)

    def ring(self) -> None:
        """Move every key whose time has come from delayed to waiting."""
        self.alarm = None
        now = self.loop.time()
        while self.timers and self.timers[0][0] <= now:
            due, _, key = heapq.heappop(self.timers)
            delay = self.delays.get(key)
            if delay is not None and delay[0] == due:
                del self.delays[key]
                self.add(key, delay[1])
        if self.timers:
            self.set_alarm()

    def unfinished(self) -> list[float]:
        """For how many seconds each key in work has been so."""
        now = self.loop.time()
        return [now - started for started in self.working.values()]

    def close(self) -> None:
        """Hand out nothing more; every waiting worker gets None."""
        self.closed = True
        if self.alarm is not None:
            self.alarm.cancel()
        for getter in self.getters:
            if not getter.done():
                getter.set_result(None)
        self.getters.clear()

    async def drained(self) -> None:
        """Wait until no key is in work."""
        await self.idle.wait()
