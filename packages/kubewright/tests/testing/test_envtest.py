"""The download of the envtest archive, from a local server that also misbehaves."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import platform
import re
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from kubewright.errors import ConfigError
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.envtest import (
    ARCHIVED_BINARIES,
    INDEX_VARIABLE,
    DownloadFailed,
    Timeouts,
    download_binaries,
)
from kubewright.testing.progress import Progress
from kubewright.version import NEWEST_KUBERNETES

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PLATFORM = f"{platform.system().lower()}-{ARCHITECTURE}"
VERSION = f"v{NEWEST_KUBERNETES}.2"
NAME = f"envtest-{VERSION}-{PLATFORM}.tar.gz"
# Far more than the timeouts, for a busy machine, and far less than the downloads would take.
SECONDS = 30
FAST = Timeouts(answer=1.0, stall=1.0, total=5.0, trial=0.5)
# A build that would follow a failed download ends at once.
FAKE_GO = '#!/bin/sh\necho "$1" >> "$CALLS"\n[ "$1" = env ] && echo go1.99 || exit 1\n'

# Without the package kubewright-testenv, which a developer may have installed.
COMMAND = """
from kubewright.testing import binaries
binaries.installed_folder = lambda: None
raise SystemExit(binaries.main([]))
"""

Answer = Callable[[BaseHTTPRequestHandler], None]


class ArchiveServer(ThreadingHTTPServer):
    """Answers each path with a function, and counts the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.closed = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def serve(self, path: str, content: bytes) -> None:
        self.answers[path] = partial(send, content=content)

    def serve_index(self, archives: dict[str, dict[str, dict[str, str]]]) -> None:
        self.serve("/index.yaml", yaml.safe_dump({"releases": archives}).encode())

    def serve_archive(self, content: bytes, name: str = NAME, version: str = VERSION) -> None:
        self.serve_index({version: {name: describe(content, name)}})
        self.serve(f"/{name}", content)


