"""The pool, the streams, the proxies and the time limits of the HTTP client, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.ca import CertificateAuthority, write_key_pair
from kubewright_http import (
    ConnectError,
    ConnectionBroken,
    HostNotFound,
    HttpClient,
    Origin,
    ProxyRejected,
    ProxyUnreachable,
    origin_of,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Handler = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@dataclass
class Server:
    """Calls the handler for each request."""

    handler: Handler
    port: int = 0
    connections: int = 0
    requests: list[Exchange] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (
                        int(line.partition(":")[2])
                        for line in head.splitlines()
                        if line.lower().startswith("content-length:")
                    ),
                    0,
                )
                exchange = Exchange(head, await reader.readexactly(length), reader, writer, number)
                self.requests.append(exchange)
                await self.handler(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @property
    def origin(self) -> Origin:
        return origin_of(f"http://127.0.0.1:{self.port}", None)


@asynccontextmanager
async def run_server(
    handler: Handler, context: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(handler)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in server.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def answer_ok(exchange: Exchange) -> None:
    await exchange.send(OK)


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


async def get(client: HttpClient, origin: Origin, method: str = "GET", **options: float) -> bytes:
    response = await client.request(
        method, origin, "/path?query", {"Accept": "a"}, timeout_seconds=options.pop("seconds", 30)
    )
    body = await response.read(1000)
    assert body is not None
    return body


async def test_connection_is_kept(client: HttpClient) -> None:
    async with run_server(answer_ok) as server:
        assert [await get(client, server.origin) for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 1
        assert (client.used_count, client.idle_count) == (0, 1)
        assert server.requests[0].head == (
            f"GET /path?query HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: a\r\n\r\n"
        )


async def test_body_is_sent_with_its_length(client: HttpClient) -> None:
    async with run_server(answer_ok) as server:
        for body in (b"{}", None):
            response = await client.request(
                "POST", server.origin, "/", {}, body, timeout_seconds=30
            )
            assert await response.read(10) == b"ok"
        assert [request.body for request in server.requests] == [b"{}", b""]
        assert "Content-Length: 0\r\n" in server.requests[1].head


@pytest.mark.parametrize("value", ["a\r\nInjected: x", "a\nb"])
async def test_line_break_in_a_header_is_rejected(client: HttpClient, value: str) -> None:
    origin = origin_of("http://127.0.0.1:1", None)
    with pytest.raises(ValueError, match="line break"):
        await client.request("GET", origin, "/", {"Name": value}, timeout_seconds=30)
    with pytest.raises(ValueError, match="space"):
        await client.request("GET", origin, "/ HTTP/1.1", {}, timeout_seconds=30)


async def test_stale_connection_is_replaced_for_reads_only(client: HttpClient) -> None:
    """The server ends the connection when the second request arrives, as if it were idle."""

    async def answer_once(exchange: Exchange) -> None:
        if server.requests[0] is exchange or exchange.connection > 1:
            await exchange.send(OK)
        else:
            exchange.writer.transport.abort()
            raise ConnectionError

    for method, sent in (("GET", 3), ("PATCH", 2)):
        async with run_server(answer_once) as server:
            await get(client, server.origin)
            if method == "GET":
                assert await get(client, server.origin) == b"ok"
            else:
                with pytest.raises(ConnectionBroken):
                    await get(client, server.origin, method)
            assert len(server.requests) == sent


async def test_read_is_not_repeated_on_a_new_connection(client: HttpClient) -> None:
    async def close(exchange: Exchange) -> None:
        raise ConnectionError

    async with run_server(close) as server:
        with pytest.raises(ConnectionBroken, match="before the response"):
            await get(client, server.origin)
        assert len(server.requests) == 1


async def test_closed_idle_connection_is_not_used(client: HttpClient) -> None:
    async with run_server(answer_ok) as server:
        await get(client, server.origin)
        server.writers[0].close()
        await eventually(lambda: client.idle_count == 0)
        assert await get(client, server.origin, "POST") == b"ok"
        assert server.connections == 2


async def test_unrequested_bytes_end_an_idle_connection(client: HttpClient) -> None:
    async with run_server(answer_ok) as server:
        await get(client, server.origin)
        server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await eventually(lambda: client.idle_count == 0)
        assert await get(client, server.origin) == b"ok"


async def test_idle_connection_is_closed_after_a_while() -> None:
    client = HttpClient(keep_alive_seconds=0.05)
    async with run_server(answer_ok) as server:
        await get(client, server.origin)
        await eventually(lambda: client.idle_count == 0)
        await get(client, server.origin)
        assert server.connections == 2
        await client.close()


async def test_connections_are_limited_and_waiting_is_fair() -> None:
    release, waiting = asyncio.Event(), 0

    async def wait(exchange: Exchange) -> None:
        nonlocal waiting
        waiting += 1
        await release.wait()
        await exchange.send(OK)

    client = HttpClient(max_connections=2)
    async with run_server(wait) as server:
        calls = [asyncio.create_task(get(client, server.origin)) for _ in range(6)]
        await eventually(lambda: waiting == 2)
        # A call that waits, and one that is running.
        for call in (calls[3], calls[0]):
            call.cancel()
        await eventually(lambda: waiting == 3)
        assert client.used_count == 2
        release.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, bytes) for result in results] == [
            False,
            True,
            True,
            False,
            True,
            True,
        ]
        assert client.used_count == 0
        await client.close()


async def test_request_that_waits_too_long_for_a_connection_is_not_sent() -> None:
    async def hang(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    client = HttpClient(max_connections=1)
    async with run_server(hang) as server:
        call = asyncio.create_task(get(client, server.origin))
        await eventually(lambda: len(server.requests) == 1)
        with pytest.raises(TimeoutError):
            await client.request(
                "POST", server.origin, "/", {}, timeout_seconds=30, send_within_seconds=0.05
            )
        assert len(server.requests) == 1
        call.cancel()
        await asyncio.wait([call])
        assert client.used_count == 0
        await client.close()


async def test_nothing_is_sent_if_the_last_check_fails(client: HttpClient) -> None:
    def reject() -> None:
        raise PermissionError

    async with run_server(answer_ok) as server:
        with pytest.raises(PermissionError):
            await client.request(
                "POST", server.origin, "/", {}, timeout_seconds=30, before_send=reject
            )
        assert await get(client, server.origin) == b"ok"
        # The connection was not used, so it carries the next request.
        assert (server.connections, len(server.requests)) == (1, 1)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", OK[:-1]])
async def test_time_limit_covers_the_whole_response(client: HttpClient, start: bytes) -> None:
    async def send_start(exchange: Exchange) -> None:
        await exchange.send(start)
        await asyncio.Event().wait()

    async with run_server(send_start) as server:
        with pytest.raises(TimeoutError):
            await get(client, server.origin, seconds=0.1)
        assert (client.used_count, client.idle_count) == (0, 0)


@pytest.mark.parametrize(("first_seconds", "second_seconds"), [(30, 0.3), (0.2, 1.0)])
async def test_each_request_over_a_connection_has_its_own_deadline(
    client: HttpClient, first_seconds: float, second_seconds: float
) -> None:
    async def answer_the_first(exchange: Exchange) -> None:
        if len(server.requests) == 1:
            await exchange.send(OK)
        else:
            await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    async with run_server(answer_the_first) as server:
        await get(client, server.origin, seconds=first_seconds)
        started = loop.time()
        with pytest.raises(TimeoutError):
            await get(client, server.origin, seconds=second_seconds)
        # The loop may call a timer early by as much as its clock's resolution.
        assert loop.time() - started > second_seconds - 0.05
        assert server.connections == 1


async def test_stream_arrives_as_it_is_sent_and_times_out_when_idle(client: HttpClient) -> None:
    more = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await more.wait()
        await exchange.send(b"4\r\ntwo\n\r\n")
        await asyncio.Event().wait()

    async with run_server(stream) as server:
        response = await client.request(
            "GET", server.origin, "/", {}, timeout_seconds=30, idle_seconds=0.2
        )
        assert await response.read_chunk() == b"one\n"
        more.set()
        assert await response.read_chunk() == b"two\n"
        with pytest.raises(TimeoutError):
            await response.read_chunk()
        assert client.used_count == 0


async def test_large_body_is_read_slowly(client: HttpClient) -> None:
    size, sent = 40_000_000, 0

    async def send_much(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await exchange.send(b"x" * 1_000_000)
            sent += 1_000_000

    async with run_server(send_much) as server:
        response = await client.request("GET", server.origin, "/", {}, timeout_seconds=60)
        first = await response.read_chunk()
        # Nothing is read any more, so the server cannot send everything, however often it tries.
        for _ in range(2000):
            await asyncio.sleep(0)
        assert sent < size
        rest = await response.read(size)
        assert rest is not None
        assert len(first) + len(rest) == size


async def test_body_that_is_too_large_is_not_read(client: HttpClient) -> None:
    async def answer_chunks(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.Event().wait()

    for handler in (answer_ok, answer_chunks):
        async with run_server(handler) as server:
            response = await client.request("GET", server.origin, "/", {}, timeout_seconds=30)
            assert await response.read(1) is None
            assert (client.used_count, client.idle_count) == (0, 0)


async def test_closed_client_fails_requests() -> None:
    async def hang(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    client = HttpClient()
    async with run_server(hang) as server:
        call = asyncio.create_task(get(client, server.origin))
        await eventually(lambda: len(server.requests) == 1)
        await client.close()
        with pytest.raises(ConnectionBroken, match="closed"):
            await call


async def test_no_connection(client: HttpClient) -> None:
    with pytest.raises(ConnectError) as caught:
        await get(client, origin_of("http://127.0.0.1:1", None))
    assert isinstance(caught.value.os_error, ConnectionRefusedError)
    for host in ("no-such-host.invalid", "a" * 100 + ".invalid"):
        with pytest.raises(HostNotFound):
            await get(client, origin_of(f"http://{host}", None))


# TLS and proxies


@dataclass
class TlsServer:
    server: Server
    trust: ssl.SSLContext

    def origin(self, **options: str) -> Origin:
        return origin_of(f"https://127.0.0.1:{self.server.port}", self.trust, **options)


@pytest.fixture
async def tls_server(tmp_path: Path) -> AsyncIterator[TlsServer]:
    ca = CertificateAuthority("test")
    write_key_pair(
        ca.issue_serving_certificate("127.0.0.1", "other"), tmp_path / "crt", tmp_path / "key"
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    trust = ssl.create_default_context(cadata=ca.certificate.decode())
    async with run_server(answer_ok, context) as server:
        yield TlsServer(server, trust)


async def test_certificate_is_verified(client: HttpClient, tls_server: TlsServer) -> None:
    assert await get(client, tls_server.origin()) == b"ok"
    assert await get(client, tls_server.origin(server_hostname="other")) == b"ok"
    with pytest.raises(ssl.SSLCertVerificationError):
        await get(client, tls_server.origin(server_hostname="wrong"))
    distrustful = tls_server.origin()._replace(context=ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        await get(client, distrustful)
    assert client.used_count == 0


async def tunnel(exchange: Exchange) -> None:
    """Connect to the server of a CONNECT, as a proxy does."""
    host, _, port = exchange.head.split()[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await exchange.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    await asyncio.gather(copy(exchange.reader, writer), copy(reader, exchange.writer))


async def test_tunnel_through_a_proxy(client: HttpClient, tls_server: TlsServer) -> None:
    async with run_server(tunnel) as proxy:
        origin = tls_server.origin(proxy_url=f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        assert [await get(client, origin) for _ in range(2)] == [b"ok"] * 2
        assert len(proxy.requests) == 1
        assert proxy.requests[0].head == (
            f"CONNECT 127.0.0.1:{tls_server.server.port} HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{tls_server.server.port}\r\n"
            "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        )
        assert "Proxy-Authorization" not in tls_server.server.requests[0].head
        wrong = origin._replace(server_hostname="wrong")
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(client, wrong)


async def test_request_without_tls_names_the_server_to_the_proxy(client: HttpClient) -> None:
    async with run_server(answer_ok) as proxy:
        url = f"http://user:secret@127.0.0.1:{proxy.port}"
        assert await get(client, origin_of("http://server:8080", None, proxy_url=url)) == b"ok"
        assert proxy.requests[0].head.startswith(
            "GET http://server:8080/path?query HTTP/1.1\r\nHost: server:8080\r\n"
            "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"
        )


async def test_proxy_that_rejects(client: HttpClient, tls_server: TlsServer) -> None:
    async def reject(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    async with run_server(reject) as proxy:
        with pytest.raises(ProxyRejected) as caught:
            await get(client, tls_server.origin(proxy_url=f"http://127.0.0.1:{proxy.port}"))
        assert caught.value.status == 407
    with pytest.raises(ProxyUnreachable):
        await get(client, tls_server.origin(proxy_url="http://127.0.0.1:1"))
    assert client.used_count == 0
