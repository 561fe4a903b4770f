"""An HTTP server on one address, with limits and optionally with TLS and bearer tokens.

The endpoints of every manager are in server.py. An application adds its own: it creates an
`Endpoint`, adds handlers for paths, and starts and stops it in a runnable of the manager.

    endpoint = Endpoint("the page", ":9443", advice="...", authorizer=manager.authorizer,
                        certificate=choose_certificate("", log))
    endpoint.add_get("/data", handle_data)

Why is aiohttp imported inside functions?  Its import takes 0.15 s and 10 MiB, as much as a third of
    a start. So an endpoint listens at once, and imports it in a thread when the first client
    connects. That connection waits for it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .authorization import Authorizer, CachingAuthorizer, TooManyReviews
from .errors import ConfigError
from .listen import LimitedListener, open_listener, parse_address, stop_accepting
from .log import Log
from .tls import CertificateWatcher, SelfSignedCertificate

if TYPE_CHECKING:
    from aiohttp import web

CERTIFICATE_RELOAD_SECONDS = 10.0
_SHUTDOWN_TIMEOUT_SECONDS = 5.0
_MAX_BODY_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 75.0
# Enough for 6 MiB at 1 Mbit/s.
_WRITE_TIMEOUT_SECONDS = 60.0

Handler: TypeAlias = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
# aiohttp calls a middleware with the request and the next handler.
Middleware: TypeAlias = Any
Certificate = CertificateWatcher | SelfSignedCertificate


def choose_certificate(directory: str, log: Log) -> Certificate:
    """The certificate in this directory; without one, a self-signed certificate."""
    if directory:
        return CertificateWatcher(Path(directory), log)
    return SelfSignedCertificate(socket.gethostname(), log)


def text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    from aiohttp import web

    # nosniff: a browser must not render a message that quotes a request as HTML.
    return web.Response(
        status=status, text=text, headers={"X-Content-Type-Options": "nosniff", **(headers or {})}
    )


def busy_response(problem: str, retry_after_seconds: int = 1) -> web.Response:
    unit = "a second" if retry_after_seconds == 1 else f"{retry_after_seconds} seconds"
    return text_response(
        503, f"{problem}; retry in {unit}", {"Retry-After": str(retry_after_seconds)}
    )


class _RequestLimit:
    """Counts concurrent requests, each until its response is written.

    The probes have their own: if a flood of requests for metrics made them fail, kubelet would
    restart the manager.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight, self._in_flight = max_in_flight, 0

    @property
    def is_reached(self) -> bool:
        return self._in_flight >= self._max_in_flight

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1


