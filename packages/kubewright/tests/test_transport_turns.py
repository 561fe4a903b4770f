"""Many calls at once: how many are on their way, and that neither a read nor a watch waits for writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubewright.kubeconfig import Connection
from kubewright.testing import eventually
from kubewright.transport import ANSWERS_AT_ONCE, Request, Transport

CALLS = ANSWERS_AT_ONCE + 60


class Slow:
    """An API server that answers writes when it is told to, reads and watches at once."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0
        self.go_on = asyncio.Event()

    async def write(self, request: web.Request) -> web.Response:
        self.held += 1
        self.most = max(self.most, self.held)
        await self.go_on.wait()
        self.held -= 1
        return web.Response(body=b"{}")

    async def watch(self, request: web.Request) -> web.Response:
        return web.Response(body=b"a line\n")


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Slow, Transport]]:
    server = Slow()
    app = web.Application()
    app.router.add_patch("/write", server.write)
    app.router.add_get("/watch", server.watch)
    async with TestServer(app) as running:
        transport = Transport(Connection(server=str(running.make_url("/"))))
        try:
            yield server, transport
        finally:
            server.go_on.set()
            await transport.close()


async def test_writes_take_turns_and_a_watch_begins_at_once(slow: tuple[Slow, Transport]) -> None:
    server, transport = slow
    write = Request("PATCH", "/write", body=b"{}", doing="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALLS)]
    await eventually(lambda: server.held == ANSWERS_AT_ONCE)
    watch = Request("GET", "/watch", doing="watch", timeout_seconds=5)
    assert [line async for line in transport.lines(watch, silence_seconds=5)] == [b"a line"]
    server.go_on.set()
    assert await asyncio.gather(*calls) == [b"{}"] * CALLS
    assert server.most == ANSWERS_AT_ONCE


async def test_a_read_does_not_wait_for_writes(slow: tuple[Slow, Transport]) -> None:
    """They may be waiting for it: the API server asks a webhook of ours about them, and that looks at another object."""
    server, transport = slow
    write = Request("PATCH", "/write", body=b"{}", doing="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALLS)]
    await eventually(lambda: server.held == ANSWERS_AT_ONCE)
    assert (
        await asyncio.wait_for(
            transport.send(Request("GET", "/watch", doing="read", timeout_seconds=5)), 5
        )
        == b"a line\n"
    )
    assert server.held == ANSWERS_AT_ONCE
    server.go_on.set()
    assert await asyncio.gather(*calls) == [b"{}"] * CALLS


async def test_a_call_that_is_given_up_gives_its_turn_back(slow: tuple[Slow, Transport]) -> None:
    server, transport = slow
    write = Request("PATCH", "/write", body=b"{}", doing="write", timeout_seconds=60)
    calls = [asyncio.create_task(transport.send(write)) for _ in range(CALLS)]
    await eventually(lambda: server.held == ANSWERS_AT_ONCE)
    for call in calls[: CALLS - 1]:
        call.cancel()
    await asyncio.wait(calls[: CALLS - 1])
    server.go_on.set()
    assert await asyncio.wait_for(calls[-1], 10) == b"{}"
