"""Site: unit tests, and its sample on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubewright import Client, Key, Object
from kubewright.api.apps_v1 import Deployment
from kubewright.api.core_v1 import ConfigMap, Service
from kubewright.testing import eventually, read_sample, reconcile
from kubewright.testing.controlplane import ControlPlane

from greeter.kinds.site import Site, SiteController

SAMPLE_FILE = Path(__file__).parents[2] / "config/samples/demo_v1_site.yaml"
SAMPLE = read_sample(Site, SAMPLE_FILE)


async def test_each_child_is_applied_once() -> None:
    result = await reconcile(SiteController(), SAMPLE)
    assert result.error is None
    assert [write.verb for write in result.writes].count("apply") == 3
    assert (await result.again()).writes == []


async def test_sample_gets_its_children(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for webhooks, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE_FILE))

    async def has_children() -> bool:
        children: list[Object] = [
            await client.get(Deployment, Key(namespace, SAMPLE.metadata.name)),
            await client.get(Service, Key(namespace, SAMPLE.metadata.name)),
            await client.get(ConfigMap, Key(namespace, SAMPLE.metadata.name)),
        ]
        return all(child.metadata.labels["kubewright.dev/controller"] for child in children)

    await eventually(has_children)
