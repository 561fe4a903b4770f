"""The image's root, filled here: the first stage of the Dockerfile, with wheels that are fetched once for each lock and interpreter."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kubewright.testing.binaries import cache_folder
from support.dockerfile import read_stages, run_copy

LOCK_FILES = ("requirements/runtime.txt", "requirements/build.txt")


def build_image_root(repository: Path, folder: Path) -> Path:
    """The root that the Dockerfile's first stage makes: each COPY and RUN in its order, and nothing there but what was copied.

    pip checks the wheels by their hashes, wherever they come from.
    """
    context, root = folder / "context", folder / "root"
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(fetch_wheels(repository))}
    for word, rest in read_stages()[0]:
        if word == "COPY":
            run_copy(rest, context)
        elif word == "RUN":
            python, *words, target = json.loads(rest)
            assert (python, target) == ("python", "/image")
            run_command([sys.executable, *words, str(root)], context, environ)
    return root


def fetch_wheels(repository: Path) -> Path:
    """A folder with all that the locks name, in the user's cache: looking through an index costs pip 15 s of processor time."""
    pinned = "".join((repository / lock).read_text() for lock in LOCK_FILES) + str(
        sys.implementation.cache_tag
    )
    cache = cache_folder(os.environ)
    folder = cache / f"wheels-{hashlib.sha256(pinned.encode()).hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fetched = Path(tempfile.mkdtemp(prefix="wheels-", dir=cache))
        files = [word for lock in LOCK_FILES for word in ("-r", lock)]
        download = (
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
            "--require-hashes",
            "--dest",
            str(fetched),
        )
        run_command([sys.executable, "-m", "pip", *download, *files], repository, os.environ)
        move_into_cache(fetched, folder)
    return folder


def move_into_cache(fetched: Path, folder: Path) -> None:
    """Give it its name, whole or not at all; where another test run was faster, its folder stays."""
    try:
        fetched.rename(folder)
    except OSError:
        shutil.rmtree(fetched)


def run_command(words: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
