"""An HTTP server on one address, with limits and optionally with TLS and bearer tokens.

The endpoints of every manager are in server.py. An application adds its own: it creates an
`Endpoint`, adds handlers for paths, and starts and stops it in a runnable of the manager.

    endpoint = Endpoint("the page", ":9443", advice="...", authorizer=manager.authorizer,
                        certificate=choose_certificate("", log))
    endpoint.add_get("/data", handle_data)
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import web

from .authorization import Authorizer, CachingAuthorizer, TooManyReviews
from .errors import ConfigError
from .listen import open_listener, parse_address, stop_accepting
from .log import Log
from .tls import CertificateWatcher, SelfSignedCertificate

CERTIFICATE_RELOAD_SECONDS = 10.0
_SHUTDOWN_TIMEOUT_SECONDS = 5.0
_MAX_BODY_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 75.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# aiohttp calls a middleware with the request and the next handler.
Middleware: TypeAlias = Any
Certificate = CertificateWatcher | SelfSignedCertificate


def choose_certificate(directory: str, log: Log) -> Certificate:
    """The certificate in this directory; without one, a self-signed certificate."""
    if directory:
        return CertificateWatcher(Path(directory), log)
    return SelfSignedCertificate(socket.gethostname(), log)


def text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
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
    """Bounds the concurrent requests of one endpoint.

    The probes have their own: if a flood of requests for metrics made them fail, kubelet would
    restart the manager.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight, self._in_flight = max_in_flight, 0

    @web.middleware
    async def apply(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._in_flight >= self._max_in_flight:
            return busy_response("too many concurrent requests")
        self._in_flight += 1
        try:
            return await handler(request)
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
        certificate: Certificate | None = None,
        authorizer: Authorizer | None = None,
        middlewares: Sequence[Middleware] = (),
        log: Log | None = None,
        reload_seconds: float = CERTIFICATE_RELOAD_SECONDS,
    ) -> None:
        """`purpose` is its name in the log; `advice` ends the error if the address is in use."""
        if authorizer is not None and certificate is None:
            raise ConfigError(f"{purpose}: bearer tokens need TLS; pass a certificate")
        self.purpose, self.bind_address, self.certificate = purpose, bind_address, certificate
        self.port = 0
        """The port in use after `start`; 0 if the address disables the endpoint."""
        self._advice, self._max_connections = advice, max_connections
        self._authorizer = CachingAuthorizer(authorizer) if authorizer is not None else None
        self._middlewares = [_RequestLimit(max_in_flight).apply, *middlewares]
        self._log = log or Log("server")
        self._reload_seconds = reload_seconds
        self._routes: dict[str, Handler] = {}
        self._reload_task: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None

    def add_get(self, path: str, handler: Handler, *, public: bool = False) -> None:
        """Serve GET and HEAD of a path in aiohttp's syntax; a `public` one needs no token."""

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
        application = web.Application(
            middlewares=self._middlewares, client_max_size=_MAX_BODY_BYTES
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
        self._listener = listener
        self.port = int(listener.getsockname()[1])
        self._log.info(
            f"serving {self.purpose}",
            address=self.bind_address,
            port=self.port,
            tls=tls is not None,
        )

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
            decision = await self._authorizer.authorize(
                token.strip(), request.method.lower(), request.path
            )
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
        if self._listener is not None:
            await stop_accepting([self._listener])
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._authorizer is not None:
            await self._authorizer.close()
        self.port = 0
