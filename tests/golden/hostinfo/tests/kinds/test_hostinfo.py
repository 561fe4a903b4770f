"""HostInfo: unit tests, and its sample on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubewright import Client, Key
from kubewright.testing import eventually, read_sample
from kubewright.testing.controlplane import ControlPlane

from hostinfo.kinds.hostinfo import HostInfo, status_of

SAMPLE_FILE = Path(__file__).parents[2] / "config/samples/topology_v1_hostinfo.yaml"
SAMPLE = read_sample(HostInfo, SAMPLE_FILE)


def test_equal_specs_have_equal_status() -> None:
    assert status_of(SAMPLE.spec) == status_of(SAMPLE.spec)


async def test_sample_becomes_ready(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for webhooks, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE_FILE))

    async def is_ready() -> bool:
        hostinfo = await client.get(HostInfo, Key(namespace, SAMPLE.metadata.name))
        status = hostinfo.status
        condition = status.condition("Ready")
        is_current = status.observedGeneration == hostinfo.metadata.generation
        return condition is not None and condition.status == "True" and is_current

    await eventually(is_ready)
