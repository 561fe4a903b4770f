"""The manager, with a runnable that writes how long the event loop stalls: one line per second.

A line has the monotonic time, the longest stall of that second, and the CPU time of the loop's
thread during that stall, both in milliseconds. If they differ, the machine ran other processes.

The runnable wakes up 100 times a second, which costs CPU. SIGUSR1 pauses and continues it.
If STALL_STACKS names a file, a thread writes the stack of the event loop to it during a stall.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from kubewright import Manager, command
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

_TICK_SECONDS = 0.01
_STACK_AFTER_SECONDS = 0.04


class StallStacks:
    """Writes the stack of the event loop's thread, several times for each stall."""

    def __init__(self, path: Path) -> None:
        self._path, self._loop_thread = path, threading.get_ident()
        self.ticked_at = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with self._path.open("a", buffering=1) as file:
            while True:
                time.sleep(_TICK_SECONDS)
                stalled, now = time.monotonic() - self.ticked_at, time.monotonic()
                # A longer time means that the stall log is paused.
                if _STACK_AFTER_SECONDS < stalled < 1:
                    stack = traceback.format_stack(sys._current_frames()[self._loop_thread])
                    file.write(f"{now:.2f} {1000 * stalled:.0f} ms\n{''.join(stack[-12:])}\n")


class StallLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        stacks = os.environ.get("STALL_STACKS", "")
        self._stacks = StallStacks(Path(stacks)) if stacks else None

    async def run(self) -> None:
        is_active = asyncio.Event()
        is_active.set()
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, lambda: is_active.clear() if is_active.is_set() else is_active.set()
        )
        with self._path.open("a", buffering=1) as file:
            second, longest, longest_cpu = time.monotonic(), 0.0, 0.0
            while True:
                await is_active.wait()
                began, cpu = time.monotonic(), time.thread_time()
                await asyncio.sleep(_TICK_SECONDS)
                now = time.monotonic()
                if self._stacks is not None:
                    self._stacks.ticked_at = now
                if (stall := now - began - _TICK_SECONDS) > longest:
                    longest, longest_cpu = stall, time.thread_time() - cpu
                if now - second >= 1:
                    file.write(f"{now:.2f} {longest * 1000:.1f} {longest_cpu * 1000:.1f}\n")
                    second, longest, longest_cpu = now, 0.0, 0.0


def _build(manager: Manager, settings: Settings) -> None:
    build(manager, settings)
    manager.add_runnable(StallLog(Path(os.environ["STALLS"])))


if __name__ == "__main__":
    raise SystemExit(command.run(Settings, _build, name="vsphere-operators"))
