"""What -label-nodes has left on Nodes, on a fake API server."""

from __future__ import annotations

from kubewright import Client, Key
from kubewright.builtin import Node
from kubewright.errors import Forbidden
from kubewright.testing.fake import FakeApi
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.node_labels import check_leftovers
from vsphere_operators.node_labels.labels import HOST_LABEL
from vsphere_operators.node_labels.writer import NodeWriter


async def find_leftovers(api: FakeApi, *namespaces: str) -> list[Finding]:
    return [finding async for finding in check_leftovers(Client(api), namespaces)]


async def test_leftovers_of_this_installation_are_a_warning() -> None:
    api = FakeApi()
    client = Client(api)
    for number in range(8):
        api.create(Node.definition.path(""), {"metadata": {"name": f"node-{number}"}})
    for number in range(7):
        node = await client.get(Node, Key("", f"node-{number}"))
        await NodeWriter(client, "system").apply_labels(node, {HOST_LABEL: "esxi-1"})
    assert await find_leftovers(api, "other") == []
    (finding,) = await find_leftovers(api, "other", "system", "system")
    assert finding.level == "warning"
    assert finding.message.startswith("7 Nodes have labels or the condition of -label-nodes")
    assert "node-0, node-1, node-2, node-3, node-4 and 2 more." in finding.message
    assert "kubectl apply -f config/components/label-nodes/role.yaml" in finding.fix
    for number in range(7):
        node = await client.get(Node, Key("", f"node-{number}"))
        await NodeWriter(client, "system").apply_labels(node, {})
    assert await find_leftovers(api, "system") == []


async def test_unreadable_nodes_are_left_to_the_check_of_permissions() -> None:
    api = FakeApi()
    api.fail_next("GET", "nodes", Forbidden("nodes is forbidden"))
    assert await find_leftovers(api, "system") == []
