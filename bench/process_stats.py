"""CPU and memory of a process, read from outside. Linux only."""

from __future__ import annotations

import os
import time
from pathlib import Path

_CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads."""
    # The id of clock_getcpuclockid(3): the inverted pid and the type of the clock. It counts
    # nanoseconds; /proc/PID/stat counts hundredths of a second.
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def peak_rss_bytes(pid: int) -> int:
    """The highest resident memory of the process so far (VmHWM)."""
    return memory_bytes(pid)[1]


def memory_bytes(pid: int) -> tuple[int, int]:
    """The resident memory of the process (VmRSS), and its highest value so far (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {line.partition(":")[0]: line.split()[1:] for line in lines}
    if "VmHWM" not in fields:
        raise ProcessLookupError(f"process {pid} has ended: a process without memory has no VmHWM")
    return int(fields["VmRSS"][0]) * 1024, int(fields["VmHWM"][0]) * 1024


def machine_cpu_seconds() -> float:
    """CPU time of all processes of the machine."""
    # proc_stat(5): user, nice, system, idle, iowait, irq, softirq.
    ticks = [int(field) for field in Path("/proc/stat").read_text().split()[1:8]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
