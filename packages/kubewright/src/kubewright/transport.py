"""The one place that speaks HTTP to the API server: bytes out, bytes or lines in, every failure in our own words.

A `Request` is a plain value, so everything above can be tested without a network; a fake needs `send` and `lines` only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from .auth import Credentials
from .errors import (
    ApiError,
    CertificateRefused,
    KubewrightError,
    NotLeader,
    TimedOut,
    TooMuch,
    Unauthorized,
    Unreachable,
    error_from_status,
)
from .kubeconfig import Connection
from .meta import now
from .metrics import Metrics

# The API server keeps objects below 1.5 MiB (etcd's limit) and takes requests up to 3 MiB; more than this is not honest.
_MAX_LINE_BYTES = 8 * 1024 * 1024
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_RETRIES = 5
# Of all controllers together, and as many for reads: a write may wait for a webhook of ours that reads, a watch for a list. Watches do not
# count, so that no number of slow writes keeps one from beginning.
MAX_CONCURRENT_REQUESTS = 128
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One call: what to send, and in `doing` the words for what it is about."""

    method: str
    path: str
    query: str = ""
    body: bytes | None = None
    content_type: str = ""
    accept: str = "application/json"
    operation: str = ""
    timeout_seconds: float = 30.0


def do_nothing() -> None:
    """What nobody waits for."""


class ApiTransport(Protocol):
    """What a client needs of a transport."""

    async def send(self, request: Request) -> bytes:
        """The body of a successful answer; anything else raises."""
        ...

    def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        """The lines of a streamed answer, as they come; `opened` is called when the server has taken the request."""
        ...


class ManagerTransport(ApiTransport, Protocol):
    """What a manager needs of one."""

    def unguarded(self) -> ManagerTransport:
        """The same server, for writes that need no lease."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


class GuardedRequest(aiohttp.ClientRequest):
    """A request that asks for leave at the very last moment.

    Waiting for a connection may take long (a stopped process, a slow handshake); only here, with the connection in hand,
    does "we are the leader now" still hold when the first byte leaves.
    """

    can_write: Callable[[], bool]

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Write the request, unless it is a write that we may not make any more."""
        if self.method not in _READ_METHODS and not self.can_write():
            raise NotLeader(
                f"{self.method} {self.url.path} was not sent: the lease is not certainly ours any more"
            )
        return await super().send(conn)


def _guarded_request_class(leave: Callable[[], bool]) -> type[GuardedRequest]:
    """A class of requests that ask this function; aiohttp takes a class, not an instance."""

    class Guarded(GuardedRequest):
        can_write = staticmethod(leave)

    return Guarded


