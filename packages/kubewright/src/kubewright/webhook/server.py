"""The HTTPS side of webhooks. Whoever can reach the port can post to it, so everything has a limit: bytes, seconds, requests at once."""

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

_HEADERS_TIMEOUT_SECONDS = 10.0
_BODY_TIMEOUT_SECONDS = 10.0
# Go's client keeps idle connections for 90 s: it has to be the one who closes, or a request would meet a closed door.
KEEP_ALIVE_SECONDS = 120.0
# Whoever was refused may still be sending, and reads the words only afterwards.
_LINGER_SECONDS = 2.0
_MAX_CONCURRENT_REQUESTS = 128
_MAX_CONNECTIONS_WITHOUT_REQUEST = 256
_MAX_BUFFERED_BYTES = 256 * 1024 * 1024


class HttpError(Exception):
    """No answer, but a code and words."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class WebhookServer:
    """Listens with a certificate that may change, and gives each body to whoever answers its path."""

    def __init__(
        self,
        address: str,
        where: ListenAddress,
        answering: Sequence[ReviewHandler],
        certificate: ServingCertificate,
        metrics: WebhookMetrics,
        *,
        stop_seconds: float = 10.0,
    ) -> None:
        self.address, self._bind_address, self.certificate, self.metrics = (
            address,
            where,
            certificate,
            metrics,
        )
        self.handlers = {each.path: each for each in answering}
        self.stop_seconds = stop_seconds
        self.log = Log("webhook")
        self.active_requests = 0
        self.buffered_bytes = 0
        """Of bodies that have arrived; what somebody only announces counts for nothing."""
        self._header_timers: dict[RequestHandler, asyncio.TimerHandle] = {}
        """Connections that have not sent the head of a request yet."""
        self.runner: web.AppRunner | None = None
        self.listener: asyncio.Server | None = None
        self.port = 0
        """The port that is really listened on, once started."""

    async def start(self) -> None:
        """Listen; without a certificate, handshakes fail until there is one."""
        application = web.Application()
        for path in self.handlers:
            application.router.add_post(path, self.handle)
        self.runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            shutdown_timeout=self.stop_seconds,
            max_headers=64,
        )
        await self.runner.setup()
        bound = await open_listener(
            self.address, self._bind_address, "webhooks", "Choose another port with -webhook-port"
        )
        loop = asyncio.get_running_loop()
        self.listener = await loop.create_server(
            self._create_protocol,
            sock=bound,
            ssl=self.certificate.context,
            ssl_handshake_timeout=_HEADERS_TIMEOUT_SECONDS,
        )
        self.port = int(bound.getsockname()[1])
        self.log.info(
            "serving webhooks", address=self.address, port=self.port, paths=sorted(self.handlers)
        )

    def _create_protocol(self) -> asyncio.Protocol:
        """A connection, which has to send the head of a request soon; aiohttp by itself would wait for ever."""
        assert self.runner is not None
        assert self.runner.server is not None
        handler = self.runner.server()
        if len(self._header_timers) >= _MAX_CONNECTIONS_WITHOUT_REQUEST:
            self._close_oldest_without_request()
        self._header_timers[handler] = asyncio.get_running_loop().call_later(
            _HEADERS_TIMEOUT_SECONDS, self._close_connection, handler
        )
        return TrackedConnection(handler, self._cancel_header_timer)

    def _cancel_header_timer(self, handler: RequestHandler) -> None:
        """A connection has ended, or has begun to talk: it is not silent any more."""
        if (timer := self._header_timers.pop(handler, None)) is not None:
            timer.cancel()

    def _close_oldest_without_request(self) -> None:
        """End the oldest connection that says nothing; one without a transport is still shaking hands, which has its own limit."""
        oldest = next(
            (handler for handler in self._header_timers if handler.transport is not None), None
        )
        if oldest is not None:
            self._close_connection(oldest)

    def _close_connection(self, handler: RequestHandler) -> None:
        """End a connection that says nothing."""
        self._cancel_header_timer(handler)
        handler.force_close()

    async def handle(self, request: web.Request) -> web.Response:
        """One review, counted, answered or refused in words."""
        self._cancel_header_timer(request.protocol)
        path, began_at = request.path, time.perf_counter()
        code = 500
        self.metrics.record_start(path)
        try:
            body = await self._dispatch(request)
            code = 200
            return web.Response(body=body, content_type="application/json")
        except HttpError as refusal:
            code = refusal.code
            response = web.Response(
                status=code, text=str(refusal), headers={"X-Content-Type-Options": "nosniff"}
            )
            response.force_close()
            return response
        finally:
            self.metrics.record_end(path, code, time.perf_counter() - began_at)

    async def _dispatch(self, request: web.Request) -> bytes:
        """The answer of whoever the path belongs to; a failure of theirs is a 500, and the API server shows its words."""
        if self.active_requests >= _MAX_CONCURRENT_REQUESTS:
            raise HttpError(503, "too many reviews at once; try again in a second")
        if request.content_type != "application/json":
            raise HttpError(415, "a review is application/json")
        answering = self.handlers[request.path]
        self.active_requests += 1
        try:
            async with self.read_body(request, answering.max_body_bytes) as body:
                return await answering.handle(body)
        except BadReview as error:
            raise HttpError(400, str(error)) from error
        except WebhookFailed as error:
            if error.unexpected:
                self.metrics.record_panic()
            raise HttpError(500, str(error)) from error
        except (HttpError, asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            self.log.error("a review could not be answered", error=error, path=request.path)
            raise HttpError(
                500,
                f"the review could not be answered: {type(error).__name__}; the manager's log says more",
            ) from error
        finally:
            self.active_requests -= 1

    @asynccontextmanager
    async def read_body(self, request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
        """The whole body, within its size and time, counted while it is held."""
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
                    async for chunk in _read_chunks(request, most_bytes):
                        self.buffered_bytes += len(chunk)
                        body += chunk
                        if self.buffered_bytes > _MAX_BUFFERED_BYTES:
                            raise HttpError(
                                503, "too much to review at once; try again in a second"
                            )
            except TimeoutError:
                raise HttpError(
                    408, f"the body did not arrive within {_BODY_TIMEOUT_SECONDS:g} s"
                ) from None
            yield bytes(body)
        finally:
            self.buffered_bytes -= len(body)

    async def stop(self) -> None:
        """Listen no more, and let answers under way end."""
        if self.listener is not None:
            listener, self.listener = self.listener, None
            await stop_accepting(listener.sockets)
            listener.close()
        for handler in list(self._header_timers):
            self._close_connection(handler)
        if self.runner is not None:
            runner, self.runner = self.runner, None
            await runner.cleanup()
        self.port = 0


async def _read_chunks(request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
    """The body as it comes, unless it is or becomes too large."""
    size = request.content_length or 0
    if size <= most_bytes:
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > most_bytes:
                break
            yield chunk
    if size > most_bytes:
        raise HttpError(413, f"a review here has at most {most_bytes} bytes")


class TrackedConnection(asyncio.Protocol):
    """One connection: aiohttp's own handler, and a word to us when it ends."""

    def __init__(self, handler: RequestHandler, ended: Callable[[RequestHandler], None]) -> None:
        self.handler, self._on_headers_or_close = handler, ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.handler.data_received(data)

    def eof_received(self) -> None:
        """The other side has said all."""
        self.handler.eof_received()

    def pause_writing(self) -> None:
        """The other side reads too slowly."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self.handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is over."""
        self._on_headers_or_close(self.handler)
        self.handler.connection_lost(exc)


