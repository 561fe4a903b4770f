"""Laying new Python out as the project's own ruff would: how long a line may be and whose an import is, only its configuration says.

The templates are laid out for a project as `init` makes it. Where the configuration is another, or a long name makes a line too long, ruff
does the rest. It is no dependency: where there is none, and it would have something to do, `make format` is the next step.

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

from .change import Change, text_of
from .stage import copy_folder

LONGEST_LINE = 140
SOURCES = ["src"]
COPIED = ("src", "tests")
WITHIN_SECONDS = 60
# As `make format` has it; what the linter can mend may have to be laid out again.
STEPS = (("check", "--fix-only", "--exit-zero"), ("format",))


def laid_out(change: Change) -> Change:
    """The change with its Python laid out; a person's file only where it was before."""
    ruff = ruff_of(change.root)
    if ruff is None:
        return change
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = linked(change.root, Path(folder))
        python = [path for path in change.files if path.endswith(".py")]
        ours = [path for path in python if path not in change.edits or is_laid_out(ruff, copy, path)]
        Change(copy, {path: change.files[path] for path in python}).write()
        tidy = {path: tidied(ruff, copy, path, change.files[path]) for path in ours}
    return replace(change, files={**change.files, **tidy})


def linked(root: Path, copy: Path) -> Path:
    """A folder that looks like the project: what may be changed is copied, the rest linked."""
    for entry in root.iterdir():
        if entry.name in COPIED and entry.is_dir():
            copy_folder(entry, copy / entry.name)
        else:
            (copy / entry.name).symlink_to(entry)
    return copy


def is_laid_out(ruff: str, root: Path, path: str) -> bool:
    """Whether a file is as ruff would have it."""
    text = text_of(root / path) or ""
    return tidied(ruff, root, path, text) == text


def tidied(ruff: str, root: Path, path: str, text: str) -> str:
    """A file's text as ruff lays it out; as it is where ruff cannot."""
    for step in STEPS:
        command = [ruff, *step, "--quiet", "--no-cache", "--stdin-filename", str(root / path), "-"]
        done = subprocess.run(command, input=text.encode(), capture_output=True, cwd=root, timeout=WITHIN_SECONDS)
        if done.returncode:
            return text
        text = done.stdout.decode()
    return text


def ruff_of(root: Path) -> str | None:
    """The project's own ruff, else the one beside this Python, else one in PATH; none where the project does not say how to use it."""
    if not (table_of(root) or any((root / name).exists() for name in ("ruff.toml", ".ruff.toml"))):
        return None
    places = [str(root / ".venv/bin"), str(Path(sys.executable).parent)]
    return next((found for place in places if (found := shutil.which("ruff", path=place))), None) or shutil.which("ruff")


def format_is_next(change: Change) -> bool:
    """Whether nobody has laid out what may have to be."""
    return ruff_of(change.root) is None and (configured_otherwise(change.root) or any(too_long(change)))


def configured_otherwise(root: Path) -> bool:
    """Whether the project has another configuration than `init` gives it."""
    table = table_of(root)
    return bool((table.get("line-length"), table.get("src")) != (LONGEST_LINE, SOURCES))


def table_of(root: Path) -> dict[str, Any]:
    """[tool.ruff] of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads(text_of(root / "pyproject.toml") or "").get("tool", {}).get("ruff", {})
    return found


def too_long(change: Change) -> list[str]:
    """The lines of new Python that a long name has made too long."""
    texts = [text for path, text in change.files.items() if path.endswith(".py")]
    return [line for text in texts for line in text.splitlines() if len(line) > LONGEST_LINE]
