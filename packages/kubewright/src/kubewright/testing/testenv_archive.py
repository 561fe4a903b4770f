"""The archive of a mirror: what setup-envtest downloads, and programs of the repository.

`python -m kubewright.testing.testenv_archive .testenv/bin --program vcsim --output dist/envtest`
packs etcd, kube-apiserver, kubectl and the programs, and adds the archive to the index in the same
folder. A server that serves the folder is a mirror: with the address of its index in
$KUBEWRIGHT_ENVTEST_INDEX, a machine needs neither another network nor Go.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kubewright.errors import ConfigError

from .envtest import ARCHIVED_BINARIES, Archive, Index, archive_name
from .testenv_wheel import list_programs, packed_path

INDEX_NAME = "envtest-releases.yaml"
# As in the official archives.
_FOLDER = "controller-tools/envtest"


def build_archive(folder: Path, programs: Sequence[str], output: Path) -> Path:
    """Pack binaries that are linked into a folder; returns the path of the archive."""
    paths, number = list_programs(folder)
    names = [*ARCHIVED_BINARIES, *programs]
    if missing := [name for name in names if name not in paths]:
        raise ConfigError(f"{folder} has no {', '.join(missing)}. Run `make testenv` first.")
    output.mkdir(parents=True, exist_ok=True)
    index_file, version = output / INDEX_NAME, f"v{number}"
    index = _read_index(index_file)
    file = output / archive_name(version)
    temporary = file.with_suffix(".partial")
    try:
        # Without times: the same binaries give the same archive.
        with (
            temporary.open("wb") as target,
            gzip.GzipFile("", "wb", 6, target, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            for name in names:
                _add_program(archive, name, paths[name])
        with temporary.open("rb") as packed:
            digest = hashlib.file_digest(packed, "sha512").hexdigest()
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    index.releases.setdefault(version, {})[file.name] = Archive(digest, file.name)
    index_file.write_bytes(msgspec.yaml.encode(index))
    return file


def _read_index(file: Path) -> Index:
    if not file.exists():
        return Index({})
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Index)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file} is not an index of setup-envtest: {error}") from None


def _add_program(archive: tarfile.TarFile, name: str, path: Path) -> None:
    packed = name if name in ARCHIVED_BINARIES else packed_path(path)
    entry = tarfile.TarInfo(f"{_FOLDER}/{packed}")
    entry.size, entry.mode = path.stat().st_size, 0o755
    with path.open("rb") as source:
        archive.addfile(entry, source)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.testenv_archive",
        description="Pack the binaries of the tests as a mirror of setup-envtest serves them.",
    )
    parser.add_argument("folder", type=Path, help="the folder with the binaries or links to them")
    parser.add_argument(
        "--program",
        action="append",
        default=[],
        metavar="NAME",
        help="a program of a Go module of the repository to add; may be repeated",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("dist/envtest"),
        metavar="DIR",
        help="default: %(default)s",
    )
    options = parser.parse_args(arguments)
    try:
        file = build_archive(options.folder, options.program, options.output)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file} ({file.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
