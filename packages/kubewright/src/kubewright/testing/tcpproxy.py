"""A TCP proxy for faults below HTTP: connections that stall, and connections that break."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from ..listen import stop_accepting

_CHUNK_BYTES = 65536


class TcpProxy:
    """Forwards bytes between a free local port and a target."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.port = 0
        self.accepted_count = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._open_connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._gates = [_create_open_gate()]
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self.handle_connection, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self.server:
            await stop_accepting(self.server.sockets)
            self.server.close()
        self.abort_connections()
        await asyncio.gather(*self._open_connections, return_exceptions=True)

    @property
    def connection_count(self) -> int:
        """How many connections are open now; `accepted_count` counts all since the start."""
        return len(self._open_connections)

    def stall(self) -> None:
        """Forward nothing in either direction, not even the end of a connection.

        All sockets stay open and answer TCP keep-alive, as behind a firewall that lost its state.
        """
        for gate in self._gates:
            gate.clear()

    def stall_existing(self) -> None:
        """Stall the connections that are open now, while new ones work."""
        self.stall()
        self._gates.append(_create_open_gate())

    def resume(self) -> None:
        """Forward everything again, beginning with what was held back."""
        for gate in self._gates:
            gate.set()

    def abort_connections(self) -> None:
        for task, writers in self._open_connections.items():
            for writer in writers:
                writer.transport.abort()
            task.cancel()

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # asyncio starts a task for each connection.
        task = asyncio.current_task()
        assert task
        self.accepted_count += 1
        writers = self._open_connections[task] = [writer]
        gate = self._gates[-1]
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await gate.wait()
                upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
                writers.append(upstream_writer)
                await asyncio.gather(
                    self._forward(reader, upstream_writer, gate, upstream=True),
                    self._forward(upstream_reader, writer, gate, upstream=False),
                )
        finally:
            del self._open_connections[task]
            for connected in writers:
                connected.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
        *,
        upstream: bool,
    ) -> None:
        while data := await _read_through_gate(reader, gate):
            if upstream:
                self.bytes_up += len(data)
            else:
                self.bytes_down += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()


def _create_open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def _read_through_gate(reader: asyncio.StreamReader, gate: asyncio.Event) -> bytes:
    """The next bytes, or b"" at the end of the connection; both wait until the gate is open."""
    data = await reader.read(_CHUNK_BYTES)
    await gate.wait()
    return data