class Endpoint:
    """One address: add handlers, `start`, and `stop` at the end.

    With a certificate it serves TLS. With an authorizer, the clients of every path that is not
    public need a bearer token with the permission to `get` that path.
    """

    def __init__(
        self,
        purpose: str,
        bind_address: str,
        *,
        advice: str,
        max_connections: int,
        max_in_flight: int,
        max_streams: int = 0,
        write_timeout_seconds: float = _WRITE_TIMEOUT_SECONDS,
        certificate: Certificate | None = None,
        authorizer: Authorizer | None = None,
        middlewares: Sequence[Middleware] = (),
        log: Log | None = None,
        reload_seconds: float = CERTIFICATE_RELOAD_SECONDS,
    ) -> None:
        """`purpose` is its name in the log; `advice` ends the error if the address is in use.

        Keep `max_connections` above `max_in_flight` and `max_streams` together: beyond it a new
        connection ends the oldest one without a request, and one with a request only if all have.
        """
        if authorizer is not None and certificate is None:
            raise ConfigError(f"{purpose}: bearer tokens need TLS; pass a certificate")
        self.purpose, self.bind_address, self.certificate = purpose, bind_address, certificate
        self.port = 0
        """The port in use after `start`; 0 if the address disables the endpoint."""
        self._advice, self._max_connections = advice, max_connections
        self._authorizer = CachingAuthorizer(authorizer) if authorizer is not None else None
        self._requests, self._streams = _RequestLimit(max_in_flight), _RequestLimit(max_streams)
        self._stream_paths = set[str]()
        self._write_timeout_seconds = write_timeout_seconds
        self._middlewares = middlewares
        self._log = log or Log("server")
        self._reload_seconds = reload_seconds
        self._routes: dict[str, Handler] = {}
        self._reload_task: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._listener: LimitedListener | None = None
        self._serve_task: asyncio.Task[None] | None = None

    def add_get(
        self, path: str, handler: Handler, *, public: bool = False, is_stream: bool = False
    ) -> None:
        """Serve GET and HEAD of a path in aiohttp's syntax; a `public` one needs no token.

        A stream counts towards `max_streams` instead of `max_in_flight`. Its handler bounds the
        time of each write.
        """
        if is_stream:
            self._stream_paths.add(path)

        async def handle_authorized(request: web.Request) -> web.StreamResponse:
            return await self._reject_unauthorized(request) or await handler(request)

        self._routes[path] = handler if public else handle_authorized

    async def start(self) -> None:
        """Listen, or raise ConfigError. The address "" or `0` disables the endpoint."""
        address = parse_address(self.bind_address)
        if address is None:
            return
        tls = await self._start_tls()
        listener = await open_listener(address, self.purpose, self._advice, self._max_connections)
        self._listener = listener
        self.port = int(listener.getsockname()[1])
        self._serve_task = asyncio.create_task(
            self._serve(listener, tls), name=f"kubewright: {self.purpose}"
        )
        self._serve_task.add_done_callback(self._log_failure)
        self._log.info(
            f"serving {self.purpose}",
            address=self.bind_address,
            port=self.port,
            tls=tls is not None,
        )

    async def _serve(self, listener: LimitedListener, tls: ssl.SSLContext | None) -> None:
        """Serve from the first connection on."""
        await _wait_for_connection(listener)
        await asyncio.to_thread(import_module, "aiohttp.web")
        from aiohttp import web

        async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._limit(request, handler)

        application = web.Application(
            middlewares=[web.middleware(limit), *self._middlewares],
            client_max_size=_MAX_BODY_BYTES,
        )
        for path, handler in self._routes.items():
            application.router.add_get(path, handler)
        self._runner = runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_SECONDS,
            max_headers=64,
        )
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()

    def _log_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error(f"cannot serve {self.purpose}", error=error)

    async def _limit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        is_stream = resource is not None and resource.canonical in self._stream_paths
        limit = self._streams if is_stream else self._requests
        if limit.is_reached:
            return busy_response("too many concurrent requests")
        assert self._listener is not None
        peer = request.transport and request.transport.get_extra_info("peername")
        with limit.hold(), self._listener.serve(peer):
            response = await handler(request)
            # aiohttp would write it after this function, where nothing bounds its time and memory.
            await self._write(request, response)
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse) -> None:
        from aiohttp import web
        from aiohttp.payload import BytesIOPayload

        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            # In parts: asyncio's TLS takes a body of any size in one part without waiting.
            response.body = BytesIOPayload(
                BytesIO(response.body), content_type=response.content_type
            )
        try:
            async with asyncio.timeout(self._write_timeout_seconds):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self._log.info(
                f"disconnected a client of {self.purpose} that does not read the response",
                path=request.path,
                seconds=self._write_timeout_seconds,
            )
            if request.transport is not None:
                # Not closed in an orderly way: that would wait for the client to read.
                request.transport.abort()
        except ConnectionError:
            # The client is gone, which aiohttp notices too.
            pass

    async def _start_tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        await asyncio.to_thread(self.certificate.load)
        self._reload_task = asyncio.create_task(self.certificate.watch(self._reload_seconds))
        return self.certificate.context

    async def _reject_unauthorized(self, request: web.Request) -> web.Response | None:
        """Return the error response, or None if the client may read the path.

        If the review by the API server fails, the response is 500: nothing is served.
        """
        if self._authorizer is None:
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer" or not token.strip():
            return text_response(401, "Unauthorized: a bearer token is required", challenge)
        try:
            # A HEAD request too is reviewed as "get". kube-apiserver reviews it as "head" for a
            # nonResourceURL, but a response to GET contains everything that one to HEAD does.
            decision = await self._authorizer.authorize(token.strip(), "get", request.path)
        except TooManyReviews:
            return busy_response("too many tokens under review")
        except Exception as error:
            self._log.error(f"cannot authorize a request for {self.purpose}", error=error)
            return text_response(
                500,
                "cannot authorize the request: the review by the API server failed; "
                "see the log of the manager",
            )
        if decision == "unauthenticated":
            return text_response(401, "Unauthorized: the token is invalid or expired", challenge)
        if decision == "forbidden":
            return text_response(
                403,
                f"Forbidden: requires a role with nonResourceURLs {request.path} and verb get",
            )
        return None

    async def stop(self) -> None:
        """Stop listening, and let responses in progress finish."""
        if self._reload_task is not None:
            self._reload_task.cancel()
            await asyncio.gather(self._reload_task, return_exceptions=True)
            self._reload_task = None
        if self._serve_task is not None:
            self._serve_task.cancel()
            await asyncio.gather(self._serve_task, return_exceptions=True)
            self._serve_task = None
        if self._listener is not None:
            await stop_accepting([self._listener])
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._authorizer is not None:
            await self._authorizer.close()
        self.port = 0


async def _wait_for_connection(listener: socket.socket) -> None:
    """Return when a client has connected; the connection is not accepted yet."""
    loop = asyncio.get_running_loop()
    connected = loop.create_future()

    def on_readable() -> None:
        loop.remove_reader(listener)
        if not connected.done():
            connected.set_result(None)

    loop.add_reader(listener, on_readable)
    try:
        await connected
    finally:
        loop.remove_reader(listener)
