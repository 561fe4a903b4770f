"""The manager with one more service, which logs how long the event loop stands still.

Run as a child process: `python -m support.manager_with_stalls` with the flags of the manager.
"""

from __future__ import annotations

import asyncio
import time

from kubewright import Manager, command
from kubewright.log import Log
from vsphere_operators.build import build
from vsphere_operators.settings.flags import Settings

LOG_MESSAGE = "the longest stall so far"
_TICK_SECONDS = 0.001


class StallLog:
    """Logs a stall that is longer than all before it.

    The CPU time of the event loop's own thread is measured as well: on a machine that other
    processes share, a short stall may take long.
    """

    async def run(self) -> None:
        log, longest = Log("stalls"), 0.0
        while True:
            began, cpu_began = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            stall = time.monotonic() - began - _TICK_SECONDS
            cpu = min(stall, time.thread_time() - cpu_began)
            if cpu > longest:
                longest = cpu
                log.info(LOG_MESSAGE, cpuMilliseconds=cpu * 1000, milliseconds=stall * 1000)


def _build_with_stall_log(manager: Manager, settings: Settings) -> None:
    build(manager, settings)
    manager.add_runnable(StallLog())


if __name__ == "__main__":
    raise SystemExit(command.run(Settings, _build_with_stall_log, name="vsphere-operators"))
