"""The limits of an endpoint: slow readers, idle connections, streams; and the verb of a review."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kubewright.endpoint import Endpoint, choose_certificate
from kubewright.log import Log
from kubewright.testing import eventually

from .support.fake_authorizer import FakeAuthorizer

# More than the buffers of a connection.
LARGE_BODY = b"x" * 16_000_000


def make_endpoint(**options: Any) -> Endpoint:
    limits = {"max_connections": 100, "max_in_flight": 10}
    return Endpoint("a test", "127.0.0.1:0", advice="", **{**limits, **options})


@asynccontextmanager
async def run_endpoint(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.stop()


async def handle_large(request: web.Request) -> web.Response:
    return web.Response(body=LARGE_BODY)


@pytest.mark.parametrize("secure", [False, True])
async def test_client_that_does_not_read_is_limited_and_disconnected(secure: bool) -> None:
    endpoint = make_endpoint(
        max_in_flight=1,
        write_timeout_seconds=1.0,
        certificate=choose_certificate("", Log("test")) if secure else None,
    )
    endpoint.add_get("/large", handle_large)
    address = f"{'https' if secure else 'http'}://127.0.0.1:{{}}/large"
    async with run_endpoint(endpoint), aiohttp.ClientSession() as session:
        address = address.format(endpoint.port)
        slow = await session.get(address, ssl=False)

        async def has_status(status: int) -> bool:
            async with session.head(address, ssl=False) as response:
                return response.status == status

        # The request counts until its response is written.
        assert await has_status(503)
        await eventually(lambda: has_status(200))
        with pytest.raises(aiohttp.ClientError):
            await slow.read()


async def test_response_is_complete_for_a_client_that_reads_slowly() -> None:
    endpoint = make_endpoint(write_timeout_seconds=30.0)
    endpoint.add_get("/large", handle_large)
    async with run_endpoint(endpoint), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{endpoint.port}/large") as response:
            size = 0
            async for part in response.content.iter_chunked(1_000_000):
                size += len(part)
                await asyncio.sleep(0.01)
        assert size == len(LARGE_BODY)


async def test_idle_connections_do_not_end_a_stream() -> None:
    """The oldest connection without a request is ended instead."""

    async def handle_stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"event")
            await asyncio.sleep(0.05)

    async def handle_small(request: web.Request) -> web.Response:
        return web.Response(text="small")

    endpoint = make_endpoint(max_connections=4, max_in_flight=1, max_streams=1)
    endpoint.add_get("/stream", handle_stream, is_stream=True)
    endpoint.add_get("/small", handle_small)
    async with run_endpoint(endpoint), aiohttp.ClientSession() as session:
        address = f"http://127.0.0.1:{endpoint.port}"
        stream = await session.get(f"{address}/stream")
        idle = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(10)]
        async with asyncio.timeout(30):
            for reader, _ in idle[:7]:
                assert await reader.read() == b""
            for _ in range(5):
                assert await stream.content.readexactly(5) == b"event"
            # A stream does not use up the limit of requests, nor the other way round.
            async with session.get(f"{address}/small") as response:
                assert await response.text() == "small"
            async with session.get(f"{address}/stream") as response:
                assert response.status == 503
                assert response.headers["Retry-After"] == "1"
            assert await stream.content.readexactly(5) == b"event"
        stream.close()
        for _, writer in idle:
            writer.close()


async def test_head_needs_the_permission_to_get() -> None:
    authorizer = FakeAuthorizer()
    endpoint = make_endpoint(certificate=choose_certificate("", Log("test")), authorizer=authorizer)
    endpoint.add_get("/large", handle_large)
    async with run_endpoint(endpoint), aiohttp.ClientSession() as session:
        for method in ("GET", "HEAD"):
            async with session.request(
                method,
                f"https://127.0.0.1:{endpoint.port}/large",
                ssl=False,
                headers={"Authorization": "Bearer good"},
            ) as response:
                assert response.status == 200
                assert int(response.headers["Content-Length"]) == len(LARGE_BODY)
                await response.read()
    assert {verb for _, verb, _ in authorizer.requests} == {"get"}
