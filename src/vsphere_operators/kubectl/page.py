"""Reaches the page of the manager: forwards a port to its Pod with `kubectl`, and reads it.

Why `kubectl port-forward`, and not the proxy of the API server?  The page listens on a loopback
    address of the Pod, which the proxy does not reach. kubectl is there, because it started this
    plugin, and it has the credentials of every kind of cluster.
"""

from __future__ import annotations

import asyncio
import re
import shutil
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
_REQUEST_TIMEOUT_SECONDS = 30.0
_STOP_TIMEOUT_SECONDS = 5.0


class ForwardedPage(Struct, frozen=True):
    """The address of the page on this machine; `ended` is set when it is no longer forwarded."""

    address: str
    port: int = 0
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


@asynccontextmanager
async def forward_port(
    page: Page, kubectl_flags: Sequence[str], environ: Mapping[str, str], local_port: int = 0
) -> AsyncIterator[ForwardedPage]:
    """Forward a port of this machine to the page; 0 is a free one."""
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
    return await asyncio.to_thread(_read_blocking, f"{address.rstrip('/')}{path}", result_type)


def _read_blocking(url: str, result_type: type[T]) -> T:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f'"{url}" is not the address of a page: it must begin with http://')
    # No proxy: it could not reach a port of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_REQUEST_TIMEOUT_SECONDS) as response:
            return msgspec.json.decode(response.read(), type=result_type)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(1000).decode(errors="replace")
        raise ConfigError(f"the manager answered {error.code} for {url}: {text}") from None
    except (OSError, ValueError, HTTPException, msgspec.DecodeError) as error:
        raise ConfigError(f"{url} cannot be read: {error}") from None
