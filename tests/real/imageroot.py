"""The image's root, filled here: the steps of the Dockerfile, with wheels that are fetched once for each lock and interpreter."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kubewright.testing.assets import cache_folder

LOCKS = ("requirements/runtime.txt", "requirements/build.txt")


def fill(repository: Path, root: Path) -> None:
    """Do what the Dockerfile has Python do, in its order. pip checks the wheels by their hashes, wherever they come from."""
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels(repository))}
    for step in steps(repository):
        run([sys.executable, *step, str(root)], repository, environ)


def steps(repository: Path) -> list[list[str]]:
    """The Dockerfile's calls of Python, without the folder that each ends with."""
    lines = re.findall(r'^RUN (\["python", .*\])$', (repository / "Dockerfile").read_text(), re.MULTILINE)
    return [json.loads(line)[1:-1] for line in lines]


def wheels(repository: Path) -> Path:
    """A folder with all that the locks name, in the user's cache: looking through an index costs pip 15 s of processor time."""
    pinned = "".join((repository / lock).read_text() for lock in LOCKS) + str(sys.implementation.cache_tag)
    cache = cache_folder(os.environ)
    folder = cache / f"wheels-{hashlib.sha256(pinned.encode()).hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fetched = Path(tempfile.mkdtemp(prefix="wheels-", dir=cache))
        files = [word for lock in LOCKS for word in ("-r", lock)]
        download = ("download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes", "--dest", str(fetched))
        run([sys.executable, "-m", "pip", *download, *files], repository, os.environ)
        publish(fetched, folder)
    return folder


def publish(fetched: Path, folder: Path) -> None:
    """Give it its name, whole or not at all; where another test run was faster, its folder stays."""
    try:
        fetched.rename(folder)
    except OSError:
        shutil.rmtree(fetched)


def run(words: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
