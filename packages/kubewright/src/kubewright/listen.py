"""Listen addresses in Go's syntax: `:8080`, `127.0.0.1:0`, `[::1]:8443`; `0` or "" is disabled."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import ref

from msgspec import Struct

from .errors import ConfigError


class ListenAddress(Struct, frozen=True):
    """A host and a port; without a host on every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> ListenAddress | None:
    """Parse an address; None for `0` and "", which disable an endpoint."""
    if text in ("", "0"):
        return None
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^:\[\]]*)):(\d{1,5})", text, re.ASCII)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(
            f'invalid listen address "{text}": '
            "must be like :8080, 127.0.0.1:8080 or [::1]:8080, or 0 to disable it"
        )
    return ListenAddress(match[1] or match[2] or "", int(match[3]))


class LimitedListener(socket.socket):
    """A listening socket with a limit of open connections: beyond it, a new one ends the oldest.

    The listeners of a process share its file descriptors. Without a limit, idle connections to one
    of them, which cost a client nothing, would keep the others from accepting any.

    A connection with a request in progress is ended only if all have one. A new connection is not
    refused instead: idle clients without any credentials would then keep all others out.
    """

    def __init__(self, listener: socket.socket, max_connections: int) -> None:
        super().__init__(fileno=listener.detach())
        self._max_connections = max_connections
        self._connections: list[tuple[ref[socket.socket], Any]] = []
        self._requests_by_peer = Counter[Any]()

    @contextmanager
    def serve(self, peer: Any) -> Iterator[None]:
        """While a request of the connection with this peer address is in progress."""
        self._requests_by_peer[peer] += 1
        try:
            yield
        finally:
            self._requests_by_peer[peer] -= 1
            if self._requests_by_peer[peer] == 0:
                del self._requests_by_peer[peer]

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if len(self._connections) >= self._max_connections:
            self._end_oldest()
        self._connections.append((ref(connection), address))
        return connection, address

    def _end_oldest(self) -> None:
        open_connections = [
            (reference, peer, connection)
            for reference, peer in self._connections
            if (connection := reference()) is not None and connection.fileno() >= 0
        ]
        count = max(0, len(open_connections) - self._max_connections + 1)
        # Stable: among those with a request, and among those without, the oldest is first.
        by_preference = sorted(open_connections, key=lambda item: item[1] in self._requests_by_peer)
        ended = by_preference[:count]
        for _, _, connection in ended:
            # Not closed here: its transport, in a TLS handshake too, reads the end and closes it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections = [(item[0], item[1]) for item in open_connections if item not in ended]


async def open_listener(
    address: ListenAddress, purpose: str, advice: str, max_connections: int
) -> LimitedListener:
    """Open a listening socket; the error names the reason and ends with `advice`."""
    try:
        return LimitedListener(await _bind_socket(address), max_connections)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another process, possibly another manager, already listens there",
            errno.EACCES: "only root can use ports below 1024; choose a higher one",
            errno.EADDRNOTAVAIL: "this machine does not have that address",
        }
        reason = reasons.get(error.errno or 0) or error.strerror or str(error)
        raise ConfigError(
            f'cannot listen on "{address}" for {purpose}: {reason}. {advice}'
        ) from error


async def stop_accepting(listeners: Iterable[socket.socket]) -> None:
    """Stop accepting connections. Call it before closing a server, so that none is lost.

    A TLS handshake in progress is not awaited.
    """
    # asyncio (3.11 to 3.13) accepts a connection in one iteration of the loop and creates its
    # transport in the next. A server that closes in between leaks the accepted socket.
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    await asyncio.sleep(0)


async def _bind_socket(address: ListenAddress) -> socket.socket:
    # For all interfaces one socket accepts IPv6 and IPv4, if the machine has both.
    if not address.host:
        try:
            return socket.create_server(
                ("", address.port), family=socket.AF_INET6, dualstack_ipv6=True
            )
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (
                errno.EADDRNOTAVAIL,
                errno.EAFNOSUPPORT,
            ):
                raise
            return socket.create_server(("", address.port))
    resolved = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    )
    family, _, _, _, socket_address = resolved[0]
    return socket.create_server((str(socket_address[0]), address.port), family=family)
