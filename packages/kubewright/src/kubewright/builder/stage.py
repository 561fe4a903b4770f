"""Trying a change on a copy of the project: what it leads to in config/ becomes part of it, before anything is touched.

The copy is generated from by a process of its own, since Python cannot import a changed module anew in this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError
from .change import Change, text_of

COPIED = ("pyproject.toml", "src", "config")
WITHIN_SECONDS = 120


def with_config(change: Change) -> Change:
    """The change, and all that `kubewright manifests` writes after it."""
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = Path(folder)
        copied(change.root, copy)
        replace(change, root=copy).write()
        generate(copy)
        files = {path.relative_to(copy).as_posix(): path for path in (copy / "config").rglob("*") if path.is_file()}
        texts = {path: text_of(file) or "" for path, file in files.items()}
    generated = {path: text for path, text in texts.items() if path not in change.files and text_of(change.root / path) != text}
    return replace(change, files={**change.files, **generated}, edits=change.edits | frozenset(generated), removed=gone(change.root, texts))


def copied(root: Path, copy: Path) -> None:
    """Copy what generating reads."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy(source, copy / name)


def gone(root: Path, texts: dict[str, str]) -> tuple[str, ...]:
    """Files of config/ that generating removed."""
    there = (path.relative_to(root).as_posix() for path in (root / "config").rglob("*") if path.is_file())
    return tuple(sorted(path for path in there if path not in texts))


def generate(copy: Path) -> None:
    """Run `kubewright manifests` on the copy."""
    command = [sys.executable, "-m", "kubewright", "manifests", "--project", str(copy)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=WITHIN_SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().replace(f"{copy}/", "")
        raise ConfigError(f"nothing was written, since config/ cannot be generated from the project's code:\n{words}")
