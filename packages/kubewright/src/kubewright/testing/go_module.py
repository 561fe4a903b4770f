"""Builds a test program from a Go module in the repository if its sources have changed.

`python -m kubewright.testing.go_module testenv/vcsim --into .testenv/bin` builds the main package
of the folder, with the name of the folder. In a folder without Go files it builds the tools that
go.mod names. Go is found or installed as for the other binaries.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .binaries import cache_folder
from .go_build import GoBuilder, Pins, Progress, format_duration, go_build_command, hold_file_lock

_ADVICE = "Go needs its module proxy (see `go env GOPROXY`) for the modules in go.mod."


def _build_module(
    folder: Path,
    name: str,
    into: Path,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    *,
    package: str = ".",
    tags: str = "",
) -> Path:
    """The path of the program; it is built unless it exists and its sources are unchanged."""
    environ, progress = os.environ if environ is None else environ, progress or Progress(sys.stderr)
    if not (folder / "go.mod").exists():
        raise ConfigError(f"{folder} is not a Go module: it has no go.mod")
    into.mkdir(parents=True, exist_ok=True)
    program, stamp = into / name, into / f".{name}.sources"
    digest = _digest_sources(folder, tags)
    with hold_file_lock(into / f".{name}.lock", progress):
        if not program.exists() or not stamp.exists() or stamp.read_text() != digest:
            _compile_module(folder, program, environ, progress, package, tags)
            stamp.write_text(digest)
    return program


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
    # Built under another name: a test may be running the old program.
    started, temporary = time.monotonic(), program.with_name(f".{program.name}.{os.getpid()}")
    try:
        builder.run_step(
            go_build_command(builder.find_go(), [package], str(temporary.absolute()), tags=tags),
            folder,
            lambda done: f"building {program.name}: {done} packages",
        )
        temporary.replace(program)
    finally:
        temporary.unlink(missing_ok=True)
    progress.print_line(f"built {program.name} in {format_duration(time.monotonic() - started)}")


def _list_packages(folder: Path) -> dict[str, str]:
    """The packages to build by the names of their programs."""
    go_mod = folder / "go.mod"
    if any(folder.glob("*.go")) or not go_mod.exists():
        return {folder.resolve().name: "."}
    text = go_mod.read_text()
    blocks = re.findall(r"^tool \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    paths = [*" ".join(blocks).split(), *re.findall(r"^tool ([^\s(]+)$", text, re.MULTILINE)]
    if not paths:
        raise ConfigError(f"{folder} has no Go files, and its go.mod names no tools")
    return {path.rpartition("/")[2]: path for path in paths}


def _digest_sources(folder: Path, tags: str = "") -> str:
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
        for name, package in _list_packages(options.folder).items():
            program = _build_module(
                options.folder, name, options.into, package=package, tags=options.tags
            )
            print(f"{name:<24} {program}")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
