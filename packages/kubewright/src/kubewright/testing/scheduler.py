"""A real kube-scheduler for tests.

    async with run_scheduler(binaries["kube-scheduler"], control_plane):
        ...                                       # Pods are bound to Nodes

`make testenv` of a project builds the binary, or `python -m kubewright.testing.binaries --only
kube-scheduler`. The Nodes have to be there already: `fake_kubelet` would bind Pods itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from .controlplane import ControlPlane
from .process import Process

_GRACE_SECONDS = 5.0


@asynccontextmanager
async def run_scheduler(binary: Path, plane: ControlPlane) -> AsyncIterator[Process]:
    """Run kube-scheduler as administrator until the block ends; it retries until it connects."""
    flags = [
        f"--kubeconfig={plane.admin_kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--bind-address=127.0.0.1",
    ]
    log = plane.folder / "kube-scheduler.log"
    process = Process("kube-scheduler", [str(binary), *flags], log)
    process.start()
    try:
        yield process
    finally:
        await process.stop(_GRACE_SECONDS)