class Transport:
    """A pool of connections to one API server, with credentials that stay fresh."""

    def __init__(
        self,
        connection: Connection,
        *,
        metrics: Metrics | None = None,
        can_write: Callable[[], bool] | None = None,
        user_agent: str = "kubewright",
        credentials: Credentials | None = None,
    ) -> None:
        self.connection = connection
        self.credentials = credentials or Credentials(connection)
        self.metrics = metrics
        self.can_write = can_write
        self.user_agent = user_agent
        self.host = urlsplit(connection.server).netloc
        self.base_url = connection.server.rstrip("/")
        self.session: aiohttp.ClientSession | None = None
        self._read_slots, self._write_slots = (
            asyncio.Semaphore(MAX_CONCURRENT_REQUESTS),
            asyncio.Semaphore(MAX_CONCURRENT_REQUESTS),
        )

    async def send(self, request: Request) -> bytes:
        """The body of a successful answer. Retry-After of a 429 or 503 is obeyed, a 401 tried once more if the credential changed."""
        refreshed = False
        for attempt in range(_MAX_RETRIES + 2):
            identity = await self.credentials.headers()
            try:
                return await self._send_once(request, identity)
            except Unauthorized:
                if refreshed or not await self.credentials.refresh(identity):
                    raise
                refreshed = True
            except ApiError as error:
                if (
                    error.status_code not in (429, 503)
                    or error.retry_after is None
                    or attempt >= _MAX_RETRIES
                ):
                    raise
                await asyncio.sleep(error.retry_after)
        raise AssertionError("the last attempt returns or raises")

    async def server_time(self) -> datetime | None:
        """The time at the server, to the second; None where it does not tell."""
        request = Request("GET", "/version", operation="ask for the time", timeout_seconds=10)
        try:
            response = await self._open_response(
                request,
                await self.credentials.headers(),
                _client_timeout(request.timeout_seconds, None),
            )
            await read_body(response, request)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        try:
            return parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return None

    async def _send_once(self, request: Request, identity: dict[str, str]) -> bytes:
        """One exchange, when it is its turn; the wait for that is none of the server's time."""
        try:
            async with self._read_slots if request.method in _READ_METHODS else self._write_slots:
                response = await self._open_response(
                    request, identity, _client_timeout(request.timeout_seconds, None)
                )
                body = await read_body(response, request)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        if response.status >= 300:
            raise self._response_error(response, body, request)
        return body

    async def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        """The lines of a streamed answer. Silence, or going on past the request's own time, is TimedOut; a line over the bound TooMuch."""
        identity = await self.credentials.headers()
        limit = _client_timeout(request.timeout_seconds, idle_timeout_seconds)
        parts: list[bytes] = []
        size = 0
        try:
            response = await self._open_response(request, identity, limit)
            if response.status == Unauthorized.code and await self.credentials.refresh(identity):
                _abort_response(response)
                response = await self._open_response(
                    request, await self.credentials.headers(), limit
                )
            try:
                if response.status >= 300:
                    raise self._response_error(
                        response, await read_body(response, request), request
                    )
                on_open()
                async for chunk in response.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if b"\n" in chunk:
                        *whole, rest = b"".join(parts).split(b"\n")
                        parts, size = [rest], len(rest)
                        for line in whole:
                            yield line
                    if size > _MAX_LINE_BYTES:
                        raise TooMuch(
                            f"{request.operation}: one line of the answer is longer than {_MAX_LINE_BYTES} bytes; it was not read"
                        )
            finally:
                _abort_response(response)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        if rest := b"".join(parts).strip():
            yield rest

    async def _open_response(
        self, request: Request, identity: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send the request; the answer's head is there when this returns."""
        context = await self.credentials.ssl_context() or True
        if self.session is None:
            self.session = self._new_session()
        headers = {**identity, "Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        address = (
            f"{self.base_url}{request.path}?{request.query}"
            if request.query
            else self.base_url + request.path
        )
        response = await self.session.request(
            request.method,
            URL(address, encoded=True),
            data=request.body,
            headers=headers,
            ssl=context,
            server_hostname=self.connection.tls_server_name or None,
            proxy=self.connection.proxy_url or None,
            timeout=timeout,
            allow_redirects=False,
        )
        self.count_request(str(response.status), request.method)
        return response

    def _response_error(
        self, response: aiohttp.ClientResponse, body: bytes, request: Request
    ) -> KubewrightError:
        """The error in an unsuccessful answer; of a 401 one wants to know whose credential it was."""
        whose = (
            f" with the credential of {self.connection.source}"
            if response.status == Unauthorized.code
            else ""
        )
        return _error_from_response(response, body, request.operation + whose)

    def _connection_error(self, error: Exception, request: Request) -> KubewrightError:
        """No answer, counted as client-go counts it, and in our own words."""
        self.count_request("<error>", request.method)
        return _translate_error(error, request, self.connection)

    def _new_session(self) -> aiohttp.ClientSession:
        """A session without cookies, redirects, environment proxies or compression: between us and a server near by, gzip only costs."""
        request_class: type[aiohttp.ClientRequest] = aiohttp.ClientRequest
        if self.can_write is not None:
            request_class = _guarded_request_class(self.can_write)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self.user_agent, "Accept-Encoding": "identity"},
            request_class=request_class,
            auto_decompress=False,
            read_bufsize=256 * 1024,
        )

    def count_request(self, code: str, method: str) -> None:
        """rest_client_requests_total."""
        if self.metrics is not None:
            self.metrics.count_request(code, self.host, method)

    async def close(self) -> None:
        """Close all connections."""
        if self.session is not None:
            session, self.session = self.session, None
            await session.close()
            # What was hung up on ends in the loop's next turn.
            await asyncio.sleep(0)
        await self.credentials.close()

    def unguarded(self) -> Transport:
        """A second pool to the same server without the leader's guard: for the lease itself and for reviews."""
        return Transport(
            self.connection,
            metrics=self.metrics,
            user_agent=self.user_agent,
            credentials=self.credentials,
        )


@lru_cache
def _client_timeout(
    total_seconds: float | None, silence_seconds: float | None
) -> aiohttp.ClientTimeout:
    """Our deadlines in aiohttp's form."""
    return aiohttp.ClientTimeout(total=total_seconds, sock_connect=10, sock_read=silence_seconds)


def _abort_response(response: aiohttp.ClientResponse) -> None:
    """End an answer that may not be over. TLS's polite end would take up to 30 s with a peer that is dead, and outlive the loop."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def read_body(response: aiohttp.ClientResponse, request: Request) -> bytes:
    """The whole body, unless it is larger than we are willing to hold."""
    if response.content_length is not None and response.content_length <= _MAX_RESPONSE_BYTES:
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > _MAX_RESPONSE_BYTES:
            _abort_response(response)
            raise TooMuch(
                f"{request.operation}: the answer is larger than {_MAX_RESPONSE_BYTES} bytes; it was not read"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _error_from_response(
    response: aiohttp.ClientResponse, body: bytes, operation: str
) -> KubewrightError:
    """The error in an unsuccessful answer; a body that is no Status (a proxy's page, say) is quoted, cut short."""
    try:
        status: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict) or "message" not in status:
        status = {"message": body[:300].decode(errors="replace").strip() or response.reason}
    return error_from_status(
        response.status,
        status,
        operation=operation,
        retry_after=parse_retry_after(response.headers.get("Retry-After", "")),
    )


def parse_retry_after(header: str) -> float | None:
    """Retry-After in seconds, from either of its two forms."""
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - now()).total_seconds())
    except (TypeError, ValueError):
        return None


def _translate_error(error: Exception, request: Request, connection: Connection) -> KubewrightError:
    """A failure of aiohttp, the socket or TLS as what it means and what to do."""
    where = f"{request.operation}: the API server at {connection.server} (from {connection.source})"
    if isinstance(error, TimeoutError):
        return TimedOut(f"{where} did not answer in time")
    if isinstance(
        error,
        aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError | ssl.SSLError,
    ):
        why = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
        return CertificateRefused(
            f"{where}: TLS failed: {why}. Check certificate-authority(-data), tls-server-name and the client certificate of that context."
        )
    if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
        why = getattr(error, "os_error", None) or error
        return Unreachable(
            f"{where} cannot be reached: {getattr(why, 'strerror', None) or why}. Is the cluster up, and the address right?"
        )
    return Unreachable(f"{where} broke the connection: {type(error).__name__} {error}".rstrip())
