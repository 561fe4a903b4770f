"""Completes a change set: adds the config/ that follows from it, and formats its Python.

Both need the changed project as files: a process of its own imports the changed modules (Python
cannot import a module a second time in this one), and ruff reads the tree to find out which imports
are the project's own. So the change is applied to a temporary copy first.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError
from .changeset import ChangeSet, read_text_if_exists
from .program import run_program
from .scaffold.format import format_files

# Generating and formatting change these.
_COPIED_ENTRIES = ("src", "tests", "config", "pyproject.toml")
# Importing a project takes seconds; one that waits for a server at import would never end.
_GENERATE_TIMEOUT_SECONDS = 120
_ERROR_TAIL_LINES = 8


def complete_change(change: ChangeSet) -> tuple[ChangeSet, bool]:
    """The change set with its config/, formatted; and whether `make format` is still needed."""
    with _copy_project(change) as copy:
        _run_manifests(copy)
        generated, removed = _compare_config(copy, change)
        formatted = format_files(copy, change)
    complete = replace(
        change,
        files={**change.files, **generated, **(formatted or {})},
        edited_paths=change.edited_paths | frozenset(generated),
        removed=tuple(dict.fromkeys((*change.removed, *removed))),
    )
    return complete, formatted is None


@contextmanager
def _copy_project(change: ChangeSet) -> Iterator[Path]:
    """A temporary folder with the changed project: the folders that change are copied."""
    changed = {path.partition("/")[0] for path in (*change.files, *change.removed)}
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = Path(folder)
        for entry in change.root.iterdir() if change.root.exists() else ():
            is_copied = entry.name in changed or entry.name in _COPIED_ENTRIES
            if is_copied and entry.is_dir():
                _copy_folder(entry, copy / entry.name)
            elif is_copied and entry.is_file():
                shutil.copy(entry, copy)
            # Links for everything else: ruff and the project's code may read it. Not .git, because
            # the state of the repository must not matter for the copy.
            elif entry.name != ".git":
                (copy / entry.name).symlink_to(entry)
        replace(change, root=copy).write()
        yield copy


def _copy_folder(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    try:
        # Editors use dangling links as locks; they are no reason to stop.
        shutil.copytree(source, target, ignore=ignored, ignore_dangling_symlinks=True)
    except shutil.Error as error:
        file, _, reason = error.args[0][0]
        raise ConfigError(f"{file} cannot be read: {reason}; nothing was written") from None


def _run_manifests(copy: Path) -> None:
    command = [sys.executable, "-m", "kubewright", "manifests", "--force", "--project", str(copy)]
    process = run_program(
        command,
        _GENERATE_TIMEOUT_SECONDS,
        subject="importing the project's code",
        advice="Nothing was written.",
        environ={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if process.returncode:
        # The cause is at the end; the beginning of a traceback shows only kubewright's own frames.
        output = (process.stderr or process.stdout).strip().replace(f"{copy}/", "")
        raise ConfigError(
            "nothing was written, because config/ cannot be generated from the project's code:\n"
            + "\n".join(output.splitlines()[-_ERROR_TAIL_LINES:])
        )


def _compare_config(copy: Path, change: ChangeSet) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files of config/ that generating wrote, and those that it removed."""
    before, after = ({p: root / p for p in _list_config(root)} for root in (change.root, copy))
    # Bytes are compared, not text: config/ may also hold files of the user that are not text.
    generated = {
        path: read_text_if_exists(file) or ""
        for path, file in after.items()
        if path not in change.files
        and not (path in before and before[path].read_bytes() == file.read_bytes())
    }
    return generated, tuple(path for path in before if path not in after)


def _list_config(root: Path) -> list[str]:
    files = (path for path in (root / "config").rglob("*") if path.is_file())
    return sorted(path.relative_to(root).as_posix() for path in files)
