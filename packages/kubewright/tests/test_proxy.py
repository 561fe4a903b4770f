"""The proxies and `eventually`, on servers of our own."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.http import create_tls_context
from kubewright.testing.proxy import HttpProxy, TcpProxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def tcp() -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()


async def test_bytes_pass_and_are_counted(tcp: TcpProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    assert (tcp.bytes_up, tcp.bytes_down, tcp.accepted_count, tcp.connection_count) == (5, 5, 1, 1)
    writer.write_eof()
    assert await reader.read() == b""
    await eventually(lambda: tcp.connection_count == 0)
    writer.close()


async def test_a_stall_holds_old_and_new_connections_open_and_silent(tcp: TcpProxy) -> None:
    old_reader, old_writer = await asyncio.open_connection("127.0.0.1", tcp.port)
    old_writer.write(b"a")
    await old_reader.readexactly(1)
    tcp.stall()
    new_reader, new_writer = await asyncio.open_connection("127.0.0.1", tcp.port)
    for reader, writer in ((old_reader, old_writer), (new_reader, new_writer)):
        writer.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        assert not reader.at_eof()
    tcp.resume()
    assert await old_reader.readexactly(4) == await new_reader.readexactly(4) == b"held"
    old_writer.close()
    new_writer.close()


async def test_a_cut_breaks_connections_even_while_stalled(tcp: TcpProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp.port)
    await eventually(lambda: tcp.connection_count == 1)
    tcp.stall()
    tcp.abort_connections()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await eventually(lambda: tcp.connection_count == 0)
    writer.close()


async def test_a_dead_target_breaks_the_connection() -> None:
    async with TcpProxy("127.0.0.1", 1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


class Upstream:
    """A TLS server that notes what it is asked; `/watch` sends what is put into `events`, half a line at a time."""

    def __init__(self) -> None:
        self.authority = CertificateAuthority("upstream")
        self.asked: list[tuple[str, str, str, str]] = []
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        tls = request.get_extra_info("peercert") or {}
        who = str(dict(pair[0] for pair in tls.get("subject", ())).get("commonName", ""))
        self.asked.append(
            (request.method, request.raw_path, who, request.headers.get("Authorization", ""))
        )
        await self.may_answer.wait()
        if "watch" in request.query:
            return await self.watch(request)
        body = json.dumps(
            {"method": request.method, "body": (await request.read()).decode()}
        ).encode()
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(
                body=gzip.compress(body),
                headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
            )
        return web.Response(
            body=body,
            content_type="application/json",
            status=201 if request.method == "POST" else 200,
        )

    async def watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while event := await self.events.get():
            await response.write(event)
        return response


@dataclass
class Scene:
    """The upstream, the proxy before it, and a client of the proxy."""

    upstream: Upstream
    proxy: HttpProxy
    client: aiohttp.ClientSession


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    upstream = Upstream()
    server_tls = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cadata=upstream.authority.certificate.decode()
    )
    server_tls.verify_mode = ssl.CERT_OPTIONAL
    for name, pair in (
        ("server", upstream.authority.issue_serving_certificate("127.0.0.1")),
        ("admin", upstream.authority.issue_client_certificate("admin")),
    ):
        pair.write(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    server_tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    runner = web.ServerRunner(
        web.Server(upstream.serve, handler_cancellation=True), shutdown_timeout=0.0
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls).start()
    bearer = create_tls_context(upstream.authority.certificate)
    admin = create_tls_context(
        upstream.authority.certificate, tmp_path / "admin.crt", tmp_path / "admin.key"
    )
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    async with HttpProxy(url, admin, bearer) as proxy:
        connector = aiohttp.TCPConnector(ssl=create_tls_context(proxy.ca.certificate))
        async with aiohttp.ClientSession(proxy.url, connector=connector) as client:
            yield Scene(upstream, proxy, client)
    await runner.cleanup()


async def test_requests_pass_as_administrator_and_are_noted(scene: Scene) -> None:
    async with scene.client.post(
        "/api/v1/pods?dryRun=All", data="hi", headers={"User-Agent": "me/1"}
    ) as response:
        assert response.status == 200
        assert await response.json() == {"method": "POST", "body": "hi"}
    assert scene.upstream.asked == [("POST", "/api/v1/pods?dryRun=All", "admin", "")]
    [seen] = scene.proxy.recorded_requests
    assert (seen.method, seen.path, seen.query, seen.user_agent) == (
        "POST",
        "/api/v1/pods",
        "dryRun=All",
        "me/1",
    )
    assert (seen.has_authorization, seen.status, seen.is_mutating, seen.is_watch) == (
        False,
        200,
        True,
        False,
    )


async def test_a_token_passes_and_the_certificate_does_not(scene: Scene) -> None:
    async with scene.client.get("/api", headers={"Authorization": "Bearer abc"}) as response:
        assert response.status == 200
    assert scene.upstream.asked == [("GET", "/api", "", "Bearer abc")]
    assert scene.proxy.recorded_requests[0].has_authorization


async def test_a_failure_comes_as_often_as_asked_and_only_where(scene: Scene) -> None:
    rule = scene.proxy.fail_next("GET", "/api/*/pods", 500, times=2)
    statuses = []
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/pods", "/api/v1/pods"):
        async with scene.client.get(path) as response:
            statuses.append(response.status)
            told = await response.json()
            assert told.get("reason") == ("InternalError" if response.status == 500 else None)
    assert statuses == [200, 500, 500, 200]
    assert [seen.status for seen in scene.proxy.find_requests("GET", "*/pods")] == statuses[1:]
    assert (len(rule.matched_requests), rule.upstream_statuses) == (2, [])


async def test_throttling_names_the_time(scene: Scene) -> None:
    scene.proxy.throttle_next("*", "*", retry_after_seconds=7)
    async with scene.client.get("/api") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")


async def test_only_a_watch_expires(scene: Scene) -> None:
    scene.proxy.expire_next_watch("/api/v1/pods")
    async with (
        scene.client.get("/api/v1/pods") as listed,
        scene.client.get("/api/v1/pods?watch=true") as watched,
    ):
        assert (listed.status, watched.status) == (200, 410)
        assert (await watched.json())["reason"] == "Expired"


async def test_a_swallowed_call_is_done_but_unanswered(scene: Scene) -> None:
    rule = scene.proxy.drop_next_response("POST", "/api/v1/pods")
    with pytest.raises(aiohttp.ClientError):
        await scene.client.post(
            "/api/v1/pods", data="once", headers={"Accept-Encoding": "identity"}
        )
    assert rule.upstream_statuses == [201]
    assert [seen.status for seen in scene.proxy.recorded_requests] == [0]
    assert len(scene.upstream.asked) == 1


async def test_a_swallowed_call_is_done_even_if_the_client_has_gone(scene: Scene) -> None:
    rule = scene.proxy.drop_next_response("POST", "/slow")
    scene.upstream.may_answer.clear()
    call = asyncio.ensure_future(
        scene.client.post("/slow", headers={"Accept-Encoding": "identity"})
    )
    await eventually(lambda: scene.upstream.asked)
    call.cancel()
    await asyncio.wait([call])
    scene.upstream.may_answer.set()
    await eventually(lambda: rule.upstream_statuses == [201])


async def test_an_answer_can_be_replaced(scene: Scene) -> None:
    scene.proxy.transform_next_response(
        "GET",
        "/api",
        lambda answer: replace(answer, status=202, body=answer.body.replace(b"GET", b"SEEN")),
    )
    async with scene.client.get("/api") as response:
        assert response.status == 202
        assert (await response.json())["method"] == "SEEN"


async def test_a_delay_comes_before_the_request_goes_on(scene: Scene) -> None:
    scene.proxy.delay_next("GET", "/api", seconds=30.0)
    with pytest.raises(asyncio.TimeoutError):
        await scene.client.get("/api", timeout=aiohttp.ClientTimeout(total=0.2))
    assert scene.upstream.asked == []


async def test_a_line_is_injected_between_whole_events(scene: Scene) -> None:
    async with scene.client.get("/api/v1/pods?watch=1") as response:
        await scene.upstream.events.put(b'{"n":1}\n{"n":')
        assert await response.content.readline() == b'{"n":1}\n'
        assert await scene.proxy.inject_line({"n": "ours"}, "/api/v1/pods") == 1
        assert await scene.proxy.inject_line({"n": "elsewhere"}, "/api/v1/nodes") == 0
        await scene.upstream.events.put(b"2}\n")
        assert await response.content.readline() == b'{"n": "ours"}\n'
        assert await response.content.readline() == b'{"n":2}\n'
        await scene.upstream.events.put(b"")
        assert await response.content.read() == b""
    assert scene.proxy.watches == []


async def test_a_watch_is_cut(scene: Scene) -> None:
    async with scene.client.get("/api/v1/pods?watch=1") as response:
        assert scene.proxy.abort_watches() == 1
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    await eventually(lambda: scene.proxy.watches == [])


async def test_a_client_that_leaves_ends_its_watch(scene: Scene) -> None:
    async with scene.client.get("/api/v1/pods?watch=1"):
        assert len(scene.proxy.watches) == 1
    await eventually(lambda: scene.proxy.watches == [])


async def test_a_dead_upstream_is_no_answer(tmp_path: Path) -> None:
    nothing = ssl.create_default_context()
    async with HttpProxy("https://127.0.0.1:1", nothing, nothing) as proxy:
        connector = aiohttp.TCPConnector(ssl=create_tls_context(proxy.ca.certificate))
        async with aiohttp.ClientSession(proxy.url, connector=connector) as client:
            with pytest.raises(aiohttp.ClientError):
                await client.post("/api", data="x")
        assert [seen.status for seen in proxy.recorded_requests] == [0]


async def test_the_kubeconfig_leads_to_the_proxy(scene: Scene, tmp_path: Path) -> None:
    config = json.loads(scene.proxy.write_kubeconfig(tmp_path / "config", token="abc").read_text())
    assert config["clusters"][0]["cluster"]["server"] == scene.proxy.url
    assert config["users"][0]["user"] == {"token": "abc"}
    assert (tmp_path / "config").stat().st_mode & 0o077 == 0


@pytest.mark.looptime
async def test_eventually_returns_what_became_true() -> None:
    answers = iter([0, None, 42])
    assert await eventually(lambda: next(answers)) == 42


@pytest.mark.looptime
async def test_eventually_tells_the_last_answer() -> None:
    with pytest.raises(
        AssertionError, match=r"not true within 3600 s: the last check answered \[\]"
    ):
        await eventually(list, within=3600.0, every=60.0)


@pytest.mark.looptime
async def test_eventually_tells_what_was_raised() -> None:
    async def never() -> bool:
        raise LookupError("no pod yet")

    with pytest.raises(AssertionError, match="LookupError") as failed:
        await eventually(never)
    assert isinstance(failed.value.__cause__, LookupError)
