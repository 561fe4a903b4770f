"""Single objects with their Events, the resources that report them, and the search for Pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubewright import Key
from kubewright.builtin import Event, Node, Pod
from kubewright.errors import Forbidden
from kubewright.testing import eventually
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes, bios_uuid_of
from support.topology_cluster import TopologyClient, run_topology
from vsphere_operators.kinds.clusterinfo import ClusterInfo
from vsphere_operators.kinds.datastoreinfo import DatastoreInfo
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vminfo import VMInfo
from vsphere_operators.vsphere.faults import WrongLogin
from vsphere_operators.vsphere.updates import Ref


@pytest.fixture
def cluster() -> FakeNodeCluster:
    cluster = FakeNodeCluster()
    cluster.enter("Datacenter", "datacenter-1", name="dc-1")
    parent = Ref("Datacenter", "datacenter-1")
    cluster.enter("ClusterComputeResource", "domain-c1", name="cluster-1", parent=parent)
    cluster.enter("Datastore", "datastore-1", name="a/b", summary__accessible=True, parent=parent)
    add_three_nodes(cluster)
    cluster.modify("HostSystem", "host-1", parent=Ref("ComputeResource", "domain-c1"))
    return cluster


@pytest.fixture
async def client(cluster: FakeNodeCluster) -> AsyncIterator[TopologyClient]:
    async with run_topology(cluster) as client:
        await client.wait_for("nodes", "node-3", vm="vc-1/vm-3", pods=0)
        yield client


def create_event(
    cluster: FakeNodeCluster, number: int, target: dict[str, str], **fields: Any
) -> None:
    namespace = target.get("namespace", "default")
    body = {
        "metadata": {"name": f"event-{target['uid'] or 'none'}-{number}", "namespace": namespace},
        "involvedObject": target,
        "type": "Normal",
        "reason": "Started",
        "message": f"message {number}",
        "lastTimestamp": f"2026-11-18T06:{number // 60:02d}:{number % 60:02d}Z",
        **fields,
    }
    cluster.api.create(Event.definition.path(namespace), body)


def create_pod(cluster: FakeNodeCluster, name: str, node: str = "", **fields: Any) -> None:
    body = {
        "metadata": {"name": name, **fields.pop("metadata", {})},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "image": "i", "env": [{"name": "PASSWORD", "value": "hunter2"}]}
            ],
        },
    }
    path = Pod.definition.path(fields.pop("namespace", "default"))
    created = cluster.api.create(path, body)
    status = {
        "phase": "Running",
        "conditions": [
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
    }
    cluster.api.update(f"{path}/{name}", {**created, "status": {**status, **fields}}, status=True)


async def test_objects_of_vsphere_name_the_resources_that_report_them(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.create(HostInfo, "host", hostname="esxi-1")
    cluster.create(HostInfo, "missing", hostname="esxi-9")
    cluster.create(VMInfo, "vm", nodename="node-2")
    # A name may contain a slash.
    cluster.create(DatastoreInfo, "by-path", datastore="/dc-1/a/b")
    cluster.create(DatastoreInfo, "by-name", datastore="a/b")
    cluster.create(ClusterInfo, "cluster", cluster="cluster-1")

    def reference(kind: str, plural: str, name: str) -> dict[str, str]:
        return {"kind": kind, "plural": plural, "namespace": "default", "name": name}

    host = [reference("HostInfo", "hostinfoes", "host")]
    await client.wait_for("hosts", "vc-1/host-1", infos=host)
    await client.wait_for("vms", "vc-1/vm-2", infos=[reference("VMInfo", "vminfoes", "vm")])
    await client.wait_for(
        "datastores",
        "vc-1/datastore-1",
        infos=[
            reference("DatastoreInfo", "datastoreinfoes", "by-name"),
            reference("DatastoreInfo", "datastoreinfoes", "by-path"),
        ],
    )
    await client.wait_for(
        "clusters",
        "vc-1/domain-c1",
        infos=[reference("ClusterInfo", "clusterinfoes", "cluster")],
    )
    assert "infos" not in (await client.find("hosts", "vc-1/host-2") or {})
    details = await client.get("/topology/objects/hostinfoes/default/host")
    assert details["conditions"][0]["type"] == "Ready"
    assert "isPartial" not in details
    # The HostInfo follows its host, and leaves it.
    await cluster.client.patch(HostInfo, Key("default", "host"), {"spec": {"hostname": "esxi-2"}})
    await client.wait_for("hosts", "vc-1/host-2", infos=host)
    await client.wait_for("hosts", "vc-1/host-1", infos=None)
    await cluster.client.delete(HostInfo, Key("default", "host"))
    await client.wait_for("hosts", "vc-1/host-2", infos=None)


async def test_list_of_resources_is_bounded(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    for number in range(12):
        cluster.create(HostInfo, f"host-{number:02d}", hostname="esxi-1")
    host = await client.wait_for("hosts", "vc-1/host-1", omittedInfos=2)
    assert [info["name"] for info in host["infos"]] == [f"host-{n:02d}" for n in range(10)]


async def test_events_are_those_of_the_object_and_not_of_its_name(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.create(HostInfo, "host", hostname="esxi-1")
    uid = (await cluster.get(HostInfo, "host")).metadata.uid
    target = {"kind": "HostInfo", "name": "host", "namespace": "default"}
    for number in range(60):
        create_event(cluster, number, {**target, "uid": uid})
    create_event(cluster, 100, {**target, "uid": "of-an-earlier-object"})
    create_event(cluster, 101, {**target, "uid": ""})

    async def read_all() -> dict[str, Any] | None:
        details = await client.get("/topology/objects/hostinfoes/default/host")
        return details if details.get("omittedEvents") == 11 else None

    details = await eventually(read_all)
    assert details is not None
    messages = [
        event["message"] for event in details["events"] if event["message"].startswith("message")
    ]
    assert messages[0] == "message 101"
    assert messages[1] == "message 59"
    assert "message 100" not in messages
    assert len(details["events"]) == 50


async def test_node_is_shown_without_its_annotations(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.add_node(7, annotations={"secret": "hunter2"})
    await client.wait_for("nodes", "node-7", vm=None)
    uid = (await cluster.client.get(Node, Key("", "node-7"))).metadata.uid
    # The kubelet does not know the uid, the controllers of Kubernetes do.
    for number, event_uid in enumerate(("node-7", uid, "of-an-earlier-node")):
        create_event(cluster, number, {"kind": "Node", "name": "node-7", "uid": event_uid})
    details = await client.get("/topology/objects/nodes/node-7")
    assert (details["kind"], details["namespace"], details["name"]) == ("Node", "", "node-7")
    assert details["isPartial"] is True
    assert f"vsphere://{bios_uuid_of(7)}" in details["yaml"]
    assert "hunter2" not in details["yaml"]
    assert [condition["type"] for condition in details["conditions"]] == ["Ready"]
    assert [event["message"] for event in details["events"]] == ["message 1", "message 0"]


async def test_pod_is_shown_without_environment_and_annotations(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    create_pod(cluster, "web-0", "node-1", metadata={"annotations": {"last": "hunter2"}})
    await client.wait_for("nodes", "node-1", pods=1)
    uid = (await cluster.client.get(Pod, Key("default", "web-0"))).metadata.uid
    target = {"kind": "Pod", "name": "web-0", "namespace": "default", "uid": uid}
    # As the scheduler writes them.
    create_event(cluster, 0, target, lastTimestamp=None)
    details = await client.get("/topology/objects/pods/default/web-0")
    assert details["isPartial"] is True
    assert "nodeName: node-1" in details["yaml"]
    assert "hunter2" not in details["yaml"]
    types = [condition["type"] for condition in details["conditions"]]
    assert types == ["Initialized", "Ready"]
    assert details["events"][0]["time"]
    cluster.api.fail_next("GET", "/pods", Forbidden("pods is forbidden"))
    details = await client.get("/topology/objects/pods/default/web-0")
    assert "pods is forbidden" in details["problems"][0]
    assert [condition["type"] for condition in details["conditions"]] == ["Ready"]


async def test_pods_are_found_by_namespace_and_name(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    for number in range(55):
        create_pod(cluster, f"a-web-{number:02d}", "node-1")
    create_pod(cluster, "web-0", "node-2", namespace="other")
    create_pod(cluster, "pending", phase="Pending")
    await client.wait_for("nodes", "node-1", pods=55)
    await client.wait_for("nodes", "node-2", pods=1)
    answer = await client.get("/topology/pods?search=WEB")
    # A name that begins with the text comes first.
    assert answer["pods"][0] == {
        "namespace": "other",
        "name": "web-0",
        "node": "node-2",
        "phase": "Running",
        "ready": True,
        "controller": "",
    }
    assert answer["pods"][1]["name"] == "a-web-00"
    assert (len(answer["pods"]), answer["omittedPods"], answer["problems"]) == (50, 6, [])
    answer = await client.get("/topology/pods?search=default/pend")
    assert [(pod["name"], pod["node"], pod["ready"]) for pod in answer["pods"]] == [
        ("pending", "", False)
    ]
    create_pod(cluster, "web", "node-2", namespace="z")
    create_pod(cluster, "web", "node-2", namespace="zz")
    await client.wait_for("nodes", "node-2", pods=3)
    for text, expected in {
        "web": ["z/web", "zz/web", "other/web-0", "default/a-web-00"],
        "z/web": ["z/web", "zz/web"],
        "r/web": ["other/web-0"],
    }.items():
        pods = (await client.get(f"/topology/pods?search={text}"))["pods"]
        names = [f"{pod['namespace']}/{pod['name']}" for pod in pods]
        assert names[: len(expected)] == expected
    assert (await client.get("/topology/pods?search=none"))["pods"] == []
    longest = f"{'n' * 63}/{'p' * 253}"
    assert (await client.get(f"/topology/pods?search={longest}"))["pods"] == []
    for query in ("", "?search=", "?search=%20", f"?search={'x' * 318}"):
        assert await client.status_of(f"/topology/pods{query}") == 400


async def test_nodes_with_the_same_vm_are_all_shown(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.add_node(9, providerID=f"vsphere://{bios_uuid_of(1)}")
    node = await client.wait_for("nodes", "node-9", vm="vc-1/vm-1")
    advice = "Delete the Nodes that no longer run in it."
    assert node["message"] == f"Node node-1 has the same VM. {advice}"
    await client.wait_for(
        "nodes", "node-1", vm="vc-1/vm-1", message=f"Node node-9 has the same VM. {advice}"
    )
    await client.wait_for("vms", "vc-1/vm-1", node="node-1")
    result = await client.get("/topology/what-if/hosts/vc-1/host-1")
    assert result["nodes"] == ["node-1", "node-9"]
    assert result["problems"] == [f"2 Nodes have the same VM node-1: node-1, node-9. {advice}"]
    await cluster.client.delete(Node, Key("", "node-1"))
    await client.wait_for("vms", "vc-1/vm-1", node="node-9")
    await client.wait_for("nodes", "node-9", vm="vc-1/vm-1", message=None)


async def test_unavailable_vcenter_is_explained(
    cluster: FakeNodeCluster, client: TopologyClient
) -> None:
    cluster.vcenter.on_failure(WrongLogin("the password was rejected"))
    cluster.add_node(8)
    node = await client.wait_for("nodes", "node-8", vm=None)
    assert node["message"] == (
        'vCenter "vc-1", which may have the VM of the Node, is unreachable or not loaded yet.'
    )
    await client.wait_for("vcenters", "vc-1", state="Unavailable")
    unavailable, unmatched = (await client.get("/topology/what-if/hosts/vc-1/host-1"))["problems"]
    assert unavailable.startswith(
        'vCenter "vc-1" is unavailable: the password was rejected. Its hosts, VMs and disks are '
        "those of 20"
    )
    assert unmatched.startswith("1 Node has no known VM (node-8), so it is unknown on which host")
    assert node["message"] in unmatched
    cluster.vcenter.on_response()
    await client.wait_for("vcenters", "vc-1", state="Ready")


async def test_watched_namespaces_are_named(cluster: FakeNodeCluster) -> None:
    async with run_topology(cluster, watch_namespaces=("team-a", "team-b")) as client:
        await client.wait_for("nodes", "node-3", vm="vc-1/vm-3", pods=0)
        for path in ("what-if/hosts/vc-1/host-1", "nodes/node-1/pods", "pods?search=x"):
            (problem,) = (await client.get(f"/topology/{path}"))["problems"]
            assert "of the namespaces team-a, team-b are known (-watch-namespaces)" in problem
