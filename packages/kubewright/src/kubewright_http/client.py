"""A pool of kept connections, and requests over them.

When is a request sent twice?  If a kept connection ends before any byte of the response, the server
    has probably closed it as idle at the same moment. A request with a method that RFC 9110 calls
    idempotent is then sent again, once, over another connection. A POST or PATCH never is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from .connection import Connection, Origin, open_connection
from .errors import ConnectionBroken
from .parser import Head

_CONNECT_SECONDS = 10.0
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class Response:
    """The response to one request. Read the body to its end, or call `close`."""

    def __init__(
        self,
        client: HttpClient,
        origin: Origin,
        connection: Connection,
        head: Head,
        deadline: float,
        idle_seconds: float | None,
    ) -> None:
        self._client, self._origin, self._deadline = client, origin, deadline
        self._connection: Connection | None = connection
        self._idle_seconds = idle_seconds
        self.head, self.status, self.reason = head, head.status, head.reason

    def header(self, name: str) -> str:
        """The first header with that name, or "". The name is in lower case."""
        return self.head.header(name)

    async def read(self, max_bytes: int) -> bytes | None:
        """The body; None if it is larger than `max_bytes`, and then the connection is closed."""
        parser = self._connection.parser if self._connection is not None else None
        if parser is not None and (parser.content_length or 0) > max_bytes:
            self.close()
            return None
        chunks, size = [], 0
        while chunk := await self.read_chunk():
            size += len(chunk)
            if size > max_bytes:
                self.close()
                return None
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read_chunk(self) -> bytes:
        """What has arrived of the body, at least one byte; b"" at its end."""
        connection = self._connection
        if connection is None or (parser := connection.parser) is None:
            return b""
        try:
            while not parser.unread_bytes:
                if parser.is_complete:
                    self.close()
                    return b""
                await connection.wait(_next_deadline(self._deadline, self._idle_seconds))
            return connection.take_body()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Keep the connection if the response was read to its end, else close it."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._client.release(self._origin, connection)


class HttpClient:
    """Requests to any server. `max_connections` limits those in use at the same time; 0 is no
    limit.
    """

    def __init__(self, *, max_connections: int = 0, keep_alive_seconds: float = 60.0) -> None:
        self._max_connections, self._keep_alive_seconds = max_connections, keep_alive_seconds
        # The connection that was used last is reused first, so that the others become old.
        self._idle: dict[Origin, list[Connection]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._used: set[Connection] = set()
        self._used_count = 0
        self._close_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def used_count(self) -> int:
        """The number of connections that carry a request, or are being opened for one."""
        return self._used_count

    @property
    def idle_count(self) -> int:
        """The number of open connections that are kept for a later request."""
        return sum(item.is_open for items in self._idle.values() for item in items)

    async def request(
        self,
        method: str,
        origin: Origin,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float | None = None,
        connect_seconds: float = _CONNECT_SECONDS,
        send_within_seconds: float | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and wait for the headers of its response.

        `timeout_seconds` limits everything until the end of the body, `idle_seconds` each wait for
        more of the response, `connect_seconds` the opening of a connection, and
        `send_within_seconds` the time until the first byte is sent. `before_send` is called
        immediately before the first byte; if it raises, nothing is sent.
        """
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        send_deadline = deadline
        if send_within_seconds is not None:
            send_deadline = min(deadline, deadline - timeout_seconds + send_within_seconds)
        data = _encode_request(method, origin, target, headers, body)
        may_repeat = method in _IDEMPOTENT_METHODS
        while True:
            connection, is_reused = await self._acquire(origin, send_deadline, connect_seconds)
            response: Response | None = None
            try:
                if before_send is not None:
                    before_send()
                connection.send(method, data)
                head = await _read_head(connection, deadline, idle_seconds)
                response = Response(self, origin, connection, head, deadline, idle_seconds)
                return response
            except ConnectionBroken:
                parser = connection.parser
                is_stale = is_reused and (parser is None or not parser.has_received)
                if not (is_stale and may_repeat):
                    raise
                may_repeat = False
            finally:
                if response is None:
                    self.release(origin, connection)

    async def _acquire(
        self, origin: Origin, deadline: float, connect_seconds: float
    ) -> tuple[Connection, bool]:
        """A connection, and whether it was used before."""
        # Every request takes this path, so no timer is started if a connection is free.
        if self._is_slot_free():
            if (connection := self._take_idle(origin)) is not None:
                self._used_count += 1
                self._used.add(connection)
                return connection, True
            self._used_count += 1
        else:
            async with asyncio.timeout_at(deadline):
                await self._wait_for_slot()
            if (connection := self._take_idle(origin)) is not None:
                self._used.add(connection)
                return connection, True
        try:
            loop_time = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(min(deadline, loop_time + connect_seconds)):
                connection = await open_connection(origin)
        except BaseException:
            self._free_slot()
            raise
        self._used.add(connection)
        if self._closed:
            self.release(origin, connection)
            raise ConnectionBroken("the client was closed")
        return connection, False

    def _is_slot_free(self) -> bool:
        return not self._max_connections or self._used_count < self._max_connections

    async def _wait_for_slot(self) -> None:
        """Wait in line. The slot is counted as used when this returns."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The slot was handed over at the moment of the cancellation.
                self._free_slot()
            else:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            raise

    def _free_slot(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)  # the slot stays counted
                return
        self._used_count -= 1

    def _take_idle(self, origin: Origin) -> Connection | None:
        connections = self._idle.get(origin)
        oldest = asyncio.get_running_loop().time() - self._keep_alive_seconds
        while connections:
            connection = connections.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    def release(self, origin: Origin, connection: Connection) -> None:
        """Keep the connection of a request that has ended for another one, or close it."""
        self._used.discard(connection)
        parser = connection.parser
        # Without a parser, nothing was sent over the connection.
        is_reusable = parser is None or (
            parser.is_complete and parser.keeps_connection and not parser.unread_bytes
        )
        if is_reusable and connection.is_open and connection.error is None and not self._closed:
            loop = asyncio.get_running_loop()
            connection.parser, connection.idle_since = None, loop.time()
            self._idle.setdefault(origin, []).append(connection)
            if self._close_timer is None:
                self._close_timer = loop.call_later(self._keep_alive_seconds, self._close_old)
        else:
            connection.abort()
        self._free_slot()

    def _close_old(self) -> None:
        """Close connections that were not used for a while, such as those of an old CA."""
        loop = asyncio.get_running_loop()
        oldest, self._close_timer = loop.time() - self._keep_alive_seconds, None
        for origin, connections in list(self._idle.items()):
            kept = list[Connection]()
            for connection in connections:
                if connection.is_open and connection.idle_since > oldest:
                    kept.append(connection)
                else:
                    connection.abort()
            self._idle[origin] = kept
            if not kept:
                del self._idle[origin]
        if self._idle:
            # At half of the time, so that no connection is kept for more than 1.5 times as long.
            self._close_timer = loop.call_later(self._keep_alive_seconds / 2, self._close_old)

    async def close(self) -> None:
        """Close all connections; requests in progress fail."""
        self._closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        for connection in list(self._used):
            connection.fail(ConnectionBroken("the client was closed"))
        # Aborted connections are closed in the next iteration of the event loop.
        await asyncio.sleep(0)


async def _read_head(connection: Connection, deadline: float, idle_seconds: float | None) -> Head:
    parser = connection.parser
    assert parser is not None
    while parser.head is None:
        await connection.wait(_next_deadline(deadline, idle_seconds))
    return parser.head


def _next_deadline(deadline: float, idle_seconds: float | None) -> float:
    """Until when to wait for more of a response."""
    if idle_seconds is None:
        return deadline
    return min(deadline, asyncio.get_running_loop().time() + idle_seconds)


def _encode_request(
    method: str, origin: Origin, target: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    authority = origin.authority
    lines = [f"Host: {authority}"]
    if origin.context is None and (proxy := origin.proxy) is not None:
        # A proxy forwards a request without TLS; there is no tunnel.
        target = f"http://{authority}{target}"
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method not in ("GET", "HEAD", "OPTIONS", "DELETE"):
        lines.append("Content-Length: 0")
    head = f"{method} {target} HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n"
    # A line break would begin another header, or another request.
    line_count = len(lines) + 2
    if " " in target or head.count("\n") != line_count or head.count("\r") != line_count:
        raise ValueError("a target with a space, or a header with a line break")
    encoded = head.encode("latin-1")
    return encoded + body if body else encoded
