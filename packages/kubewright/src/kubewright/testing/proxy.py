"""Faults at the wire: an HTTPS proxy before the API server that refuses, delays, swallows and lies on request, and remembers all it saw.

    async with HttpProxy.before(plane) as proxy:
        proxy.kubeconfig(path)                                    # for the code under test
        rule = proxy.swallow_next("POST", "*/configmaps")         # done, but unanswered
        ...
        assert rule.forwarded == [201]

A request with an Authorization header goes on with it, and without the administrator's certificate; any other goes on as the
administrator. `TcpProxy` is for what happens below HTTP; it may stand before or behind this one.
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
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..listen import stop_accepting
from .ca import CertificateAuthority
from .http import write_kubeconfig
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

# Of one connection, not of the message; the two sides negotiate their own.
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
    """What a proxy has to know of the API server; a ControlPlane is one."""

    @property
    def url(self) -> str:
        """Where it listens."""

    admin_tls: ssl.SSLContext
    bearer_tls: ssl.SSLContext


class DropConnection(Exception):
    """The connection to the client is to be broken, without an answer."""


@dataclass(frozen=True, eq=False)
class OpenWatch:
    """A watch that is being passed on."""

    record: RecordedRequest
    request: web.BaseRequest
    response: web.StreamResponse


class HttpProxy:
    """A reverse proxy with its own CA; rules apply to the next fitting requests, the oldest rule first."""

    def __init__(self, url: str, admin_tls: ssl.SSLContext, bearer_tls: ssl.SSLContext) -> None:
        self._upstream_url, self.admin_tls, self.bearer_tls = url.rstrip("/"), admin_tls, bearer_tls
        self.ca = CertificateAuthority("kubewright-proxy")
        self.port = 0
        self.recorded_requests: list[RecordedRequest] = []
        self.rules: list[ProxyRule] = []
        self.watches: list[OpenWatch] = []
        self._exit_stack = contextlib.AsyncExitStack()

    @classmethod
    def in_front_of(cls, plane: Upstream) -> Self:
        """A proxy before this control plane."""
        return cls(plane.url, plane.admin_tls, plane.bearer_tls)

    async def __aenter__(self) -> Self:
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await stop_accepting([self.listener])
        self.abort_watches()
        # TLS is ended politely else, with a peer that may be dead, and after our loop is.
        for connection in list(self.server.connections):
            if connection.transport:
                connection.transport.abort()
        await self._exit_stack.aclose()

    def _create_serving_tls(self) -> ssl.SSLContext:
        """Our own certificate; the ssl module takes it from files only."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "crt", Path(folder) / "key"
            self.ca.issue_serving_certificate("127.0.0.1", "localhost").write(certificate, key)
            context.load_cert_chain(certificate, key)
        return context

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def connection_count(self) -> int:
        """How many clients' connections are open now."""
        return len(self.server.connections)

    def write_kubeconfig(self, path: Path, token: str = "", server: str = "") -> Path:
        """Write a kubeconfig that leads here: as administrator, or with a token as its owner. `server` for a TcpProxy before this one.

        The certificate in it is for show: we ask for none, but kubectl asks for a password where there is no credential.
        """
        credential = token or self.ca.issue_client_certificate("proxied")
        return write_kubeconfig(
            path, server or self.url, self.ca.certificate, "proxied", credential
        )

    def find_requests(
        self, method: str = "*", path: str = "*", watch: bool | None = None
    ) -> list[RecordedRequest]:
        """Those of the ledger that fit."""
        return [
            seen
            for seen in self.recorded_requests
            if RequestMatcher(method, path, watch).matches(seen)
        ]

    # Rules

    def _add_rule(self, rule: ProxyRule) -> ProxyRule:
        """Put one more rule in force; the methods below make the common ones."""
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
        """Answer with an error, without asking the API server; the body is a fitting metav1.Status unless given."""
        content = (
            encode_status(status, f"refused by the test's proxy with {status}")
            if body is None
            else body
        )
        answer = BufferedResponse(
            status, content, {"Content-Type": "application/json", **(headers or {})}
        )
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, watch), times, response=answer)
        )

    def expire_next_watch(self, path: str = "*", times: int = 1) -> ProxyRule:
        """Answer 410 when a watch connects: its resourceVersion is too old."""
        return self.fail_next("GET", path, 410, times=times, watch=True)

    def throttle_next(
        self,
        method: str,
        path: str,
        retry_after_seconds: int,
        times: int = 1,
        *,
        watch: bool | None = None,
    ) -> ProxyRule:
        """Answer 429 with Retry-After."""
        return self.fail_next(
            method,
            path,
            429,
            headers={"Retry-After": str(retry_after_seconds)},
            times=times,
            watch=watch,
        )

    def delay_next(
        self, method: str, path: str, seconds: float, times: int = 1, *, watch: bool | None = None
    ) -> ProxyRule:
        """Wait before the request goes on."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, watch), times, delay_seconds=seconds)
        )

    def drop_next_response(self, method: str, path: str, times: int = 1) -> ProxyRule:
        """Let the API server do it, read its whole answer, then break the connection: done, but unanswered."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, False), times, drop_response=True)
        )

    def transform_next_response(
        self, method: str, path: str, change: ResponseTransform, times: int = 1
    ) -> ProxyRule:
        """Give the client what `change` makes of the API server's answer."""
        return self._add_rule(
            ProxyRule(RequestMatcher(method, path, False), times, transform=change)
        )

    async def inject_line(self, line: bytes | str | Mapping[str, Any], path: str = "*") -> int:
        """Send one line of our own into all open watches of that path, between whole events; returns into how many."""
        streams = [watch.response for watch in self.find_watches(path)]
        for stream in streams:
            await stream.write(encode_line(line))
        return len(streams)

    def abort_watches(self, path: str = "*") -> int:
        """Break the connections of all open watches of that path; returns how many."""
        streams = self.find_watches(path)
        for watch in streams:
            _abort_connection(watch.request)
        return len(streams)

    def find_watches(self, path: str) -> list[OpenWatch]:
        """The watches that are open now."""
        return [watch for watch in self.watches if RequestMatcher(path=path).matches(watch.record)]

    # Serving

    async def _handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request: note it, and do what its rule says."""
        headers = request.headers
        seen = RecordedRequest(
            time.monotonic(),
            request.method,
            request.path,
            request.query_string,
            headers.get("User-Agent", ""),
            "Authorization" in headers,
        )
        self.recorded_requests.append(seen)
        rule = next(
            (rule for rule in self.rules if rule.try_match(seen)), ProxyRule(RequestMatcher())
        )
        try:
            return await self._apply_rule(request, seen, rule)
        except (DropConnection, aiohttp.ClientError, OSError):
            seen.status = UNANSWERED if seen.status is None else seen.status
            _abort_connection(request)
            return web.Response()

    async def _apply_rule(
        self, request: web.BaseRequest, seen: RecordedRequest, rule: ProxyRule
    ) -> web.StreamResponse:
        """Take the steps of the rule."""
        await asyncio.sleep(rule.delay_seconds)
        answer = rule.response
        if rule.drop_response or rule.transform:
            # Shielded: a client that goes away must not take the call with it.
            answer = await asyncio.shield(self._fetch_response(request, rule))
        if rule.drop_response:
            raise DropConnection
        if not answer:
            return await self._stream_response(request, seen, rule)
        answer = rule.transform(answer) if rule.transform else answer
        seen.status = answer.status
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _fetch_response(self, request: web.BaseRequest, rule: ProxyRule) -> BufferedResponse:
        """The API server's whole answer, not compressed."""
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
        self, request: web.BaseRequest, seen: RecordedRequest, rule: ProxyRule
    ) -> web.StreamResponse:
        """Pass the answer on as it comes."""
        async with self.forward(request, await request.content.read()) as upstream:
            rule.upstream_statuses.append(upstream.status)
            seen.status = upstream.status
            response = web.StreamResponse(
                status=upstream.status,
                headers=_filter_headers(upstream.headers, _HOP_BY_HOP - {"content-length"}),
            )
            await response.prepare(request)
            with self._track_watch(OpenWatch(seen, request, response)):
                pieces = (
                    _iter_whole_lines(upstream.content)
                    if seen.is_watch
                    else upstream.content.iter_any()
                )
                async for piece in pieces:
                    await response.write(piece)
            await response.write_eof()
            return response

    @contextlib.contextmanager
    def _track_watch(self, watch: OpenWatch) -> Iterator[None]:
        """Know the watch while it is open; anything else passes unlisted."""
        if watch.record.is_watch:
            self.watches.append(watch)
        try:
            yield
        finally:
            if watch in self.watches:
                self.watches.remove(watch)

    def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The same request to the API server, with the sender's token or else as administrator."""
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
    """The headers that go on."""
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in without
    )


async def _iter_whole_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The stream in pieces that end with a line, so that a line of ours fits between any two."""
    held = b""
    async for chunk in content.iter_any():
        lines, newline, held = (held + chunk).rpartition(b"\n")
        if newline:
            yield lines + newline
    if held:
        yield held


def _abort_connection(request: web.BaseRequest) -> None:
    """Break the client's connection."""
    if request.transport:
        request.transport.abort()
