from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from examples.myapp import MyApp, MyAppController, MyAppSpec
from examples.tests.component_runner import RunControllers
from kubewright import Client, Condition, Done, Key, NotFound, ObjectMeta, Waiting
from kubewright.api.apps_v1 import Deployment
from kubewright.api.autoscaling_v2 import HorizontalPodAutoscaler
from kubewright.api.core_v1 import ConfigMap, Service, ServiceAccount
from kubewright.api.networking_v1 import Ingress
from kubewright.testing import eventually

KINDS = (ConfigMap, ServiceAccount, Deployment, Service, Ingress, HorizontalPodAutoscaler)


@pytest.fixture
def key(namespace: str) -> Key:
    return Key(namespace, "web")


async def create_app(client: Client, key: Key, **spec: Any) -> MyApp:
    metadata = ObjectMeta(namespace=key.namespace, name=key.name)
    return await client.create(MyApp(metadata=metadata, spec=MyAppSpec(image="web:1", **spec)))


async def existing_kinds(client: Client, key: Key) -> set[str]:
    names = set()
    for kind in KINDS:
        try:
            await client.get(kind, key)
        except NotFound:
            continue
        names.add(kind.__name__)
    return names


async def have_children(client: Client, key: Key, *kinds: type[Any]) -> bool:
    return await existing_kinds(client, key) == {kind.__name__ for kind in kinds}


async def find_condition(client: Client, key: Key) -> Condition | None:
    return (await client.get(MyApp, key)).status.condition("Ready")


async def test_children_follow_the_spec(run_controllers: RunControllers, key: Key) -> None:
    async with run_controllers(MyAppController()) as client:
        await create_app(client, key, config={"a.conf": "x"}, replicas=2)
        await eventually(lambda: have_children(client, key, *KINDS[:4]))
        condition = await eventually(lambda: find_condition(client, key))
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "ChildrenNotReady")
        assert condition.message == "Deployment web: 0/2 replicas created"
        service = await client.get(Service, key)
        assert (await client.get(MyApp, key)).status.address == service.spec.clusterIP

        optional = {"host": "web.example.com", "maxReplicas": 5}
        await client.patch(MyApp, key, {"spec": optional})
        await eventually(lambda: have_children(client, key, *KINDS))
        await client.patch(MyApp, key, {"spec": dict.fromkeys(optional)})
        await eventually(lambda: have_children(client, key, *KINDS[:4]))


async def test_replicas_are_left_to_the_autoscaler(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(MyAppController()) as client:
        await create_app(client, key, maxReplicas=5)
        await eventually(lambda: have_children(client, key, *KINDS[:4], HorizontalPodAutoscaler))
        autoscaler = await client.get(HorizontalPodAutoscaler, key)
        assert (autoscaler.spec.minReplicas, autoscaler.spec.maxReplicas) == (1, 5)
        await client.patch(Deployment, key, {"spec": {"replicas": 3}})
        # A reconcile after that leaves it.
        await client.patch(MyApp, key, {"spec": {"image": "web:2"}})

        async def has_new_image() -> bool:
            deployment = await client.get(Deployment, key)
            assert deployment.spec.template.spec is not None
            return deployment.spec.template.spec.containers[0].image == "web:2"

        await eventually(has_new_image)
        assert (await client.get(Deployment, key)).spec.replicas == 3


class CountingController(MyAppController):
    runs = 0

    def has_run_since(self, runs: int) -> bool:
        return self.runs > runs

    async def reconcile(self, app: MyApp) -> Done | Waiting:
        self.runs += 1
        return await super().reconcile(app)


async def test_nothing_is_written_at_rest(run_controllers: RunControllers, key: Key) -> None:
    controller = CountingController()
    async with run_controllers(controller) as client:
        await create_app(client, key, host="web.example.com", maxReplicas=5)
        # The status is the last that the controller writes.
        await eventually(lambda: find_condition(client, key))
        before = await resource_versions(client, key)
        for number in range(3):
            runs = controller.runs
            await client.patch(MyApp, key, {"metadata": {"labels": {"touched": str(number)}}})
            await eventually(partial(controller.has_run_since, runs))
        assert await resource_versions(client, key) == before


async def resource_versions(client: Client, key: Key) -> list[str]:
    return [(await client.get(kind, key)).metadata.resourceVersion for kind in KINDS]
