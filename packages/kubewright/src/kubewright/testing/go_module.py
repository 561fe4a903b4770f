"""Builds a test program from a Go module in the repository, once for each state of its sources.

`python -m kubewright.testing.go_module testenv/vcsim --into .testenv/bin` builds the main package
of the folder into the user's cache and links it into `.testenv/bin`, with the name of the folder.
In a folder without Go files it builds the tools that go.mod names. Another clone with the same
sources uses the same programs. Go is found or installed as for the other binaries.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .binaries import (
    cache_folder,
    explain_unusable_cache,
    link_binaries,
    report_interruption,
)
from .file_lock import hold_file_lock
from .go_build import GoBuilder
from .pins import Pins
from .progress import Progress
from .testenv_wheel import MODULES, installed_folder

# A program that no clone has asked for in this time is removed; another version has replaced it.
_UNUSED_DAYS = 30
_ADVICE = "Go needs its module proxy (see `go env GOPROXY`) for the modules in go.mod."


def build_module(
    folder: Path,
    into: Path,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    *,
    tags: str = "",
    build: bool = True,
) -> list[Path]:
    """The links to its programs, which are built unless the cache has them for these sources.

    The package kubewright-testenv may have them as well. Without `build`, a missing program is an
    error: a test must not build for minutes.
    """
    environ, progress = os.environ if environ is None else environ, progress or Progress(sys.stderr)
    packages, module = _list_packages(folder), folder.resolve().name
    version = f"{module}-{_digest_sources(folder, tags)[:16]}"
    installed = installed_folder()
    if installed and all((installed / MODULES / version / name).exists() for name in packages):
        link_binaries({name: installed / MODULES / version / name for name in packages}, into)
        return [into / name for name in packages]
    modules = cache_folder(environ) / MODULES
    cached = modules / version
    if missing := [name for name in packages if not build and not (cached / name).exists()]:
        raise ConfigError(
            f"{', '.join(missing)} is missing. Build it with: "
            f"python -m kubewright.testing.go_module {folder} --into {into}"
        )
    with explain_unusable_cache(modules):
        cached.mkdir(parents=True, exist_ok=True)
        with hold_file_lock(cached / "lock", progress):
            for name, package in packages.items():
                if not (cached / name).exists():
                    _compile_module(folder, cached / name, environ, progress, package, tags)
            # The time of the last use.
            os.utime(cached)
        _remove_unused(modules, module)
    link_binaries({name: cached / name for name in packages}, into)
    return [into / name for name in packages]


def _list_packages(folder: Path) -> dict[str, str]:
    """The packages to build by the names of their programs."""
    go_mod = folder / "go.mod"
    if not go_mod.exists():
        raise ConfigError(f"{folder} is not a Go module: it has no go.mod")
    if any(folder.glob("*.go")):
        return {folder.resolve().name: "."}
    text = go_mod.read_text()
    blocks = re.findall(r"^tool \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    paths = [*" ".join(blocks).split(), *re.findall(r"^tool ([^\s(]+)$", text, re.MULTILINE)]
    if not paths:
        raise ConfigError(f"{folder} has no Go files, and its go.mod names no tools")
    return {path.rpartition("/")[2]: path for path in paths}


def _remove_unused(modules: Path, module: str) -> None:
    """Removes the versions of a module that were not used for a month."""
    oldest = time.time() - _UNUSED_DAYS * 24 * 3600
    for folder in modules.glob(f"{module}-*"):
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def _compile_module(
    folder: Path,
    program: Path,
    environ: Mapping[str, str],
    progress: Progress,
    package: str,
    tags: str,
) -> None:
    pins = Pins((folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes())
    cache = cache_folder(environ) / pins.digest
    cache.mkdir(parents=True, exist_ok=True)
    builder = GoBuilder(cache, pins, environ, progress, advice=_ADVICE)
    # Built under another name: an interrupted build must leave no program.
    temporary = program.with_name(f".{program.name}.{os.getpid()}")
    try:
        packages = {program.name: package}
        builder.build_packages(packages, folder, str(temporary.absolute()), tags=tags)
        temporary.replace(program)
    finally:
        temporary.unlink(missing_ok=True)


def _digest_sources(folder: Path, tags: str) -> str:
    """A digest of the sources, the pins, the tags, the operating system and the processor."""
    # Not the modification times: git sets them at checkout.
    digest = hashlib.sha256(f"{platform.system()}-{platform.machine()}{tags}".encode())
    for path in sorted(folder.rglob("*")):
        is_source = path.suffix == ".go" and not path.name.endswith("_test.go")
        if is_source or path.name in ("go.mod", "go.sum"):
            digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.go_module",
        description="Build a Go module of the repository.",
    )
    parser.add_argument("folder", type=Path, help="the folder with go.mod and the main package")
    parser.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="the folder for the program"
    )
    parser.add_argument("--tags", default="", help="comma-separated build tags")
    options = parser.parse_args(arguments)
    try:
        programs = build_module(options.folder, options.into, tags=options.tags)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return report_interruption()
    for program in programs:
        print(f"{program.name:<24} {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
