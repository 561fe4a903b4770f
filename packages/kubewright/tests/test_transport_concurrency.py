"""Many calls at once are limited, and neither a read nor a watch waits for writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubewright.errors import TimedOut
from kubewright.kubeconfig import Connection
from kubewright.testing import eventually
from kubewright.transport import MAX_CONCURRENT_REQUESTS, Request, Transport

CALL_COUNT = MAX_CONCURRENT_REQUESTS + 60


class SlowApiServer:
    """Answers reads and watches at once, and writes when a test releases them."""

    def __init__(self) -> None:
        self.pending_writes = 0
        self.max_pending_writes = 0
        self.release_writes = asyncio.Event()

    async def handle_write(self, request: web.Request) -> web.Response:
        self.pending_writes += 1
        self.max_pending_writes = max(self.max_pending_writes, self.pending_writes)
        await self.release_writes.wait()
        self.pending_writes -= 1
        return web.Response(body=b"{}")

    async def handle_drip(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a line\n")
        for _ in range(100):
            await asyncio.sleep(0.05)
            await response.write(b" ")
        return response

    async def handle_watch(self, request: web.Request) -> web.Response:
        return web.Response(body=b"a line\n")


@pytest.fixture
async def slow_server() -> AsyncIterator[tuple[SlowApiServer, Transport]]:
    server = SlowApiServer()
    app = web.Application()
    app.router.add_patch("/write", server.handle_write)
    app.router.add_get("/watch", server.handle_watch)
    app.router.add_get("/drip", server.handle_drip)
    async with TestServer(app) as running:
        transport = Transport(Connection(server=str(running.make_url("/"))))
        try:
            yield server, transport
        finally:
            server.release_writes.set()
            await transport.close()


async def test_writes_are_limited_and_a_watch_starts_at_once(
    slow_server: tuple[SlowApiServer, Transport],
) -> None:
    server, transport = slow_server
    write = Request("PATCH", "/write", body=b"{}", operation="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALL_COUNT)]
    await eventually(lambda: server.pending_writes == MAX_CONCURRENT_REQUESTS)
    watch = Request("GET", "/watch", operation="watch", timeout_seconds=60)
    assert [line async for line in transport.stream_lines(watch, idle_timeout_seconds=60)] == [
        b"a line"
    ]
    server.release_writes.set()
    assert await asyncio.gather(*calls) == [b"{}"] * CALL_COUNT
    assert server.max_pending_writes == MAX_CONCURRENT_REQUESTS


async def test_read_does_not_wait_for_writes(
    slow_server: tuple[SlowApiServer, Transport],
) -> None:
    # The writes may wait for the read: one of our webhooks may have to read another object.
    server, transport = slow_server
    write = Request("PATCH", "/write", body=b"{}", operation="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALL_COUNT)]
    await eventually(lambda: server.pending_writes == MAX_CONCURRENT_REQUESTS)
    assert (
        await asyncio.wait_for(
            transport.send(Request("GET", "/watch", operation="read", timeout_seconds=60)), 60
        )
        == b"a line\n"
    )
    assert server.pending_writes == MAX_CONCURRENT_REQUESTS
    server.release_writes.set()
    assert await asyncio.gather(*calls) == [b"{}"] * CALL_COUNT


async def test_cancelled_call_releases_its_slot(
    slow_server: tuple[SlowApiServer, Transport],
) -> None:
    server, transport = slow_server
    write = Request("PATCH", "/write", body=b"{}", operation="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALL_COUNT)]
    await eventually(lambda: server.pending_writes == MAX_CONCURRENT_REQUESTS)
    for call in calls[: CALL_COUNT - 1]:
        call.cancel()
    await asyncio.wait(calls[: CALL_COUNT - 1])
    server.release_writes.set()
    assert await asyncio.wait_for(calls[-1], 60) == b"{}"


async def test_bytes_without_a_line_are_silence(
    slow_server: tuple[SlowApiServer, Transport],
) -> None:
    _, transport = slow_server
    watch = Request("GET", "/drip", operation="watch", timeout_seconds=60)
    stream = transport.stream_lines(watch, idle_timeout_seconds=0.5)
    lines = list[bytes]()

    async def read_lines() -> None:
        async for line in stream:
            lines.append(line)

    with pytest.raises(TimedOut):
        await read_lines()
    # Empty if the machine is so busy that the line itself comes too late.
    assert lines in ([b"a line"], [])
