"""A CPU limit for each process, as a Pod has one. Linux, cgroup v1, with write access to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000


class CpuLimitError(Exception):
    """The limit cannot be set on this machine."""


@contextmanager
def limit_cpu(pids: Iterable[int], cores: float) -> Iterator[None]:
    """Limit each process to this share of a core; at the end, it is without a limit again."""
    groups: list[tuple[Path, int]] = []
    try:
        for pid in pids:
            group = _CGROUPS / f"bench-{pid}"
            try:
                group.mkdir()
                groups.append((group, pid))
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD_US)))
                (group / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise CpuLimitError(
                    f"cannot limit the CPU of a process below {_CGROUPS}: {error}. Run as root on "
                    "a machine with cgroup v1, or measure without a limit: --cores 0"
                ) from error
        yield
    finally:
        for group, pid in groups:
            with suppress(OSError):
                (_CGROUPS / "cgroup.procs").write_text(str(pid))
            with suppress(OSError):
                group.rmdir()
