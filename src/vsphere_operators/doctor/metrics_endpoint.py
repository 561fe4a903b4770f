"""The metrics endpoint: a manager answers there, nobody does, or somebody else."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator
from urllib.error import HTTPError, URLError

from kubewright.listen import ListenAddress, parse_address

from .finding import Finding, ok, problem

_TIMEOUT_SECONDS = 3.0
_MAX_BODY_BYTES = 256 * 1024
_MANAGER_METRIC_PREFIX = "controller_runtime_"
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")


async def check(text: str, *, secure: bool) -> AsyncIterator[Finding]:
    """What is at the address that the manager listens on; ConfigError for what is none."""
    address = parse_address(text)
    if address is None:
        yield ok("metrics", "/metrics is switched off")
    elif address.port == 0:
        yield ok("metrics", "/metrics will be on a free port, which the manager's log tells")
    else:
        yield await asyncio.to_thread(_probe_endpoint, address, secure)


def _probe_endpoint(address: ListenAddress, secure: bool) -> Finding:
    """Ask there; it blocks."""
    host = "127.0.0.1" if address.host in _WILDCARD_HOSTS else address.host
    url = f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{address.port}/metrics"
    try:
        status, text = fetch(url)
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return ok("metrics", f"nothing listens at {url} on this machine; the manager can")
        return address_in_use(url, str(error.reason))
    except (OSError, ValueError) as error:
        return address_in_use(url, str(error))
    if status == 200 and _MANAGER_METRIC_PREFIX in text:
        return ok("metrics", f"a manager answers at {url}")
    if secure and status in (401, 403):
        return ok("metrics", f"{url} answers and asks who is there, as it should")
    return address_in_use(url, f"it answers with status {status} and without a manager's metrics")


def fetch(url: str) -> tuple[int, str]:
    """Status and the beginning of the body. The certificate is the manager's own, and nothing secret is sent."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified)
    )
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read(_MAX_BODY_BYTES).decode(errors="replace")
    except HTTPError as error:
        with error:
            return error.code, ""


def address_in_use(url: str, why: str) -> Finding:
    """Somebody else is there."""
    words = f"something that is no manager is at {url} ({why}): on this machine the manager could not listen there"
    return problem(
        "metrics",
        words,
        "manager -metrics-addr=:0   # a free port, which its log tells; or stop what listens there",
    )
