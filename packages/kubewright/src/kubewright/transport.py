"""The only module that speaks HTTP to the API server: bytes out, bytes or lines in, and every
failure as an error of `errors.py`.

A `Request` is a plain value, so the code above needs no network in tests. A fake only implements
`send` and `stream_lines`.
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

from .api_credentials import ApiCredentials
from .condition import utc_now
from .errors import (
    ApiError,
    CertificateRefused,
    KubewrightError,
    NotLeader,
    ResponseTooLarge,
    TimedOut,
    Unauthorized,
    Unreachable,
    error_from_status,
)
from .kubeconfig import Connection
from .lease_guard import WriteGuard
from .metrics import Metrics

# etcd limits objects to 1.5 MiB and the API server limits requests to 3 MiB, so a longer line does
# not come from a working API server.
_MAX_LINE_BYTES = 8 * 1024 * 1024
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024  # joining 64 MiB stops the event loop for 0.1 s
# With at most 60 s of Retry-After each, a request waits for five minutes at most.
_MAX_RETRIES = 5
# For all controllers together. Reads and writes are limited separately, because a write may wait
# for one of our webhooks, which reads. Watches are not limited, so slow writes cannot delay them.
MAX_CONCURRENT_REQUESTS = 128
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `operation` describes it in error messages."""

    method: str
    path: str
    query: str = ""
    body: bytes | None = None
    content_type: str = ""
    accept: str = "application/json"
    operation: str = ""
    timeout_seconds: float = 30.0


def do_nothing() -> None:
    """The default `on_open`."""


class ApiTransport(Protocol):
    async def send(self, request: Request) -> bytes:
        """The body of a successful response; any other response raises."""
        ...

    def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        """The lines of a streamed response. Calls `on_open` when the server has accepted it."""
        ...


class ManagerTransport(ApiTransport, Protocol):
    def without_lease_guard(self) -> ManagerTransport:
        """A transport to the same server that writes without a lease."""
        ...

    async def close(self) -> None: ...


class _GuardedRequest(aiohttp.ClientRequest):
    """A request that checks the lease immediately before its first byte is sent, unless it reads.

    An earlier check may be outdated after the wait for a connection.
    """

    guard: WriteGuard

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if self.method not in _READ_METHODS and not self.guard.holds_lease():
            raise NotLeader(
                f"{self.method} {self.url.path} was not sent: "
                "this process may no longer hold the lease"
            )
        return await super().send(conn)


