"""Downloads etcd, kube-apiserver and kubectl: the archive that setup-envtest downloads.

The index has the address and the SHA-512 hash of an archive for each version and platform.
$KUBEWRIGHT_ENVTEST_INDEX is the address of another index, such as that of a mirror; `off` disables
the download. A link in the index may be relative to the index.
An archive of `testenv_archive` has programs of the repository in addition, such as the simulator.
Without a network the download fails within seconds, because a build follows.
"""

from __future__ import annotations

import hashlib
import http.client
import platform
import re
import shutil
import tarfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from kubewright.errors import ConfigError

from .pins import format_minor, parse_version, read_version
from .progress import Progress, format_bar, format_duration
from .testenv_wheel import MODULES

ARCHIVED_BINARIES = ("etcd", "kube-apiserver", "kubectl")
INDEX_VARIABLE = "KUBEWRIGHT_ENVTEST_INDEX"
_DEFAULT_INDEX = (
    "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
)
_OFF = "off"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MAX_INDEX_BYTES = 10_000_000
_CHUNK_BYTES = 1 << 20
_NETWORK_ERRORS = (OSError, http.client.HTTPException, ValueError)
_Result = TypeVar("_Result")


class DownloadFailed(ConfigError):
    """The archive could not be downloaded or is not usable; the message has the reason."""


class Timeouts(msgspec.Struct, frozen=True):
    """Of the steps of a download, in seconds."""

    # Until a response begins. The system's own timeouts are 10 s for a name that does not resolve,
    # and minutes for an address that does not answer.
    answer: float = 5.0
    # Until the next byte.
    stall: float = 10.0
    # Of the whole archive: a build takes 6 to 11 minutes.
    total: float = 600.0
    # Before the rate is known. After it, a download that would take longer than `total` fails.
    trial: float = 10.0


class Archive(msgspec.Struct):
    hash: str
    selfLink: str


class Index(msgspec.Struct):
    releases: dict[str, dict[str, Archive]]


def download_binaries(
    minor: str,
    folder: Path,
    environ: Mapping[str, str],
    progress: Progress,
    timeouts: Timeouts | None = None,
) -> None:
    """Download the newest patch release of a minor version of Kubernetes into an empty folder.

    Programs of Go modules, if the archive has any, are in the subfolder MODULES.
    """
    timeouts = timeouts or Timeouts()
    address = environ.get(INDEX_VARIABLE) or _DEFAULT_INDEX
    if address == _OFF:
        raise DownloadFailed(f"{INDEX_VARIABLE} is {_OFF}")
    name, archive = _select_archive(_read_index(address, timeouts), minor, address)
    link = urljoin(address, archive.selfLink)
    if urlsplit(link).scheme not in ("http", "https", urlsplit(address).scheme):
        raise DownloadFailed(f"the index {address} has the address {link}, which is not HTTP")
    file, started = folder / "archive", time.monotonic()
    digest = _fetch_archive(link, file, name, progress, timeouts)
    if digest != archive.hash.lower():
        raise DownloadFailed(
            f"{link} has the SHA-512 hash {digest[:16]}..., the index {address} has "
            f"{archive.hash[:16]}..."
        )
    _extract(file, folder, link)
    file.unlink()
    for binary in ARCHIVED_BINARIES:
        version = read_version(binary, folder / binary)
        if not version or (binary != "etcd" and format_minor(version) != minor):
            problem = f"is version {version}" if version else "does not run on this machine"
            raise DownloadFailed(f"{link} is not usable: its {binary} {problem}")
    progress.print_line(f"downloaded {link} in {format_duration(time.monotonic() - started)}")


def _read_index(address: str, timeouts: Timeouts) -> Index:
    def read() -> bytes:
        with urllib.request.urlopen(address, timeout=timeouts.answer) as response:
            content: bytes = response.read(_MAX_INDEX_BYTES)
            return content

    content = _call_within(timeouts.answer, read, address)
    try:
        return msgspec.yaml.decode(content, type=Index)
    except msgspec.DecodeError as error:
        raise DownloadFailed(f"{address} is not an index of setup-envtest: {error}") from None


