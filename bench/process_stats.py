"""CPU and memory of a process, read from outside. Linux only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads."""
    # The id of clock_getcpuclockid(3): the inverted pid and the type of the clock. It counts
    # nanoseconds; /proc/PID/stat counts hundredths of a second.
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


@dataclass(frozen=True)
class Memory:
    resident_bytes: int
    """Now (VmRSS)."""
    peak_bytes: int
    """The highest resident memory of the process so far (VmHWM)."""


def read_memory(pid: int) -> Memory:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    if "VmHWM" not in fields:
        raise ProcessLookupError(f"process {pid} has ended: a process without memory has no VmHWM")
    resident, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)


def peak_rss_bytes(pid: int) -> int:
    return read_memory(pid).peak_bytes


def machine_cpu_seconds() -> float:
    """CPU time of all processes of the machine."""
    # proc_stat(5): user, nice, system, idle, iowait, irq, softirq.
    ticks = [int(field) for field in Path("/proc/stat").read_text().split()[1:8]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
