"""The model over HTTP, kept current from a fake vCenter and a fake API server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from kubewright import Key
from kubewright.builtin import PersistentVolume
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes, bios_uuid_of
from support.topology_cluster import TopologyClient, read_event, run_topology
from vsphere_operators.kinds.vmgroup import VmGroup
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.updates import Ref


@pytest.fixture
def cluster() -> FakeNodeCluster:
    cluster = FakeNodeCluster()
    cluster.enter("Datacenter", "datacenter-1", name="dc-1")
    cluster.enter(
        "ClusterComputeResource",
        "domain-c1",
        name="cluster-1",
        parent=Ref("Datacenter", "datacenter-1"),
    )
    cluster.enter("Datastore", "datastore-1", name="nfs-1", summary__accessible=True)
    add_three_nodes(cluster)
    cluster.modify("HostSystem", "host-1", parent=Ref("ComputeResource", "domain-c1"))
    return cluster


@pytest.fixture
async def client(cluster: FakeNodeCluster) -> AsyncIterator[TopologyClient]:
    async with run_topology(cluster) as client:
        await client.wait_for("nodes", "node-3", vm="vc-1/vm-3", pods=0)
        yield client


async def test_model_has_every_collection(client: TopologyClient) -> None:
    topology = await client.get("/topology")
    assert topology["kind"] == "Topology"
    assert topology["vcenters"] == [{"id": "vc-1", "name": "vc-1", "state": "Ready", "message": ""}]
    assert topology["clusters"] == [
        {"id": "vc-1/domain-c1", "name": "cluster-1", "datacenter": "vc-1/datacenter-1"}
    ]
    assert topology["manager"]["isLeader"] is True
    first, second = topology["hosts"]
    assert (first["cluster"], first["datacenter"]) == ("vc-1/domain-c1", "vc-1/datacenter-1")
    # vCenter did not report the size of these hosts: absent, not 0.
    assert "cpuMHz" not in second
    assert "memoryMB" not in second
    vm = topology["vms"][0]
    assert (vm["id"], vm["host"], vm["node"]) == ("vc-1/vm-1", "vc-1/host-1", "node-1")
    assert vm["guestMemoryMB"] == 1024
    assert [node["id"] for node in topology["nodes"]] == ["node-1", "node-2", "node-3"]
    assert topology["limits"] == {"vms": 20000, "omittedVMs": 0}


async def test_etag_is_the_revision(cluster: FakeNodeCluster, client: TopologyClient) -> None:
    async with client.request("/topology") as response:
        etag = response.headers["ETag"]
        assert etag == f'"{(await response.json())["revision"]}"'
    assert await client.status_of("/topology", If_None_Match=etag) == 304
    cluster.set_cpu_demand(1, 999)
    cluster.modify("VirtualMachine", "vm-1", summary__quickStats__guestMemoryUsage=2000)
    await client.wait_for("vms", "vc-1/vm-1", guestMemoryMB=2000)
    assert await client.status_of("/topology", If_None_Match=etag) == 200


async def test_events_have_only_what_changed(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    revision = (await client.get("/topology"))["revision"]
    async with client.request(f"/topology/events?since={revision}") as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        cluster.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        event, data = await read_event(response)
        assert event == "change"
        assert [(vm["id"], vm["host"]) for vm in data["changed"]["vms"]] == [
            ("vc-1/vm-1", "vc-1/host-2")
        ]
        assert "hosts" not in data["changed"]
        cluster.leave("VirtualMachine", "vm-1")
        event, data = await read_event(response)
        assert data["removed"] == {"vms": ["vc-1/vm-1"]}
        # The Node has lost its VM.
        assert [node["id"] for node in data["changed"]["nodes"]] == ["node-1"]
        assert "vm" not in data["changed"]["nodes"][0]
        assert data["revision"] == (await client.get("/topology"))["revision"]


@pytest.mark.parametrize("since", ["other-1", "x", "-5", "99999999999999999999"])
async def test_unknown_revision_gets_a_reset(client: TopologyClient, since: str) -> None:
    async with client.request(f"/topology/events?since={since}") as response:
        assert (await read_event(response))[0] == "reset"
        assert await response.content.read() == b""


async def test_node_follows_a_vm_that_is_created_later(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.add_node(9)
    node = await client.wait_for("nodes", "node-9", vm=None)
    assert "No vCenter has a VM" in node["message"]
    cluster.add_vm(9, 1, 100)
    await client.wait_for("nodes", "node-9", vm="vc-1/vm-9")
    await client.wait_for("vms", "vc-1/vm-9", node="node-9")


async def test_host_shows_maintenance_that_begins(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    await client.wait_for("hosts", "vc-1/host-1", maintenance="")
    cluster.enter(
        "Task",
        "task-1",
        info__descriptionId="HostSystem.enterMaintenanceMode",
        info__state="running",
        info__entity=Ref("HostSystem", "host-1"),
    )
    host = await client.wait_for("hosts", "vc-1/host-1", maintenance="entering")
    assert host["pressure"] == [
        {"type": "EnteringMaintenance", "message": 'Host "esxi-1" is entering maintenance mode.'}
    ]
    cluster.modify("Task", "task-1", info__state="success")
    cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
    await client.wait_for("hosts", "vc-1/host-1", maintenance="in")
    # The account lost the permission to read it.
    cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=None)
    await client.wait_for("hosts", "vc-1/host-1", maintenance="unknown")


async def test_disk_shows_its_volume_and_its_vm(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.set_disks(
        Disk(
            id="disk-1",
            name="pvc-1",
            datastore="datastore-1",
            size_mb=5,
            attached_vm_uuids=(bios_uuid_of(1),),
        )
    )
    disk = await client.wait_for("disks", "vc-1/disk-1", vm="vc-1/vm-1")
    assert "persistentVolume" not in disk
    cluster.api.create(
        PersistentVolume.definition.path(""),
        {
            "metadata": {"name": "pvc-1"},
            "spec": {
                "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": "disk-1"},
                "claimRef": {"namespace": "default", "name": "data-0"},
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
            },
        },
    )
    await client.wait_for("disks", "vc-1/disk-1", persistentVolume="pvc-1", claim="default/data-0")
    result = await client.get("/topology/what-if/hosts/vc-1/host-1")
    assert result["volumes"] == [
        {
            "persistentVolume": "pvc-1",
            "claim": "default/data-0",
            "disk": "vc-1/disk-1",
            "datastore": "nfs-1",
        }
    ]


async def test_datastore_shows_why_its_disks_are_unknown(
    cluster: FakeNodeCluster, client: TopologyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_problems() -> list[str]:
        result = await client.get("/topology/what-if/hosts/vc-1/host-1")
        problems: list[str] = result.get("problems", [])
        return problems

    assert await read_problems() == []
    # It was added after the last listing.
    cluster.enter("Datastore", "datastore-2", name="nfs-2", summary__accessible=True)
    await client.wait_for("datastores", "vc-1/datastore-2", disksMessage="They are being listed.")
    assert await read_problems() == [
        'The First Class Disks of 1 datastore in vCenter "vc-1" (nfs-2) are unknown, so volumes '
        "may be missing: They are being listed."
    ]
    cluster.set_disks()
    await client.wait_for("datastores", "vc-1/datastore-2", disksMessage=None)
    assert await read_problems() == []
    cluster.modify("Datastore", "datastore-2", summary__accessible=False)
    message = "The datastore is not accessible."
    await client.wait_for("datastores", "vc-1/datastore-2", disksMessage=message)
    cluster.modify("Datastore", "datastore-2", summary__accessible=True)

    async def fail(*_: object) -> NoReturn:
        raise Unreachable("no route")

    disks = cluster.vcenter.disks
    for catalog in (disks.global_catalog, disks.datastore_catalog):
        monkeypatch.setattr(catalog, "list_disks", fail)
    # Longer than the last known disks count as accurate.
    monkeypatch.setattr(disks, "clock", lambda: time.monotonic() + 3600)
    await disks.poll()
    for ref in ("datastore-1", "datastore-2"):
        await client.wait_for("datastores", f"vc-1/{ref}", disksMessage="no route")
    assert await read_problems() == [
        'The First Class Disks of 2 datastores in vCenter "vc-1" (nfs-1, nfs-2) are unknown, so '
        "volumes may be missing: no route"
    ]


async def test_vm_shows_its_group(cluster: FakeNodeCluster, client: TopologyClient) -> None:
    spec = {"cpu": 1, "memory": 1, "replicas": 2, "template": "t"}
    created = cluster.api.create(
        VmGroup.definition.path("default"), {"metadata": {"name": "web"}, "spec": spec}
    )
    replicas = [
        {
            "name": "web-0",
            "slot": 0,
            "instanceUUID": "u",
            "state": "Present",
            "moRef": "vm-2",
            "power": "poweredOn",
        },
        {"name": "web-1", "slot": 1, "instanceUUID": "v", "state": "Cloning", "progress": 40},
    ]
    status = {"phase": "PENDING", "vcenter": "vc-1", "replicas": replicas, "readyReplicas": 1}
    cluster.api.update(
        VmGroup.definition.path("default", "web"), {**created, "status": status}, status=True
    )
    group = await client.wait_for("vmGroups", "default/web", phase="PENDING")
    assert group["members"] == [
        {"vm": "vc-1/vm-2", "name": "web-0", "state": "Ready"},
        {"name": "web-1", "state": "Cloning"},
    ]
    assert group["tasks"] == [{"name": "clone", "vm": "web-1", "percent": 40}]
    await client.wait_for("vms", "vc-1/vm-2", vmGroup="default/web")
    result = await client.get("/topology/what-if/hosts/vc-1%2Fhost-2")
    assert result["vmGroups"] == [{"id": "default/web", "replicasOnHost": 1, "replicas": 2}]
    await cluster.client.delete(VmGroup, Key("default", "web"))
    await client.wait_for("vms", "vc-1/vm-2", vmGroup=None)
