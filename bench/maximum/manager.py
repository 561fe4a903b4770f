"""The manager, with a service that writes how long the event loop stalls: one line per second.

A line has the monotonic time, the longest stall of that second, and the CPU time of the loop's
thread in it, in milliseconds. Where the two differ, the machine ran other processes.

The service wakes up 100 times a second, which costs CPU. SIGUSR1 pauses and continues it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from kubewright import Manager, command
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

_TICK_SECONDS = 0.01


class StallLog:
    def __init__(self, path: Path) -> None:
        self._path = path

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
