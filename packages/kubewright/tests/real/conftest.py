"""Proxies in front of the real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy, TcpProxy


@pytest.fixture
async def http_proxy(control_plane: ControlPlane) -> AsyncIterator[HttpProxy]:
    """Injects errors, and records all requests."""
    async with HttpProxy.in_front_of(control_plane) as proxy:
        yield proxy


@pytest.fixture
async def tcp_proxy(http_proxy: HttpProxy) -> AsyncIterator[TcpProxy]:
    """Stalls and aborts connections; it forwards to the HTTP proxy, which records the requests."""
    async with TcpProxy("127.0.0.1", http_proxy.port) as proxy:
        yield proxy
