"""HttpProxy, TcpProxy and `eventually`, with servers of the test."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from kubewright.testing.cluster_access import create_tls_context
from kubewright.testing.proxy import HttpProxy, TcpProxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def tcp_proxy() -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()


async def test_bytes_are_forwarded_and_counted(tcp_proxy: TcpProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp_proxy.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    assert (
        tcp_proxy.bytes_up,
        tcp_proxy.bytes_down,
        tcp_proxy.accepted_count,
        tcp_proxy.connection_count,
    ) == (5, 5, 1, 1)
    writer.write_eof()
    assert await reader.read() == b""
    await eventually(lambda: tcp_proxy.connection_count == 0)
    writer.close()


async def test_stall_keeps_old_and_new_connections_open_and_silent(tcp_proxy: TcpProxy) -> None:
    old_reader, old_writer = await asyncio.open_connection("127.0.0.1", tcp_proxy.port)
    old_writer.write(b"a")
    await old_reader.readexactly(1)
    tcp_proxy.stall()
    new_reader, new_writer = await asyncio.open_connection("127.0.0.1", tcp_proxy.port)
    for reader, writer in ((old_reader, old_writer), (new_reader, new_writer)):
        writer.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        assert not reader.at_eof()
    tcp_proxy.resume()
    assert await old_reader.readexactly(4) == await new_reader.readexactly(4) == b"held"
    old_writer.close()
    new_writer.close()


async def test_abort_breaks_stalled_connections(tcp_proxy: TcpProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", tcp_proxy.port)
    await eventually(lambda: tcp_proxy.connection_count == 1)
    tcp_proxy.stall()
    tcp_proxy.abort_connections()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await eventually(lambda: tcp_proxy.connection_count == 0)
    writer.close()


async def test_unreachable_target_breaks_the_connection() -> None:
    async with TcpProxy("127.0.0.1", 1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


class FakeUpstream:
    """A TLS server that records its requests; a watch sends the chunks in `events`."""

    def __init__(self) -> None:
        self.ca = CertificateAuthority("upstream")
        self.requests: list[tuple[str, str, str, str]] = []
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        tls = request.get_extra_info("peercert") or {}
        user = str(dict(pair[0] for pair in tls.get("subject", ())).get("commonName", ""))
        self.requests.append(
            (request.method, request.raw_path, user, request.headers.get("Authorization", ""))
        )
        await self.may_respond.wait()
        if "watch" in request.query:
            return await self.handle_watch(request)
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

    async def handle_watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while event := await self.events.get():
            await response.write(event)
        return response


@dataclass
class ProxyHarness:
    """The upstream, the proxy in front of it, and a client of the proxy."""

    upstream: FakeUpstream
    proxy: HttpProxy
    client: aiohttp.ClientSession


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ProxyHarness]:
    upstream = FakeUpstream()
    server_tls = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cadata=upstream.ca.certificate.decode()
    )
    server_tls.verify_mode = ssl.CERT_OPTIONAL
    for name, pair in (
        ("server", upstream.ca.issue_serving_certificate("127.0.0.1")),
        ("admin", upstream.ca.issue_client_certificate("admin")),
    ):
        write_key_pair(pair, tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    server_tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    runner = web.ServerRunner(
        web.Server(upstream.handle_request, handler_cancellation=True), shutdown_timeout=0.0
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls).start()
    bearer = create_tls_context(upstream.ca.certificate)
    admin = create_tls_context(
        upstream.ca.certificate, tmp_path / "admin.crt", tmp_path / "admin.key"
    )
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    async with HttpProxy(url, admin, bearer) as proxy:
        connector = aiohttp.TCPConnector(ssl=create_tls_context(proxy.ca.certificate))
        async with aiohttp.ClientSession(proxy.url, connector=connector) as client:
            yield ProxyHarness(upstream, proxy, client)
    await runner.cleanup()


async def test_requests_are_forwarded_as_administrator_and_recorded(harness: ProxyHarness) -> None:
    async with harness.client.post(
        "/api/v1/pods?dryRun=All", data="hi", headers={"User-Agent": "me/1"}
    ) as response:
        assert response.status == 200
        assert await response.json() == {"method": "POST", "body": "hi"}
    assert harness.upstream.requests == [("POST", "/api/v1/pods?dryRun=All", "admin", "")]
    [record] = harness.proxy.recorded_requests
    assert (record.method, record.path, record.query, record.user_agent) == (
        "POST",
        "/api/v1/pods",
        "dryRun=All",
        "me/1",
    )
    assert (record.has_authorization, record.status, record.is_mutating, record.is_watch) == (
        False,
        200,
        True,
        False,
    )


async def test_request_with_a_token_is_forwarded_without_the_certificate(
    harness: ProxyHarness,
) -> None:
    async with harness.client.get("/api", headers={"Authorization": "Bearer abc"}) as response:
        assert response.status == 200
    assert harness.upstream.requests == [("GET", "/api", "", "Bearer abc")]
    assert harness.proxy.recorded_requests[0].has_authorization


async def test_failure_applies_to_the_path_and_as_often_as_requested(harness: ProxyHarness) -> None:
    rule = harness.proxy.fail_next("GET", "/api/*/pods", 500, times=2)
    statuses = []
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/pods", "/api/v1/pods"):
        async with harness.client.get(path) as response:
            statuses.append(response.status)
            body = await response.json()
            assert body.get("reason") == ("InternalError" if response.status == 500 else None)
    assert statuses == [200, 500, 500, 200]
    assert [record.status for record in harness.proxy.find_requests("GET", "*/pods")] == statuses[
        1:
    ]
    assert (len(rule.matched_requests), rule.upstream_statuses) == (2, [])


async def test_failure_has_its_headers(harness: ProxyHarness) -> None:
    harness.proxy.fail_next("*", "*", 429, headers={"Retry-After": "7"})
    async with harness.client.get("/api") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")


async def test_only_a_watch_expires(harness: ProxyHarness) -> None:
    harness.proxy.expire_next_watch("/api/v1/pods")
    async with (
        harness.client.get("/api/v1/pods") as listed,
        harness.client.get("/api/v1/pods?watch=true") as watched,
    ):
        assert (listed.status, watched.status) == (200, 410)
        assert (await watched.json())["reason"] == "Expired"


async def test_dropped_response_reaches_the_server_but_not_the_client(
    harness: ProxyHarness,
) -> None:
    rule = harness.proxy.drop_next_response("POST", "/api/v1/pods")
    with pytest.raises(aiohttp.ClientError):
        await harness.client.post(
            "/api/v1/pods", data="once", headers={"Accept-Encoding": "identity"}
        )
    assert rule.upstream_statuses == [201]
    assert [record.status for record in harness.proxy.recorded_requests] == [0]
    assert len(harness.upstream.requests) == 1


async def test_dropped_response_is_read_even_if_the_client_disconnected(
    harness: ProxyHarness,
) -> None:
    rule = harness.proxy.drop_next_response("POST", "/slow")
    harness.upstream.may_respond.clear()
    call = asyncio.ensure_future(
        harness.client.post("/slow", headers={"Accept-Encoding": "identity"})
    )
    await eventually(lambda: harness.upstream.requests)
    call.cancel()
    await asyncio.wait([call])
    harness.upstream.may_respond.set()
    await eventually(lambda: rule.upstream_statuses == [201])


async def test_response_can_be_transformed(harness: ProxyHarness) -> None:
    harness.proxy.transform_next_response(
        "GET",
        "/api",
        lambda original: replace(original, status=202, body=original.body.replace(b"GET", b"SEEN")),
    )
    async with harness.client.get("/api") as response:
        assert response.status == 202
        assert (await response.json())["method"] == "SEEN"


async def test_delay_comes_before_the_request_is_forwarded(harness: ProxyHarness) -> None:
    harness.proxy.delay_next("GET", "/api", seconds=30.0)
    with pytest.raises(asyncio.TimeoutError):
        await harness.client.get("/api", timeout=aiohttp.ClientTimeout(total=0.2))
    assert harness.upstream.requests == []


async def test_line_is_injected_between_events(harness: ProxyHarness) -> None:
    async with harness.client.get("/api/v1/pods?watch=1") as response:
        await harness.upstream.events.put(b'{"n":1}\n{"n":')
        assert await response.content.readline() == b'{"n":1}\n'
        assert await harness.proxy.inject_line({"n": "injected"}, "/api/v1/pods") == 1
        assert await harness.proxy.inject_line({"n": "elsewhere"}, "/api/v1/nodes") == 0
        await harness.upstream.events.put(b"2}\n")
        assert await response.content.readline() == b'{"n": "injected"}\n'
        assert await response.content.readline() == b'{"n":2}\n'
        await harness.upstream.events.put(b"")
        assert await response.content.read() == b""
    assert harness.proxy.watches == []


async def test_held_watch_is_accepted_and_delivers_nothing(harness: ProxyHarness) -> None:
    harness.proxy.hold_watches()
    async with harness.client.get("/api/v1/pods?watch=1") as response:
        assert response.status == 200
        await harness.upstream.events.put(b'{"n":1}\n')
        await harness.upstream.events.put(b"")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.readany(), 0.2)
        async with harness.client.get("/api") as other:
            assert other.status == 200
        harness.proxy.release_watches()
        assert await response.content.read() == b'{"n":1}\n'


async def test_buffered_watch_is_forwarded_at_its_end(harness: ProxyHarness) -> None:
    harness.proxy.buffers_watches = True
    async with harness.client.get("/api/v1/pods?watch=1") as response:
        for event in (b'{"n":1}\n', b'{"n":2}\n'):
            await harness.upstream.events.put(event)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.readany(), 0.2)
        await harness.upstream.events.put(b"")
        assert await response.content.read() == b'{"n":1}\n{"n":2}\n'


async def test_watch_is_aborted(harness: ProxyHarness) -> None:
    async with harness.client.get("/api/v1/pods?watch=1") as response:
        assert harness.proxy.abort_watches() == 1
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    await eventually(lambda: harness.proxy.watches == [])


async def test_disconnected_client_ends_its_watch(harness: ProxyHarness) -> None:
    async with harness.client.get("/api/v1/pods?watch=1"):
        assert len(harness.proxy.watches) == 1
    await eventually(lambda: harness.proxy.watches == [])


async def test_unreachable_upstream_gives_no_response(tmp_path: Path) -> None:
    context = ssl.create_default_context()
    async with HttpProxy("https://127.0.0.1:1", context, context) as proxy:
        connector = aiohttp.TCPConnector(ssl=create_tls_context(proxy.ca.certificate))
        async with aiohttp.ClientSession(proxy.url, connector=connector) as client:
            with pytest.raises(aiohttp.ClientError):
                await client.post("/api", data="x")
        assert [record.status for record in proxy.recorded_requests] == [0]


async def test_kubeconfig_has_the_url_of_the_proxy(harness: ProxyHarness, tmp_path: Path) -> None:
    config = json.loads(
        harness.proxy.write_kubeconfig(tmp_path / "config", token="abc").read_text()
    )
    assert config["clusters"][0]["cluster"]["server"] == harness.proxy.url
    assert config["users"][0]["user"] == {"token": "abc"}
    assert (tmp_path / "config").stat().st_mode & 0o077 == 0


@pytest.mark.looptime
async def test_eventually_returns_the_first_true_result() -> None:
    results = iter([0, None, 42])
    assert await eventually(lambda: next(results)) == 42


@pytest.mark.looptime
async def test_eventually_reports_the_last_result() -> None:
    with pytest.raises(
        AssertionError, match=r"not true within 3600 s: the last check returned \[\]"
    ):
        await eventually(list, within=3600.0, every=60.0)


@pytest.mark.looptime
async def test_eventually_reports_the_last_exception() -> None:
    async def never() -> bool:
        raise LookupError("no pod yet")

    with pytest.raises(AssertionError, match="LookupError") as failed:
        await eventually(never)
    assert isinstance(failed.value.__cause__, LookupError)


@pytest.mark.looptime
@pytest.mark.parametrize(("every", "longest"), [(0.02, 0.25), (2.0, 2.0)])
async def test_eventually_checks_less_often_with_time(every: float, longest: float) -> None:
    times: list[float] = []

    def never() -> bool:
        times.append(asyncio.get_running_loop().time())
        return False

    with pytest.raises(AssertionError):
        await eventually(never, within=20.0, every=every)
    # The last interval is shorter, because it ends with the wait.
    intervals = [later - earlier for earlier, later in pairwise(times)][:-1]
    assert (intervals[0], intervals[-1]) == pytest.approx((every, longest), abs=1e-4)
