"""The inbound HTTP side: /metrics on one address, /healthz and /readyz with named checks on another.

With `secure`, /metrics speaks TLS and answers only those whom a `Reviewer` lets in; the probes stay open, as kubelet needs them.
`0` or nothing as an address switches an endpoint off.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from aiohttp import web

from .errors import ConfigError, redact
from .listen import open_listener, parse_address, stop_accepting
from .log import Log
from .metrics import Metrics
from .tls import CertificateWatcher, ServingCertificate, generate_self_signed_pem

_CHECK_TIMEOUT_SECONDS = 5.0
_REVIEW_TIMEOUT_SECONDS = 10.0
_CERTIFICATE_RELOAD_SECONDS = 10.0
_SHUTDOWN_TIMEOUT_SECONDS = 5.0
_MAX_IN_FLIGHT = 64
_METRICS_ADVICE = (
    "Choose another with -metrics-addr (environment METRICS_ADDR), or 0 to do without metrics"
)
_HEALTH_ADVICE = "Choose another with -health-probe-bind-address (environment HEALTH_PROBE_ADDR), or 0 to do without health probes"
_MAX_CACHED_DECISIONS = 1024
# controller-runtime keeps a token for 1 min, a yes for 5 min and a no for 30 s; ours are shorter: a changed role works sooner.
ALLOWED_CACHE_SECONDS, DENIED_CACHE_SECONDS = 60.0, 10.0

HealthCheck = Callable[[], str | Awaitable[str | None] | None]
"""None if all is well, else what is wrong."""

Decision = Literal["unauthenticated", "forbidden", "allowed"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Authorizer(Protocol):
    """Who may read what."""

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        """Whether the bearer of the token may do `verb` to `path`."""
        ...


class CachingAuthorizer:
    """A reviewer's verdicts, remembered for a short time under a hash of the token."""

    def __init__(self, reviewer: Authorizer, clock: Callable[[], float] = time.monotonic) -> None:
        self.authorizer, self.clock = reviewer, clock
        self.cached_decisions: dict[tuple[bytes, str, str], tuple[Decision, float]] = {}

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        """What the reviewer says, or said a moment ago."""
        key = (hashlib.sha256(token.encode(errors="surrogateescape")).digest(), verb, path)
        verdict, until = self.cached_decisions.get(key, ("forbidden", 0.0))
        if self.clock() < until:
            return verdict
        async with asyncio.timeout(_REVIEW_TIMEOUT_SECONDS):
            answer: Decision = await self.authorizer.authorize(token, verb, path)
        self.cached_decisions.pop(key, None)
        while len(self.cached_decisions) >= _MAX_CACHED_DECISIONS:
            del self.cached_decisions[next(iter(self.cached_decisions))]
        self.cached_decisions[key] = (
            answer,
            self.clock() + (ALLOWED_CACHE_SECONDS if answer == "allowed" else DENIED_CACHE_SECONDS),
        )
        return answer


