"""Laying new Python out as the project's own ruff would: how long a line may be and whose an import is, only its configuration says.

The templates are laid out for a project as `init` makes it. Where the configuration is another, or a long name makes a line too long, ruff
does the rest. It is no dependency: where there is none, and it would have something to do, `make format` is the next step. So it is where
ruff fails, whatever the reason: the files are then as the templates have them.

It is asked in a copy that has the change, since it looks among the files for what is the project's own. What is neither source nor test is
there as a link.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..changeset import ChangeSet, read_text_if_exists
from ..sandbox import copy_folder

LINE_LENGTH = 140
_SOURCE_FOLDERS = ["src"]
_COPIED_FOLDERS = ("src", "tests")
_RUFF_TIMEOUT_SECONDS = 60
# As `make format` has it; what the linter can mend may have to be laid out again.
_RUFF_COMMANDS = (("check", "--fix-only", "--exit-zero"), ("format",))


class RuffFailed(Exception):
    """Ruff did not do what it was asked."""


def format_change(change: ChangeSet) -> tuple[ChangeSet, bool]:
    """The change with its Python laid out, and whether `make format` has still to do so."""
    ruff = find_ruff(change.root)
    if ruff is None:
        return change, _has_custom_ruff_config(change.root) or bool(_find_long_lines(change))
    try:
        return _format_change_with_ruff(ruff, change), False
    except RuffFailed:
        return change, True


def _format_change_with_ruff(ruff: str, change: ChangeSet) -> ChangeSet:
    """The change as this ruff has it; a person's file only where it was so before."""
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = _link_project(change.root, Path(folder))
        python = [path for path in change.files if path.endswith(".py")]
        ours = [
            path for path in python if path not in change.edits or _is_formatted(ruff, copy, path)
        ]
        ChangeSet(copy, {path: change.files[path] for path in python}).write()
        tidy = {path: format_text(ruff, copy, path, change.files[path]) for path in ours}
    return replace(change, files={**change.files, **tidy})


def _link_project(root: Path, copy: Path) -> Path:
    """A folder that looks like the project: what may be changed is copied, the rest linked."""
    for entry in root.iterdir():
        if entry.name in _COPIED_FOLDERS and entry.is_dir():
            copy_folder(entry, copy / entry.name)
        else:
            (copy / entry.name).symlink_to(entry)
    return copy


def _is_formatted(ruff: str, root: Path, path: str) -> bool:
    """Whether a file is as ruff would have it."""
    text = read_text_if_exists(root / path) or ""
    return format_text(ruff, root, path, text) == text


def format_text(ruff: str, root: Path, path: str, text: str) -> str:
    """A file's text as ruff lays it out."""
    for step in _RUFF_COMMANDS:
        command = [ruff, *step, "--quiet", "--no-cache", "--stdin-filename", str(root / path), "-"]
        tidy = _run_ruff(command, text, root)
        if text and not tidy:
            raise RuffFailed  # nothing that is laid out becomes nothing
        text = tidy
    return text


def _run_ruff(command: list[str], text: str, root: Path) -> str:
    """What ruff prints for a text."""
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            cwd=root,
            timeout=_RUFF_TIMEOUT_SECONDS,
            check=True,
        )
        return done.stdout.decode()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise RuffFailed from error


def find_ruff(root: Path) -> str | None:
    """The project's own ruff, else the one beside this Python, else one in PATH; none where the project does not say how to use it."""
    if not (
        _read_ruff_config(root)
        or any((root / name).exists() for name in ("ruff.toml", ".ruff.toml"))
    ):
        return None
    places = [str(root / ".venv/bin"), str(Path(sys.executable).parent)]
    return next(
        (found for place in places if (found := shutil.which("ruff", path=place))), None
    ) or shutil.which("ruff")


def _has_custom_ruff_config(root: Path) -> bool:
    """Whether the project has another configuration than `init` gives it."""
    table = _read_ruff_config(root)
    return bool((table.get("line-length"), table.get("src")) != (LINE_LENGTH, _SOURCE_FOLDERS))


def _read_ruff_config(root: Path) -> dict[str, Any]:
    """[tool.ruff] of pyproject.toml."""
    found: dict[str, Any] = (
        tomllib.loads(read_text_if_exists(root / "pyproject.toml") or "")
        .get("tool", {})
        .get("ruff", {})
    )
    return found


def _find_long_lines(change: ChangeSet) -> list[str]:
    """The lines of new Python that a long name has made too long."""
    texts = [text for path, text in change.files.items() if path.endswith(".py")]
    return [line for text in texts for line in text.splitlines() if len(line) > LINE_LENGTH]
