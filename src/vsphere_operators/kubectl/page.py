"""Reaches the page of the manager: forwards a port to its Pod with `kubectl`, and reads it.

Why `kubectl port-forward`, and not the proxy of the API server?  The page listens on a loopback
    address of the Pod, which the proxy does not reach. kubectl is there, because it started this
    plugin, and it has the credentials of every kind of cluster.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http.client import HTTPException
from typing import TypeVar

import msgspec
from msgspec import Struct

from kubewright.errors import ConfigError

from .manager_pods import Page

T = TypeVar("T")
_FORWARDING_PATTERN = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
_START_TIMEOUT_SECONDS = 30.0
_REQUEST_TIMEOUT_SECONDS = 10.0
# A user waits this long before another source is read.
_CHECK_TIMEOUT_SECONDS = 3.0
_STOP_TIMEOUT_SECONDS = 5.0


class PageUnreachable(ConfigError):
    """Nothing answers at the address of the page."""


class ForwardedPage(Struct, frozen=True):
    """The address of the page on this machine; `ended` is set when it is no longer forwarded."""

    address: str
    port: int = 0
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


@asynccontextmanager
async def forward_port(
    page: Page, kubectl_flags: Sequence[str], environ: Mapping[str, str], local_port: int = 0
) -> AsyncIterator[ForwardedPage]:
    """Forward a port of this machine to the page; 0 selects a free one."""
    kubectl = await asyncio.to_thread(shutil.which, "kubectl", path=environ.get("PATH"))
    if kubectl is None:
        raise ConfigError("kubectl is not in the PATH; it is needed to forward a port to the page")
    process = await asyncio.create_subprocess_exec(
        *(kubectl, "port-forward", *kubectl_flags, "--address=127.0.0.1"),
        *(
            f"--namespace={page.pod.namespace}",
            f"pod/{page.pod.name}",
            f"{local_port or ''}:{page.port}",
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    readers = list[asyncio.Task[None]]()
    try:
        port = await _read_forwarded_port(process)
        # kubectl prints a line for each connection, and stops when a pipe is full.
        readers += (
            asyncio.create_task(_discard(pipe)) for pipe in (process.stdout, process.stderr)
        )
        forwarded = ForwardedPage(f"{page.scheme}://127.0.0.1:{port}", port)
        waiter = asyncio.create_task(process.wait())
        waiter.add_done_callback(lambda _: forwarded.ended.set())
        yield forwarded
    finally:
        await _stop(process)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _discard(pipe: asyncio.StreamReader) -> None:
    while await pipe.read(65536):
        pass


async def _stop(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
            await process.wait()
    except TimeoutError:
        # It may have ended just now.
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _read_forwarded_port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while line := (await process.stdout.readline()).decode(errors="replace"):
                if match := _FORWARDING_PATTERN.match(line):
                    return int(match[1])
            message = (await process.stderr.read()).decode(errors="replace").strip()
    except TimeoutError:
        message = f"no connection within {_START_TIMEOUT_SECONDS:.0f} s"
    raise ConfigError(
        f"kubectl port-forward to the page failed: {message}. "
        "It needs the permission to create pods/portforward."
    )


async def read_page(address: str, path: str, result_type: type[T]) -> T:
    """Read a path of the page. Raises ConfigError with what the manager answered."""
    url = f"{address.rstrip('/')}{path}"
    content = await asyncio.to_thread(_read_blocking, url, _REQUEST_TIMEOUT_SECONDS)
    try:
        return msgspec.json.decode(content, type=result_type)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(
            f"{url} is not the page of a manager of this version: its answer is not understood. "
            "Check the address."
        ) from None


async def check_page(address: str) -> None:
    """Raises PageUnreachable within seconds, also if the process there is suspended."""
    url = f"{address.rstrip('/')}/"
    _check_scheme(url)
    try:
        await asyncio.to_thread(_read_blocking, url, _CHECK_TIMEOUT_SECONDS)
    except PageUnreachable:
        raise
    except ConfigError:
        # It answers. A browser can have the token or trust the certificate that is missing here.
        return


def _check_scheme(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f'"{url}" is not the address of a page: it must begin with http://')


def _read_blocking(url: str, timeout_seconds: float) -> bytes:
    _check_scheme(url)
    # No proxy: it could not reach a port of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_seconds) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(1000).decode(errors="replace")
        raise ConfigError(f"the manager answered {error.code} for {url}: {text}") from None
    except (OSError, ValueError, HTTPException) as error:
        # urllib wraps the error of the socket.
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigError(
                f"the certificate of the page at {url} is not trusted: {cause.verify_message}"
            ) from None
        reason = _describe_failure(cause, timeout_seconds)
        raise PageUnreachable(f"the page at {url} does not answer: {reason}") from None


def _describe_failure(cause: BaseException | str, timeout_seconds: float) -> str:
    match cause:
        case TimeoutError():
            return f"no response within {timeout_seconds:.0f} s"
        case ConnectionRefusedError():
            return "no process listens there"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(cause) or type(cause).__name__
