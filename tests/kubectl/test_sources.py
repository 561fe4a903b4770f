"""What --vcenter reads: the facts of Nodes, and rows of the inventory."""

from __future__ import annotations

import json

import pytest

from kubewright import Client
from kubewright.builtin import Node
from kubewright.testing.fake import FakeApi
from support.fake_environment import FAKE_CONNECTION
from support.fake_node_cluster import NOW, FakeNodeCluster, bios_uuid_of, node_manifest
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kubectl import sources
from vsphere_operators.kubectl.inventory_rows import rows_from_inventory
from vsphere_operators.kubectl.rows import DiskRow
from vsphere_operators.kubectl.sources import ClusterReader
from vsphere_operators.vcenters.node_matching import MatchFailureCause
from vsphere_operators.vsphere.model import Disk


async def test_node_facts_have_match_and_hidden_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_details(vcenter: object) -> None:
        """The devices are in memory already."""

    monkeypatch.setattr(sources, "_read_details", read_details)
    cluster = FakeNodeCluster()
    cluster.add_host(1)
    cluster.add_vm(1, 1, 500)
    cluster.vcenter.passthrough_devices.unreadable.add("vm-1")
    cluster.add_vm(2, 1, 500, devices=None)
    cluster.mark_loaded()
    nodes = [Node.decode(json.dumps(node_manifest(number)).encode()) for number in (1, 2, 3)]
    facts = await sources.read_node_facts([cluster.vcenter], nodes, NOW)
    assert facts["node-1"].matched_by == "providerID"
    assert {name: node.rejection_for_all for name, node in facts.items()} == {
        "node-1": Rejection.DEVICES_HIDDEN,
        "node-2": Rejection.DEVICES_UNREAD,
        "node-3": Rejection.VM_NOT_FOUND,
    }
    failure = facts["node-3"].match_failure
    assert failure is not None
    assert failure.reason is MatchFailureCause.VM_NOT_FOUND


def test_rows_of_an_inventory_have_no_stale_load_and_the_vm_of_a_disk() -> None:
    cluster = FakeNodeCluster()
    cluster.add_host(
        1,
        runtime__connectionState="disconnected",
        summary__hardware__cpuMhz=2000,
        summary__hardware__numCpuCores=8,
        summary__quickStats__overallCpuUsage=4000,
    )
    cluster.add_vm(1, 1, 500)
    disk = Disk(id="1", name="pvc-1", datastore="", attached_vm_uuids=(bios_uuid_of(1),))
    rows = rows_from_inventory(cluster.vcenter.inventory, [disk], [])
    assert rows.disks == [DiskRow(name="pvc-1", attachedTo="node-1")]
    # vCenter keeps reporting the last load of a disconnected host.
    (host,) = rows.hosts
    assert (host.name, host.state, host.vms) == ("esxi-1", "disconnected", 1)
    assert (host.cpuTotalMHz, host.cpuUsedMHz) == (16_000, None)


async def test_objects_that_cannot_be_decoded_do_not_hide_the_others() -> None:
    api, warnings = FakeApi(), list[str]()
    for name, target in (("good", "esxi-1"), ("long-1", "x" * 1000), ("long-2", "y" * 1000)):
        metadata = {"name": name, "namespace": "default"}
        api.create(
            HostInfo.definition.path("default"),
            {"metadata": metadata, "spec": {"hostname": target}},
        )
    reader = ClusterReader(FAKE_CONNECTION, "", warnings.append)
    reader.client = Client(api)
    assert [info.metadata.name for info in await reader.list_readable(HostInfo)] == ["good"]
    assert warnings == [
        "skipped: HostInfo default/long-1 and 1 more: cannot decode HostInfo: "
        "Expected `str` of length <= 255 - at `$.spec.hostname`"
    ]
    await reader.transport.close()
