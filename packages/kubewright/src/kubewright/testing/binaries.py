"""Finds etcd, kube-apiserver and kubectl in the pinned versions, downloads or builds them once.

`python -m kubewright.testing.binaries --into .testenv/bin` searches for each binary in
$KUBEBUILDER_ASSETS, on PATH, in the package kubewright-testenv and in the user's cache. Once, it
downloads missing ones with `envtest`, or builds them with `go_build` (6 to 11 minutes on 2 cores).
It links all of them into the folder. $KUBEWRIGHT_KUBERNETES selects the version of Kubernetes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kubewright.errors import ConfigError

from .envtest import ARCHIVED_BINARIES, DownloadFailed, download_binaries
from .file_lock import hold_file_lock
from .go_build import GO_PACKAGES, SCRATCH_PREFIX, GoBuilder
from .pins import (
    KUBERNETES_VARIABLE,
    PINNED_KUBERNETES,
    Pins,
    format_minor,
    read_version,
    select_pins,
)
from .progress import Progress
from .testenv_wheel import BINARIES, DISTRIBUTION, MODULES, installed_folder

# As a shell reports a program that Ctrl-C ended.
_INTERRUPTED_EXIT_CODE = 130
# Each version of Kubernetes works with both.
_ETCD_VERSIONS = ("3.5", "3.6")


def find_binaries(
    names: Sequence[str] = ARCHIVED_BINARIES,
    environ: Mapping[str, str] | None = None,
    *,
    folders: Sequence[Path] = (),
    progress: Progress | None = None,
    pins: Pins | None = None,
    build: bool = True,
) -> dict[str, Path]:
    """The path of each binary; missing ones are downloaded or built. `folders` come first.

    Without `build`, a missing binary is an error that names the command to get it.
    """
    environ = os.environ if environ is None else environ
    progress, pins = progress or Progress(sys.stderr), pins or select_pins(environ)
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
            f"{', '.join(missing)} is missing. Download or build it, which takes minutes once, "
            f"with: python -m kubewright.testing.binaries --only {','.join(missing)}{into}"
        )
    if missing:
        with explain_unusable_cache(cache):
            _fill_cache(cache, missing, environ, progress, pins)
    return paths


@contextlib.contextmanager
def explain_unusable_cache(cache: Path) -> Iterator[None]:
    """Raise an error of the file system with what a user can do about it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{cache} is not usable: {error}. Free some disk space, or set XDG_CACHE_HOME to a "
            "folder that you can write to."
        ) from error


def _fill_cache(
    cache: Path, names: Sequence[str], environ: Mapping[str, str], progress: Progress, pins: Pins
) -> None:
    """Download the missing binaries, and build those that cannot be downloaded."""
    cache.mkdir(parents=True, exist_ok=True)
    with hold_file_lock(cache / "lock", progress):
        # Folders of runs that were killed: while this process holds the lock, none is in use.
        for abandoned in cache.glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        missing = [name for name in names if not (cache / name).exists()]
        if any(name in ARCHIVED_BINARIES for name in missing):
            try:
                _download(cache, environ, progress, pins)
            except DownloadFailed as error:
                progress.print_line(
                    f"cannot download Kubernetes {pins.minor_version('kube-apiserver')}: {error}\n"
                    "building it instead, which takes minutes once"
                )
            missing = [name for name in missing if not (cache / name).exists()]
        if missing:
            GoBuilder(cache, pins, environ, progress).compile(missing)


def _download(cache: Path, environ: Mapping[str, str], progress: Progress, pins: Pins) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix=SCRATCH_PREFIX) as scratch:
        download_binaries(pins.minor_version("kube-apiserver"), Path(scratch), environ, progress)
        for name in ARCHIVED_BINARIES:
            if not (cache / name).exists():
                (Path(scratch) / name).replace(cache / name)
        # The cache of go_module.
        for program in Path(scratch).glob(f"{MODULES}/*/*"):
            target = cache.parent / program.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            program.replace(target)


def _find_existing(
    name: str, environ: Mapping[str, str], folders: Sequence[Path], progress: Progress, pins: Pins
) -> Path | None:
    """The first binary outside of the cache that has the right minor version."""
    accepted = _ETCD_VERSIONS if name == "etcd" else (pins.minor_version(name),)
    for source, path in _list_candidates(name, environ, folders):
        version = read_version(name, path)
        minor = format_minor(version)
        if minor in accepted:
            return path
        problem = f"is version {version}" if version else "prints no version"
        hint = f"; {KUBERNETES_VARIABLE}={minor} selects it" if minor in PINNED_KUBERNETES else ""
        progress.print_line(
            f"ignoring {path} (from {source}): it {problem}, "
            f"{' or '.join(accepted)} is required{hint}"
        )
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
    if installed := installed_folder():
        sources.append((f"the package {DISTRIBUTION}", str(installed / BINARIES)))
    for source, path in sources:
        if binary := shutil.which(name, path=path):
            yield source, Path(binary).absolute()


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
    """Print that Ctrl-C ended a download or a build; returns the exit code."""
    # Go keeps the packages that it has compiled; a download starts again.
    Progress(sys.stderr).print_line("Interrupted. The next run continues the build.")
    return _INTERRUPTED_EXIT_CODE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.binaries",
        description="Find, download or build etcd, kube-apiserver and kubectl for tests.",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="link the binaries into this folder"
    )
    parser.add_argument(
        "--only",
        default=",".join(ARCHIVED_BINARIES),
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
        print(f"{name:<24} {read_version(name, path):<8} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
