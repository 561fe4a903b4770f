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

LEDGER = "processes.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Birth:
    """A process that nobody else can be."""

    pid: int
    started: str

    @property
    def lives(self) -> bool:
        """Whether it is still there."""
        return bool(self.started) and birth(self.pid) == self


def birth(pid: int) -> Birth:
    """The process of this id; without a time where there is none, or one that has ended and only waits for its parent."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Birth(pid, "")
    return Birth(pid, "" if fields[0] == "Z" else fields[19])


class Folder:
    """One demo's own folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / str(os.getpid())
        with alone(root):
            self.path.mkdir(mode=0o700)
            self.note(())

    def note(self, pids: Iterable[int]) -> None:
        """Write down what runs now; the first is the demo itself."""
        known = [asdict(birth(pid)) for pid in (os.getpid(), *pids)]
        beside = self.path / f".{LEDGER}"
        beside.write_text(json.dumps(known))
        beside.replace(self.path / LEDGER)

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """One demo at a time: between a folder and its ledger, another demo that starts would take it for a killed one's."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clean(root: Path) -> list[str]:
    """End and remove what demos left that are not there any more; returns what was done, in words."""
    with alone(root):
        abandoned = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and not births_in(folder)[0].lives]
        return [removed(folder) for folder in abandoned]


def removed(folder: Path) -> str:
    """One killed demo's processes and folder, gone; and the words for it."""
    ended = [each.pid for each in births_in(folder)[1:] if each.lives and end(each)]
    shutil.rmtree(folder, ignore_errors=True)
    return f"cleaned up after a demo that was killed: {folder.name}" + (f", ended {ended}" if ended else "")


def births_in(folder: Path) -> list[Birth]:
    """The demo itself, then what it started; a folder without a ledger belongs to nobody."""
    try:
        return [Birth(**each) for each in json.loads((folder / LEDGER).read_text())] or [Birth(0, "")]
    except (OSError, ValueError, TypeError):
        return [Birth(0, "")]


def end(process: Birth) -> bool:
    """Kill it with its group, which is its own: it was started so."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        return True
    return False
