"""Rows, tree, descriptions and explanations from objects: plain calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from kubewright import Condition, ObjectMeta
from kubewright.builtin import Event, Node, NodeSpec, NodeStatus, StatusCondition, Taint
from vsphere_operators.kinds.fcdinfo import FCDInfo, FCDInfoSpec, FCDInfoStatus
from vsphere_operators.kinds.gpuinfo.maintenance_windows import window_from_start
from vsphere_operators.kinds.gpuinfo.rules import (
    REJECTION_EXPLANATIONS,
    NodeFacts,
    Rejection,
    SelectionRules,
    VmUsage,
)
from vsphere_operators.kinds.gpuinfo.types import Candidate, GPUInfo, GPUInfoSpec, GPUInfoStatus
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec, HostInfoStatus
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus, VmGroup, VmGroupSpec, VmGroupStatus
from vsphere_operators.kinds.vminfo import VMInfo, VMInfoSpec, VMInfoStatus
from vsphere_operators.kubectl import top, tree
from vsphere_operators.kubectl.rows import ClusterObjects, HostRow, VmRow, rows_from_objects
from vsphere_operators.kubectl.table import render_table
from vsphere_operators.kubectl.vmgroup import render_group
from vsphere_operators.kubectl.why import (
    Explanation,
    explain_selection,
    render_explanation,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
UUID = "42030000-0000-4000-8000-000000000001"


def make_node(name: str, *, ready: bool = True, uuid: str = "", cordoned: bool = False) -> Node:
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(providerID=f"vsphere://{uuid}" if uuid else "", unschedulable=cordoned),
        status=NodeStatus(
            conditions=[StatusCondition(type="Ready", status="True" if ready else "False")]
        ),
    )


HOST = HostInfo(
    spec=HostInfoSpec(hostname="esxi-1"),
    status=HostInfoStatus(
        totalCPU=1000,
        freeCPU=100,
        totalMemoryMB=4096,
        freeMemoryMB=1024,
        connectionState="connected",
        cluster="C",
        datacenter="D",
    ),
)
HOST_WITHOUT_STATUS = HostInfo(spec=HostInfoSpec(hostname="esxi-9"), status=HostInfoStatus())
VM = VMInfo(
    spec=VMInfoSpec(nodename="vm-1"),
    status=VMInfoStatus(powerState="poweredOn", host="esxi-1", biosUUID=UUID.upper(), totalCPU=2),
)
DISK = FCDInfo(
    spec=FCDInfoSpec(pvId="pvc-1"),
    status=FCDInfoStatus(sizeMB=10, datastore="ds", attachedTo="vm-1"),
)
GPU = GPUInfo(
    metadata=ObjectMeta(name="gpu1", namespace="a"),
    spec=GPUInfoSpec(desAccTime=100, gpuRequired=True),
    status=GPUInfoStatus(
        suitableNodeName="vm-2",
        candidates=[
            Candidate(node="vm-2", vm="vm-2", host="esxi-1", cpuDemandMHz=300, availableHours=8760)
        ],
        refused={"Unschedulable": 1, "GPUMissing": 1},
        conditions=[
            Condition(type="Ready", status="True", reason="NodeChosen", message="the best of 1")
        ],
    ),
)
GROUP = VmGroup(
    metadata=ObjectMeta(name="vg-1", namespace="a"),
    spec=VmGroupSpec(cpu=1, memory=2, replicas=2, template="t"),
    status=VmGroupStatus(
        phase="PENDING",
        replicas=[
            ReplicaStatus(
                name="vg-1-replica-b", slot=1, instanceUUID="u", state="Cloning", progress=40
            ),
            ReplicaStatus(
                name="vg-1-replica-a",
                slot=0,
                instanceUUID="v",
                state="Present",
                moRef="vm-7",
                power="poweredOff",
                host="esxi-1",
            ),
        ],
    ),
)


def test_rows_of_one_vm_are_merged() -> None:
    rows = rows_from_objects(
        ClusterObjects(
            hosts=[HOST, HOST_WITHOUT_STATUS],
            vms=[VM],
            gpus=[GPU],
            groups=[GROUP],
            disks=[DISK],
            nodes=[make_node("n-1", uuid=UUID), make_node("n-9")],
        )
    )
    assert [row.name for row in rows.hosts] == ["esxi-1"]
    assert (rows.hosts[0].cpuUsedMHz, rows.hosts[0].memoryUsedMB) == (900, 3072)
    by_name = {row.name: row for row in rows.vms}
    assert set(by_name) == {"vm-1", "vm-2", "vg-1-replica-a"}
    assert (by_name["vm-1"].node, by_name["vm-1"].nodeReady, by_name["vm-1"].cluster) == (
        "n-1",
        True,
        "C",
    )
    assert by_name["vm-2"].cpuDemandMHz == 300
    assert (by_name["vg-1-replica-a"].group, by_name["vg-1-replica-a"].memoryMB) == ("a/vg-1", 2048)
    assert rows.unmatched == ["n-9"]


def make_vminfo(vcenter: str, uuid: str) -> VMInfo:
    status = VMInfoStatus(powerState="poweredOn", host="esxi-1", vcenter=vcenter, biosUUID=uuid)
    return VMInfo(spec=VMInfoSpec(nodename="twin"), status=status)


def test_two_vms_with_one_name_are_two_rows() -> None:
    other = UUID[:-1] + "2"
    hosts = [
        replace(HOST, status=replace(HOST.status, vcenter=name, cluster=f"C of {name}"))
        for name in ("east", "west")
    ]
    infos = [make_vminfo("east", UUID), make_vminfo("west", other), make_vminfo("west", other)]
    rows = rows_from_objects(
        ClusterObjects(
            hosts=hosts, vms=infos, nodes=[make_node("n-2", uuid=other), make_node("twin")]
        )
    )
    assert [(row.vcenter, row.cluster, row.node) for row in rows.vms] == [
        ("east", "C of east", ""),
        ("west", "C of west", "n-2"),
    ]
    assert [row.vcenter for row in rows.hosts] == ["east", "west"]
    assert rows.unmatched == ["twin"], "a name that two VMs have matches neither"


def test_tree_has_everything_once() -> None:
    rows = rows_from_objects(
        ClusterObjects(
            hosts=[HOST],
            vms=[VM],
            gpus=[GPU],
            disks=[DISK],
            nodes=[make_node("n-1", uuid=UUID), make_node("n-9")],
        )
    )
    assert list(tree.render_tree(tree.build_tree(rows))) == [
        "datacenter D",
        "└─ cluster C",
        "   └─ host esxi-1  (100 of 1000 MHz free)",
        "      ├─ VM vm-1  (node n-1 Ready)",
        "      │  └─ disk pvc-1  (10 MB, ds)",
        "      └─ VM vm-2  (node)",
        "nodes without a known VM",
        "└─ node n-9",
    ]
    assert all(len(line) <= 30 for line in tree.render_tree(tree.build_tree(rows), width=30))


def test_busiest_come_first_and_unknown_last() -> None:
    hosts = [
        HostRow(name="idle", cpuUsedMHz=1, cpuTotalMHz=100),
        HostRow(name="new"),
        HostRow(name="hot", cpuUsedMHz=95, cpuTotalMHz=100),
    ]
    shown = top.host_table(hosts, wide=False)
    assert [row[0].text for row in shown.rows] == ["hot", "idle", "new"]
    assert [(row[1].text, row[1].style) for row in shown.rows] == [
        ("95%", "bad"),
        ("1%", "good"),
        ("-", ""),
    ]
    vms = top.vm_table(
        [VmRow(name="a"), VmRow(name="b", cpuDemandMHz=0), VmRow(name="c", cpuDemandMHz=5)],
        wide=True,
    )
    assert [row[0].text for row in vms.rows] == ["c", "b", "a"]
    assert len(vms.columns) == len(vms.rows[0]) == 13


@pytest.mark.parametrize(
    "names",
    [
        ("e.rainpole", "f.rainpole", "g.rainpole"),
        ("e.east.rainpole", "e.west.rainpole", "f.rainpole"),
    ],
)
def test_hosts_stay_different_at_80_columns(names: tuple[str, ...]) -> None:
    rows = [
        HostRow(
            name=f"esxi-dell-{name}.com",
            cpuUsedMHz=1,
            cpuTotalMHz=4588,
            memoryUsedMB=100,
            memoryTotalMB=16384,
            vms=3,
        )
        for name in names
    ]
    placed = [replace(row, state="connected", cluster="/DC0/host/DC0_C0") for row in rows]
    head, *lines_shown = render_table(
        top.host_table(placed, wide=False, short_names=True), width=80
    ).splitlines()
    assert all(len(line) <= 80 for line in (head, *lines_shown))
    assert len({line.split()[0] for line in lines_shown}) == 3
    assert [cells[0].text for cells in top.host_table(rows, wide=False).rows] == sorted(
        row.name for row in rows
    )


def test_group_is_described_with_its_vms_in_order() -> None:
    text = "\n".join(render_group(GROUP, [], wide=False, width=0, color=False))
    assert "Phase:      PENDING" in text
    assert text.index("vg-1-replica-a") < text.index("vg-1-replica-b  Cloning 40 %")
    assert "esxi-1" in text
    assert "Replicas:   2 desired | 0 updated | ? total | 0 ready" in text


def test_messages_of_a_group_are_complete_at_80_columns() -> None:
    message = (
        "no template doesNotExist in /DC0 or any folder of it; "
        "create it there, or change spec.template to one that is there"
    )
    status = replace(
        GROUP.status,
        conditions=[
            Condition(type="Ready", status="False", reason="TemplateNotFound", message=message)
        ],
    )
    event = Event(
        metadata=ObjectMeta(name="e"), type="Warning", reason="TemplateNotFound", message=message
    )
    text = "\n".join(
        render_group(replace(GROUP, status=status), [event], wide=False, width=80, color=False)
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert all(text.count(word) >= 2 for word in message.split())


TOO_SOON = (
    "its next maintenance starts too soon: in 5 h (from Node annotation), but 100 h are requested"
)
NODES = [make_node("vm-2"), make_node("vm-3", cordoned=True), make_node("vm-4")]


def test_why_without_vcenter_names_unschedulable_nodes_and_counts_others() -> None:
    explanation = explain_selection(GPU, NODES, None, SelectionRules(), NOW)
    assert [(result.node, result.result) for result in explanation.nodes] == [
        ("vm-2", "chosen"),
        ("vm-3", "Unschedulable"),
    ]
    assert explanation.unnamed == {"GPUMissing": 1}
    text = "\n".join(render_explanation(explanation, width=0, color=False))
    assert "Requested:  a node with a GPU for 100 h" in text
    assert "1 more node rejected: GPUMissing (no GPU).\nRun with --vcenter to list them." in text


def test_explanations_are_complete_at_80_columns() -> None:
    soon = NodeFacts(
        name="vm-4",
        gpus=("vGPU",),
        usage=VmUsage(1),
        next_window=window_from_start(NOW + timedelta(hours=5), "Node annotation"),
    )
    facts = {"vm-2": NodeFacts(name="vm-2"), "vm-3": NodeFacts(name="vm-3"), "vm-4": soon}
    text = "\n".join(
        render_explanation(
            explain_selection(GPU, NODES, facts, SelectionRules(), NOW), width=80, color=False
        )
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert TOO_SOON in " ".join(text.split())


def make_tainted_node(*keys: str, cordoned: bool = False) -> Node:
    taints = [Taint(key=key, effect="NoSchedule") for key in keys]
    return replace(make_node("vm-3"), spec=NodeSpec(unschedulable=cordoned, taints=taints))


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (make_tainted_node(cordoned=True), "it is cordoned"),
        (make_tainted_node("node.kubernetes.io/unschedulable", cordoned=True), "it is cordoned"),
        (
            make_tainted_node(
                "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"
            ),
            "it is a control plane node",
        ),
        (
            make_tainted_node("node.kubernetes.io/disk-pressure"),
            "Kubernetes has tainted it node.kubernetes.io/disk-pressure:NoSchedule",
        ),
        (
            make_tainted_node("ToBeDeletedByClusterAutoscaler", "nvidia.com/gpu", cordoned=True),
            "it is cordoned, and the cluster autoscaler is about to remove it",
        ),
    ],
)
def test_why_explains_unschedulable_nodes(node: Node, why: str) -> None:
    rejected = {"vm-3": NodeFacts(name="vm-3", rejection_for_all=Rejection.UNSCHEDULABLE)}
    for facts in (None, rejected):
        (result,) = explain_selection(GPU, [node], facts, SelectionRules(), NOW).nodes
        assert (result.result, result.why) == ("Unschedulable", why)


def test_why_with_facts_names_every_node() -> None:
    soon = NodeFacts(
        name="vm-4",
        gpus=("vGPU",),
        usage=VmUsage(1),
        next_window=window_from_start(NOW + timedelta(hours=5), "Node annotation"),
    )
    facts = {"vm-2": NodeFacts(name="vm-2"), "vm-3": NodeFacts(name="vm-3"), "vm-4": soon}
    explanation = explain_selection(GPU, NODES, facts, SelectionRules(), NOW)
    assert [(result.node, result.result) for result in explanation.nodes] == [
        ("vm-2", "chosen"),
        ("vm-3", "GPUMissing"),
        ("vm-4", "TooLittleTime"),
    ]
    assert explanation.nodes[2].why == TOO_SOON
    assert explanation.unnamed == {}


def test_why_claims_no_difference_of_demand_that_is_within_the_margin() -> None:
    facts = {
        name: NodeFacts(name=name, gpus=("vGPU",), usage=VmUsage(5)) for name in ("vm-2", "vm-3")
    }
    explanation = explain_selection(GPU, NODES[:2], facts, SelectionRules(), NOW)
    assert [(result.node, result.result, result.why) for result in explanation.nodes] == [
        (
            "vm-2",
            "chosen",
            "no suitable node has less CPU demand by more than the margin (10% + 100 MHz)",
        ),
        ("vm-3", "suits", "suitable, but not better by the margin"),
    ]


def test_every_rejection_has_an_explanation_and_unknown_ones_are_tolerated() -> None:
    assert set(REJECTION_EXPLANATIONS) == set(Rejection)
    explanation = Explanation(
        requirement="a node", selected="", unnamed={"PoweredOff": 1, "OnFire": 2}
    )
    assert list(render_explanation(explanation, width=0, color=False))[-3:] == [
        "1 more node rejected: PoweredOff (its VM is not running).",
        "2 more nodes rejected: OnFire.",
        "Run with --vcenter to list them.",
    ]
