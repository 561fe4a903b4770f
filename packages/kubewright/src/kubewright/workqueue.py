"""A queue of keys: each key at most once, never two workers on one key, with delays, back-off and
priorities.

    add -> waiting (by priority, then age) -> get -> processing -> done
             ^ delayed until its time                | added meanwhile: keeps its place, and can be
                                                     | taken after done

When a worker takes a key, the pending delay of that key is dropped: the reconcile sees the current
state and asks for a new delay if it needs one.

The behaviour is that of controller-runtime's priority queue, specification by specification
(`tests/test_workqueue_specs.py`).
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from itertools import count
from typing import Generic, TypeVar

from msgspec import Struct

from .errors import ConfigError
from .loop_turns import LoopTurns
from .metrics import QueueMetrics

K = TypeVar("K")

NORMAL_PRIORITY, LOW_PRIORITY = 0, -100
"""LOW is for the first list and for resyncs, as in controller-runtime. An edit by a user has
NORMAL and overtakes them."""


class Backoff(Struct, frozen=True):
    """The delay before an object is retried: doubled with each failure, reset by success.

    The defaults are those of client-go's ItemExponentialFailureRateLimiter in a controller.
    """

    initial_seconds: float = 0.005
    max_seconds: float = 1000.0

    def __post_init__(self) -> None:
        if not 0 < self.initial_seconds <= self.max_seconds < math.inf:
            raise ConfigError(f"{self}: 0 < initial_seconds <= max_seconds must hold")

    def delay_seconds(self, failures: int) -> float:
        """The delay after so many failures before this one."""
        # The exponent is limited because 2.0 ** 1024 overflows.
        return min(self.initial_seconds * 2.0 ** min(failures, 60), self.max_seconds)


class RateLimit(Struct, frozen=True):
    """Retries per second of all objects together, and how many may come at once.

    It is client-go's BucketRateLimiter: a retry waits for the longer of back-off and rate limit.
    """

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not (0 < self.per_second < math.inf and self.burst >= 1):
            raise ConfigError(f"{self}: per_second must be positive, and burst at least 1")


class _TokenBucket:
    def __init__(self, limit: RateLimit, now: float) -> None:
        self._limit, self._tokens, self._refilled_at = limit, float(limit.burst), now

    def reserve(self, now: float) -> float:
        """Take a token, and return the seconds until it is there."""
        elapsed, self._refilled_at = now - self._refilled_at, now
        self._tokens = min(self._limit.burst, self._tokens + elapsed * self._limit.per_second) - 1
        return max(0.0, -self._tokens / self._limit.per_second)


class WorkQueue(Generic[K]):
    """For one event loop: only `get` awaits, so no lock is needed."""

    def __init__(
        self,
        metrics: QueueMetrics | None = None,
        *,
        accepting: bool = True,
        backoff: Backoff | None = None,
        rate_limit: RateLimit | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        """With `accepting=False`, keys are dropped until `accepting` is set to True: a standby has
        no workers, and the engine enqueues all objects when it starts. `turns` are shared with
        other queues of the event loop.
        """
        self._turns = turns or LoopTurns()
        self._metrics = metrics
        if metrics is not None:
            metrics.read_unfinished_seconds = self._unfinished_seconds
        self._loop = asyncio.get_running_loop()
        self._backoff = backoff or Backoff()
        self._bucket = _TokenBucket(rate_limit, self._loop.time()) if rate_limit else None
        self._sequence = count()
        self._heap: list[tuple[int, int, K]] = []
        """Negative priority, sequence and key. An entry counts if `_waiting` has that sequence."""
        self._waiting: dict[K, tuple[int, int, float]] = {}
        """Priority, sequence and time of the add of each key that waits for a worker."""
        self._processing: dict[K, float] = {}
        self._due_times: dict[K, tuple[float, int]] = {}
        """When each delayed key is added, and with which priority."""
        self._due_heap: list[tuple[float, int, K]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._failures: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.idle = asyncio.Event()
        """Set while no key is being processed."""
        self.idle.set()
        self.accepting = accepting
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, priority: int = NORMAL_PRIORITY) -> None:
        """Enqueue the key once. A waiting key is raised to a higher priority, never lowered.

        A raised key goes behind the others of its new priority.
        """
        if self.closed or not self.accepting:
            return
        due_entry = self._due_times.pop(key, None)
        if due_entry is not None and due_entry[1] > priority:
            priority = due_entry[1]
        entry, added_at = self._waiting.get(key), self._loop.time()
        if entry is not None:
            old_priority, _, added_at = entry
            if priority <= old_priority:
                return
        if self._metrics:
            if entry is None:
                self._metrics.adds.inc()
            else:
                self._metrics.depth_by_priority[old_priority].dec()
            self._metrics.depth_by_priority[priority].inc()
        sequence = next(self._sequence)
        self._waiting[key] = (priority, sequence, added_at)
        # A key that is being processed enters the heap when it is done, with its sequence of now.
        if key not in self._processing:
            self._make_available(key, priority, sequence)

    def _make_available(self, key: K, priority: int, sequence: int) -> None:
        # A raised key leaves its old entry in the heap; `get` skips it.
        heapq.heappush(self._heap, (-priority, sequence, key))
        if self._waiters:
            self._notify_waiter()

    def add_after(self, key: K, seconds: float, priority: int = NORMAL_PRIORITY) -> None:
        """Enqueue the key after a delay. Of two delays the earlier counts, and of two priorities
        the higher. A key that waits already has no use for a delay.
        """
        if seconds > 0 and self._metrics:
            self._metrics.retries.inc()
        if seconds <= 0 or key in self._waiting:
            self.add(key, priority)
            return
        if self.closed or not self.accepting:
            return
        due = self._loop.time() + seconds
        due_entry = self._due_times.get(key)
        if due_entry is not None:
            priority = max(priority, due_entry[1])
            if due_entry[0] <= due:
                self._due_times[key] = (due_entry[0], priority)
                return
        self._due_times[key] = (due, priority)
        heapq.heappush(self._due_heap, (due, next(self._sequence), key))
        if len(self._due_heap) > 2 * len(self._due_times) + 64:
            # Delays that were dropped stay in the heap until they are due. A key that often gets
            # a long delay and is then added earlier would make the heap grow without bound.
            self._due_heap = [
                (due, next(self._sequence), key) for key, (due, _) in self._due_times.items()
            ]
            heapq.heapify(self._due_heap)
        self._schedule_timer()

    def add_rate_limited(self, key: K, priority: int = NORMAL_PRIORITY) -> float:
        """Enqueue the key after its back-off, or later if there is a rate limit.

        Returns the delay in seconds.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = self._backoff.delay_seconds(failures)
        if self._bucket is not None:
            seconds = max(seconds, self._bucket.reserve(self._loop.time()))
        self.add_after(key, seconds, priority)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the back-off of the key."""
        self._failures.pop(key, None)

    async def get(self) -> tuple[K, int] | None:
        """The next key and its priority; None if the queue is closed."""
        # Before a key is taken, so that a key of a higher priority that is added meanwhile comes
        # first.
        await self._turns.wait()
        while not self.closed:
            while self._heap:
                _, sequence, key = heapq.heappop(self._heap)
                entry = self._waiting.get(key)
                if entry is not None and entry[1] == sequence:
                    return self._start_processing(key, entry[0], entry[2])
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
                await self._turns.wait()
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # This worker was already notified of a key: another one has to take it.
                    self._notify_waiter()
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        return None

    def _start_processing(self, key: K, priority: int, added_at: float) -> tuple[K, int]:
        del self._waiting[key]
        started = self._loop.time()
        self._processing[key] = started
        self.idle.clear()
        if self._metrics:
            self._metrics.depth_by_priority[priority].dec()
            self._metrics.queue_seconds.observe(started - added_at)
        return key, priority

    def done(self, key: K) -> None:
        """The worker has finished. A key that was added in the meantime has kept its place."""
        started = self._processing.pop(key)
        if self._metrics:
            self._metrics.work_seconds.observe(self._loop.time() - started)
        entry = self._waiting.get(key)
        if entry is not None:
            self._make_available(key, entry[0], entry[1])
        if not self._processing:
            self.idle.set()

    def _notify_waiter(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _schedule_timer(self) -> None:
        # One timer for all delays, at the earliest of them: a timer per key would be costly.
        due = self._due_heap[0][0]
        if self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due_heap and self._due_heap[0][0] <= now:
            due, _, key = heapq.heappop(self._due_heap)
            due_entry = self._due_times.get(key)
            if due_entry is not None and due_entry[0] == due:
                self.add(key, due_entry[1])
        if self._due_heap:
            self._schedule_timer()

    def _unfinished_seconds(self) -> list[float]:
        now = self._loop.time()
        return [now - started for started in self._processing.values()]

    def close(self) -> None:
        """Return no more keys: every waiting worker gets None."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
