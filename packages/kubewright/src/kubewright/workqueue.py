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

NORMAL_PRIORITY, LOW_PRIORITY = 0, -100
"""LOW is for the first list and resyncs, as in controller-runtime; a person's edit is NORMAL and overtakes them."""

INITIAL_BACKOFF_SECONDS = 0.005
MAX_BACKOFF_SECONDS = 1000.0


class WorkQueue(Generic[K]):
    """For one event loop; nothing here awaits but `get` and `drained`."""

    def __init__(self, metrics: QueueMetrics | None = None, *, accepting: bool = True) -> None:
        """`open=False` takes nothing until it is set: a standby would only pile up keys."""
        self.metrics = metrics
        if metrics is not None:
            metrics.read_unfinished_seconds = self.unfinished_seconds
        self.loop = asyncio.get_running_loop()
        self.sequence = count()
        self._heap: list[tuple[int, int, K]] = []
        self.waiting: dict[K, tuple[int, float]] = {}
        """Priority and the time it was added, of each key that waits."""
        self.processing: dict[K, float] = {}
        self._added_while_processing: dict[K, int] = {}
        self.delays: dict[K, tuple[float, int]] = {}
        self.delay_heap: list[tuple[float, int, K]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.failures: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.idle = asyncio.Event()
        self.idle.set()
        self.accepting = accepting
        self.closed = False

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, key: K, priority: int = NORMAL_PRIORITY) -> None:
        """Let the key be worked on, once, as soon as there is a worker; a higher priority than it waits with lifts it."""
        if self.closed or not self.accepting:
            return
        if key in self.processing:
            self._added_while_processing[key] = max(
                priority, self._added_while_processing.get(key, priority)
            )
            return
        before = self.waiting.get(key)
        if before is not None and before[0] >= priority:
            return
        since = self.loop.time() if before is None else before[1]
        self.waiting[key] = (priority, since)
        heapq.heappush(self._heap, (-priority, next(self.sequence), key))
        if self.metrics:
            if before is None:
                self.metrics.on_add(priority)
            else:
                self.metrics.on_priority_raised(before[0], priority)
        self._notify_waiter()

    def add_after(self, key: K, seconds: float, priority: int = NORMAL_PRIORITY) -> None:
        """The same, later. Of two delays of one key the earlier counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        due = self.loop.time() + seconds
        known = self.delays.get(key)
        if self.closed or not self.accepting or (known is not None and known[0] <= due):
            return
        self.delays[key] = (due, priority)
        if self.metrics:
            self.metrics.on_retry()
        heapq.heappush(self.delay_heap, (due, next(self.sequence), key))
        if len(self.delay_heap) > 2 * len(self.delays) + 64:
            # Delays that were forgotten or overtaken stay in the heap until their time; they may not pile up.
            self.delay_heap = [
                (due, next(self.sequence), each) for each, (due, _) in self.delays.items()
            ]
            heapq.heapify(self.delay_heap)
        self._schedule_timer()

    def add_rate_limited(self, key: K, priority: int = NORMAL_PRIORITY) -> float:
        """The same after this key's own back-off, which doubles with each failure since `forget`; returns the seconds."""
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        seconds = min(INITIAL_BACKOFF_SECONDS * 2.0 ** min(failures, 30), MAX_BACKOFF_SECONDS)
        self.add_after(key, seconds, priority)
        return seconds

    def forget(self, key: K) -> None:
        """The key did well: its back-off starts anew."""
        self.failures.pop(key, None)

    async def get(self) -> tuple[K, int] | None:
        """The next key and its priority; None when the queue is closed."""
        while not self.closed:
            while self._heap:
                negative, _, key = heapq.heappop(self._heap)
                entry = self.waiting.get(key)
                if entry is not None and entry[0] == -negative:
                    return self._start_processing(key, *entry)
            getter = self.loop.create_future()
            self._waiters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                self._remove_waiter(getter)
                raise
        return None

    def _start_processing(self, key: K, priority: int, since: float) -> tuple[K, int]:
        """Move the key from waiting to in work."""
        del self.waiting[key]
        self.delays.pop(key, None)
        started = self.loop.time()
        self.processing[key] = started
        self.idle.clear()
        if self.metrics:
            self.metrics.on_get(priority, started - since)
        return key, priority

    def _remove_waiter(self, getter: asyncio.Future[None]) -> None:
        """A worker that was cancelled while waiting leaves; a wake-up that it already had goes to the next one."""
        if getter.done() and not getter.cancelled():
            self._notify_waiter()
        elif getter in self._waiters:
            self._waiters.remove(getter)

    def done(self, key: K) -> None:
        """The worker is finished with the key; if it was added meanwhile it waits again."""
        started = self.processing.pop(key)
        if self.metrics:
            self.metrics.on_done(self.loop.time() - started)
        if key in self._added_while_processing:
            self.add(key, self._added_while_processing.pop(key))
        if not self.processing:
            self.idle.set()

    def _notify_waiter(self) -> None:
        """Let one waiting worker look."""
        while self._waiters:
            getter = self._waiters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _schedule_timer(self) -> None:
        """One timer for all delays: the earliest."""
        due = self.delay_heap[0][0]
        if self.timer is None or self.timer.when() > due:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = self.loop.call_at(due, self.on_timer)

    def on_timer(self) -> None:
        """Move every key whose time has come from delayed to waiting."""
        self.timer = None
        now = self.loop.time()
        while self.delay_heap and self.delay_heap[0][0] <= now:
            due, _, key = heapq.heappop(self.delay_heap)
            delay = self.delays.get(key)
            if delay is not None and delay[0] == due:
                del self.delays[key]
                self.add(key, delay[1])
        if self.delay_heap:
            self._schedule_timer()

    def unfinished_seconds(self) -> list[float]:
        """For how many seconds each key in work has been so."""
        now = self.loop.time()
        return [now - started for started in self.processing.values()]

    def close(self) -> None:
        """Hand out nothing more; every waiting worker gets None."""
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
        for getter in self._waiters:
            if not getter.done():
                getter.set_result(None)
        self._waiters.clear()

    async def wait_until_idle(self) -> None:
        """Wait until no key is in work."""
        await self.idle.wait()
