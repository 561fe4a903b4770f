"""An HTTPS proxy in front of the API server that injects faults and records all requests.

    async with HttpProxy.in_front_of(plane) as proxy:
        proxy.write_kubeconfig(path)                               # for the code under test
        rule = proxy.drop_next_response("POST", "*/configmaps")    # created, but the client fails
        ...
        assert rule.upstream_statuses == [201]

A request with an Authorization header is forwarded with it, without the administrator's
certificate; every other request is forwarded as the administrator. Use `TcpProxy` for faults below
HTTP, in front of this proxy or behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..listen import stop_accepting
from .ca import CertificateAuthority, write_key_pair
from .cluster_access import write_kubeconfig
from .proxy_rules import (
    UNANSWERED,
    BufferedResponse,
    ProxyRule,
    RecordedRequest,
    RequestMatcher,
    ResponseTransform,
    encode_line,
    encode_status,
)
from .tcpproxy import TcpProxy

__all__ = ["BufferedResponse", "HttpProxy", "ProxyRule", "RecordedRequest", "TcpProxy"]

# Headers of one connection, not of the message: each side of the proxy negotiates its own.
_HOP_BY_HOP = {
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


class Upstream(Protocol):
    """What a proxy needs of the API server; ControlPlane has it."""

    @property
    def url(self) -> str: ...

    admin_tls: ssl.SSLContext
    bearer_tls: ssl.SSLContext


class DropConnection(Exception):
    """Abort the connection to the client without a response."""


@dataclass(frozen=True, eq=False)
class OpenWatch:
    record: RecordedRequest
    request: web.BaseRequest
    response: web.StreamResponse


class HttpProxy:
    """A reverse proxy with its own CA; if several rules match a request, the oldest applies."""

    def __init__(self, url: str, admin_tls: ssl.SSLContext, bearer_tls: ssl.SSLContext) -> None:
        self._upstream_url, self.admin_tls, self.bearer_tls = url.rstrip("/"), admin_tls, bearer_tls
        self.ca = CertificateAuthority("kubewright-proxy")
        self.port = 0
        self.recorded_requests: list[RecordedRequest] = []
        self.rules: list[ProxyRule] = []
        self.watches: list[OpenWatch] = []
        self.buffers_watches = False
        """Whether the lines of a watch are forwarded only when the API server has ended it."""
        self._watch_gate = asyncio.Event()
        self._watch_gate.set()
        self._exit_stack = contextlib.AsyncExitStack()

    @classmethod
    def in_front_of(cls, plane: Upstream) -> Self:
        return cls(plane.url, plane.admin_tls, plane.bearer_tls)

    async def __aenter__(self) -> Self:
        # A watch runs for minutes, so only connecting has a timeout.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        session = aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        )
        self.session = await self._exit_stack.enter_async_context(session)
        self.server = web.Server(self._handle_request, handler_cancellation=True)
        runner = web.ServerRunner(self.server, shutdown_timeout=0.0)
        await runner.setup()
        self._exit_stack.push_async_callback(runner.cleanup)
        self.listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, self.listener, ssl_context=self._create_serving_tls()).start()
        self.port = self.listener.getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        await stop_accepting([self.listener])
        self.abort_watches()
        # A graceful TLS shutdown would wait for the peer, which may be dead, after the loop ended.
        for connection in list(self.server.connections):
            if connection.transport:
                connection.transport.abort()
        await self._exit_stack.aclose()
        # Aborted connections are closed in the next iteration of the event loop.
        await asyncio.sleep(0)

    def _create_serving_tls(self) -> ssl.SSLContext:
        # The ssl module loads certificates only from files.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "crt", Path(folder) / "key"
            pair = self.ca.issue_serving_certificate("127.0.0.1", "localhost")
            write_key_pair(pair, certificate, key)
            context.load_cert_chain(certificate, key)
        return context

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def connection_count(self) -> int:
        return len(self.server.connections)

    def write_kubeconfig(self, path: Path, token: str = "", server: str = "") -> Path:
        """Write a kubeconfig for this proxy: for the administrator, or for the owner of a token.

        `server` replaces the URL, for example with that of a TcpProxy in front of this proxy.
        """
        # The proxy checks no client certificate, but without a credential kubectl prompts for one.
        credential = token or self.ca.issue_client_certificate("proxied")
        return write_kubeconfig(
            path, server or self.url, self.ca.certificate, "proxied", credential
        )

    def find_requests(
        self, method: str = "*", path: str = "*", watch: bool | None = None
    ) -> list[RecordedRequest]:
        matcher = RequestMatcher(method, path, watch)
        return [request for request in self.recorded_requests if matcher.matches(request)]

    # Rules

    def _add_rule(self, rule: ProxyRule) -> ProxyRule:
        self.rules.append(rule)
        return rule

    def fail_next(
        self,
        method: str,
        path: str,
        status: int,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        *,
        watch: bool | None = None,
    ) -> ProxyRule:
        """Respond with an error without forwarding; the default body is a metav1.Status."""
        if body is None:
            body = encode_status(status, f"rejected by the test's proxy with {status}")
        response = BufferedResponse(
            status, body, {"Content-Type": "application/json", **(headers or {})}
        )
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, watch), times, response=response)
        )

    def expire_next_watch(self, path: str = "*", times: int = 1) -> ProxyRule:
        """Respond to a watch with 410: its resourceVersion is too old."""
        return self.fail_next("GET", path, 410, times=times, watch=True)

    def delay_next(
        self, method: str, path: str, seconds: float, times: int = 1, *, watch: bool | None = None
    ) -> ProxyRule:
        """Wait before the request is forwarded."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, watch), times, delay_seconds=seconds)
        )

    def drop_next_response(self, method: str, path: str, times: int = 1) -> ProxyRule:
        """Forward the request and read the whole response, then abort the client's connection."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, False), times, drop_response=True)
        )

    def transform_next_response(
        self, method: str, path: str, change: ResponseTransform, times: int = 1
    ) -> ProxyRule:
        """Send the client what `change` returns for the response of the API server."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, False), times, transform=change)
        )

    async def inject_line(self, line: bytes | str | Mapping[str, Any], path: str = "*") -> int:
        """Send a line to all open watches of the path, between two events; returns how many."""
        streams = [watch.response for watch in self.find_watches(path)]
        for stream in streams:
            await stream.write(encode_line(line))
        return len(streams)

    def hold_watches(self) -> None:
        """Accept watches, and forward neither their lines nor their end."""
        self._watch_gate.clear()

    def release_watches(self) -> None:
        """Forward watches again, beginning with what was held."""
        self._watch_gate.set()

    def abort_watches(self, path: str = "*") -> int:
        """Abort the connections of all open watches of the path; returns how many."""
        streams = self.find_watches(path)
        for watch in streams:
            _abort_connection(watch.request)
        return len(streams)

    def find_watches(self, path: str) -> list[OpenWatch]:
        return [watch for watch in self.watches if RequestMatcher(path=path).matches(watch.record)]

    # Serving

    async def _handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = request.headers
        record = RecordedRequest(
            time.monotonic(),
            request.method,
            request.path,
            request.query_string,
            headers.get("User-Agent", ""),
            "Authorization" in headers,
        )
        self.recorded_requests.append(record)
        rule = next(
            (rule for rule in self.rules if rule.try_match(record)), ProxyRule(RequestMatcher())
        )
        try:
            return await self._apply_rule(request, record, rule)
        except (DropConnection, aiohttp.ClientError, OSError):
            record.status = UNANSWERED if record.status is None else record.status
            _abort_connection(request)
            return web.Response()

    async def _apply_rule(
        self, request: web.BaseRequest, record: RecordedRequest, rule: ProxyRule
    ) -> web.StreamResponse:
        await asyncio.sleep(rule.delay_seconds)
        response = rule.response
        if rule.drop_response or rule.transform:
            # Shielded: a client that disconnects must not cancel the request to the API server.
            response = await asyncio.shield(self._fetch_response(request, rule))
        if rule.drop_response:
            raise DropConnection
        if not response:
            return await self._stream_response(request, record, rule)
        response = rule.transform(response) if rule.transform else response
        record.status = response.status
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    async def _fetch_response(self, request: web.BaseRequest, rule: ProxyRule) -> BufferedResponse:
        # Without Accept-Encoding the response is not compressed, so that a test can transform it.
        async with self.forward(
            request, await request.content.read(), {"accept-encoding"}
        ) as upstream:
            body = await upstream.read()
            rule.upstream_statuses.append(upstream.status)
            return BufferedResponse(
                upstream.status,
                body,
                {"Content-Type": upstream.headers.get("Content-Type", "application/json")},
            )

    async def _stream_response(
        self, request: web.BaseRequest, record: RecordedRequest, rule: ProxyRule
    ) -> web.StreamResponse:
        async with self.forward(request, await request.content.read()) as upstream:
            rule.upstream_statuses.append(upstream.status)
            record.status = upstream.status
            response = web.StreamResponse(
                status=upstream.status,
                headers=_filter_headers(upstream.headers, _HOP_BY_HOP - {"content-length"}),
            )
            await response.prepare(request)
            if record.is_watch:
                with self._track_watch(OpenWatch(record, request, response)):
                    await self._forward_watch(upstream.content, response)
            else:
                async for chunk in upstream.content.iter_any():
                    await response.write(chunk)
            await response.write_eof()
            return response

    async def _forward_watch(
        self, content: aiohttp.StreamReader, response: web.StreamResponse
    ) -> None:
        held = b""
        async for chunk in _iter_whole_lines(content):
            held += chunk
            if not self.buffers_watches:
                await self._watch_gate.wait()
                await response.write(held)
                held = b""
        await self._watch_gate.wait()
        await response.write(held)

    @contextlib.contextmanager
    def _track_watch(self, watch: OpenWatch) -> Iterator[None]:
        self.watches.append(watch)
        try:
            yield
        finally:
            self.watches.remove(watch)

    def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self.session.request(
            request.method,
            URL(f"{self._upstream_url}{request.raw_path}", encoded=True),
            headers=_filter_headers(request.headers, _HOP_BY_HOP | without),
            data=body or None,
            ssl=self.bearer_tls if "Authorization" in request.headers else self.admin_tls,
            allow_redirects=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )


def _filter_headers(headers: CIMultiDictProxy[str], without: Set[str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in without
    )


async def _iter_whole_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The stream in chunks that end with a line, so that `inject_line` splits no event."""
    rest = b""
    async for chunk in content.iter_any():
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield lines + newline
    if rest:
        yield rest


def _abort_connection(request: web.BaseRequest) -> None:
    if request.transport:
        request.transport.abort()
