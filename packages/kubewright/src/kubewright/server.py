"""The HTTP server of a manager: /metrics on one address, /healthz and /readyz on another.

With `secure`, /metrics is served over TLS to clients that an `Authorizer` allows. The probes stay
open, because kubelet sends no credentials. The address `0` or "" disables an endpoint.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

from .authorization import Authorizer, CachingAuthorizer, TooManyReviews
from .errors import ConfigError, redact
from .listen import open_listener, parse_address, stop_accepting
from .log import Log
from .metrics import Metrics
from .tls import CertificateWatcher, SelfSignedCertificate

_CHECK_TIMEOUT_SECONDS = 5.0
_CERTIFICATE_RELOAD_SECONDS = 10.0
_SHUTDOWN_TIMEOUT_SECONDS = 5.0
# Per endpoint. Prometheus and kubelet send a few requests at a time. More is an error or an attack,
# and must not slow down the reconciles that share the event loop.
_MAX_IN_FLIGHT = 64
# With those of the webhooks less than 1024, the usual limit of file descriptors.
_MAX_METRICS_CONNECTIONS, _MAX_PROBE_CONNECTIONS = 384, 128
_MAX_BODY_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 75.0
_METRICS_ADVICE = (
    "Choose another address with -metrics-addr (environment METRICS_ADDR), or 0 to disable metrics"
)
_HEALTH_ADVICE = (
    "Choose another address with -health-probe-bind-address (environment HEALTH_PROBE_ADDR), "
    "or 0 to disable health probes"
)

HealthCheck = Callable[[], str | Awaitable[str | None] | None]
"""Returns None if healthy, otherwise the problem."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _text_response(
    status: int, text: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    # nosniff: a browser must not render a message that quotes a request as HTML.
    return web.Response(
        status=status, text=text, headers={"X-Content-Type-Options": "nosniff", **(headers or {})}
    )


def _busy_response(problem: str) -> web.Response:
    return _text_response(503, f"{problem}; retry in a second", {"Retry-After": "1"})


