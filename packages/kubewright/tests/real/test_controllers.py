"""kube-controller-manager and the fake kubelet: owners, Deployments, Jobs and namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubewright.api.apps_v1 import Deployment
from kubewright.api.batch_v1 import Job
from kubewright.api.core_v1 import Pod
from kubewright.builtin import ConfigMap, Namespace, Node, new_owner_reference
from kubewright.client import Client
from kubewright.crd import build_crds
from kubewright.errors import NotFound
from kubewright.kind import Key, Object, ObjectMeta
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.kubelet import (
    KubeletPod,
    PodState,
    crash_looping,
    default_pod_state,
    failed,
    fake_kubelet,
)
from kubewright.transport import Transport
from kubewright.yaml_text import to_yaml

from ..support.widget_kind import Widget

WITHIN = 60.0


@pytest.fixture(scope="module")
def plane(control_plane_with_controllers: ControlPlane) -> ControlPlane:
    plane = control_plane_with_controllers
    plane.apply(to_yaml(*build_crds([Widget])))
    plane.wait_for_crds()
    plane.restart_controllers()
    return plane


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-")[:50]
    plane.create_namespace(name)
    yield name
    plane.remove_namespace(name)


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    connection = await asyncio.to_thread(
        load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
    )
    transport = Transport(connection)
    yield Client(transport)
    await transport.close()


async def is_gone(client: Client, kind: type[Object], key: Key) -> bool:
    try:
        await client.get(kind, key)
    except NotFound:
        return True
    return False


async def create(client: Client, kind: type[Object], namespace: str, spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "a", "namespace": namespace}, "spec": spec}
    await client.create(kind.decode(msgspec.json.encode(body)))


def pod_template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "app:1"}]
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers, **spec}}


async def test_child_goes_with_its_owner(client: Client, namespace: str) -> None:
    owner = await client.create(Widget(metadata=ObjectMeta(name="a", namespace=namespace)))
    reference = new_owner_reference(owner)
    child = ConfigMap(
        metadata=ObjectMeta(name="child", namespace=namespace, ownerReferences=[reference])
    )
    await client.create(child)
    await client.delete(Widget, owner.key)
    await eventually(lambda: is_gone(client, ConfigMap, child.key), within=WITHIN)


async def test_namespace_goes_with_its_objects(plane: ControlPlane, client: Client) -> None:
    plane.create_namespace("to-delete")
    await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="to-delete")))
    await client.delete(Namespace, Key("", "to-delete"))
    await eventually(lambda: is_gone(client, Namespace, Key("", "to-delete")), within=WITHIN)


async def test_deployment_is_available_while_its_pods_run(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")

    async def is_available(replicas: int) -> bool:
        deployment = await client.get(Deployment, key)
        return (deployment.status.availableReplicas or 0) == replicas

    async def waiting_reasons() -> set[str]:
        pods = await client.list(Pod, namespace)
        states = [status.state for pod in pods for status in pod.status.containerStatuses or ()]
        return {state.waiting.reason or "" for state in states if state and state.waiting}

    async def has_no_pods() -> bool:
        return not await client.list(Pod, namespace)

    async with fake_kubelet(client, namespace=namespace) as kubelet:
        selector = {"matchLabels": {"app": "a"}}
        spec = {"replicas": 2, "selector": selector, "template": pod_template()}
        await create(client, Deployment, namespace, spec)
        await eventually(lambda: is_available(2), within=WITHIN)
        await kubelet.update(lambda pod: crash_looping("back-off 10s"))
        await eventually(lambda: is_available(0), within=WITHIN)
        assert await waiting_reasons() == {"CrashLoopBackOff"}
        await kubelet.update(default_pod_state)
        await eventually(lambda: is_available(2), within=WITHIN)
        await client.delete(Deployment, key)
        await eventually(has_no_pods, within=WITHIN)
    assert await is_gone(client, Node, Key("", "fake-node"))


async def test_job_succeeds_or_fails_with_its_pod(client: Client, namespace: str) -> None:
    def fail(pod: KubeletPod) -> PodState:
        return failed("OOMKilled", "out of memory")

    async def condition(kind: str) -> bool:
        job = await client.get(Job, Key(namespace, "a"))
        return any(c.type == kind and c.status == "True" for c in job.status.conditions or ())

    spec = {"backoffLimit": 0, "template": pod_template(restartPolicy="Never")}
    async with fake_kubelet(client, namespace=namespace, delay_seconds=0.1) as kubelet:
        await create(client, Job, namespace, spec)
        await eventually(lambda: condition("Complete"), within=WITHIN)
        await client.delete(Job, Key(namespace, "a"))
        await eventually(lambda: is_gone(client, Job, Key(namespace, "a")), within=WITHIN)
        await kubelet.update(fail)
        await create(client, Job, namespace, spec)
        await eventually(lambda: condition("Failed"), within=WITHIN)
