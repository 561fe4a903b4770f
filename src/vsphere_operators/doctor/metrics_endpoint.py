"""Checks the metrics address: free, served by a manager, or used by another process."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator
from urllib.error import HTTPError, URLError

from kubewright.listen import ListenAddress, parse_address

from .finding import Finding, ok, problem

_TIMEOUT_SECONDS = 3.0
# The manager's own metrics are at the beginning of the body.
_MAX_BODY_BYTES = 256 * 1024
_MANAGER_METRIC_PREFIX = "controller_runtime_"
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_FREE_PORT_COMMAND = (
    "manager -metrics-addr=:0   # picks a free port and logs it; or stop the other process"
)


async def check(text: str, *, secure: bool) -> AsyncIterator[Finding]:
    """Raises ConfigError for a text that is not an address."""
    address = parse_address(text)
    if address is None:
        yield ok("metrics", "The metrics endpoint is disabled")
    elif address.port == 0:
        yield ok("metrics", "The manager will serve metrics on a free port and log its number")
    else:
        yield await asyncio.to_thread(_probe_endpoint, address, secure)


def _probe_endpoint(address: ListenAddress, secure: bool) -> Finding:
    host = "127.0.0.1" if address.host in _WILDCARD_HOSTS else address.host
    host = f"[{host}]" if ":" in host else host
    url = f"{'https' if secure else 'http'}://{host}:{address.port}/metrics"
    try:
        status, body = _fetch(url)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ConnectionRefusedError):
            return ok("metrics", f"Port {address.port} is free on this machine")
        return _address_in_use(url, reason)
    if status == 200 and _MANAGER_METRIC_PREFIX in body:
        return ok("metrics", f"A manager serves metrics at {url}")
    if secure and status in (401, 403):
        return ok("metrics", f"{url} requires authentication, as expected")
    return _address_in_use(url, f"status {status} without a manager's metrics")


def _fetch(url: str) -> tuple[int, str]:
    """Status and the beginning of the body."""
    # The certificate may be the manager's self-signed one, and the request contains no secret.
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified)
    )
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
            return response.status, response.read(_MAX_BODY_BYTES).decode(errors="replace")
    except HTTPError as error:
        with error:
            return error.code, ""


def _address_in_use(url: str, reason: object) -> Finding:
    if isinstance(reason, TimeoutError):
        return problem(
            "metrics",
            f"{url} did not respond in time; the port is in use by another process "
            "or the manager hangs",
            _FREE_PORT_COMMAND,
        )
    return problem(
        "metrics",
        f"{url} is in use by another process ({reason}); the manager cannot listen there",
        _FREE_PORT_COMMAND,
    )
