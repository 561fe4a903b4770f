"""The HTTPS server of the webhooks, and its metrics.

Every process that can reach the port can send requests to it, so everything has a limit: the size
of a body, the time it may take, the number of requests and of connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from ..listen import ListenAddress, open_listener, stop_accepting
from ..log import Log
from ..metrics import Metrics
from ..tls import ServingCertificate
from .admission import BadReview, ReviewHandler, WebhookFailed
from .client_auth import ClientAuthenticator, ClientRejected

_HEADERS_TIMEOUT_SECONDS = 10.0
_BODY_TIMEOUT_SECONDS = 10.0
# Go's HTTP client closes idle connections after 90 s. It has to be the side that closes, because a
# request that meets a connection closed by the server fails.
_KEEP_ALIVE_SECONDS = 120.0
# After a rejection the client may still be sending, and reads the response only afterwards.
_LINGER_SECONDS = 2.0
# More than the API server sends to one webhook in practice; they bound the memory of the process.
_MAX_CONCURRENT_REQUESTS = 128
_MAX_CONNECTIONS_WITHOUT_REQUEST = 256
_MAX_CONNECTIONS = 384
_MAX_BUFFERED_BYTES = 256 * 1024 * 1024
# Decoding 7 MiB takes 0.2 s. Without turns, 128 such bodies would block the event loop until the
# leader lease is lost.
_LARGE_BODY_BYTES = 64 * 1024
# The defaults of Prometheus, as in controller-runtime.
_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _HttpErrorResponse(Exception):
    """Raised to send an error: its status code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class WebhookMetrics:
    """The metrics of one server, with the names and labels of controller-runtime."""

    def __init__(self, metrics: Metrics, paths: Iterable[str]) -> None:
        self.requests = metrics.new_counter(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            ["webhook", "code"],
        )
        self.latency = metrics.new_histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            ["webhook"],
            _LATENCY_BUCKETS,
        )
        self.in_flight = metrics.new_gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            ["webhook"],
        )
        self.panics = metrics.new_counter(
            "controller_runtime_webhook_panics_total", "Total number of webhook panics"
        ).labels()
        self.certificate_expiry = metrics.new_gauge(
            "kubewright_webhook_certificate_expiry_seconds",
            "Expiry of the certificate that the manager's own CA issued, in seconds since 1970",
        )
        # Create the series, so that they are 0 before the first request, as in controller-runtime.
        for path in paths:
            self.in_flight.labels(path)
            for code in ("200", "500"):
                self.requests.labels(path, code)