def _text_response(
    status: int, text: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Plain text that no browser takes for something else."""
    return web.Response(
        status=status, text=text, headers={"X-Content-Type-Options": "nosniff", **(headers or {})}
    )


async def run_check(check: HealthCheck) -> str | None:
    """What a check finds wrong; one that fails or hangs is wrong itself."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            found = check()
            problem = await found if inspect.isawaitable(found) else found
    except TimeoutError:
        problem = f"no answer in {_CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return None if problem is None else " ".join(redact(problem).split())


class HealthEndpoint:
    """One of /healthz and /readyz: its checks, and kube-apiserver's way of answering about them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: dict[str, HealthCheck] = {}

    async def _handle_all(self, request: web.Request) -> web.Response:
        """All checks together; the details only on request or on failure."""
        checks = self.checks or {"ping": lambda: None}
        excluded = set(request.query.getall("exclude", []))
        asked = sorted(checks.keys() - excluded)
        problems = dict(
            zip(
                asked,
                await asyncio.gather(*(run_check(checks[name]) for name in asked)),
                strict=True,
            )
        )
        failed = any(problem is not None for problem in problems.values())
        if not failed and "verbose" not in request.query:
            return _text_response(200, "ok")
        lines = [
            self._format_line(name, name in excluded, problems.get(name)) for name in sorted(checks)
        ]
        if unknown := sorted(excluded - checks.keys()):
            quoted = ",".join(f'"{redact(name)}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        return _text_response(
            500 if failed else 200,
            "\n".join([*lines, f"{self.name} check {'failed' if failed else 'passed'}", ""]),
        )

    def _format_line(self, name: str, excluded: bool, problem: str | None) -> str:
        """One check in the long answer."""
        return (
            f"[+]{name} excluded: ok"
            if excluded
            else f"[+]{name} ok"
            if problem is None
            else f"[-]{name} failed: {problem}"
        )

    async def _handle_one(self, request: web.Request) -> web.Response:
        """One check by its name."""
        check = self.checks.get(request.match_info["check"])
        if check is None:
            return _text_response(
                404,
                f"there is no such check; {self.name} has: {', '.join(sorted(self.checks)) or 'none'}",
            )
        problem = await run_check(check)
        return (
            _text_response(200, "ok")
            if problem is None
            else _text_response(500, f"internal server error: {problem}")
        )


class Server:
    """The endpoints of one manager: add checks, `start`, and `stop` at the end."""

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
            raise ConfigError(
                "secure metrics need somebody who says who may read them: give a reviewer"
            )
        self.log = Log("server")
        self.metrics, self.metrics_bind_address, self.health_probe_bind_address = (
            metrics,
            metrics_bind_address,
            health_probe_bind_address,
        )
        self.certificate: ServingCertificate | None = None
        if secure:
            self.certificate = (
                CertificateWatcher(Path(certificate_dir), self.log)
                if certificate_dir
                else ServingCertificate()
            )
        self.authorizer = (
            CachingAuthorizer(authorizer) if secure and authorizer is not None else None
        )
        self.reload_seconds = reload_seconds
        self.healthz, self.readyz = HealthEndpoint("healthz"), HealthEndpoint("readyz")
        self.in_flight = 0
        self.runners: list[web.AppRunner] = []
        self.listeners: list[socket.socket] = []
        self.reload_task: asyncio.Task[None] | None = None
        self.metrics_port = self.health_port = 0
        """The ports that are really listened on, once started; 0 where nothing is."""

    def add_healthz_check(self, name: str, check: HealthCheck) -> None:
        """Have the Pod restarted while this finds something wrong."""
        self.healthz.checks[name] = check

    def add_readyz_check(self, name: str, check: HealthCheck) -> None:
        """Count as not ready while this finds something wrong."""
        self.readyz.checks[name] = check

    async def start(self) -> None:
        """Listen; what was started is stopped again if a part cannot be."""
        try:
            if (
                self.certificate is not None
                and parse_address(self.metrics_bind_address) is not None
            ):
                await self._load_certificate(self.certificate)
            tls = self.certificate.context if self.certificate is not None else None
            self.metrics_port = await self.serve(
                "metrics",
                self.metrics_bind_address,
                {"/metrics": self._handle_metrics},
                tls,
                _METRICS_ADVICE,
            )
            self.health_port = await self.serve(
                "health probes",
                self.health_probe_bind_address,
                self._health_routes(),
                None,
                _HEALTH_ADVICE,
            )
        except BaseException:
            await self.stop()
            raise

    async def _load_certificate(self, certificate: ServingCertificate) -> None:
        """Read the certificate from its files and follow them, or make one."""
        if isinstance(certificate, CertificateWatcher):
            await asyncio.to_thread(certificate.load)
            self.reload_task = asyncio.create_task(certificate.watch(self.reload_seconds))
        else:
            await asyncio.to_thread(
                certificate.load_pem, generate_self_signed_pem(socket.gethostname())
            )

    def _health_routes(self) -> dict[str, Handler]:
        """Each endpoint by itself and with a check's name behind it."""
        routes: dict[str, Handler] = {}
        for health in (self.healthz, self.readyz):
            routes |= {
                f"/{health.name}": health._handle_all,
                f"/{health.name}/": health._handle_all,
                f"/{health.name}/{{check}}": health._handle_one,
            }
        return routes

    async def serve(
        self,
        purpose: str,
        text: str,
        routes: Mapping[str, Handler],
        tls: ssl.SSLContext | None,
        advice: str,
    ) -> int:
        """Answer these paths at this address; returns the port, 0 where the address says not to. `advice` is for one that is taken."""
        address = parse_address(text)
        if address is None:
            return 0
        listener = await open_listener(text, address, purpose, advice)
        application = web.Application(
            middlewares=[self._limit_in_flight], client_max_size=64 * 1024
        )
        for path, handler in routes.items():
            application.router.add_get(path, handler)
        runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=75.0,
            shutdown_timeout=_SHUTDOWN_TIMEOUT_SECONDS,
            max_headers=64,
        )
        self.runners.append(runner)
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        self.listeners.append(listener)
        port = int(listener.getsockname()[1])
        self.log.info(f"serving {purpose}", address=text, port=port, tls=tls is not None)
        return port

    @web.middleware
    async def _limit_in_flight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what is beyond our means, instead of slowing down what matters."""
        if self.in_flight >= _MAX_IN_FLIGHT:
            return _text_response(
                503, "too many requests at once; try again in a second", {"Retry-After": "1"}
            )
        self.in_flight += 1
        try:
            return await handler(request)
        finally:
            self.in_flight -= 1

    async def _handle_metrics(self, request: web.Request) -> web.Response:
        """The series, to whoever may read them."""
        refusal = await self._reject_unauthorized(request) if self.authorizer is not None else None
        if refusal is not None:
            return refusal
        process = await asyncio.to_thread(self.metrics.process_exposition)
        body, content_type = self.metrics.exposition()
        return web.Response(body=body + process, headers={"Content-Type": content_type})

    async def _reject_unauthorized(self, request: web.Request) -> web.Response | None:
        """Why this request gets no answer, None if it does; a review that fails opens nothing."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.authorizer is None or scheme.lower() != "bearer" or not token.strip():
            return _text_response(
                401, "Unauthorized: a bearer token is needed", {"WWW-Authenticate": "Bearer"}
            )
        try:
            verdict = await self.authorizer.authorize(
                token.strip(), request.method.lower(), request.path
            )
        except Exception as error:
            self.log.error("cannot ask who may read the metrics", error=error)
            return _text_response(
                500,
                "the API server could not be asked whether you may read this; the manager's log says why",
            )
        if verdict == "unauthenticated":
            return _text_response(
                401,
                "Unauthorized: the token is not known, or has expired",
                {"WWW-Authenticate": "Bearer"},
            )
        allowed = verdict == "allowed"
        return (
            None
            if allowed
            else _text_response(
                403, f"Forbidden: a role with nonResourceURLs {request.path} and verb get is needed"
            )
        )

    async def stop(self) -> None:
        """Listen no more, and let answers under way end."""
        if self.reload_task is not None:
            self.reload_task.cancel()
            await asyncio.gather(self.reload_task, return_exceptions=True)
            self.reload_task = None
        await stop_accepting(self.listeners)
        self.listeners.clear()
        while self.runners:
            await self.runners.pop().cleanup()
        self.metrics_port = self.health_port = 0
