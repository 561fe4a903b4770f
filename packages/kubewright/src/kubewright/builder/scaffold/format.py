"""Formats new Python as the project's own ruff does.

The templates are formatted for a project as `init` creates it. Another configuration, or a very
long name, needs ruff. It is not a dependency: without it, and also if it fails, the files stay as
the templates have them, and the command suggests `make format`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from ..changeset import ChangeSet, read_text_if_exists
from .line_wrap import wrap_long_lines

# As in the templates, and in the pyproject.toml that `init` writes.
LINE_LENGTH = 100
_RUFF_TIMEOUT_SECONDS = 60
# The steps of `make format`: what the linter fixes may have to be formatted again.
_RUFF_COMMANDS = (("check", "--fix-only", "--exit-zero"), ("format",))


class RuffFailed(Exception):
    """Ruff could not be run, or printed something unusable."""


def format_files(root: Path, change: ChangeSet) -> dict[str, str] | None:
    """The formatted Python files of the change; None if `make format` has to do it.

    `root` is a copy of the project that has the change already.
    """
    sources = {path: text for path, text in change.files.items() if path.endswith(".py")}
    ruff = _find_ruff(change.root)
    if ruff is None:
        wrapped = {
            path: text if path in change.edited_paths else wrap_long_lines(text, LINE_LENGTH)
            for path, text in sources.items()
        }
        lines = (line for text in wrapped.values() for line in text.splitlines())
        unformatted = any(len(line) > LINE_LENGTH for line in lines)
        config = _read_config(change.root)
        is_default = (config.get("line-length"), config.get("src")) == (LINE_LENGTH, ["src"])
        return wrapped if is_default and not unformatted else None
    try:
        return {
            path: _format_text(ruff, root, path, text)
            for path, text in sources.items()
            if path not in change.edited_paths or _was_formatted(ruff, change.root, path)
        }
    except RuffFailed:
        return None


def _was_formatted(ruff: str, root: Path, path: str) -> bool:
    """Whether the user formats this file: otherwise only our lines are added to it."""
    text = read_text_if_exists(root / path) or ""
    return _format_text(ruff, root, path, text) == text


def _format_text(ruff: str, root: Path, path: str, text: str) -> str:
    for arguments in _RUFF_COMMANDS:
        command = [ruff, *arguments, "--quiet", "--no-cache", "--stdin-filename", str(root / path)]
        try:
            process = subprocess.run(
                [*command, "-"],
                input=text.encode(),
                capture_output=True,
                cwd=root,
                timeout=_RUFF_TIMEOUT_SECONDS,
                check=True,
            )
            output = process.stdout.decode()
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
            raise RuffFailed from error
        if text and not output:
            raise RuffFailed  # formatting never deletes everything, so this was not ruff
        text = output
    return text


def _find_ruff(root: Path) -> str | None:
    """The project's own ruff, then that of this Python, then that on PATH.

    None also if the project has no configuration for ruff: then it does not use it.
    """
    configured = _read_config(root) or any(
        (root / name).exists() for name in ("ruff.toml", ".ruff.toml")
    )
    if not configured:
        return None
    for folder in (root / ".venv/bin", Path(sys.executable).parent):
        if ruff := shutil.which("ruff", path=str(folder)):
            return ruff
    return shutil.which("ruff")


def _read_config(root: Path) -> dict[str, Any]:
    pyproject = tomllib.loads(read_text_if_exists(root / "pyproject.toml") or "")
    table: dict[str, Any] = pyproject.get("tool", {}).get("ruff", {})
    return table