class WebhookServer:
    """Serves TLS with a certificate that may change, and passes each body to its handler."""

    def __init__(
        self,
        address: ListenAddress,
        handlers: Sequence[ReviewHandler],
        certificate: ServingCertificate,
        metrics: WebhookMetrics,
        *,
        client_authenticator: ClientAuthenticator | None = None,
        stop_seconds: float = 10.0,
    ) -> None:
        self.handlers = {handler.path: handler for handler in handlers}
        self.active_requests = 0
        self.buffered_bytes = 0
        """Bytes of the bodies in memory; a Content-Length alone counts as nothing."""
        self.listener: asyncio.Server | None = None
        self.port = 0
        """The port in use after `start`."""
        self._address, self._certificate, self._metrics = address, certificate, metrics
        self._client_authenticator = client_authenticator
        self._stop_seconds = stop_seconds
        self._log = Log("webhook")
        self._large_body_lock = asyncio.Lock()
        self._header_timers: dict[RequestHandler, asyncio.TimerHandle] = {}
        """The timers of connections that have not sent the headers of a request yet."""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Handshakes fail until a certificate is loaded."""
        application = web.Application()
        for path in self.handlers:
            application.router.add_post(path, self.handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            shutdown_timeout=self._stop_seconds,
            max_headers=64,
        )
        await self._runner.setup()
        listener = await open_listener(
            self._address, "webhooks", "Choose another port with -webhook-port", _MAX_CONNECTIONS
        )
        self.listener = await asyncio.get_running_loop().create_server(
            self._create_protocol,
            sock=listener,
            ssl=self._certificate.context,
            ssl_handshake_timeout=_HEADERS_TIMEOUT_SECONDS,
        )
        self.port = int(listener.getsockname()[1])
        self._log.info(
            "serving webhooks",
            address=str(self._address),
            port=self.port,
            paths=sorted(self.handlers),
        )

    def _create_protocol(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        handler = self._runner.server()
        if len(self._header_timers) >= _MAX_CONNECTIONS_WITHOUT_REQUEST:
            # Close the oldest. One without a transport is in its handshake, which has a timeout.
            oldest = next((item for item in self._header_timers if item.transport), None)
            if oldest is not None:
                self._close_connection(oldest)
        # aiohttp has no timeout for the headers of a request.
        self._header_timers[handler] = asyncio.get_running_loop().call_later(
            _HEADERS_TIMEOUT_SECONDS, self._close_connection, handler
        )
        return _TrackedConnection(handler, self._cancel_header_timer)

    def _cancel_header_timer(self, handler: RequestHandler) -> None:
        if (timer := self._header_timers.pop(handler, None)) is not None:
            timer.cancel()

    def _close_connection(self, handler: RequestHandler) -> None:
        self._cancel_header_timer(handler)
        handler.force_close()

    async def handle(self, request: web.Request) -> web.Response:
        """Respond to one review, and count it."""
        self._cancel_header_timer(request.protocol)
        path, started_at = request.path, time.perf_counter()
        code = 500
        self._metrics.in_flight.labels(path).inc()
        try:
            body = await self._dispatch(request)
            code = 200
            return web.Response(body=body, content_type="application/json")
        except _HttpErrorResponse as error:
            code = error.code
            response = web.Response(
                status=code, text=str(error), headers={"X-Content-Type-Options": "nosniff"}
            )
            response.force_close()
            return response
        finally:
            self._metrics.in_flight.labels(path).dec()
            self._metrics.requests.labels(path, str(code)).inc()
            self._metrics.latency.labels(path).observe(time.perf_counter() - started_at)

    async def _dispatch(self, request: web.Request) -> bytes:
        """Return the response of the path's handler. The API server shows the text of an error."""
        handler = self.handlers[request.path]
        if self._client_authenticator is not None and handler.authenticates_clients:
            try:
                self._client_authenticator.check(request.transport)
            except ClientRejected as error:
                # Not 401: the API server shows the user the text of a 403, and its own for a 401.
                raise _HttpErrorResponse(403, str(error)) from error
        if self.active_requests >= _MAX_CONCURRENT_REQUESTS:
            raise _HttpErrorResponse(503, "too many concurrent reviews; retry in a second")
        if request.content_type != "application/json":
            raise _HttpErrorResponse(415, "the content type of a review must be application/json")
        self.active_requests += 1
        try:
            async with self._read_body(request, handler.max_body_bytes) as body:
                if len(body) > _LARGE_BODY_BYTES:
                    await self._wait_for_turn()
                return await handler.handle(body)
        except BadReview as error:
            raise _HttpErrorResponse(400, str(error)) from error
        except WebhookFailed as error:
            if error.unexpected:
                # An exception of the webhook's code is what a panic is in Go.
                self._metrics.panics.inc()
            raise _HttpErrorResponse(500, str(error)) from error
        except (_HttpErrorResponse, asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            self._log.error("a review failed", error=error, path=request.path)
            # Without the message, which may describe internals to any client of the port.
            raise _HttpErrorResponse(
                500, f"the review failed: {type(error).__name__}; see the log of the manager"
            ) from error
        finally:
            self.active_requests -= 1

    async def _wait_for_turn(self) -> None:
        """Let one request at a time continue, and the event loop serve others in between."""
        async with self._large_body_lock:
            await asyncio.sleep(0)

    @asynccontextmanager
    async def _read_body(self, request: web.Request, max_bytes: int) -> AsyncIterator[bytes]:
        """The whole body, within its size and time; it counts as buffered until the exit."""
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
                    async for chunk in _read_chunks(request, max_bytes):
                        self.buffered_bytes += len(chunk)
                        body += chunk
                        if self.buffered_bytes > _MAX_BUFFERED_BYTES:
                            raise _HttpErrorResponse(
                                503, "too many bytes under review; retry in a second"
                            )
            except TimeoutError:
                raise _HttpErrorResponse(
                    408, f"the body did not arrive within {_BODY_TIMEOUT_SECONDS:g} s"
                ) from None
            yield bytes(body)
        finally:
            self.buffered_bytes -= len(body)

    async def stop(self) -> None:
        """Stop listening, and let responses in progress finish."""
        if self.listener is not None:
            listener, self.listener = self.listener, None
            await stop_accepting(listener.sockets)
            listener.close()
        for handler in list(self._header_timers):
            self._close_connection(handler)
        if self._runner is not None:
            runner, self._runner = self._runner, None
            handlers = runner.server.connections if runner.server is not None else []
            transports = [handler.transport for handler in handlers]
            await runner.cleanup()
            # All responses are sent. The API server keeps its connections open and does not answer
            # the end of the TLS session, for which asyncio would wait 30 s.
            for transport in transports:
                if transport is not None:
                    transport.abort()
        self.port = 0


async def _read_chunks(request: web.Request, max_bytes: int) -> AsyncIterator[bytes]:
    # Reject a body by its Content-Length before it is read; a chunked body has none.
    size = request.content_length or 0
    if size <= max_bytes:
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > max_bytes:
                break
            yield chunk
    if size > max_bytes:
        raise _HttpErrorResponse(413, f"a review must not be larger than {max_bytes} bytes")


class _TrackedConnection(asyncio.Protocol):
    """The connection handler of aiohttp, with a callback when the connection is lost."""

    def __init__(
        self, handler: RequestHandler, on_connection_lost: Callable[[RequestHandler], None]
    ) -> None:
        self._handler, self._on_connection_lost = handler, on_connection_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._on_connection_lost(self._handler)
        self._handler.connection_lost(exc)
