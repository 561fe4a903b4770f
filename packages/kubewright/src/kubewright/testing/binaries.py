"""Finds etcd, kube-apiserver and kubectl in the pinned versions, or builds them once.

`python -m kubewright.testing.binaries --into .testenv/bin` searches for each binary in
$KUBEBUILDER_ASSETS, on PATH and in the user's cache, builds the missing ones (6 to 11 minutes on 2
cores, once), and links all of them into the folder.
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

# As a shell reports a program that Ctrl-C ended.
_INTERRUPTED_EXIT_CODE = 130
_DEFAULT_BINARIES = ("etcd", "kube-apiserver", "kubectl")
_VERSION_ARGUMENTS = {"etcd": ["--version"], "kubectl": ["version", "--client"]}
_VERSION_TIMEOUT_SECONDS = 30


def find_binaries(
    names: Sequence[str] = _DEFAULT_BINARIES,
    environ: Mapping[str, str] | None = None,
    *,
    folders: Sequence[Path] = (),
    progress: Progress | None = None,
    pins: Pins | None = None,
    build: bool = True,
) -> dict[str, Path]:
    """The path of each binary; missing ones are built. `folders` are searched first.

    Without `build`, a missing binary is an error that names the command to build it.
    """
    environ = os.environ if environ is None else environ
    progress, pins = progress or Progress(sys.stderr), pins or load_pins()
    if unknown := set(names) - set(GO_PACKAGES):
        raise ConfigError(
            f"unknown binary {', '.join(sorted(unknown))}; must be one of {', '.join(GO_PACKAGES)}"
        )
    if (assets := environ.get("KUBEBUILDER_ASSETS")) and not Path(assets).is_dir():
        progress.print_line(f"ignoring KUBEBUILDER_ASSETS: {assets} is not a directory")
    cache = cache_folder(environ) / pins.digest
    paths = {
        name: _find_existing(name, environ, folders, progress, pins) or cache / name
        for name in names
    }
    missing = [name for name, path in paths.items() if not path.exists()]
    if missing and not build:
        into = f" --into {folders[0]}" if folders else ""
        raise ConfigError(
            f"{', '.join(missing)} is missing. Build it, which takes minutes once, with: "
            f"python -m kubewright.testing.binaries --only {','.join(missing)}{into}"
        )
    if missing:
        GoBuilder(cache, pins, environ, progress).build(missing)
    return paths


def _find_existing(
    name: str, environ: Mapping[str, str], folders: Sequence[Path], progress: Progress, pins: Pins
) -> Path | None:
    """The first binary outside of the cache that has the pinned minor version."""
    pinned = pins.binary_version(name)
    for source, path in _list_candidates(name, environ, folders):
        version = _read_version(name, path)
        if parse_version(version)[:2] == parse_version(pinned)[:2]:
            return path
        minor = ".".join(pinned.split(".")[:2])
        problem = f"is version {version}" if version else "prints no version"
        progress.print_line(f"ignoring {path} (from {source}): it {problem}, {minor} is required")
    return None


def _list_candidates(
    name: str, environ: Mapping[str, str], folders: Sequence[Path]
) -> Iterator[tuple[str, Path]]:
    """The binaries of this name outside of the cache, each with the source of its path."""
    sources = [(str(folder), str(folder)) for folder in folders]
    sources += [
        (variable, environ[variable])
        for variable in ("KUBEBUILDER_ASSETS", "PATH")
        if environ.get(variable)
    ]
    for source, path in sources:
        if binary := shutil.which(name, path=path):
            yield source, Path(binary).absolute()


def _read_version(name: str, binary: Path) -> str:
    """The version that the binary prints, without the `v`; "" if it prints none."""
    try:
        process = subprocess.run(
            [binary, *_VERSION_ARGUMENTS.get(name, ["--version"])],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # kubectl and kube-apiserver print "... v1.36.3", etcd prints "etcd Version: 3.6.1".
    versions = (word.removeprefix("v") for word in process.stdout.split())
    return next((text for text in versions if text[:1].isdigit() and parse_version(text)[1:]), "")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder of kubewright in the user's cache."""
    # The XDG specification requires that a relative path is ignored.
    cache_home = Path(environ.get("XDG_CACHE_HOME", ""))
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (cache_home if cache_home.is_absolute() else home / ".cache") / "kubewright"


def link_binaries(paths: Mapping[str, Path], into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        target = into / name
        if target.exists() and target.samefile(path):
            continue
        # Two steps, because a link cannot be overwritten, and a running test may use it.
        temporary = into / f".{name}.{os.getpid()}"
        temporary.symlink_to(path.resolve())
        temporary.replace(target)


def report_interruption() -> int:
    """Print that Ctrl-C ended a build; returns the exit code."""
    # Go keeps the packages that it has compiled.
    Progress(sys.stderr).print_line("Interrupted. The next run continues the build.")
    return _INTERRUPTED_EXIT_CODE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.binaries",
        description="Find or build etcd, kube-apiserver and kubectl for tests.",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="link the binaries into this folder"
    )
    parser.add_argument(
        "--only",
        default=",".join(_DEFAULT_BINARIES),
        metavar="NAMES",
        help=f"comma-separated list of {', '.join(GO_PACKAGES)}; default: %(default)s",
    )
    options = parser.parse_args(arguments)
    try:
        paths = find_binaries([name.strip() for name in options.only.split(",") if name.strip()])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return report_interruption()
    if options.into:
        link_binaries(paths, options.into)
    for name, path in paths.items():
        print(f"{name:<24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
