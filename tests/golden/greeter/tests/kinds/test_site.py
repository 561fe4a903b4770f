"""Site: unit tests, and its sample on the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml
from kubewright import Client, Key, Object, ObjectMeta
from kubewright.api.apps_v1 import Deployment
from kubewright.api.core_v1 import ConfigMap, Service
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from msgspec import convert

from greeter.kinds.site import Site, SiteSpec, build_configmap, build_deployment, build_service

SAMPLE = Path(__file__).parents[2] / "config/samples/demo_v1_site.yaml"
NAME = yaml.safe_load(SAMPLE.read_text())["metadata"]["name"]
SPEC = convert(yaml.safe_load(SAMPLE.read_text())["spec"], SiteSpec)


def test_children_have_the_name_of_the_object() -> None:
    site = Site(metadata=ObjectMeta(name="example"), spec=SPEC)
    children: list[Object] = [build_deployment(site), build_service(site), build_configmap(site)]
    assert {child.metadata.name for child in children} == {"example"}


async def test_sample_gets_its_children(
    installed: ControlPlane, client: Client, namespace: str
) -> None:
    # In a thread: kubectl waits for webhooks, which this event loop serves.
    await asyncio.to_thread(installed.kubectl, "-n", namespace, "apply", "-f", str(SAMPLE))

    async def has_children() -> bool:
        children: list[Object] = [
            await client.get(Deployment, Key(namespace, NAME)),
            await client.get(Service, Key(namespace, NAME)),
            await client.get(ConfigMap, Key(namespace, NAME)),
        ]
        return all(child.metadata.labels["kubewright.dev/controller"] for child in children)

    await eventually(has_children)
