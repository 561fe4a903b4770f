"""What a command changes, as a whole: shown as a diff, refused where it would overwrite, and written all or not at all.

Writing puts every file into a folder beside its project first, then moves each to its place. Whatever goes wrong in between, an
interruption too, moves the old files back.
"""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError


@dataclass(frozen=True)
class Change:
    """Files with their new text, by their path in the project."""

    root: Path
    files: Mapping[str, str]
    edits: frozenset[str] = frozenset()
    """Those that are meant to change although they are there: the list of controllers, what is generated."""
    removed: tuple[str, ...] = field(default=())

    @property
    def effective(self) -> dict[str, str]:
        """Only what is not there yet in this form."""
        return {path: text for path, text in self.files.items() if text_of(self.root / path) != text}

    @property
    def conflicts(self) -> list[str]:
        """Files that are there, differ, and are not ours to change."""
        return sorted(path for path in self.effective if path not in self.edits and (self.root / path).exists())

    def diff(self) -> str:
        """What would change, as `diff -u` shows it."""
        parts: list[str] = []
        for path, text in sorted(self.effective.items()):
            parts += unified(path, text_of(self.root / path) or "", text)
        for path in self.removed:
            parts += unified(path, text_of(self.root / path) or "", "")
        return "".join(parts)

    def refuse_conflicts(self) -> None:
        """Raise where something would be overwritten that is not ours."""
        if self.conflicts:
            listed = "\n  ".join(self.conflicts)
            raise ConfigError(
                f"nothing was written, since these files are there already and differ:\n  {listed}\n"
                "Move them away, or overwrite them with --force."
            )

    def write(self) -> list[str]:
        """Write all of it, or nothing; returns the paths that changed."""
        changed = self.effective
        if not changed and not self.removed:
            return []
        self.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kubewright-", dir=self.root) as beside:
            fresh, old = Path(beside) / "new", Path(beside) / "old"
            for path, text in changed.items():
                put(fresh / path, text, like=self.root / path)
            exchange(self.root, sorted(changed), self.removed, fresh, old)
        return [*sorted(changed), *self.removed]


def put(path: Path, text: str, like: Path) -> None:
    """Write a file, with the rights of the one that it replaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if like.exists():
        shutil.copymode(like, path)
    elif text.startswith("#!"):
        path.chmod(0o755)


def exchange(root: Path, changed: Sequence[str], removed: Sequence[str], fresh: Path, old: Path) -> None:
    """Move new files to their places and old ones aside; back again if anything stops it."""
    moved: list[str] = []
    made: list[Path] = []
    try:
        for path in (*changed, *removed):
            moved.append(path)
            make_folder((root / path).parent, made)
            if (root / path).exists():
                (old / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(root / path, old / path)
            if path in changed:
                os.replace(fresh / path, root / path)
    except BaseException:
        with undisturbed():
            for path in reversed(moved):
                undo(root / path, old / path, came=path in changed and not (fresh / path).exists())
            for folder in reversed(made):
                folder.rmdir()
        raise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals wait: whoever is impatient presses Ctrl-C twice."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it, and note which were made."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)


def undo(place: Path, old: Path, *, came: bool) -> None:
    """Bring back what was at a place, which may have been nothing; `came` says that the new file is there already."""
    if old.exists():
        os.replace(old, place)
    elif came:
        place.unlink(missing_ok=True)


def unified(path: str, old: str, new: str) -> list[str]:
    """A diff of one file, under the names that git uses."""
    before = f"a/{path}" if old else "/dev/null"
    after = f"b/{path}" if new else "/dev/null"
    return [ended(line) for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), before, after)]


def ended(line: str) -> str:
    """The line with an end, as a last line of a file may have none."""
    return line if line.endswith("\n") else f"{line}\n"


def text_of(path: Path) -> str | None:
    """What is in the file, None where there is none."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8 (byte {error.start}); save it as UTF-8") from None
