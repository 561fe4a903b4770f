"""MyApp with the controllers of Kubernetes: readiness, repairs and garbage collection."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from examples.myapp import MyApp, MyAppController
from examples.tests.component_runner import RunControllers
from examples.tests.test_myapp import (
    KINDS,
    create_app,
    find_condition,
    have_children,
)
from kubewright import Children, Client, Key, Object, ObjectMeta
from kubewright.api.apps_v1 import Deployment
from kubewright.api.core_v1 import ConfigMap, Service
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.kubelet import crash_looping, default_pod_state, fake_kubelet

# On a quiet machine a repair takes less than a tenth of a second. The tests may run on a busy one.
REPAIR_SECONDS = 25.0
# The controllers of Kubernetes, of which the garbage collector finds a new kind after 30 s.
CONTROLLER_SECONDS = 60.0


@pytest.fixture(scope="session")
def control_plane(control_plane_with_controllers: ControlPlane) -> ControlPlane:
    return control_plane_with_controllers


@pytest.fixture
def key(namespace: str) -> Key:
    return Key(namespace, "web")


async def is_ready(client: Client, key: Key, status: str, message: str) -> bool:
    condition = await find_condition(client, key)
    return condition is not None and (condition.status, condition.message) == (status, message)


async def test_app_is_ready_while_its_pods_are(run_controllers: RunControllers, key: Key) -> None:
    async with (
        run_controllers(MyAppController()) as client,
        fake_kubelet(client, namespace=key.namespace) as kubelet,
    ):
        await create_app(client, key, replicas=2)
        await eventually(
            lambda: is_ready(client, key, "True", "4 children are ready"),
            within=CONTROLLER_SECONDS,
        )
        assert (await client.get(MyApp, key)).status.readyReplicas == 2
        await kubelet.update(lambda pod: crash_looping())
        await eventually(
            lambda: is_ready(client, key, "False", "Deployment web: 0/2 replicas available"),
            within=CONTROLLER_SECONDS,
        )
        await kubelet.update(default_pod_state)
        await eventually(
            lambda: is_ready(client, key, "True", "4 children are ready"),
            within=CONTROLLER_SECONDS,
        )


async def test_children_go_with_their_owner(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(MyAppController()) as client:
        await create_app(client, key, host="web.example.com", maxReplicas=3)
        await eventually(lambda: have_children(client, key, *KINDS))
        await client.delete(MyApp, key)
        await eventually(lambda: have_children(client, key), within=CONTROLLER_SECONDS)


async def test_child_that_is_wrong_is_right_again_within_a_second(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(MyAppController()) as client:
        await create_app(client, key, config={"a": "1"}, host="web.example.com", replicas=2)
        await eventually(lambda: have_children(client, key, *KINDS[:5]))

        async def delete_the_service() -> None:
            await client.delete(Service, key)

        async def has_service() -> bool:
            return (await client.get(Service, key)).metadata.deletionTimestamp is None

        async def scale_the_deployment() -> None:
            manifest = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": key.name},
                "spec": {"replicas": 9},
            }
            await client.patch(Deployment, key, manifest, patch_type="apply", force=True)

        async def has_two_replicas() -> bool:
            return (await client.get(Deployment, key)).spec.replicas == 2

        async def edit_the_config() -> None:
            await client.patch(ConfigMap, key, {"data": {"a": "9"}})

        async def has_config() -> bool:
            return (await client.get(ConfigMap, key)).data == {"a": "1"}

        async def remove_the_host() -> None:
            await client.patch(MyApp, key, {"spec": {"host": None}})

        async def has_no_ingress() -> bool:
            return await have_children(client, key, *KINDS[:4])

        for change, is_right in (
            (delete_the_service, has_service),
            (scale_the_deployment, has_two_replicas),
            (edit_the_config, has_config),
            (remove_the_host, has_no_ingress),
        ):
            seconds = await measure(change, is_right)
            print(f"{change.__name__}: right again after {seconds * 1000:.0f} ms")
            assert seconds < REPAIR_SECONDS


class RenamingController(MyAppController):
    """Each version of the configuration has a ConfigMap of its own."""

    async def apply(self, owner: MyApp, *children: Object | None, **options: Any) -> Children:
        name = f"config-{owner.spec.config['version']}"
        renamed = [
            ConfigMap(metadata=ObjectMeta(name=name), data=child.data)
            if isinstance(child, ConfigMap)
            else child
            for child in children
        ]
        return await super().apply(owner, *renamed, **options)


async def test_child_with_a_new_name_replaces_the_old_one(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(RenamingController()) as client:

        async def rename_the_config() -> None:
            await client.patch(MyApp, key, {"spec": {"config": {"version": "2"}}})

        async def has_config(version: str) -> bool:
            selector = "kubewright.dev/controller=myapp"
            children = await client.list(ConfigMap, key.namespace, label_selector=selector)
            return [child.metadata.name for child in children] == [f"config-{version}"]

        await create_app(client, key, config={"version": "1"})
        await eventually(lambda: has_config("1"))
        seconds = await measure(rename_the_config, lambda: has_config("2"))
        print(f"rename_the_config: right again after {seconds * 1000:.0f} ms")
        assert seconds < REPAIR_SECONDS


async def measure(
    change: Callable[[], Awaitable[None]], is_right: Callable[[], Awaitable[bool]]
) -> float:
    """How long after the change the API server has the right object again."""
    await change()
    changed_at = time.monotonic()
    await eventually(is_right, every=0.005)
    return time.monotonic() - changed_at
