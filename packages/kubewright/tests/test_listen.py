"""Where to listen, and how to stop."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kubewright.listen import stop_accepting


@pytest.mark.parametrize("turns", range(2, 6))
async def test_a_connection_that_was_accepted_is_served_although_the_server_closes(
    turns: int,
) -> None:
    """The loop notices the connection in its second turn, and makes it in the third: without a wait, a close at two would lose it."""
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
        async with asyncio.timeout(10):
            await served.wait()


async def test_whoever_comes_afterwards_is_not_accepted() -> None:
    met: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: met.append(writer), "127.0.0.1", 0)
    where = server.sockets[0].getsockname()
    await stop_accepting(server.sockets)
    with socket.create_connection(where) as late:
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        assert not met
        late.settimeout(10)
        with pytest.raises(ConnectionError):
            assert await asyncio.to_thread(late.recv, 1) == b"x"
