"""The folder of each demo with the processes it started, and the cleanup after killed demos.

A process is identified by its id and its start time: the id alone may belong to another process
by now.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROCESSES_FILE = "processes.json"
_LOCK_FILE = ".lock"
# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ProcessIdentity:
    """`started` is the start time in clock ticks since boot, "" for a process that has ended."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and identify_process(self.pid) == self


def identify_process(pid: int) -> ProcessIdentity:
    try:
        # The second field is the name in parentheses, which may itself contain blanks and
        # parentheses. The fields after it are numbered from the state, see proc_pid_stat(5).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ProcessIdentity(pid, "")
    # A zombie has ended and only waits for its parent.
    return ProcessIdentity(pid, "" if fields[0] == "Z" else fields[19])


class DemoFolder:
    def __init__(self, root: Path) -> None:
        self.path = root / str(os.getpid())
        with hold_lock(root):
            self.path.mkdir(mode=0o700)
            self.record_processes(())

    def record_processes(self, pids: Iterable[int]) -> None:
        """Writes the processes that run now; the first is the demo."""
        identities = [asdict(identify_process(pid)) for pid in (os.getpid(), *pids)]
        new_file = self.path / f".{PROCESSES_FILE}"
        new_file.write_text(json.dumps(identities))
        new_file.replace(self.path / PROCESSES_FILE)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def hold_lock(root: Path) -> Iterator[None]:
    """Keeps other demos from removing a folder that has no processes file yet."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clean_up_abandoned(root: Path) -> list[str]:
    """Ends the processes and removes the folders of killed demos; returns a message for each."""
    with hold_lock(root):
        return [
            _remove_abandoned(folder)
            for folder in sorted(root.iterdir())
            if folder.is_dir() and not read_processes(folder)[0].is_alive
        ]


def _remove_abandoned(folder: Path) -> str:
    killed = []
    for process in read_processes(folder)[1:]:
        if process.is_alive:
            # Each process was started in a process group of its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
                killed.append(process.pid)
    shutil.rmtree(folder, ignore_errors=True)
    processes = f"; killed its processes {killed}" if killed else ""
    return f"Cleaned up after demo {folder.name}, which was killed{processes}"


def read_processes(folder: Path) -> list[ProcessIdentity]:
    """The demo, then the processes it started; a process that cannot be alive if unreadable."""
    try:
        entries = json.loads((folder / PROCESSES_FILE).read_text())
        return [ProcessIdentity(**entry) for entry in entries] or [ProcessIdentity(0, "")]
    except (OSError, ValueError, TypeError):
        return [ProcessIdentity(0, "")]


def exit_with_parent() -> None:
    """Sends this process SIGTERM when its parent ends: a make that is killed ends no child.

    Linux only; other kernels have no such signal.
    """
    parent = os.getppid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have ended before the call.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
