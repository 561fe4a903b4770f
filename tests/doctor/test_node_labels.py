"""What -label-nodes has left on Nodes, on a fake API server."""

from __future__ import annotations

import pytest

from kubewright import Client, Key
from kubewright.builtin import Node
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.node_labels import check_leftovers
from vsphere_operators.leader_lease import SYSTEM_NAMESPACE
from vsphere_operators.manager_pods import ManagerPod
from vsphere_operators.node_labels.labels import HOST_LABEL
from vsphere_operators.node_labels.writer import NodeWriter


async def find_leftovers(
    api: FakeApi, *namespaces: str, installation: Installation | None = None
) -> list[Finding]:
    checks = check_leftovers(Client(api), namespaces, installation or Installation())
    return [finding async for finding in checks]


def add_manager(api: FakeApi, namespace: str, *flags: str, phase: str = "Running") -> None:
    path = ManagerPod.definition.path(namespace)
    name = f"manager-{len(flags)}-{phase.lower()}"
    labels = {"app.kubernetes.io/name": "vsphere-operators", "control-plane": "controller-manager"}
    containers = [{"name": "manager", "image": "m", "args": list(flags)}]
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}
    created = api.create(path, body)
    api.update(f"{path}/{name}", {**created, "status": {"phase": phase}}, status=True)


async def label_nodes(api: FakeApi, namespace: str, count: int) -> None:
    client = Client(api)
    for number in range(count):
        api.create(Node.definition.path(""), {"metadata": {"name": f"node-{number}"}})
        node = await client.get(Node, Key("", f"node-{number}"))
        await NodeWriter(client, namespace).apply_labels(node, {HOST_LABEL: "esxi-1"})


async def test_leftovers_of_this_installation_are_a_warning() -> None:
    api = FakeApi()
    client = Client(api)
    await label_nodes(api, SYSTEM_NAMESPACE, 7)
    api.create(Node.definition.path(""), {"metadata": {"name": "node-7"}})
    add_manager(api, SYSTEM_NAMESPACE, "-insecure", "-label-nodes=false")
    add_manager(api, SYSTEM_NAMESPACE, "-label-nodes", phase="Failed")
    assert await find_leftovers(api, "other") == []
    (finding,) = await find_leftovers(api, "other", SYSTEM_NAMESPACE, SYSTEM_NAMESPACE)
    assert finding.level == "warning"
    assert finding.message.startswith("7 Nodes have labels or the condition of -label-nodes")
    assert "node-0, node-1, node-2, node-3, node-4 and 2 more." in finding.message
    assert "kubectl apply --server-side -f config/components/label-nodes/role.yaml" in finding.fix
    for number in range(7):
        node = await client.get(Node, Key("", f"node-{number}"))
        await NodeWriter(client, SYSTEM_NAMESPACE).apply_labels(node, {})
    assert await find_leftovers(api, SYSTEM_NAMESPACE) == []


@pytest.mark.parametrize("flag", ["-label-nodes", "--label-nodes", "-label-nodes=true"])
async def test_labels_of_a_manager_that_runs_with_the_flag_are_no_leftovers(flag: str) -> None:
    api = FakeApi()
    await label_nodes(api, SYSTEM_NAMESPACE, 1)
    # During a rollout, both run.
    add_manager(api, SYSTEM_NAMESPACE)
    add_manager(api, SYSTEM_NAMESPACE, flag)
    assert await find_leftovers(api, SYSTEM_NAMESPACE) == []


async def test_role_of_another_namespace_or_an_unknown_manager_has_no_command() -> None:
    api = FakeApi()
    await label_nodes(api, SYSTEM_NAMESPACE, 1)
    (finding,) = await find_leftovers(api, SYSTEM_NAMESPACE)
    assert "no Pod of it can be read" in finding.message
    assert finding.fix == ""
    api.fail_next("GET", "pods", Forbidden("pods is forbidden"))
    assert await find_leftovers(api, SYSTEM_NAMESPACE) == [finding]

    api = FakeApi()
    await label_nodes(api, "mine", 1)
    add_manager(api, "mine")
    (finding,) = await find_leftovers(api, "mine")
    assert finding.message.startswith("1 Node has labels or the condition of -label-nodes: node-0.")
    assert 'grant the manager in namespace "mine" the permission' in finding.message
    assert "labelNodes.enabled" in finding.message
    assert finding.fix == ""


async def test_unreadable_nodes_are_left_to_the_check_of_permissions() -> None:
    api = FakeApi()
    api.fail_next("GET", "nodes", Forbidden("nodes is forbidden"))
    assert await find_leftovers(api, "system") == []


async def test_helm_keeps_the_role_so_the_doctor_names_its_values() -> None:
    api = FakeApi()
    await label_nodes(api, "ops", 1)
    add_manager(api, "ops")
    helm = Installation(namespace="ops", tool="helm", release="mine")
    (finding,) = await find_leftovers(api, "ops", SYSTEM_NAMESPACE, installation=helm)
    assert finding.fix == ""
    assert "kubectl" not in finding.message
    assert 'labelNodes.enabled: true and flags: ["-label-nodes=false"]' in finding.message
