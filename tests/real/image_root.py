"""Builds the root of the image by the first stage of the Dockerfile, with cached wheels."""

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
    """Runs each COPY and RUN of the first stage in a folder that has only the copied files."""
    # pip checks the hashes of cached wheels, too.
    context, root = folder / "context", folder / "root"
    environ = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(fetch_wheels(repository))}
    for instruction, arguments in read_stages()[0]:
        if instruction == "COPY":
            run_copy(arguments, context)
        elif instruction == "RUN":
            python, *options, target = json.loads(arguments)
            assert (python, target) == ("python", "/image")
            if root.exists():
                run_command([sys.executable, *options, str(root)], context, environ)
            else:
                shutil.copytree(build_first_layer(options, context, environ), root, symlinks=True)
    return root


def build_first_layer(options: list[str], context: Path, environ: Mapping[str, str]) -> Path:
    """The result of the first RUN in the user's cache, as an engine caches a layer.

    It depends on the copied files and on the interpreter: here that of this machine, with its
    libraries. To compile its standard library takes most of the CPU time of a build.
    """
    digest = hashlib.sha256(f"{options} {sys.version} {sys.base_prefix}".encode())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(context)}\n".encode())
        digest.update(path.read_bytes())
    cache = cache_folder(os.environ)
    layer = cache / f"image-layer-{digest.hexdigest()[:16]}"
    if not layer.exists():
        built = Path(tempfile.mkdtemp(prefix="image-layer-", dir=cache))
        built.chmod(0o755)
        run_command([sys.executable, *options, str(built)], context, environ)
        move_into_cache(built, layer)
    return layer


def fetch_wheels(repository: Path) -> Path:
    """A folder in the user's cache with the wheels of the locks."""
    # Without it pip spends 15 s of CPU time on reading the index.
    pinned = "".join((repository / lock).read_text() for lock in LOCK_FILES) + str(
        sys.implementation.cache_tag
    )
    cache = cache_folder(os.environ)
    folder = cache / f"wheels-{hashlib.sha256(pinned.encode()).hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fetched = Path(tempfile.mkdtemp(prefix="wheels-", dir=cache))
        files = [argument for lock in LOCK_FILES for argument in ("-r", lock)]
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
    # Another test run may have been faster; its folder stays.
    try:
        fetched.rename(folder)
    except OSError:
        shutil.rmtree(fetched)


def run_command(command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
