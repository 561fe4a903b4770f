"""Divides the time of the event loop between reconciles and everything else.

What is the problem?  A reconcile that has nothing to write never waits. At the start, the workers
    of all controllers are in that state: in each iteration of the event loop, each of them runs one
    reconcile. With ten controllers an iteration took 180 ms, in which watches, the renewal of the
    lease and probes wait.
What is done instead?  Once reconciles have run for 10 ms in one iteration, further workers wait in
    line for the next iteration.
And a single reconcile that takes longer?  It cannot be interrupted. `async` code that computes for
    long belongs in a thread: see Controller.
"""

from __future__ import annotations

import asyncio
from collections import deque

_TURN_SECONDS = 0.01
# More reconciles than this do not fit into a turn, so further workers are not woken for it.
_WOKEN_PER_TURN = 64


class LoopTurns:
    """All controllers of an event loop share one instance."""

    def __init__(self, turn_seconds: float = _TURN_SECONDS) -> None:
        self._turn_seconds = turn_seconds
        self._loop = asyncio.get_running_loop()
        # When the first reconcile of this iteration of the loop began; None before it.
        self._began: float | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Workers that were woken after the turn of this iteration was used up, in their order.
        self._postponed: list[asyncio.Future[None]] = []
        # The number of workers that were woken and have not run yet.
        self._woken = 0
        self._end_scheduled = False

    async def wait(self) -> None:
        """Return if a reconcile may begin in this iteration of the loop, or else in a later one."""
        if self._waiting or self._woken or self._is_used_up():
            await self._wait_in_line()

    async def _wait_in_line(self) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        while True:
            self._schedule_end()
            try:
                await waiter
            finally:
                # A waiter that was cancelled stays in the line, and is skipped.
                if waiter.done() and not waiter.cancelled():
                    self._woken -= 1
            if not self._is_used_up():
                return
            waiter = self._loop.create_future()
            self._postponed.append(waiter)

    def _is_used_up(self) -> bool:
        now = self._loop.time()
        if self._began is None:
            self._began = now
            self._schedule_end()
        return now - self._began >= self._turn_seconds

    def _schedule_end(self) -> None:
        if not self._end_scheduled:
            self._end_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Called in the next iteration of the loop, before the workers that are woken now."""
        self._end_scheduled, self._began = False, None
        self._waiting.extendleft(reversed(self._postponed))
        self._postponed.clear()
        while self._waiting and self._woken < _WOKEN_PER_TURN:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
        if self._waiting:
            self._schedule_end()
