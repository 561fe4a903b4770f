"""The package kubewright-testenv: the binaries of the tests in a wheel.

`python -m kubewright.testing.testenv_wheel .testenv/bin --output dist` packs what `make testenv`
has linked into the folder. An organisation puts the wheel into its package index; after
`pip install kubewright-testenv` no machine has to download or build. The version of the wheel is
that of Kubernetes, and its platform is this one.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kubewright.errors import ConfigError

from .pins import read_version

DISTRIBUTION, _PACKAGE = "kubewright-testenv", "kubewright_testenv"
# The folders of the package: binaries by name, and programs by the digest of their sources, as in
# the cache of `go_module`.
BINARIES, MODULES = "bin", "modules"
_VERSIONED_BY = "kube-apiserver"
_CHUNK_BYTES = 1 << 20
_INIT = '"""Binaries for kubewright.testing."""\n'
_METADATA = """\
Metadata-Version: 2.1
Name: kubewright-testenv
Version: {version}
Summary: etcd, kube-apiserver and other binaries for tests with kubewright.
Requires-Python: >=3.11
Description-Content-Type: text/markdown

The binaries that kubewright.testing starts in tests, of Kubernetes {version}:

{listed}

kubewright finds them after `pip install`, so that no machine has to download or build them.
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: kubewright
Root-Is-Purelib: false
Tag: {tag}
"""


def installed_folder() -> Path | None:
    """The folder of the installed package; None if it is not installed."""
    spec = find_spec(_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def list_programs(folder: Path) -> tuple[dict[str, Path], str]:
    """The programs that are linked into a folder, by name, and the version of Kubernetes."""
    programs = {path.name: path.resolve() for path in sorted(folder.glob("*")) if path.is_file()}
    if _VERSIONED_BY not in programs:
        raise ConfigError(f"{folder} has no {_VERSIONED_BY}. Run `make testenv` first.")
    version = read_version(_VERSIONED_BY, programs[_VERSIONED_BY])
    if not version:
        raise ConfigError(f"{folder / _VERSIONED_BY} prints no version. Build it again.")
    return programs, version


def build_wheel(folder: Path, output: Path) -> Path:
    """Pack the binaries that are linked into a folder; returns the path of the wheel."""
    programs, version = list_programs(folder)
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{system}"
    info = f"{_PACKAGE}-{version}.dist-info"
    listed = "\n".join(f"- {name}" for name in programs)
    texts = {
        f"{_PACKAGE}/__init__.py": _INIT,
        f"{info}/METADATA": _METADATA.format(version=version, listed=listed),
        f"{info}/WHEEL": _WHEEL.format(tag=tag),
    }
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"{_PACKAGE}-{version}-{tag}.whl"
    temporary = wheel.with_suffix(".partial")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            record = [_write_text(archive, name, text) for name, text in texts.items()]
            record += [
                _write_program(archive, f"{_PACKAGE}/{packed_path(path)}", path)
                for path in programs.values()
            ]
            lines = [*record, f"{info}/RECORD,,", ""]
            archive.writestr(_build_entry(f"{info}/RECORD"), "\n".join(lines))
        temporary.replace(wheel)
    finally:
        temporary.unlink(missing_ok=True)
    return wheel


def packed_path(program: Path) -> str:
    """The path of a program in the package, or in an archive."""
    if program.parent.parent.name == MODULES:
        return f"{MODULES}/{program.parent.name}/{program.name}"
    return f"{BINARIES}/{program.name}"


def _build_entry(name: str, mode: int = 0o644) -> zipfile.ZipInfo:
    # Without a time: the same binaries give the same wheel.
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # An installer makes a file executable if its entry has the mode.
    entry.external_attr = (0o100000 | mode) << 16
    return entry


def _write_text(archive: zipfile.ZipFile, name: str, text: str) -> str:
    archive.writestr(_build_entry(name), text)
    return _format_record(name, hashlib.sha256(text.encode()).digest(), len(text.encode()))


def _write_program(archive: zipfile.ZipFile, name: str, program: Path) -> str:
    entry, digest, size = _build_entry(name, 0o755), hashlib.sha256(), program.stat().st_size
    entry.file_size = size
    with program.open("rb") as source, archive.open(entry, "w") as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    return _format_record(name, digest.digest(), size)


def _format_record(name: str, digest: bytes, size: int) -> str:
    encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return f"{name},sha256={encoded},{size}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubewright.testing.testenv_wheel",
        description=f"Pack the binaries of the tests into the wheel {DISTRIBUTION}.",
    )
    parser.add_argument("folder", type=Path, help="the folder with the binaries or links to them")
    parser.add_argument(
        "--output", type=Path, default=Path("dist"), metavar="DIR", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    try:
        wheel = build_wheel(options.folder, options.output)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