class _RequestLimit:
    """Bounds the concurrent requests of one endpoint.

    The probes have their own: if a flood of requests for metrics made them fail, kubelet would
    restart the manager.
    """

    def __init__(self) -> None:
        self._in_flight = 0

    @web.middleware
    async def apply(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._in_flight >= _MAX_IN_FLIGHT:
            return _busy_response("too many concurrent requests")
        self._in_flight += 1
        try:
            return await handler(request)
        finally:
            self._in_flight -= 1


async def _run_check(check: HealthCheck) -> str | None:
    """Return the problem that a check reports; a check that raises or hangs is a problem itself."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            result = check()
            problem = await result if inspect.isawaitable(result) else result
    except TimeoutError:
        problem = f"no result within {_CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return None if problem is None else " ".join(redact(problem).split())


class _HealthEndpoint:
    """/healthz or /readyz: its checks, and responses in the format of kube-apiserver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: dict[str, HealthCheck] = {}

    async def _handle_all(self, request: web.Request) -> web.Response:
        """Run all checks. As in kube-apiserver, details are shown on `?verbose` or on failure."""
        checks = self.checks or {"ping": lambda: None}
        excluded = set(request.query.getall("exclude", []))
        names = sorted(checks.keys() - excluded)
        results = await asyncio.gather(*(_run_check(checks[name]) for name in names))
        problems = dict(zip(names, results, strict=True))
        failed = any(problem is not None for problem in results)
        if not failed and "verbose" not in request.query:
            return _text_response(200, "ok")
        lines = []
        for name in sorted(checks):
            problem = problems.get(name)
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            else:
                lines.append(f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}")
        if unknown := sorted(excluded - checks.keys()):
            quoted = ",".join(f'"{redact(name)}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        lines += [f"{self.name} check {'failed' if failed else 'passed'}", ""]
        return _text_response(500 if failed else 200, "\n".join(lines))

    async def _handle_one(self, request: web.Request) -> web.Response:
        check = self.checks.get(request.match_info["check"])
        if check is None:
            names = ", ".join(sorted(self.checks)) or "none"
            return _text_response(404, f"no such check; {self.name} has: {names}")
        problem = await _run_check(check)
        if problem is None:
            return _text_response(200, "ok")
        return _text_response(500, f"internal server error: {problem}")


class Server:
    """The endpoints of one manager: add checks, `start`, and `stop` at the end.

    With `secure`, /metrics is served over TLS, to the clients that the authorizer allows.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        metrics_bind_address: str = ":8080",
        health_probe_bind_address: str = "",
        secure: bool = False,
        certificate_dir: str = "",
        authorizer: Authorizer | None = None,
        reload_seconds: float = _CERTIFICATE_RELOAD_SECONDS,
    ) -> None:
        if secure and authorizer is None:
            raise ConfigError("secure metrics need an authorizer, which decides on every token")
        self.metrics = metrics
        self.healthz, self.readyz = _HealthEndpoint("healthz"), _HealthEndpoint("readyz")
        self.certificate: CertificateWatcher | SelfSignedCertificate | None = None
        self.metrics_port = self.health_port = 0
        """The ports in use after `start`; 0 for a disabled endpoint."""
        self._log = Log("server")
        self._metrics_bind_address = metrics_bind_address
        self._health_probe_bind_address = health_probe_bind_address
        self._authorizer: CachingAuthorizer | None = None
        if secure and authorizer is not None:
            self._authorizer = CachingAuthorizer(authorizer)
            self.certificate = (
                CertificateWatcher(Path(certificate_dir), self._log)
                if certificate_dir
                else SelfSignedCertificate(socket.gethostname(), self._log)
            )
        self._reload_seconds = reload_seconds
        self._reload_task: asyncio.Task[None] | None = None
        self._runners: list[web.AppRunner] = []
        self._listeners: list[socket.socket] = []

    def add_healthz_check(self, name: str, check: HealthCheck) -> None:
        """Add a liveness check: kubelet restarts the container while it reports a problem."""
        self.healthz.checks[name] = check

    def add_readyz_check(self, name: str, check: HealthCheck) -> None:
        """Add a readiness check: the Pod is not ready while it reports a problem."""
        self.readyz.checks[name] = check

    async def start(self) -> None:
        """Listen on both addresses, or on none: if one fails, the other is closed again."""
        try:
            tls = await self._start_tls()
            self.metrics_port = await self._serve(
                "metrics",
                self._metrics_bind_address,
                {"/metrics": self._handle_metrics},
                tls,
                _METRICS_ADVICE,
                _MAX_METRICS_CONNECTIONS,
            )
            routes: dict[str, _Handler] = {}
            for endpoint in (self.healthz, self.readyz):
                routes[f"/{endpoint.name}"] = endpoint._handle_all
                routes[f"/{endpoint.name}/"] = endpoint._handle_all
                routes[f"/{endpoint.name}/{{check}}"] = endpoint._handle_one
            self.health_port = await self._serve(
                "health probes",
                self._health_probe_bind_address,
                routes,
                None,
                _HEALTH_ADVICE,
                _MAX_PROBE_CONNECTIONS,
            )
        except BaseException:
            await self.stop()
            raise

    async def _start_tls(self) -> ssl.SSLContext | None:
        """Load or generate the certificate of /metrics; None if it has no TLS or is disabled."""
        certificate = self.certificate
        if certificate is None or parse_address(self._metrics_bind_address) is None:
            return None
        await asyncio.to_thread(certificate.load)
        self.metrics.watch_certificate("metrics", certificate)
        self._reload_task = asyncio.create_task(certificate.watch(self._reload_seconds))
        return certificate.context

    async def _serve(
        self,
        purpose: str,
        bind_address: str,
        routes: Mapping[str, _Handler],
        tls: ssl.SSLContext | None,
        advice: str,
        max_connections: int,
    ) -> int:
        """Serve these paths and return the port; 0 if the address disables the endpoint.

        `advice` ends the error if the address is in use.
        """
        address = parse_address(bind_address)
        if address is None:
            return 0
        listener = await open_listener(address, purpose, advice, max_connections)
        application = web.Application(
            middlewares=[_RequestLimit().apply], client_max_size=_MAX_BODY_BYTES
        )
        for path, handler in routes.items():
            application.router.add_get(path, handler)
        runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_SECONDS,
            max_headers=64,
        )
        self._runners.append(runner)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        self._listeners.append(listener)
        port = int(listener.getsockname()[1])
        self._log.info(f"serving {purpose}", address=bind_address, port=port, tls=tls is not None)
        return port

    async def _handle_metrics(self, request: web.Request) -> web.Response:
        if self._authorizer is not None:
            rejection = await self._reject_unauthorized(request, self._authorizer)
            if rejection is not None:
                return rejection
        # Reads /proc, which may block.
        process_text = await asyncio.to_thread(self.metrics.process_exposition)
        body, content_type = self.metrics.exposition()
        return web.Response(body=body + process_text, headers={"Content-Type": content_type})

    async def _reject_unauthorized(
        self, request: web.Request, authorizer: Authorizer
    ) -> web.Response | None:
        """Return the error response, or None if the client may read the metrics.

        If the review by the API server fails, the response is 500: nothing is served.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer" or not token.strip():
            return _text_response(401, "Unauthorized: a bearer token is required", challenge)
        try:
            decision = await authorizer.authorize(
                token.strip(), request.method.lower(), request.path
            )
        except TooManyReviews:
            return _busy_response("too many tokens under review")
        except Exception as error:
            self._log.error("cannot authorize a request for metrics", error=error)
            return _text_response(
                500,
                "cannot authorize the request: the review by the API server failed; "
                "see the log of the manager",
            )
        if decision == "unauthenticated":
            return _text_response(401, "Unauthorized: the token is invalid or expired", challenge)
        if decision == "forbidden":
            return _text_response(
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
        await stop_accepting(self._listeners)
        self._listeners.clear()
        while self._runners:
            await self._runners.pop().cleanup()
        if self._authorizer is not None:
            await self._authorizer.close()
        self.metrics_port = self.health_port = 0
