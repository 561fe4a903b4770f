"""What a command changes, as a whole: shown as a diff, refused where it would overwrite, and written all or not at all.

Writing puts every file into a folder in the project first, then moves each to its place (`exchange`).
"""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ConfigError
from .exchange import NEW_FOLDER, WORK_FOLDER_PREFIX, build_plan, swap_files


@dataclass(frozen=True)
class ChangeSet:
    """Files with their new text, by their path in the project."""

    root: Path
    files: Mapping[str, str]
    edits: frozenset[str] = frozenset()
    """Those that are meant to change although they are there: the list of controllers, what is generated."""
    removed: tuple[str, ...] = field(default=())

    @property
    def _changed_files(self) -> dict[str, str]:
        """Only what is not there yet in this form."""
        return {
            path: text
            for path, text in self.files.items()
            if read_text_if_exists(self.root / path) != text
        }

    @property
    def conflicts(self) -> list[str]:
        """Files that are there, differ, and are not ours to change."""
        return sorted(
            path
            for path in self._changed_files
            if path not in self.edits and os.path.lexists(self.root / path)
        )

    def diff(self) -> str:
        """What would change, as `diff -u` shows it."""
        parts: list[str] = []
        for path, text in sorted(self._changed_files.items()):
            parts += _diff_file(path, read_text_if_exists(self.root / path) or "", text)
        for path in self.removed:
            parts += _diff_file(path, read_text_if_exists(self.root / path) or "", "")
        return "".join(parts)

    def check_conflicts(self) -> None:
        """Raise where something would be overwritten that is not ours."""
        if self.conflicts:
            listed = "\n  ".join(self.conflicts)
            raise ConfigError(
                f"nothing was written, since these files are there already and differ:\n  {listed}\n"
                "Move them away, or overwrite them with --force."
            )

    def write(self) -> list[str]:
        """Write all of it, or nothing; returns the paths that changed. Whoever read the project for it is still `alone_in` it."""
        changed = self._changed_files
        if not changed and not self.removed:
            return []
        self.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=WORK_FOLDER_PREFIX, dir=self.root) as folder:
            beside = Path(folder)
            for path, text in changed.items():
                write_file(beside / NEW_FOLDER / path, text, copy_mode_from=self.root / path)
            swap_files(
                self.root, beside, build_plan(self.root, beside, sorted(changed), self.removed)
            )
        return [*sorted(changed), *self.removed]


def write_file(path: Path, text: str, copy_mode_from: Path) -> None:
    """Write a file, with the rights of the one that it replaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if copy_mode_from.exists():
        shutil.copymode(copy_mode_from, path)
    elif text.startswith("#!"):
        path.chmod(0o755)


def _diff_file(path: str, old: str, new: str) -> list[str]:
    """A diff of one file, under the names that git uses."""
    before = f"a/{path}" if old else "/dev/null"
    after = f"b/{path}" if new else "/dev/null"
    return [
        _ensure_newline(line)
        for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), before, after)
    ]


def _ensure_newline(line: str) -> str:
    """The line with an end, as a last line of a file may have none."""
    return line if line.endswith("\n") else f"{line}\n"


def read_text_if_exists(path: Path) -> str | None:
    """What is in a person's file, None where there is none; all else that keeps it from being read is told in words."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is no text in UTF-8 (byte {error.start}); save it as UTF-8"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder where a file has to be; move it away") from None
    except NotADirectoryError:
        raise ConfigError(
            f"{path} cannot be there, since what should be a folder above it is a file; move that away"
        ) from None
    except PermissionError:
        raise ConfigError(
            f"{path} cannot be read: you have not the right to; give it to yourself with `chmod u+r`"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def read_text(path: Path) -> str:
    """What is in a person's file that has to be there."""
    text = read_text_if_exists(path)
    if text is None:
        raise ConfigError(
            f"{path} is not there; bring it back, from version control say, or take out of pyproject.toml what names it"
        )
    return text
