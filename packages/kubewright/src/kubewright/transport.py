"""The only module that speaks HTTP to the API server: bytes out, bytes or lines in, and every
failure as an error of `errors.py`.

A `Request` is a plain value, so the code above needs no network in tests. A fake only implements
`send` and `stream_lines`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from kubewright_http import ConnectError, HttpClient, HttpError, Origin, Response, origin_of

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
from .write_limit import WriteLimit

# etcd limits objects to 1.5 MiB and the API server limits requests to 3 MiB, so a longer line does
# not come from a working API server.
_MAX_LINE_BYTES = 8 * 1024 * 1024
# Decoding so many events takes about 5 ms, and several watches receive their objects at the start.
_LINES_PER_TURN = 50
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024  # joining 64 MiB stops the event loop for 0.1 s
# With at most 60 s of Retry-After each, a request waits for five minutes at most.
_MAX_RETRIES = 5
# For all controllers together. Reads and writes are limited separately, because a write may wait
# for one of our webhooks, which reads. Watches are not limited, so slow writes cannot delay them.
# Each request needs a connection, and one with TLS takes 0.26 MiB. An API server that needs 20 ms
# for a write takes 1,600 a second over 32.
MAX_CONCURRENT_REQUESTS = 32
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CONNECTION_ERRORS = (HttpError, TimeoutError, OSError)


class Request(Struct, frozen=True):
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
        self._base_path = urlsplit(connection.server).path.rstrip("/")
        self._http = HttpClient()
        self._origin: Origin | None = None
        # Without gzip: near the API server, compression costs more time than it saves.
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._read_limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._write_limit = WriteLimit(MAX_CONCURRENT_REQUESTS)

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
        request = Request("GET", "/version", operation="read the time", timeout_seconds=10.0)
        try:
            response = await self._open_response(request, await self._auth_headers())
            await _read_body(response, request)
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        from email.utils import parsedate_to_datetime

        try:
            return parsedate_to_datetime(response.header("date"))
        except ValueError:
            return None

    async def _send_once(self, request: Request, auth_headers: dict[str, str]) -> bytes:
        try:
            # The timeout starts after the wait for this limit, which is not the server's time.
            async with self._read_limit if request.method in _READ_METHODS else self._write_limit:
                response = await self._open_response(request, auth_headers)
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
        parts, size = list[bytes](), 0
        try:
            response = await self._open_response(request, headers, idle_timeout_seconds)
            if response.status == Unauthorized.code and await self._credentials.refresh(headers):
                response.close()
                headers = await self._auth_headers()
                response = await self._open_response(request, headers, idle_timeout_seconds)
            try:
                if response.status >= 300:
                    body = await _read_body(response, request)
                    raise self._response_error(response, body, request)
                on_open()
                line_due_at = clock() + idle_timeout_seconds
                while chunk := await response.read_chunk():
                    parts.append(chunk)
                    size += len(chunk)
                    if b"\n" in chunk:
                        *lines, rest = b"".join(parts).split(b"\n")
                        parts, size = [rest], len(rest)
                        for number, line in enumerate(lines, 1):
                            yield line
                            if number % _LINES_PER_TURN == 0:
                                await asyncio.sleep(0)
                        line_due_at = clock() + idle_timeout_seconds
                    elif clock() > line_due_at:
                        # The timeout of a read starts again with each byte; only a line is data.
                        raise TimeoutError
                    if size > _MAX_LINE_BYTES:
                        raise ResponseTooLarge(
                            f"{request.operation}: a line of the response is longer than "
                            f"{_MAX_LINE_BYTES} bytes; it was not read"
                        )
            finally:
                response.close()
        except _CONNECTION_ERRORS as error:
            raise self._connection_error(error, request) from error
        if rest := b"".join(parts).strip():
            yield rest

    async def _open_response(
        self, request: Request, auth_headers: dict[str, str], idle_seconds: float | None = None
    ) -> Response:
        """Send the request and wait for the headers of the response."""
        headers = {**self._headers, **auth_headers, "Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        target = self._base_path + request.path
        is_write = request.method not in _READ_METHODS
        response = await self._http.request(
            request.method,
            self._current_origin(),
            f"{target}?{request.query}" if request.query else target,
            headers,
            request.body,
            timeout_seconds=request.timeout_seconds,
            idle_seconds=idle_seconds,
            # An earlier check may be outdated after the wait for a connection.
            before_send=partial(self._check_lease, self._guard, request)
            if is_write and self._guard is not None
            else None,
        )
        if self._metrics is not None:
            code = str(response.status)
            self._metrics.requests.labels(code, request.method, self._host).inc()
        return response

    def _current_origin(self) -> Origin:
        # As current as the headers: both come from the same reload. A new context, such as that of
        # a new CA, means new connections.
        connection, context = self._connection, self._credentials.context
        if self._origin is None or self._origin.context is not context:
            self._origin = origin_of(
                connection.server,
                context,
                server_hostname=connection.tls_server_name,
                proxy_url=connection.proxy_url,
            )
        return self._origin

    @staticmethod
    def _check_lease(guard: WriteGuard, request: Request) -> None:
        if not guard.holds_lease():
            raise NotLeader(
                f"{request.method} {request.path} was not sent: "
                "this process may no longer hold the leader lease"
            )

    def _response_error(self, response: Response, body: bytes, request: Request) -> KubewrightError:
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
        retry_after = _parse_retry_after(response.header("retry-after"))
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
            case ssl.SSLError():
                return CertificateRefused(
                    f"{call}: TLS failed: {error}. Check certificate-authority(-data), "
                    "tls-server-name and the client certificate of that context."
                )
            case ConnectError(os_error=cause):
                return Unreachable(
                    f"{call} cannot be reached: {cause.strerror or cause}. "
                    "Check that the cluster is running and that the address is correct."
                )
        return Unreachable(f"{call} broke the connection: {error}")

    async def close(self) -> None:
        await self._http.close()
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


async def _read_body(response: Response, request: Request) -> bytes:
    body = await response.read(_MAX_RESPONSE_BYTES)
    if body is None:
        raise ResponseTooLarge(
            f"{request.operation}: the response is larger than {_MAX_RESPONSE_BYTES} bytes; "
            "it was not read"
        )
    return body


def _parse_retry_after(header: str) -> float | None:
    """Retry-After in seconds; the header holds either seconds or a date."""
    if header.isascii() and header.isdigit():
        return float(header)
    if not header:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, (parsedate_to_datetime(header) - utc_now()).total_seconds())
    except (TypeError, ValueError):
        return None
