"""The status for given Pods, and the controller on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from kubewright import Client, Manager, Options
from kubewright.builtin import PodMetadata
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import Connection, Identity
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from vsphere_operators.build import build
from vsphere_operators.kinds.mycustomresource import (
    MyCustomResource,
    MyCustomResourceSpec,
    status_of,
)
from vsphere_operators.settings.flags import Settings

SAMPLES = Path(__file__).parents[2] / "config/samples"


def make_pod(name: str, namespace: str = "default") -> PodMetadata:
    return PodMetadata(metadata=ObjectMeta(name=name, namespace=namespace))


def test_missing_friend_is_not_healthy() -> None:
    status, done = status_of("funny-joe", [])
    assert status.Healthy is False
    assert (done.reason, done.message) == ("NoFriend", 'No Pod named "funny-joe" exists.')


def test_friend_in_any_namespace_is_healthy() -> None:
    status, done = status_of("funny-joe", [make_pod("funny-joe", "b"), make_pod("funny-joe", "a")])
    assert status.Healthy is True
    assert done.message == 'Pod "funny-joe" exists in namespace a and 1 more.'


@asynccontextmanager
async def run_manager(api: FakeApi) -> AsyncIterator[Client]:
    manager = Manager(
        Connection(server="https://fake.invalid", identity=Identity(), source="a test"),
        Options(metrics_bind_address="0"),
        transport=api,
    )
    build(manager, Settings())
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield Client(api)
    finally:
        stop.set()
        await task


async def read_healthy(client: Client, name: str) -> bool | None:
    resource = await client.get(MyCustomResource, Key("default", name))
    return resource.status.Healthy if resource.status.conditions else None


async def test_samples_follow_their_pods() -> None:
    api = FakeApi()
    for file in sorted(SAMPLES.glob("poc_*.yaml")):
        body = yaml.safe_load(file.read_text())
        body["metadata"]["namespace"] = "default"
        api.create(MyCustomResource.definition.path("default"), body)
    async with run_manager(api) as client:
        await eventually(lambda: has_health(client, "my-custom-resource-01", False))
        await eventually(lambda: has_health(client, "my-custom-resource-02", False))
        api.add(make_pod("funny-joe", "elsewhere"))
        await eventually(lambda: has_health(client, "my-custom-resource-01", True))
        assert await read_healthy(client, "my-custom-resource-02") is False
        await client.delete(PodMetadata, Key("elsewhere", "funny-joe"))
        await eventually(lambda: has_health(client, "my-custom-resource-01", False))


async def has_health(client: Client, name: str, wanted: bool) -> bool:
    return await read_healthy(client, name) is wanted


async def test_empty_spec_reports_the_missing_field() -> None:
    api = FakeApi()
    api.create(
        MyCustomResource.definition.path("default"),
        {"metadata": {"name": "bare", "namespace": "default"}},
    )
    async with run_manager(api) as client:
        await eventually(lambda: has_health(client, "bare", False))
        condition = (await client.get(MyCustomResource, Key("default", "bare"))).status.condition(
            "Ready"
        )
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NameMissing")
    assert "Set it to the name of the Pod" in condition.message


async def test_changed_name_is_followed() -> None:
    api = FakeApi()
    api.add(make_pod("second"))
    api.add(
        MyCustomResource(
            metadata=ObjectMeta(name="r", namespace="default"),
            spec=MyCustomResourceSpec(name="first"),
        )
    )
    async with run_manager(api) as client:
        await eventually(lambda: has_health(client, "r", False))
        await client.patch(MyCustomResource, Key("default", "r"), {"spec": {"name": "second"}})
        await eventually(lambda: has_health(client, "r", True))
