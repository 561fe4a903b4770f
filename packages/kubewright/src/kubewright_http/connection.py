"""One connection to a server, which carries one request at a time."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from .errors import (
    ConnectError,
    ConnectionBroken,
    HostNotFound,
    MalformedResponse,
    ProxyRejected,
    ProxyUnreachable,
)
from .parser import ResponseParser

# A body that is read more slowly than it arrives must not fill the memory.
_MAX_UNREAD_BYTES = 512 * 1024
# RFC 8305: the next address of a host is tried if the last one did not connect in this time.
_NEXT_ADDRESS_SECONDS = 0.25


class Proxy(NamedTuple):
    host: str
    port: int
    is_encrypted: bool
    # The value of Proxy-Authorization, or "".
    authorization: str = ""


class Origin(NamedTuple):
    """A server, and how to reach and verify it. Requests with equal origins share connections."""

    host: str
    port: int
    # None for http.
    context: ssl.SSLContext | None
    # The name in the server's certificate; "" for the host.
    server_hostname: str = ""
    proxy: Proxy | None = None

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        default_port = 443 if self.context is not None else 80
        host = _bracket(self.host)
        return host if self.port == default_port else f"{host}:{self.port}"


def origin_of(
    url: str,
    context: ssl.SSLContext | None,
    *,
    server_hostname: str = "",
    proxy_url: str = "",
) -> Origin:
    """The origin of a URL. An https:// URL needs a context."""
    parts = urlsplit(url)
    is_encrypted = parts.scheme == "https"
    if is_encrypted and context is None:
        raise ValueError("https needs an SSL context")
    port = parts.port or (443 if is_encrypted else 80)
    return Origin(
        _host_of(parts.netloc),
        port,
        context if is_encrypted else None,
        server_hostname,
        _parse_proxy(proxy_url) if proxy_url else None,
    )


def _host_of(netloc: str) -> str:
    """The host with its letter case, which urlsplit changes. The SDK tunnel of vCenter needs it."""
    address = netloc.rpartition("@")[2]
    return address[1:].partition("]")[0] if address[:1] == "[" else address.partition(":")[0]


def _parse_proxy(url: str) -> Proxy:
    parts = urlsplit(url)
    authorization = ""
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(login.encode()).decode()
    is_encrypted = parts.scheme == "https"
    port = parts.port or (443 if is_encrypted else 80)
    return Proxy(parts.hostname or "", port, is_encrypted, authorization)


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# One buffer for all connections of an event loop: what was read is copied before the next read. To
# create `bytes` of this size for each read takes longer.
_READ_BYTES = 256 * 1024
_read_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


def _read_buffer_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    buffer = _read_buffers.get(loop)
    if buffer is None:
        _read_buffers[loop] = buffer = memoryview(bytearray(_READ_BYTES))
    return buffer