_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class WebhookMetrics:
    """The instruments of one endpoint; they exist only where there are webhooks."""

    def __init__(self, metrics: Metrics, paths: Iterable[str]) -> None:
        by = ["webhook"]
        self.requests = metrics.new_counter(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            [*by, "code"],
        )
        self._latency = metrics.new_histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            by,
            _LATENCY_BUCKETS,
        )
        self.in_flight = metrics.new_gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            by,
        )
        self.panics = metrics.new_counter(
            "controller_runtime_webhook_panics_total", "Total number of webhook panics"
        ).labels()
        self._expiry = metrics.new_gauge(
            "kubewright_webhook_certificate_expiry_seconds",
            "When the serving certificate of our own CA expires, in seconds since 1970",
        )
        for path in paths:
            self.in_flight.labels(path)
            for code in ("200", "500"):
                self.requests.labels(path, code)

    def record_start(self, path: str) -> None:
        """A request is being answered."""
        self.in_flight.labels(path).inc()

    def record_end(self, path: str, code: int, seconds: float) -> None:
        """It was, after so long."""
        self.in_flight.labels(path).dec()
        self.requests.labels(path, str(code)).inc()
        self._latency.labels(path).observe(seconds)

    def record_panic(self) -> None:
        """User code raised what nobody meant to raise: what is a panic in Go."""
        self.panics.inc()

    def set_expiry_function(self, read: Callable[[], float]) -> None:
        """Say how to read, at each scrape, when the serving certificate expires."""
        self._expiry.labels().set_function(read)