def _select_archive(index: Index, minor: str, address: str) -> tuple[str, Archive]:
    """The name and the archive of the newest patch release for this platform."""
    target = _platform_name()
    # Not pre-releases, such as v1.36.0-rc.1.
    versions = (v for v in index.releases if re.fullmatch(rf"v{re.escape(minor)}\.\d+", v))
    for version in sorted(versions, key=parse_version, reverse=True):
        name = archive_name(version)
        if archive := index.releases[version].get(name):
            return name, archive
    raise DownloadFailed(f"the index {address} has no Kubernetes {minor} for {target}")


def _platform_name() -> str:
    """The platform of this machine, as archives name it."""
    system, machine = platform.system().lower(), platform.machine().lower()
    return f"{system}-{_ARCHITECTURES.get(machine, machine)}"


def archive_name(version: str) -> str:
    return f"envtest-{version}-{_platform_name()}.tar.gz"


def _fetch_archive(link: str, file: Path, name: str, progress: Progress, timeouts: Timeouts) -> str:
    """Write the archive to a file; returns its SHA-512 hash."""
    started, hash_, size = time.monotonic(), hashlib.sha512(), 0
    response = _call_within(
        timeouts.answer, lambda: urllib.request.urlopen(link, timeout=timeouts.stall), link
    )
    with response, file.open("wb") as target:
        length = response.headers.get("Content-Length") or ""
        total = int(length) if length.isascii() and length.isdecimal() else 0
        while True:
            try:
                # Not `read`: it returns only when all bytes are there, however slowly they come.
                chunk = response.read1(_CHUNK_BYTES)
            except _NETWORK_ERRORS as error:
                raise DownloadFailed(f"{link}: {_describe(error)} after {size:,} bytes") from None
            if not chunk:
                break
            target.write(chunk)
            hash_.update(chunk)
            size += len(chunk)
            seconds = time.monotonic() - started
            share = min(size / total, 1.0) if total else 0.0
            bar = format_bar(share, seconds) if total else ""
            progress.update_line(f"{bar}downloading {name}: {size / 1e6:.0f} MB")
            expected = seconds / share if share else seconds
            if seconds > timeouts.trial and expected > timeouts.total:
                raise DownloadFailed(f"{link} is too slow: {size:,} bytes in {seconds:.0f} s")
    if total and size < total:
        raise DownloadFailed(f"{link} ended after {size:,} of {total:,} bytes")
    return hash_.hexdigest()


def _extract(file: Path, folder: Path, link: str) -> None:
    missing = set(ARCHIVED_BINARIES)
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise DownloadFailed(f"{link} has a file outside of its folder: {path}")
                # Without its other folders, so that no file outside of `folder` is written.
                if path.parts[-3:-2] == (MODULES,):
                    target = folder.joinpath(*path.parts[-3:])
                elif path.name in missing:
                    target = folder / path.name
                else:
                    continue
                # None for a folder or a link to another file.
                source = archive.extractfile(member) if member.isfile() else None
                if source is None:
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("wb") as file_:
                    shutil.copyfileobj(source, file_)
                target.chmod(0o755)
                missing.discard(target.relative_to(folder).as_posix())
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DownloadFailed(f"{link} is not a tar.gz archive: {error}") from None
    if missing:
        raise DownloadFailed(f"{link} does not contain {', '.join(sorted(missing))}")


def _call_within(seconds: float, call: Callable[[], _Result], address: str) -> _Result:
    """Run a call in a thread, because name resolution has no timeout of its own."""
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except _NETWORK_ERRORS as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    reason = _describe(errors[0]) if errors else f"no answer within {seconds:g} s"
    raise DownloadFailed(f"{address}: {reason}")


def _describe(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        # The message about a redirect loop has several lines.
        return f"HTTP status {error.code}: {error.msg.splitlines()[0]}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return str(reason) or type(reason).__name__
