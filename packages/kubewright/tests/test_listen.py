"""Listen addresses, and closing a listening socket without losing a connection."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kubewright.errors import ConfigError
from kubewright.listen import ListenAddress, parse_address, stop_accepting


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ListenAddress("", 8080)),
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        ("localhost:65535", ListenAddress("localhost", 65535)),
        ("[::1]:8443", ListenAddress("::1", 8443)),
        ("0", None),
        ("", None),
    ],
)
def test_address_is_parsed(text: str, address: ListenAddress | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", ":65536", "a:b", "::1:80", "[::1]", "[::1:80", ":", "host:", ":80x"]
)
def test_invalid_address_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid listen address"):
        parse_address(text)


@pytest.mark.parametrize("text", [":8080", "127.0.0.1:0", "localhost:65535", "[::1]:8443"])
def test_parsed_address_is_formatted_as_it_was_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("turns", range(2, 6))
async def test_accepted_connection_is_served_while_the_server_closes(turns: int) -> None:
    # The loop accepts the connection in its second iteration and creates the transport in the
    # third. Without a wait, a close after two iterations would lose it.
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop_accepting(server.sockets)
        server.close()
        async with asyncio.timeout(30):
            await served.wait()


async def test_later_connection_is_not_accepted() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    await stop_accepting(server.sockets)
    with socket.create_connection(address) as late:
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        assert not writers
        late.settimeout(10)
        with pytest.raises(ConnectionError):
            assert await asyncio.to_thread(late.recv, 1) == b"x"