class Connection(asyncio.BufferedProtocol):
    """An open or closed connection. `send` starts a request, `wait` waits for more of its response,
    which is in `parser`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = _read_buffer_of(loop)
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        # The deadline of the wait, and the timer for it. The timer stays when a wait ends earlier,
        # which almost every wait does: a timer for each would cost more.
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        # The response to the request in progress.
        self.parser: ResponseParser | None = None
        # Why the connection has ended.
        self.error: Exception | None = None
        # When it became idle, by the clock of the loop.
        self.idle_since = 0.0

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        parser = self.parser
        if parser is None:
            # Nothing was requested. Servers send 408 before they end an idle connection.
            self.abort()
            return
        try:
            parser.feed(bytes(self._buffer[:nbytes]))
        except MalformedResponse as error:
            self.fail(error)
            return
        if parser.unread_bytes > _MAX_UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The transport is closed next, and calls `connection_lost`."""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None and self._waiter is None:
            self._timer.cancel()
            self._timer = None
        if self.error is not None:
            return
        try:
            if error is None and self.parser is not None:
                self.parser.feed_eof()
            text = "the connection was lost" if error is None else f"{type(error).__name__} {error}"
            self.error = ConnectionBroken(text.rstrip())
        except ConnectionBroken as broken:
            self.error = broken
        self._wake()

    # For the client

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, method: str, data: bytes) -> None:
        """Send a request, with a new `parser` for its response."""
        self.parser = ResponseParser(method)
        if not self.is_open:
            raise self.error or ConnectionBroken("the connection is closed")
        self._transport.write(data)

    async def wait(self, deadline: float) -> None:
        """Wait until more of the response has arrived or the connection has ended, which it does
        at the deadline with a TimeoutError. The next call raises why it has ended.
        """
        if self.error is not None:
            raise self.error
        self._waiter = self._loop.create_future()
        self._deadline, timer = deadline, self._timer
        if timer is None or timer.when() > deadline:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._on_timer)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._transport is None and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._deadline <= self._loop.time():
            self.fail(TimeoutError())
        else:
            self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the connection; the request in progress fails with this error."""
        if self.error is None:
            self.error = error
        self.abort()
        self._wake()

    def take_body(self) -> bytes:
        """What has arrived of the body since the last call."""
        assert self.parser is not None
        body = self.parser.take_body()
        if self._is_paused:
            self._is_paused = False
            if self.is_open:
                self._transport.resume_reading()
        return body

    def abort(self) -> None:
        """Close at once. TLS's closing handshake with a dead peer would take up to 30 s."""
        if self._transport is not None:
            self._transport.abort()

    async def _start_tls(self, context: ssl.SSLContext, server_hostname: str) -> None:
        transport = await self._loop.start_tls(
            self._transport, self, context, server_hostname=server_hostname
        )
        if transport is None:
            raise ConnectionResetError("the connection was lost during the TLS handshake")
        self._transport = transport


async def open_connection(origin: Origin) -> Connection:
    """Connect to the server of an origin, through its proxy if it has one."""
    loop = asyncio.get_running_loop()
    host, port, context, name = origin.host, origin.port, origin.context, origin.server_hostname
    if (proxy := origin.proxy) is None:
        return await _connect(loop, host, port, context, name)
    try:
        # As in Go, the context of the server verifies an https:// proxy too.
        proxy_context = context or ssl.create_default_context() if proxy.is_encrypted else None
        connection = await _connect(loop, proxy.host, proxy.port, proxy_context, "")
    except ConnectError as error:
        raise ProxyUnreachable(error.os_error) from error
    if context is None:
        return connection
    try:
        await _open_tunnel(loop, connection, origin, proxy)
        with _ConnectErrors():
            await connection._start_tls(context, name or host)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _open_tunnel(
    loop: asyncio.AbstractEventLoop, connection: Connection, origin: Origin, proxy: Proxy
) -> None:
    authority = f"{_bracket(origin.host)}:{origin.port}"
    authorization = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n"
    connection.send("CONNECT", request.encode("latin-1"))
    parser = connection.parser
    assert parser is not None
    while parser.head is None:
        # The caller limits the time to connect.
        await connection.wait(loop.time() + 3600)
    if parser.head.status >= 300:
        raise ProxyRejected(parser.head.status)
    connection.parser = None


async def _connect(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_hostname: str,
) -> Connection:
    with _ConnectErrors():
        _, connection = await loop.create_connection(
            lambda: Connection(loop),
            host,
            port,
            ssl=context,
            server_hostname=(server_hostname or host) if context is not None else None,
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
        )
    return connection


class _ConnectErrors:
    """Turns the errors of a socket into ConnectError; those of TLS and TimeoutError stay."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, socket.gaierror):
            raise HostNotFound(error) from error
        if isinstance(error, UnicodeError):
            raise HostNotFound(OSError(f"not a host name: {error}")) from error
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | TimeoutError):
            raise ConnectError(error) from error
