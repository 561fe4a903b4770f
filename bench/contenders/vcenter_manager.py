"""The manager with one more service, which records how long the event loop stalls."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from kubewright import Manager, command
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

TICK_SECONDS = 0.005
_STARTUP_SECONDS = 60.0
_WRITE_SECONDS = 1.0


class StallRecorder:
    """Reads the clock often, and writes the longest gaps into the file of STALLS."""

    async def run(self) -> None:
        path, began, noted = Path(os.environ["STALLS"]), time.monotonic(), 0.0
        longest = [0.0, 0.0]
        last = began
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            late = now - began > _STARTUP_SECONDS
            longest[late] = max(longest[late], now - last - TICK_SECONDS)
            last = now
            if now - noted > _WRITE_SECONDS:
                noted = now
                await asyncio.to_thread(path.write_text, f"{longest[0]:.4f} {longest[1]:.4f}")


def _build_with_stall_recorder(manager: Manager, settings: Settings) -> None:
    build(manager, settings)
    manager.add_runnable(StallRecorder())


if __name__ == "__main__":
    raise SystemExit(command.run(Settings, _build_with_stall_recorder, name="vsphere-operators"))
