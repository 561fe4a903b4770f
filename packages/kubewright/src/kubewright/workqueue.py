"""A queue of keys: each key at most once, never two workers on one key, with delays, back-off and
priorities.

    add -> waiting (by priority, then age) -> get -> processing -> done
             ^ delayed until its time                | added meanwhile: waits again after done

When a worker takes a key, the pending delay of that key is dropped: the reconcile sees the current
state and asks for a new delay if it needs one.
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
"""LOW is for the first list and for resyncs, as in controller-runtime. An edit by a user has
NORMAL and overtakes them."""

# client-go's DefaultTypedControllerRateLimiter.
_INITIAL_BACKOFF_SECONDS = 0.005
MAX_BACKOFF_SECONDS = 1000.0


class WorkQueue(Generic[K]):
    """For one event loop: only `get` awaits, so no lock is needed."""

    def __init__(self, metrics: QueueMetrics | None = None, *, accepting: bool = True) -> None:
        """With `accepting=False`, keys are dropped until `accepting` is set to True: a standby has
        no workers, and the engine enqueues all objects when it starts.
        """
        self._metrics = metrics
        if metrics is not None:
            metrics.read_unfinished_seconds = self._unfinished_seconds
        self._loop = asyncio.get_running_loop()
        self._sequence = count()
        self._heap: list[tuple[int, int, K]] = []
        self._waiting: dict[K, tuple[int, float]] = {}
        """Priority of each waiting key, and when it was added."""
        self._processing: dict[K, float] = {}
        self._added_while_processing: dict[K, int] = {}
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
        """Enqueue the key once. A waiting key is raised to a higher priority, never lowered."""
        if self.closed or not self.accepting:
            return
        if key in self._processing:
            self._added_while_processing[key] = max(
                priority, self._added_while_processing.get(key, priority)
            )
            return
        waiting_entry = self._waiting.get(key)
        if waiting_entry is not None and waiting_entry[0] >= priority:
            return
        since = self._loop.time() if waiting_entry is None else waiting_entry[1]
        self._waiting[key] = (priority, since)
        # A raised key leaves its old entry in the heap; `get` skips it.
        heapq.heappush(self._heap, (-priority, next(self._sequence), key))
        if self._metrics:
            if waiting_entry is None:
                self._metrics.adds.inc()
            else:
                self._metrics.depth_by_priority[waiting_entry[0]].dec()
            self._metrics.depth_by_priority[priority].inc()
        self._notify_waiter()

    def add_after(self, key: K, seconds: float, priority: int = NORMAL_PRIORITY) -> None:
        """Enqueue the key after a delay. Of two delays of one key the earlier counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        due = self._loop.time() + seconds
        due_entry = self._due_times.get(key)
        if self.closed or not self.accepting or (due_entry is not None and due_entry[0] <= due):
            return
        self._due_times[key] = (due, priority)
        if self._metrics:
            self._metrics.retries.inc()
        heapq.heappush(self._due_heap, (due, next(self._sequence), key))
        if len(self._due_heap) > 2 * len(self._due_times) + 64:
            # Delays that were dropped stay in the heap until they are due. A key that often gets
            # a long delay and is then woken earlier would make the heap grow without bound.
            self._due_heap = [
                (due, next(self._sequence), key) for key, (due, _) in self._due_times.items()
            ]
            heapq.heapify(self._due_heap)
        self._schedule_timer()

    def add_rate_limited(self, key: K, priority: int = NORMAL_PRIORITY) -> float:
        """Enqueue the key after its back-off, which doubles with each failure since `forget`.

        Returns the delay in seconds.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is limited because 2.0 ** 1024 overflows.
        seconds = min(_INITIAL_BACKOFF_SECONDS * 2.0 ** min(failures, 30), MAX_BACKOFF_SECONDS)
        self.add_after(key, seconds, priority)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the back-off of the key."""
        self._failures.pop(key, None)

    async def get(self) -> tuple[K, int] | None:
        """The next key and its priority; None if the queue is closed."""
        while not self.closed:
            while self._heap:
                negative_priority, _, key = heapq.heappop(self._heap)
                entry = self._waiting.get(key)
                if entry is not None and entry[0] == -negative_priority:
                    return self._start_processing(key, *entry)
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # This worker was already notified of a key: another one has to take it.
                    self._notify_waiter()
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        return None

    def _start_processing(self, key: K, priority: int, since: float) -> tuple[K, int]:
        del self._waiting[key]
        self._due_times.pop(key, None)
        started = self._loop.time()
        self._processing[key] = started
        self.idle.clear()
        if self._metrics:
            self._metrics.depth_by_priority[priority].dec()
            self._metrics.queue_seconds.observe(started - since)
        return key, priority

    def done(self, key: K) -> None:
        """The worker has finished. A key that was added in the meantime waits again."""
        started = self._processing.pop(key)
        if self._metrics:
            self._metrics.work_seconds.observe(self._loop.time() - started)
        if key in self._added_while_processing:
            self.add(key, self._added_while_processing.pop(key))
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
                del self._due_times[key]
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
