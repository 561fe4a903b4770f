"""The real binaries for tests: found where they fit, else built once from the pinned Go module.

`python -m kubewright.testing.binaries --into .testenv/bin` looks, for each binary, in $KUBEBUILDER_ASSETS, on PATH and in the user's
cache, builds what is missing (6 to 11 minutes on 2 cores, once), and links all of them into the folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .go_build import GO_PACKAGES, GoBuilder, Pins, Progress, load_pins, parse_version

_DEFAULT_BINARIES = ("etcd", "kube-apiserver", "kubectl")
_VERSION_ARGUMENTS = {"etcd": ["--version"], "kubectl": ["version", "--client"]}
_VERSION_TIMEOUT_SECONDS = 30


def find_binaries(
    names: Sequence[str] = _DEFAULT_BINARIES,
    environ: Mapping[str, str] | None = None,
    *,
    folders: Sequence[Path] = (),
    progress: Progress | None = None,
    version_pins: Pins | None = None,
) -> dict[str, Path]:
    """The path of each binary; builds what is nowhere. `folders` are looked at before all else."""
    environ = os.environ if environ is None else environ
    progress, version_pins = progress or Progress(sys.stderr), version_pins or load_pins()
    if unknown := set(names) - set(GO_PACKAGES):
        raise ConfigError(
            f"no binary is called {', '.join(sorted(unknown))}. There are: {', '.join(GO_PACKAGES)}."
        )
    if (named := environ.get("KUBEBUILDER_ASSETS")) and not Path(named).is_dir():
        progress.print_line(
            f"KUBEBUILDER_ASSETS names {named}, which is no folder; looking elsewhere"
        )
    cache = cache_folder(environ) / version_pins.digest
    found = {
        name: _find_existing(name, environ, folders, progress, version_pins) or cache / name
        for name in names
    }
    missing = [name for name, path in found.items() if not path.exists()]
    if missing:
        GoBuilder(cache, version_pins, environ, progress).build(missing)
    return found


def _find_existing(
    name: str, environ: Mapping[str, str], folders: Sequence[Path], progress: Progress, pinned: Pins
) -> Path | None:
    """The first binary of that name outside the cache whose version fits; says why another was passed over."""
    wanted = pinned.binary_version(name)
    for where, path in _list_candidates(name, environ, folders):
        has = _read_version(name, path)
        if parse_version(has)[:2] == parse_version(wanted)[:2]:
            return path
        minor = ".".join(wanted.split(".")[:2])
        progress.print_line(
            f"passed over {path} ({where}): {f'it is {has}' if has else 'it does not tell its version'}, and {minor} is pinned"
        )
    return None


def _list_candidates(
    name: str, environ: Mapping[str, str], folders: Sequence[Path]
) -> Iterator[tuple[str, Path]]:
    """Where a binary is outside the cache, and what led there."""
    places = [(str(folder), str(folder)) for folder in folders]
    places += [
        (variable, environ[variable])
        for variable in ("KUBEBUILDER_ASSETS", "PATH")
        if environ.get(variable)
    ]
    for where, path in places:
        if found := shutil.which(name, path=path):
            yield where, Path(found).absolute()


def _read_version(name: str, binary: Path) -> str:
    """What the binary says its version is, without the `v`; "" where it does not say."""
    try:
        asked = subprocess.run(
            [binary, *_VERSION_ARGUMENTS.get(name, ["--version"])],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = asked.stdout.split()
    return next(
        (
            word.removeprefix("v")
            for word in words
            if parse_version(word)[1:] and word.removeprefix("v")[:1].isdigit()
        ),
        "",
    )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Kubewright's folder in the user's cache; a relative XDG_CACHE_HOME does not count, as its specification says."""
    named = Path(environ.get("XDG_CACHE_HOME", ""))
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (named if named.is_absolute() else home / ".cache") / "kubewright"


def link_binaries(found: Mapping[str, Path], into: Path) -> None:
    """Link each binary into the folder; what is there already and is the same stays."""
    into.mkdir(parents=True, exist_ok=True)
    for name, path in found.items():
        target = into / name
        if target.exists() and target.samefile(path):
            continue
        beside = into / f".{name}.{os.getpid()}"
        beside.symlink_to(path.resolve())
        beside.replace(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.binaries",
        description="Find or build the real binaries for tests.",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="link the binaries into this folder"
    )
    parser.add_argument(
        "--only",
        default=",".join(_DEFAULT_BINARIES),
        metavar="NAMES",
        help=f"which, with commas between; of {', '.join(GO_PACKAGES)}",
    )
    options = parser.parse_args(arguments)
    try:
        found = find_binaries([name.strip() for name in options.only.split(",") if name.strip()])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if options.into:
        link_binaries(found, options.into)
    for name, path in found.items():
        print(f"{name:<24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
