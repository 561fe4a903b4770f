"""Where to listen, in Go's syntax: `:8080`, `127.0.0.1:0`, `[::1]:8443`; `0` or nothing is nowhere."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import ConfigError


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen; without a host on every interface."""

    host: str
    port: int


def parse_address(text: str) -> ListenAddress | None:
    """The meaning of an address in Go's syntax; None for `0` and for nothing: do not listen."""
    if text in ("", "0"):
        return None
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^:\[\]]*)):(\d{1,5})", text, re.ASCII)
    if found is None or int(found[3]) > 65535:
        raise ConfigError(
            f'"{text}" is no address to listen on: it has to be like :8080, 127.0.0.1:8080 or [::1]:8080, or 0 for none'
        )
    return ListenAddress(found[1] or found[2] or "", int(found[3]))


async def open_listener(
    text: str, address: ListenAddress, purpose: str, advice: str
) -> socket.socket:
    """A listening socket, or in plain words why there is none and what to do."""
    try:
        return await _bind_socket(address)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another process, perhaps another manager, listens there already",
            errno.EACCES: "ports below 1024 are for root; choose a higher one",
            errno.EADDRNOTAVAIL: "this machine does not have that address",
        }
        why = reasons.get(error.errno or 0) or error.strerror or str(error)
        raise ConfigError(f'cannot listen on "{text}" for {purpose}: {why}. {advice}') from error


async def stop_accepting(listeners: Iterable[socket.socket]) -> None:
    """What has to come before a server's close.

    asyncio (3.11 to 3.13) accepts in one turn of the loop and makes the connection in the next; a server that closes in between forgets
    the one that it accepted, and its socket stays open without an owner. A TLS handshake that has begun is not waited for.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    await asyncio.sleep(0)


async def _bind_socket(address: ListenAddress) -> socket.socket:
    """Bind one socket; for all interfaces one that takes IPv6 and IPv4 alike, where the machine has both."""
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
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    )
    family, _, _, _, where = found[0]
    return socket.create_server((str(where[0]), address.port), family=family)
