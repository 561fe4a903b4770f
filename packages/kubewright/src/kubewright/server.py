"""The HTTP server of a manager: /metrics on one address, /healthz and /readyz on another.

With `secure`, /metrics is served over TLS to clients that an `Authorizer` allows. The probes stay
open, because kubelet sends no credentials. The address `0` or "" disables an endpoint.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .authorization import Authorizer
from .endpoint import (
    CERTIFICATE_RELOAD_SECONDS,
    Certificate,
    Endpoint,
    choose_certificate,
    text_response,
)
from .errors import ConfigError, redact
from .listen import parse_address
from .log import Log
from .metrics import Metrics

if TYPE_CHECKING:
    from aiohttp import web

_CHECK_TIMEOUT_SECONDS = 5.0
# Per endpoint. Prometheus and kubelet send a few requests at a time. More is an error or an attack,
# and must not slow down the reconciles that share the event loop.
_MAX_IN_FLIGHT = 64
# With those of the webhooks (384) and 256 of an application less than 1024, the usual limit of file
# descriptors.
_MAX_METRICS_CONNECTIONS, _MAX_PROBE_CONNECTIONS = 256, 64
_METRICS_ADVICE = (
    "Choose another address with -metrics-addr (environment METRICS_ADDR), or 0 to disable metrics"
)
_HEALTH_ADVICE = (
    "Choose another address with -health-probe-bind-address (environment HEALTH_PROBE_ADDR), "
    "or 0 to disable health probes"
)

HealthCheck = Callable[[], str | Awaitable[str | None] | None]
"""Returns None if healthy, otherwise the problem."""


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
            return text_response(200, "ok")
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
        return text_response(500 if failed else 200, "\n".join(lines))

    async def _handle_one(self, request: web.Request) -> web.Response:
        check = self.checks.get(request.match_info["check"])
        if check is None:
            names = ", ".join(sorted(self.checks)) or "none"
            return text_response(404, f"no such check; {self.name} has: {names}")
        problem = await _run_check(check)
        if problem is None:
            return text_response(200, "ok")
        return text_response(500, f"internal server error: {problem}")


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
        reload_seconds: float = CERTIFICATE_RELOAD_SECONDS,
    ) -> None:
        if secure and authorizer is None:
            raise ConfigError("secure metrics need an authorizer, which decides on every token")
        self.metrics = metrics
        self.healthz, self.readyz = _HealthEndpoint("healthz"), _HealthEndpoint("readyz")
        log = Log("server")
        is_enabled = parse_address(metrics_bind_address) is not None
        self.certificate: Certificate | None = None
        if secure and is_enabled:
            self.certificate = choose_certificate(certificate_dir, log)
            metrics.watch_certificate("metrics", self.certificate)
        self._metrics_endpoint = Endpoint(
            "metrics",
            metrics_bind_address,
            advice=_METRICS_ADVICE,
            max_connections=_MAX_METRICS_CONNECTIONS,
            max_in_flight=_MAX_IN_FLIGHT,
            certificate=self.certificate,
            authorizer=authorizer if self.certificate is not None else None,
            log=log,
            reload_seconds=reload_seconds,
        )
        self._metrics_endpoint.add_get("/metrics", self._handle_metrics)
        self._health_endpoint = Endpoint(
            "health probes",
            health_probe_bind_address,
            advice=_HEALTH_ADVICE,
            max_connections=_MAX_PROBE_CONNECTIONS,
            max_in_flight=_MAX_IN_FLIGHT,
            log=log,
        )
        for endpoint in (self.healthz, self.readyz):
            for path in (f"/{endpoint.name}", f"/{endpoint.name}/"):
                self._health_endpoint.add_get(path, endpoint._handle_all)
            self._health_endpoint.add_get(f"/{endpoint.name}/{{check}}", endpoint._handle_one)

    @property
    def metrics_port(self) -> int:
        """The port in use after `start`; 0 if metrics are disabled."""
        return self._metrics_endpoint.port

    @property
    def health_port(self) -> int:
        """The port in use after `start`; 0 if health probes are disabled."""
        return self._health_endpoint.port

    def add_healthz_check(self, name: str, check: HealthCheck) -> None:
        """Add a liveness check: kubelet restarts the container while it reports a problem."""
        self.healthz.checks[name] = check

    def add_readyz_check(self, name: str, check: HealthCheck) -> None:
        """Add a readiness check: the Pod is not ready while it reports a problem."""
        self.readyz.checks[name] = check

    async def start(self) -> None:
        """Listen on both addresses, or on none: if one fails, the other is closed again."""
        try:
            await self._metrics_endpoint.start()
            await self._health_endpoint.start()
        except BaseException:
            await self.stop()
            raise

    async def _handle_metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        # Reads /proc, which may block.
        process_text = await asyncio.to_thread(self.metrics.process_exposition)
        body, content_type = self.metrics.exposition()
        return web.Response(body=body + process_text, headers={"Content-Type": content_type})

    async def stop(self) -> None:
        """Stop listening, and let responses in progress finish."""
        await self._metrics_endpoint.stop()
        await self._health_endpoint.stop()
