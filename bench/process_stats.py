"""What a process has cost so far, read from outside without disturbing it. Linux only."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, in nanoseconds where /proc/<pid>/stat has hundredths.

    The clock's number is the one that clock_getcpuclockid(3) gives: all bits of the pid turned over, and the kind of clock.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def peak_rss_bytes(pid: int) -> int:
    """The most physical memory that the process has held at any time (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended: a process without memory has no VmHWM")


def machine_cpu_seconds() -> float:
    """What all processes of the machine have used, ours and others'."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)