class _Handler(BaseHTTPRequestHandler):
    server: ArchiveServer

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        answer = self.server.answers.get(self.path, send_not_found)
        # The client may have gone: that is what some tests are about.
        try:
            answer(self)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def send(handler: BaseHTTPRequestHandler, content: bytes, length: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    handler.end_headers()
    handler.wfile.write(content)


def send_not_found(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(404)


def describe(content: bytes, name: str = NAME) -> dict[str, str]:
    return {"hash": hashlib.sha512(content).hexdigest(), "selfLink": name}


def make_archive(
    folder: str = "controller-tools/envtest/",
    names: tuple[str, ...] = ARCHIVED_BINARIES,
    version: str = VERSION,
    padding: bytes = b"",
) -> bytes:
    """An archive with scripts that print a version."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in names:
            printed = "etcd Version: 3.6.5" if name == "etcd" else f"Kubernetes {version}"
            content = f"#!/bin/sh\necho '{printed}'\nexit\n".encode() + padding
            member = tarfile.TarInfo(f"{folder}{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    server = ArchiveServer()
    # The default interval of 0.5 s would delay the end of every test.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.closed.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environ(server: ArchiveServer, no_installed_package: None, tmp_path: Path) -> dict[str, str]:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    return {
        "PATH": str(go.parent),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
        INDEX_VARIABLE: f"{server.url}/index.yaml",
    }


@pytest.fixture
def download(environ: dict[str, str], tmp_path: Path) -> Callable[..., Path]:
    def run(timeouts: Timeouts | None = None) -> Path:
        folder = tmp_path / "folder"
        folder.mkdir()
        progress = Progress(io.StringIO())
        download_binaries(NEWEST_KUBERNETES, folder, environ, progress, timeouts)
        return folder

    return run


def failure_of(download: Callable[..., Path], timeouts: Timeouts | None = None) -> str:
    with pytest.raises(DownloadFailed) as caught:
        download(timeouts)
    return str(caught.value)


def test_binaries_are_downloaded_and_executable(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    server.serve_archive(make_archive())
    folder = download()
    assert {path.name for path in folder.iterdir()} == set(ARCHIVED_BINARIES)
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())
    assert server.requests == ["/index.yaml", f"/{NAME}"]


def test_newest_patch_release_for_this_platform_is_selected(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    content = make_archive()
    minor = f"v{NEWEST_KUBERNETES}"
    wanted = f"envtest-{minor}.10-{PLATFORM}.tar.gz"
    server.serve_index(
        {
            f"{minor}.9": {f"envtest-{minor}.9-{PLATFORM}.tar.gz": describe(b"", "nine")},
            f"{minor}.10": {wanted: describe(content, "ten")},
            f"{minor}.11": {f"envtest-{minor}.11-plan9-amd64.tar.gz": describe(b"", "eleven")},
            f"{minor}.12-rc.1": {f"envtest-{minor}.12-rc.1-{PLATFORM}.tar.gz": describe(b"", "rc")},
            "v9.99.0": {f"envtest-v9.99.0-{PLATFORM}.tar.gz": describe(b"", "other")},
        }
    )
    server.serve("/ten", content)
    download()
    assert server.requests[-1] == "/ten"


def test_wrong_hash_is_an_error(server: ArchiveServer, download: Callable[..., Path]) -> None:
    server.serve_archive(make_archive())
    server.serve(f"/{NAME}", make_archive(padding=b"# changed"))
    assert "has the SHA-512 hash" in failure_of(download)


def test_truncated_archive_is_an_error(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    content = make_archive()
    server.serve_archive(content)

    def truncate(handler: BaseHTTPRequestHandler) -> None:
        send(handler, content[:100], len(content))
        handler.close_connection = True

    server.answers[f"/{NAME}"] = truncate
    assert failure_of(download).endswith(f"ended after 100 of {len(content)} bytes")


def test_content_length_that_is_no_number_is_ignored(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    content = make_archive()
    server.serve_archive(content)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "unknown")
        handler.end_headers()
        handler.wfile.write(content)

    server.answers[f"/{NAME}"] = answer
    assert (download() / "etcd").exists()


def test_archive_that_is_no_archive_is_an_error(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    server.serve_archive(b"an error page")
    assert "is not a tar.gz archive" in failure_of(download)


def test_slow_server_is_given_up(server: ArchiveServer, download: Callable[..., Path]) -> None:
    content = make_archive(padding=os.urandom(1_000_000))
    server.serve_archive(content)

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        send(handler, b"", len(content))
        for byte in content:
            handler.wfile.write(bytes([byte]))
            if server.closed.wait(0.05):
                return

    server.answers[f"/{NAME}"] = trickle
    started = time.monotonic()
    assert "is too slow" in failure_of(download, FAST)
    assert time.monotonic() - started < SECONDS


def test_server_that_stalls_is_given_up(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    content = make_archive()
    server.serve_archive(content)

    def stall(handler: BaseHTTPRequestHandler) -> None:
        send(handler, content[:50], len(content))
        server.closed.wait()

    server.answers[f"/{NAME}"] = stall
    assert failure_of(download, FAST).endswith("no answer in time after 50 bytes")


def test_index_without_answer_is_given_up(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:

    def wait(handler: BaseHTTPRequestHandler) -> None:
        server.closed.wait()

    server.answers["/index.yaml"] = wait
    started = time.monotonic()
    assert "no answer" in failure_of(download, FAST)
    assert time.monotonic() - started < SECONDS


def test_server_that_is_absent_is_an_error(
    environ: dict[str, str], download: Callable[..., Path]
) -> None:
    # Port 0 never accepts a connection.
    environ[INDEX_VARIABLE] = "http://127.0.0.1:0/index.yaml"
    assert failure_of(download).startswith("http://127.0.0.1:0/index.yaml: ")


def test_name_that_does_not_resolve_takes_seconds(
    environ: dict[str, str], download: Callable[..., Path]
) -> None:
    environ[INDEX_VARIABLE] = "https://envtest.invalid/index.yaml"
    started = time.monotonic()
    assert failure_of(download, FAST).startswith("https://envtest.invalid/index.yaml: ")
    assert time.monotonic() - started < SECONDS


def test_missing_index_and_archive_are_errors(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path
) -> None:
    assert failure_of(download).endswith("/index.yaml: HTTP status 404: Not Found")
    (tmp_path / "folder").rmdir()
    server.serve_index({VERSION: {NAME: describe(b"")}})
    assert failure_of(download).endswith(f"/{NAME}: HTTP status 404: Not Found")


@pytest.mark.parametrize("content", [b"releases: 7", b"<html>", b"a: [", b"\xff\xfe\x00"])
def test_index_of_another_form_is_an_error(
    server: ArchiveServer, download: Callable[..., Path], content: bytes
) -> None:
    server.serve("/index.yaml", content)
    assert "is not an index of setup-envtest" in failure_of(download)


def test_redirects_are_followed_but_not_in_a_loop(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path
) -> None:
    def redirect(handler: BaseHTTPRequestHandler, target: str) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.serve_archive(make_archive())
    server.answers["/moved"] = server.answers[f"/{NAME}"]
    server.answers[f"/{NAME}"] = partial(redirect, target="/moved")
    assert (download() / "etcd").exists()
    server.answers["/moved"] = partial(redirect, target=f"/{NAME}")
    (tmp_path / "folder").rename(tmp_path / "first")
    assert "HTTP status 302" in failure_of(download)
    assert len(server.requests) < 30


@pytest.mark.parametrize("folder", ["../../../", "/", "a/../../"])
def test_archive_with_path_traversal_writes_nothing(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path, folder: str
) -> None:
    server.serve_archive(make_archive(folder))
    before = set(tmp_path.rglob("*"))
    assert f"has a file outside of its folder: {folder}etcd" in failure_of(download)
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "folder", tmp_path / "folder/archive"}


def test_link_in_the_archive_is_not_followed(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("controller-tools/envtest/etcd")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
        archive.addfile(member)
    server.serve_archive(file.getvalue())
    assert failure_of(download).endswith("does not contain etcd, kube-apiserver, kubectl")


def test_index_without_this_platform_is_an_error(
    server: ArchiveServer, download: Callable[..., Path]
) -> None:
    server.serve_archive(make_archive(), f"envtest-{VERSION}-plan9-amd64.tar.gz")
    assert failure_of(download).endswith(f"has no Kubernetes {NEWEST_KUBERNETES} for {PLATFORM}")


def test_archive_of_another_platform_or_version_is_an_error(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path
) -> None:
    server.serve_archive(make_archive(version="v1.2.3"))
    assert failure_of(download).endswith("is not usable: its kube-apiserver is version 1.2.3")
    (tmp_path / "folder").rename(tmp_path / "first")
    server.serve_archive(make_archive(version="unknown"))
    assert failure_of(download).endswith("its kube-apiserver does not run on this machine")


def test_address_of_a_local_file_is_refused(
    server: ArchiveServer, download: Callable[..., Path], tmp_path: Path
) -> None:
    content = make_archive()
    (tmp_path / NAME).write_bytes(content)
    server.serve_index({VERSION: {NAME: describe(content, (tmp_path / NAME).as_uri())}})
    assert "which is not HTTP" in failure_of(download)


def test_mirror_can_be_a_folder(
    environ: dict[str, str], download: Callable[..., Path], tmp_path: Path
) -> None:
    content = make_archive()
    (tmp_path / NAME).write_bytes(content)
    index = tmp_path / "index.yaml"
    index.write_text(yaml.safe_dump({"releases": {VERSION: {NAME: describe(content)}}}))
    environ[INDEX_VARIABLE] = index.as_uri()
    assert (download() / "etcd").exists()


# As a part of the search


def find(environ: dict[str, str], output: io.StringIO | None = None) -> dict[str, Path]:
    return find_binaries(environ=environ, progress=Progress(output or io.StringIO()))


def test_downloaded_binaries_are_cached_and_not_built(
    server: ArchiveServer, environ: dict[str, str]
) -> None:
    server.serve_archive(make_archive())
    output = io.StringIO()
    paths = find(environ, output)
    assert re.search(rf"^downloaded {server.url}/{NAME} in \d+s$", output.getvalue(), re.MULTILINE)
    cached = set(paths["etcd"].parent.iterdir())
    assert {path.name for path in cached} == {*ARCHIVED_BINARIES, "lock"}
    assert find(environ) == paths
    assert server.requests == ["/index.yaml", f"/{NAME}"]
    assert not Path(environ["CALLS"]).exists()


def test_failed_download_is_reported_and_a_build_follows(
    server: ArchiveServer, environ: dict[str, str], tmp_path: Path
) -> None:
    server.serve_archive(make_archive())
    server.serve(f"/{NAME}", b"another file")
    output = io.StringIO()
    with pytest.raises(Exception, match="reading the sources of etcd, kube-apiserver, kubectl"):
        find(environ, output)
    _, first, second, *_ = output.getvalue().splitlines()
    assert first.startswith(f"cannot download Kubernetes {NEWEST_KUBERNETES}: {server.url}/{NAME} ")
    assert second == "building it instead, which takes minutes once"
    # Nothing of the download is left.
    (cache,) = (tmp_path / "cache/kubewright").glob("*/lock")
    assert [path.name for path in cache.parent.iterdir()] == ["lock"]


def test_cache_that_cannot_be_written_is_an_error(
    server: ArchiveServer, environ: dict[str, str], tmp_path: Path
) -> None:
    # A file in place of the folder: a test that runs as root can write to every folder.
    (tmp_path / "cache").write_text("")
    with pytest.raises(ConfigError, match=r"cache/kubewright/.* is not usable: .*XDG_CACHE_HOME"):
        find(environ)
    assert server.requests == []


def test_controllers_are_built_because_the_archive_has_none(
    server: ArchiveServer, environ: dict[str, str]
) -> None:
    server.serve_archive(make_archive())
    with pytest.raises(Exception, match="reading the sources of kube-scheduler"):
        find_binaries(["kube-scheduler"], environ, progress=Progress(io.StringIO()))
    assert server.requests == []


async def start_command(environ: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        COMMAND,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        # A shell starts background jobs with SIGINT ignored, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


async def test_download_that_is_interrupted_twice_starts_again(
    server: ArchiveServer, environ: dict[str, str], tmp_path: Path
) -> None:
    content = make_archive(padding=os.urandom(100_000))
    server.serve_archive(content)
    complete = server.answers[f"/{NAME}"]

    def stop_in_the_middle(handler: BaseHTTPRequestHandler) -> None:
        send(handler, content[:50_000], len(content))
        server.closed.wait()

    server.answers[f"/{NAME}"] = stop_in_the_middle
    for number in (signal.SIGINT, signal.SIGKILL):
        server.requests.clear()
        child = await start_command(environ)
        try:
            await eventually(lambda: len(server.requests) == 2, within=60)
            await eventually(lambda: find_archives(tmp_path), within=60)
        finally:
            os.killpg(child.pid, number)
            _, errors = await asyncio.wait_for(child.communicate(), 60)
        assert b"Traceback" not in errors
    # SIGKILL leaves a part of the archive behind, SIGINT does not.
    assert len(find_archives(tmp_path)) == 1
    server.answers[f"/{NAME}"] = complete
    assert (await asyncio.to_thread(find, environ))["etcd"].exists()
    assert find_archives(tmp_path) == []


def find_archives(folder: Path) -> list[Path]:
    return list(folder.rglob("archive"))


async def test_two_processes_download_once(server: ArchiveServer, environ: dict[str, str]) -> None:
    server.serve_archive(make_archive())
    complete, both_started = server.answers[f"/{NAME}"], threading.Event()

    def wait_for_both(handler: BaseHTTPRequestHandler) -> None:
        both_started.wait(60)
        complete(handler)

    server.answers[f"/{NAME}"] = wait_for_both
    children = [await start_command(environ) for _ in range(2)]
    first_lines = [asyncio.create_task(read_line(child.stderr)) for child in children]
    done, _ = await asyncio.wait(first_lines, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    both_started.set()
    await asyncio.wait(first_lines, timeout=60)
    outputs = [await asyncio.wait_for(child.communicate(), 60) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert outputs[0][0] == outputs[1][0]
    assert b"kube-apiserver" in outputs[0][0]
    assert [task.result() for task in done] == [
        b"waiting for another process that downloads or builds the same\n"
    ]
    assert server.requests == ["/index.yaml", f"/{NAME}"]


async def read_line(stream: asyncio.StreamReader | None) -> bytes:
    assert stream
    return await stream.readline()
