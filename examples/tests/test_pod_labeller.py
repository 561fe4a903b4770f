from __future__ import annotations

from examples.pod_labeller import LABEL, PodLabelController
from examples.tests.component_runner import RunControllers
from kubewright import Client, Key, Namespace, ObjectMeta
from kubewright.api.core_v1 import Container, Pod, PodSpec
from kubewright.rbac import manager_rules
from kubewright.testing import eventually


async def label_namespace(client: Client, name: str, team: str | None) -> None:
    await client.patch(Namespace, Key("", name), {"metadata": {"labels": {LABEL: team}}})


async def test_pods_have_the_label_of_their_namespace(
    run_controllers: RunControllers, namespace: str
) -> None:
    async with run_controllers(PodLabelController()) as client:
        pod = Pod(
            metadata=ObjectMeta(namespace=namespace, name="web", labels={"app": "web"}),
            spec=PodSpec(containers=[Container(name="web", image="nginx")]),
        )
        await client.create(pod)

        async def has_labels(expected: dict[str, str]) -> bool:
            return (await client.get(Pod, Key(namespace, "web"))).metadata.labels == expected

        await label_namespace(client, namespace, "blue")
        await eventually(lambda: has_labels({"app": "web", LABEL: "blue"}))
        await label_namespace(client, namespace, "green")
        await eventually(lambda: has_labels({"app": "web", LABEL: "green"}))
        await label_namespace(client, namespace, None)
        await eventually(lambda: has_labels({"app": "web"}))


def test_role_has_no_permission_for_the_status_of_pods() -> None:
    rules = manager_rules([PodLabelController()])
    assert [rule["verbs"] for rule in rules if rule["resources"] == ["pods"]] == [
        ["list", "patch", "watch"]
    ]
    assert [rule for rule in rules if "pods/status" in rule["resources"]] == []
