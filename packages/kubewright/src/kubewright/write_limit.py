"""How many writes run at the same time, and which waiting write comes next.

Why a lower limit for low priority?  At the start of a manager, thousands of first statuses wait. If
    128 of them were at the API server at once, each would take a third of a second, and so would
    the edit of a user and its status. With 24, the API server is as busy, and each write is faster.
What has a low priority?  The reconciles of the first list, of resyncs, and of changes that are not
    urgent. The engine sets it for the task of the worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from types import TracebackType

_MAX_LOW_PRIORITY_WRITES = 24

has_low_priority: ContextVar[bool] = ContextVar("has_low_priority", default=False)
"""Whether the writes of the current task may wait for those of others."""


class WriteLimit:
    """Use it as an asynchronous context manager, once for each write."""

    def __init__(self, max_writes: int, max_low_priority: int = _MAX_LOW_PRIORITY_WRITES) -> None:
        self._max_writes, self._max_low_priority = max_writes, max_low_priority
        self._running = self._running_low = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_low: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        is_low = has_low_priority.get()
        waiting = self._waiting_low if is_low else self._waiting
        if not waiting and self._has_room(is_low):
            self._start(is_low)
            return
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Its turn came at the moment of the cancellation: the next write takes it.
                self._end(is_low)
            elif turn in waiting:
                # `_end` may have dropped it before: it skips turns that were cancelled.
                waiting.remove(turn)
            raise

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(has_low_priority.get())

    def _has_room(self, is_low: bool) -> bool:
        if self._running >= self._max_writes:
            return False
        return not is_low or (self._running_low < self._max_low_priority and not self._waiting)

    def _start(self, is_low: bool) -> None:
        self._running += 1
        self._running_low += is_low

    def _end(self, is_low: bool) -> None:
        self._running -= 1
        self._running_low -= is_low
        for waiting, is_low_queue in ((self._waiting, False), (self._waiting_low, True)):
            while waiting and self._has_room(is_low_queue):
                turn = waiting.popleft()
                if not turn.done():
                    self._start(is_low_queue)
                    turn.set_result(None)