class Transport:
    """A pool of connections to one API server, with credentials that stay current."""

    def __init__(
        self,
        connection: Connection,
        *,
        metrics: Metrics | None = None,
        guard: WriteGuard | None = None,
        user_agent: str = "kubewright",
        credentials: ApiCredentials | None = None,
    ) -> None:
        self._connection = connection
        self._credentials = credentials or ApiCredentials(connection)
        self._metrics = metrics
        self._guard = guard
        self._user_agent = user_agent
        self._host = urlsplit(connection.server).netloc
        self._base_url = connection.server.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._read_limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._write_limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def send(self, request: Request) -> bytes:
        """The body of a successful response.

        Waits for the Retry-After of a 429 or 503. A 401 is retried once if the credential changed.
        """
        refreshed = False
        for attempt in range(_MAX_RETRIES + 2):
            headers = await self._auth_headers()
            try:
                return await self._send_once(request, headers)
            except Unauthorized:
                if refreshed or not await self._credentials.refresh(headers):
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

    async def _auth_headers(self) -> dict[str, str]:
        # In the path of every request: no coroutine while the credential is valid.
        credentials = self._credentials
        if credentials.clock() < credentials.valid_until:
            return credentials.cached_headers
        return await credentials.headers()

    async def server_time(self) -> datetime | None:
        """The clock of the server, to the second; None if the response has no Date header."""
        request = Request("GET", "/version", operation="read the time")
        timeout = _client_timeout(10.0, None)
        try:
            response = await self._open_response(request, await self._auth_headers(), timeout)
            await _read_body(response, request)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        try:
            return parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return None

    async def _send_once(self, request: Request, auth_headers: dict[str, str]) -> bytes:
        try:
            # The timeout starts after the wait for this limit, which is not the server's time.
            async with self._read_limit if request.method in _READ_METHODS else self._write_limit:
                response = await self._open_response(
                    request, auth_headers, _client_timeout(request.timeout_seconds, None)
                )
                body = await _read_body(response, request)
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
        """The lines of a streamed response.

        TimedOut is raised if no line arrives in time, or the stream goes on after the request's
        timeout; ResponseTooLarge for a line that is too long.
        """
        clock, headers = asyncio.get_running_loop().time, await self._auth_headers()
        timeout = _client_timeout(request.timeout_seconds, idle_timeout_seconds)
        parts, size = list[bytes](), 0
        try:
            response = await self._open_response(request, headers, timeout)
            if response.status == Unauthorized.code and await self._credentials.refresh(headers):
                _abort_response(response)
                response = await self._open_response(request, await self._auth_headers(), timeout)
            try:
                if response.status >= 300:
                    body = await _read_body(response, request)
                    raise self._response_error(response, body, request)
                on_open()
                line_due_at = clock() + idle_timeout_seconds
                async for chunk in response.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if b"\n" in chunk:
                        *lines, rest = b"".join(parts).split(b"\n")
                        parts, size = [rest], len(rest)
                        for line in lines:
                            yield line
                        line_due_at = clock() + idle_timeout_seconds
                    elif clock() > line_due_at:
                        # aiohttp's timeout starts again with each byte, but only a line is data.
                        raise TimeoutError
                    if size > _MAX_LINE_BYTES:
                        raise ResponseTooLarge(
                            f"{request.operation}: a line of the response is longer than "
                            f"{_MAX_LINE_BYTES} bytes; it was not read"
                        )
            finally:
                _abort_response(response)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        if rest := b"".join(parts).strip():
            yield rest

    async def _open_response(
        self, request: Request, auth_headers: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send the request and wait for the headers of the response."""
        if self._session is None:
            self._session = self._new_session()
        headers = {**auth_headers, "Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        url = self._base_url + request.path
        response = await self._session.request(
            request.method,
            URL(f"{url}?{request.query}" if request.query else url, encoded=True),
            data=request.body,
            headers=headers,
            # As current as the headers: both come from the same reload.
            ssl=self._credentials.context or True,
            server_hostname=self._connection.tls_server_name or None,
            proxy=self._connection.proxy_url or None,
            timeout=timeout,
            allow_redirects=False,
        )
        if self._metrics is not None:
            code = str(response.status)
            self._metrics.requests.labels(code, request.method, self._host).inc()
        return response

    def _response_error(
        self, response: aiohttp.ClientResponse, body: bytes, request: Request
    ) -> KubewrightError:
        try:
            status: Any = msgspec.json.decode(body)
        except msgspec.DecodeError:
            status = None
        if not isinstance(status, dict) or "message" not in status:
            # Not a Status of the API server but, for example, the page of a proxy: quote its start.
            status = {"message": body[:300].decode(errors="replace").strip() or response.reason}
        operation = request.operation
        if response.status == Unauthorized.code:
            operation += f" with the credential of {self._connection.source}"
        retry_after = _parse_retry_after(response.headers.get("Retry-After", ""))
        return error_from_status(
            response.status, status, operation=operation, retry_after=retry_after
        )

    def _connection_error(self, error: Exception, request: Request) -> KubewrightError:
        if self._metrics is not None:
            # client-go's value of the label `code` for a call without a response.
            self._metrics.requests.labels("<error>", request.method, self._host).inc()
        server = f"the API server at {self._connection.server} (from {self._connection.source})"
        call = f"{request.operation}: {server}"
        match error:
            case TimeoutError():
                return TimedOut(f"{call} did not answer in time")
            case aiohttp.ClientSSLError() | ssl.SSLError():
                # aiohttp wraps the reason in one of these, depending on the failure.
                why = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
                return CertificateRefused(
                    f"{call}: TLS failed: {why}. Check certificate-authority(-data), "
                    "tls-server-name and the client certificate of that context."
                )
            case aiohttp.ClientConnectorError() | ConnectionRefusedError():
                cause = getattr(error, "os_error", error)
                return Unreachable(
                    f"{call} cannot be reached: {getattr(cause, 'strerror', None) or cause}. "
                    "Check that the cluster is running and that the address is correct."
                )
        return Unreachable(f"{call} broke the connection: {type(error).__name__} {error}".rstrip())

    def _new_session(self) -> aiohttp.ClientSession:
        request_class: type[aiohttp.ClientRequest] = aiohttp.ClientRequest
        if self._guard is not None:
            # aiohttp takes a class, not an instance, so the guard becomes a class attribute.
            request_class = type("GuardedRequest", (_GuardedRequest,), {"guard": self._guard})
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Without gzip: near the API server, compression costs more time than it saves.
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            request_class=request_class,
            auto_decompress=False,
            read_bufsize=256 * 1024,
        )

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
            # Aborted connections are closed in the next iteration of the event loop.
            await asyncio.sleep(0)
        await self._credentials.close()

    def without_lease_guard(self) -> Transport:
        """A second pool to the same server that also writes without the lease: the lease itself,
        reviews, and what webhooks need.
        """
        return Transport(
            self._connection,
            metrics=self._metrics,
            user_agent=self._user_agent,
            credentials=self._credentials,
        )


@lru_cache
def _client_timeout(total: float, idle: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=10, sock_read=idle)


def _abort_response(response: aiohttp.ClientResponse) -> None:
    """Close the connection without TLS's closing handshake.

    With a dead peer the handshake takes up to 30 s, and would outlive the event loop.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _read_body(response: aiohttp.ClientResponse, request: Request) -> bytes:
    if response.content_length is not None and response.content_length <= _MAX_RESPONSE_BYTES:
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > _MAX_RESPONSE_BYTES:
            _abort_response(response)
            raise ResponseTooLarge(
                f"{request.operation}: the response is larger than {_MAX_RESPONSE_BYTES} bytes; "
                "it was not read"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _parse_retry_after(header: str) -> float | None:
    """Retry-After in seconds; the header holds either seconds or a date."""
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - utc_now()).total_seconds())
    except (TypeError, ValueError):
        return None
