"""Moving files to their places, all of them or none: also when the process is killed half way.

How is it undone?      Files to come wait in `new`, those that were there go to `old`, in a folder beside. What stops it moves all back.
And after a SIGKILL?   Nobody is left to do so. A plan in that folder says what was to happen; the next command in the project reads it, and
                       moves all back. Without a plan nothing is half done: it is written before the first move, and removed after the last.
Who is still at work?  Whoever writes holds a lock on the project's folder, from reading the project to the end, which the kernel takes
                       from the dead. A process's number would tell nothing in another container.
Whose folder is it?    Ours has a name as `tempfile` makes it, nothing in it that we do not put there, and belongs to whoever runs this or
                       has the project. Any other is somebody's, whatever its name begins with.
And what was changed   That is somebody's: nothing is touched, and they are told where the old files are.
since?
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import ConfigError

WORK_FOLDER_PREFIX = ".kubewright-"
_WORK_FOLDER_NAME = re.compile(re.escape(WORK_FOLDER_PREFIX) + "[a-z0-9_]{8}")
PLAN_FILE, NEW_FOLDER, OLD_FOLDER = "plan.json", "new", "old"
_LOCK_TIMEOUT_SECONDS = 30.0
_LOCK_POLL_SECONDS = 0.1
_NOT_RECOVERED_MESSAGE = "This command writes nothing, so the files are as that one left them: the next command that writes here moves them back"


class WritePlan(msgspec.Struct, frozen=True):
    """What is to be moved, and what there was before."""

    changed: dict[str, str]
    """Files to come, each with the hash of its bytes."""
    removed: tuple[str, ...]
    fresh: tuple[str, ...]
    """Those of `changed` that were not there."""
    folders: tuple[str, ...]
    """Folders that were not there, those above first."""

    @property
    def moves(self) -> tuple[str, ...]:
        """What is moved, in this order."""
        return (*sorted(self.changed), *self.removed)


def build_plan(
    root: Path, beside: Path, changed: Sequence[str], removed: Sequence[str]
) -> WritePlan:
    """The plan for the files that wait beside."""
    hashes = {path: _hash_file(beside / NEW_FOLDER / path) for path in changed}
    folders = {
        folder for path in changed for folder in (root / path).parents if not folder.exists()
    }
    return WritePlan(
        hashes,
        tuple(removed),
        tuple(path for path in changed if not os.path.lexists(root / path)),
        tuple(sorted(folder.relative_to(root).as_posix() for folder in folders)),
    )


def swap_files(root: Path, beside: Path, plan: WritePlan) -> None:
    """Move new files to their places and old ones aside; back again if anything stops it."""
    (beside / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
    try:
        for folder in plan.folders:
            (root / folder).mkdir(exist_ok=True)
        for path in plan.moves:
            _move_file(root / path, beside / NEW_FOLDER / path, beside / OLD_FOLDER / path)
        (beside / PLAN_FILE).unlink()
    except BaseException:
        with _block_signals():
            _undo_plan(root, beside, plan)
            (beside / PLAN_FILE).unlink(missing_ok=True)
        raise


def _move_file(place: Path, new: Path, old: Path) -> None:
    """Put what is at a place aside, and what is to come there, if anything is."""
    if os.path.lexists(
        place
    ):  # a link leads nowhere once it is aside, and is brought back all the same
        old.parent.mkdir(parents=True, exist_ok=True)
        os.replace(place, old)
    if new.exists():
        os.replace(new, place)


def _undo_plan(root: Path, beside: Path, plan: WritePlan) -> None:
    """Bring back all that was there; what has been brought back already stays, so it may be done twice."""
    for path in reversed(plan.moves):
        if os.path.lexists(beside / OLD_FOLDER / path):
            os.replace(beside / OLD_FOLDER / path, root / path)
        elif _was_created(path, beside, plan):
            (root / path).unlink(missing_ok=True)
    for folder in reversed(plan.folders):
        if (root / folder).is_dir() and not any((root / folder).iterdir()):
            (root / folder).rmdir()


@contextmanager
def _block_signals() -> Iterator[None]:
    """Signals wait: whoever is impatient presses Ctrl-C twice."""
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def lock_project(root: Path, timeout_seconds: float = _LOCK_TIMEOUT_SECONDS) -> Iterator[bool]:
    """Be the only one that writes into a folder, or raise; yields whether that is sure, as it is not on a file system without locks."""
    folder = os.open(root, os.O_RDONLY)
    try:
        deadline = time.monotonic() + timeout_seconds
        while (sure := _try_lock(folder)) is None:
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"another kubewright command is at work in {root}; run this again when it has ended"
                )
            time.sleep(_LOCK_POLL_SECONDS)
        yield sure
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool | None:
    """Whether the lock is ours now: None while another has it, False on a file system that has no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True


