"""Trying a change on a copy of the project: what it leads to in config/ becomes part of it, before anything is touched.

The copy is generated from by a process of its own, since Python cannot import a changed module anew in this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError
from .changeset import ChangeSet, read_text_if_exists

_COPIED_PATHS = ("pyproject.toml", "src", "config")
_GENERATE_TIMEOUT_SECONDS = 120
_ERROR_TAIL_LINES = 8


def add_generated_config(change: ChangeSet) -> ChangeSet:
    """The change, and all that `kubewright manifests` writes after it."""
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = Path(folder)
        _copy_project(change.root, copy)
        replace(change, root=copy).write()
        _run_manifests(copy)
        there = _list_config_files(copy)
        # What is the same is not read as text: a person may keep anything below config/.
        fresh = [
            path
            for path in there
            if path not in change.files and not _has_same_content(copy / path, change.root / path)
        ]
        generated = {path: read_text_if_exists(copy / path) or "" for path in fresh}
    removed = tuple(path for path in _list_config_files(change.root) if path not in there)
    return replace(
        change,
        files={**change.files, **generated},
        edits=change.edits | frozenset(generated),
        removed=removed,
    )


def chain_changes(first: ChangeSet, second: Callable[[Path], ChangeSet]) -> ChangeSet:
    """Two changes as one; the second is worked out on a copy that has the first, since both edit the same files."""
    with tempfile.TemporaryDirectory(prefix="kubewright-") as folder:
        copy = Path(folder)
        _copy_project(first.root, copy)
        replace(first, root=copy).write()
        then = second(copy)
    return replace(first, files={**first.files, **then.files}, edits=first.edits | then.edits)


def _copy_project(root: Path, copy: Path) -> None:
    """Copy what generating reads."""
    for name in _COPIED_PATHS:
        source = root / name
        if source.is_dir():
            copy_folder(source, copy / name)
        elif source.is_file():
            shutil.copy(source, copy / name)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a person's folder, but for what Python leaves and for links that lead nowhere, as an editor's locks are."""
    try:
        shutil.copytree(
            source,
            target,
            ignore=shutil.ignore_patterns("__pycache__"),
            ignore_dangling_symlinks=True,
        )
    except shutil.Error as error:
        file, _, why = error.args[0][0]
        raise ConfigError(
            f"{file} cannot be read: {why}. The change is tried on a copy of the project first; nothing was written"
        ) from None


def _list_config_files(root: Path) -> list[str]:
    """The files of config/, by their path in the project."""
    return sorted(
        path.relative_to(root).as_posix() for path in (root / "config").rglob("*") if path.is_file()
    )


def _has_same_content(one: Path, other: Path) -> bool:
    """Whether two files are there and have the same bytes."""
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _run_manifests(copy: Path) -> None:
    """Run `kubewright manifests` on the copy."""
    command = [sys.executable, "-m", "kubewright", "manifests", "--project", str(copy)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environ,
            timeout=_GENERATE_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"nothing was written, since the project's code was not imported within {_GENERATE_TIMEOUT_SECONDS} s"
        ) from None
    if done.returncode:
        # The end says what happened; a traceback's beginning is ours.
        words = "\n".join(
            (done.stderr or done.stdout)
            .strip()
            .replace(f"{copy}/", "")
            .splitlines()[-_ERROR_TAIL_LINES:]
        )
        raise ConfigError(
            f"nothing was written, since config/ cannot be generated from the project's code:\n{words}"
        )
