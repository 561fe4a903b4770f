"""An abandoned stream is closed at once. TLS's closing handshake with a dead peer would keep the
socket open, and outlive the event loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kubewright.kubeconfig import load_config
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.tcpproxy import TcpProxy
from kubewright.transport import Request, Transport


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_watch_is_closed_although_the_server_is_silent(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with TcpProxy("127.0.0.1", control_plane.apiserver.port.number) as proxy:
        config = control_plane.write_kubeconfig(
            tmp_path / "config", server=f"https://127.0.0.1:{proxy.port}"
        )
        transport = Transport(
            await asyncio.to_thread(load_config, str(config), environ={}, home=Path("/"))
        )
        opened = asyncio.Event()
        watch = Request(
            "GET",
            f"/api/v1/namespaces/{namespace}/configmaps",
            query="watch=true",
            operation="watching",
            timeout_seconds=60,
        )
        lines = transport.stream_lines(watch, idle_timeout_seconds=60, on_open=opened.set)
        reading = asyncio.create_task(anext(lines, b""))
        await asyncio.wait_for(opened.wait(), 60)
        proxy.stall()
        before = count_open_files()
        reading.cancel()
        await asyncio.wait([reading])
        await transport.close()
        assert count_open_files() == before - 1