def find_work_folders(root: Path) -> list[Path]:
    """Folders of commands that write here, or did."""
    return sorted(
        path for path in root.glob(f"{WORK_FOLDER_PREFIX}*") if _is_work_folder(path, root)
    )


def _is_work_folder(path: Path, root: Path) -> bool:
    """Whether a folder is certainly one that a command made to write from."""
    if not _WORK_FOLDER_NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    owners = (
        os.geteuid(),
        root.stat().st_uid,
    )  # in a folder that all may write to, such as /tmp, a stranger's plan is not followed
    return path.stat().st_uid in owners and {each.name for each in path.iterdir()} <= {
        PLAN_FILE,
        NEW_FOLDER,
        OLD_FOLDER,
    }


def recover_all(root: Path) -> list[str]:
    """Undo what commands that were killed left half done, in words; only for one that is `alone_in` the folder."""
    return [words for beside in find_work_folders(root) if (words := _recover(root, beside))]


def find_interrupted(root: Path) -> list[str]:
    """What `recovered` would undo, in words; nothing is touched."""
    if not find_work_folders(root):
        return []
    try:
        with lock_project(root, timeout_seconds=0) as sure:
            left = (
                [beside for beside in find_work_folders(root) if _read_plan(beside)] if sure else []
            )
    except ConfigError:
        return []  # somebody is at work, and not dead
    return [
        f"a kubewright command was killed half way here, and left {beside}. {_NOT_RECOVERED_MESSAGE}"
        for beside in left
    ]


def _recover(root: Path, beside: Path) -> str:
    """Undo one, and remove its folder."""
    plan = _read_plan(beside)
    theirs = _find_changed_since(root, beside, plan) if plan else []
    if theirs:
        return (
            f"a kubewright command was killed half way here, and somebody has changed {', '.join(theirs)} since. Nothing was moved back: "
            f"{beside}/{OLD_FOLDER} has the files as they were before. Take from it what you need, then remove {beside}"
        )
    if plan:
        _undo_plan(root, beside, plan)
    shutil.rmtree(beside)
    return (
        "a kubewright command was killed half way here; what it had changed is as it was before"
        if plan
        else ""
    )


def _read_plan(beside: Path) -> WritePlan | None:
    """What was to happen; None where nothing is half done."""
    try:
        return msgspec.json.decode((beside / PLAN_FILE).read_bytes(), type=WritePlan)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # killed before the plan was written, which comes before the first move, or after the last


def _find_changed_since(root: Path, beside: Path, plan: WritePlan) -> list[str]:
    """Files that would be replaced or removed, and that are not as we wrote them."""
    at_stake = [
        path
        for path in plan.moves
        if os.path.lexists(beside / OLD_FOLDER / path) or _was_created(path, beside, plan)
    ]
    return [
        path
        for path in at_stake
        if os.path.lexists(root / path) and _hash_file(root / path) != plan.changed.get(path)
    ]


def _was_created(path: str, beside: Path, plan: WritePlan) -> bool:
    """Whether a file that was not there has been moved to its place."""
    return path in plan.fresh and not (beside / NEW_FOLDER / path).exists()


def _hash_file(path: Path) -> str:
    """What tells a file's bytes from others; of a folder, nothing."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
