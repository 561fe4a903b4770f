"""The folder of each demo, with the processes that it started; and the end of what a killed demo left.

A process is known by its id and the time at which it was started: an id alone may be another process by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROCESSES_FILE = "processes.json"
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that nobody else can be."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""
        return bool(self.started) and identify_process(self.pid) == self


def identify_process(pid: int) -> ProcessIdentity:
    """The process of this id; without a time where there is none, or one that has ended and only waits for its parent."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ProcessIdentity(pid, "")
    return ProcessIdentity(pid, "" if fields[0] == "Z" else fields[19])


class DemoFolder:
    """One demo's own folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / str(os.getpid())
        with hold_lock(root):
            self.path.mkdir(mode=0o700)
            self.record_processes(())

    def record_processes(self, pids: Iterable[int]) -> None:
        """Write down what runs now; the first is the demo itself."""
        known = [asdict(identify_process(pid)) for pid in (os.getpid(), *pids)]
        beside = self.path / f".{PROCESSES_FILE}"
        beside.write_text(json.dumps(known))
        beside.replace(self.path / PROCESSES_FILE)

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def hold_lock(root: Path) -> Iterator[None]:
    """One demo at a time: between a folder and its ledger, another demo that starts would take it for a killed one's."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clean_up_abandoned(root: Path) -> list[str]:
    """End and remove what demos left that are not there any more; returns what was done, in words."""
    with hold_lock(root):
        abandoned = [
            folder
            for folder in sorted(root.iterdir())
            if folder.is_dir() and not read_processes(folder)[0].is_alive
        ]
        return [remove_abandoned(folder) for folder in abandoned]


def remove_abandoned(folder: Path) -> str:
    """One killed demo's processes and folder, gone; and the words for it."""
    ended = [
        each.pid
        for each in read_processes(folder)[1:]
        if each.is_alive and kill_process_group(each)
    ]
    shutil.rmtree(folder, ignore_errors=True)
    return f"cleaned up after a demo that was killed: {folder.name}" + (
        f", ended {ended}" if ended else ""
    )


def read_processes(folder: Path) -> list[ProcessIdentity]:
    """The demo itself, then what it started; a folder without a ledger belongs to nobody."""
    try:
        return [
            ProcessIdentity(**each) for each in json.loads((folder / PROCESSES_FILE).read_text())
        ] or [ProcessIdentity(0, "")]
    except (OSError, ValueError, TypeError):
        return [ProcessIdentity(0, "")]


def kill_process_group(process: ProcessIdentity) -> bool:
    """Kill it with its group, which is its own: it was started so."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        return True
    return False
