"""An HTTP/1.1 client on asyncio: kept connections, streams, TLS and proxies, and nothing else.

    request -> client (pool) -> connection (asyncio.Protocol) -> parser (bytes -> response)

It knows neither Kubernetes nor vSphere, so both transports use it. There are no redirects, cookies,
compression, environment variables or other versions of HTTP.
"""

from __future__ import annotations

from .client import HttpClient, Response
from .connection import Origin, origin_of
from .errors import (
    ConnectError,
    ConnectionBroken,
    HostNotFound,
    HttpError,
    MalformedResponse,
    ProxyRejected,
    ProxyUnreachable,
)

__all__ = [
    "ConnectError",
    "ConnectionBroken",
    "HostNotFound",
    "HttpClient",
    "HttpError",
    "MalformedResponse",
    "Origin",
    "ProxyRejected",
    "ProxyUnreachable",
    "Response",
    "origin_of",
]
