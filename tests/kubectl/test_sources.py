"""The facts of Nodes for `why --vcenter`: those that the manager would have."""

from __future__ import annotations

import json

import pytest

from kubewright.builtin import Node
from support.fake_node_cluster import NOW, FakeNodeCluster, node_manifest
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kubectl import sources


async def test_node_facts_have_match_and_hidden_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_details(vcenter: object) -> None:
        """The devices are in memory already."""

    monkeypatch.setattr(sources, "_read_details", read_details)
    cluster = FakeNodeCluster()
    cluster.add_host(1)
    cluster.add_vm(1, 1, 500)
    cluster.vcenter.passthrough_devices.hidden.add("vm-1")
    cluster.add_vm(2, 1, 500, devices=None)
    cluster.mark_loaded()
    nodes = [Node.decode(json.dumps(node_manifest(number)).encode()) for number in (1, 2, 3)]
    facts = await sources.read_node_facts([cluster.vcenter], nodes, NOW)
    assert facts["node-1"].matched_by == "providerID"
    assert {name: node.blocker for name, node in facts.items()} == {
        "node-1": Rejection.DEVICES_HIDDEN,
        "node-2": Rejection.DEVICES_UNREAD,
        "node-3": Rejection.VM_NOT_FOUND,
    }
    failure = facts["node-3"].match_failure
    assert failure is not None
    assert failure.reason is Rejection.VM_NOT_FOUND
