from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from kubewright import ObjectMeta
from kubewright.builtin import Pod, PodSpec, PodStatus, StatusCondition
from kubewright.kind import OwnerReference
from vsphere_operators.topology import model
from vsphere_operators.topology.cluster_objects import PodDisruptionBudget
from vsphere_operators.topology.what_if import AffectedBudget, Inventory, WhatIf, find_affected

from .test_streams import make_vm

NOW = datetime(2026, 11, 18, tzinfo=UTC)
HOST = model.Host(
    id="vc/host-1",
    name="esxi-1",
    datacenter="",
    cluster="",
    connection="connected",
    maintenance="",
    pressure=(),
)


def make_pod(
    name: str,
    node: str,
    *,
    owner: str = "",
    owner_kind: str = "StatefulSet",
    phase: str = "Running",
    ready: bool = True,
    terminating: bool = False,
    namespace: str = "default",
) -> Pod:
    reference = OwnerReference(
        apiVersion="apps/v1", kind=owner_kind, name=owner, uid=f"uid-{owner}", controller=True
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels={"app": owner},
            ownerReferences=[reference] if owner else [],
            deletionTimestamp=NOW if terminating else None,
        ),
        spec=PodSpec(nodeName=node),
        status=PodStatus(
            phase=phase,
            conditions=[StatusCondition(type="Ready", status="True" if ready else "False")],
        ),
    )


def make_budget(selector: object, allowed: int, namespace: str = "default") -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": "budget", "namespace": namespace},
            "spec": {} if selector is None else {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


def make_inventory(
    vms: Iterable[model.VM] = (),
    nodes: Iterable[model.Node] = (),
    vcenters: Iterable[model.VCenter] = (),
    omitted_vms: int = 0,
) -> Inventory:
    return Inventory(
        vcenters=list(vcenters),
        vms={vm.id: vm for vm in vms},
        nodes={node.id: node for node in nodes},
        disks=(),
        datastores={},
        groups={},
        limits=model.Limits(vms=2, omittedVMs=omitted_vms),
    )


def place_vm(number: int, host: int, power: str = "poweredOn") -> model.VM:
    return replace(make_vm(number), host=f"vc/host-{host}", node=f"node-{number}", power=power)


def make_node(name: str, vm: str, message: str = "") -> model.Node:
    return model.Node(id=name, vm=vm, message=message, ready=True, unschedulable=False)


# Nodes 1 and 3 are on the host, 2 is elsewhere, and 4 and 5 do not run.
VMS = [
    place_vm(1, 1),
    place_vm(2, 2),
    place_vm(3, 1),
    place_vm(4, 1, "poweredOff"),
    place_vm(5, 2, "suspended"),
    replace(make_vm(6), host="vc/host-1", isTemplate=True),
]
NODES = [make_node(f"node-{number}", f"vc/vm-{number}") for number in range(1, 6)]
INVENTORY = make_inventory(VMS, [*NODES, make_node("node-9", "", "no VM has its name")])


def find(
    pods: list[Pod], *budgets: PodDisruptionBudget, inventory: Inventory = INVENTORY
) -> WhatIf:
    return find_affected(HOST, inventory, pods, budgets, NOW)


def find_replicas(*pods: Pod) -> dict[str, bool | None]:
    return {pod.name: pod.hasReadyReplicaElsewhere for pod in find(list(pods)).pods}


def test_replicas_on_the_same_host_do_not_help() -> None:
    assert find_replicas(
        make_pod("alone-0", "node-1", owner="alone"),
        make_pod("spread-0", "node-1", owner="spread"),
        make_pod("spread-1", "node-2", owner="spread"),
        make_pod("both-0", "node-1", owner="both"),
        make_pod("both-1", "node-3", owner="both"),
        make_pod("bare", "node-1"),
        make_pod("elsewhere", "node-2"),
    ) == {"alone-0": False, "spread-0": True, "both-0": False, "both-1": False, "bare": False}


@pytest.mark.parametrize(
    "other",
    [
        make_pod("web-1", "node-2", owner="web", ready=False),
        make_pod("web-1", "node-2", owner="web", terminating=True),
        make_pod("web-1", "node-2", owner="web", phase="Failed"),
        make_pod("web-1", "", owner="web", phase="Pending", ready=False),
        # Its VM is suspended, and the API server does not know it yet.
        make_pod("web-1", "node-5", owner="web"),
        # It may be on this host.
        make_pod("web-1", "node-9", owner="web"),
        make_pod("web-1", "node-2", owner="other"),
    ],
)
def test_replica_that_does_not_serve_does_not_count(other: Pod) -> None:
    assert find_replicas(make_pod("web-0", "node-1", owner="web"), other) == {"web-0": False}


def test_pods_bound_to_their_node_are_marked() -> None:
    result = find(
        [
            make_pod("proxy-1", "node-1", owner="proxy", owner_kind="DaemonSet"),
            make_pod("proxy-2", "node-2", owner="proxy", owner_kind="DaemonSet"),
            make_pod("etcd-node-1", "node-1", owner="node-1", owner_kind="Node"),
            make_pod("web-0", "node-1", owner="web", ready=False),
        ]
    )
    assert [
        (pod.name, pod.isBoundToNode, pod.ready, pod.hasReadyReplicaElsewhere)
        for pod in result.pods
    ] == [
        ("etcd-node-1", True, True, None),
        ("proxy-1", True, True, None),
        ("web-0", False, False, False),
    ]
    assert msgspec.to_builtins(result.pods[2]) == {
        "namespace": "default",
        "name": "web-0",
        "node": "node-1",
        "controller": "StatefulSet web",
        "ready": False,
        "hasReadyReplicaElsewhere": False,
    }


def test_vms_that_do_not_run_stop_nothing() -> None:
    result = find(
        [
            make_pod("web-0", "node-4", owner="web"),
            make_pod("done-0", "node-1", owner="done", phase="Succeeded", ready=False),
        ]
    )
    assert [vm.id for vm in result.vms] == ["vc/vm-1", "vc/vm-3"]
    assert (result.stoppedVMs, result.nodes, result.pods) == (1, ["node-1", "node-3"], [])


def test_complete_answer_has_no_problems() -> None:
    result = find([], inventory=make_inventory(VMS, NODES))
    assert result.problems == []
    assert "problems" not in msgspec.to_builtins(result)


def test_missing_facts_are_explained() -> None:
    vcenters = [
        model.VCenter(id="a", name="a", state="Ready", message=""),
        model.VCenter(id="b", name="b", state="Loading", message=""),
        model.VCenter(id="c", name="c", state="Unavailable", message="timed out."),
        model.VCenter(id="d", name="d", state="Unavailable", message="m", accurateUntil=NOW),
    ]
    nodes = [
        make_node("new", "vc/vm-1"),
        make_node("old", "vc/vm-1"),
        *(make_node(f"lost-{number}", "", "no VM has its name.") for number in range(7)),
    ]
    inventory = make_inventory(VMS, nodes, vcenters, omitted_vms=3)
    result = find([make_pod("web-0", "old")], inventory=inventory)
    assert result.problems == [
        'vCenter "b" is not loaded yet, so its hosts, VMs and disks are missing. Try again in a '
        "minute.",
        'vCenter "c" is unavailable: timed out. Its hosts, VMs and disks are missing. Run '
        "`manager doctor` to check the connection.",
        'vCenter "d" is unavailable: m. Its hosts, VMs and disks are those of '
        "2026-11-18T00:00:00Z. Run `manager doctor` to check the connection.",
        "7 Nodes have no known VM (lost-0, lost-1, lost-2, lost-3, lost-4 and 2 more), so it is "
        "unknown on which host their Pods run. These are not listed, and do not count as replicas "
        'elsewhere. Node "lost-0": no VM has its name.',
        "2 Nodes have the same VM vm-1: new, old. Delete the Nodes that no longer run in it.",
        "3 VMs are not shown, because the topology has at most 2. VMs of Nodes and VmGroups are "
        "always shown; look up others in vCenter.",
    ]
    # It is unknown which of the two Nodes is outdated.
    assert result.nodes == ["new", "old"]
    assert [pod.name for pod in result.pods] == ["web-0"]


def test_budget_counts_only_its_own_pods_on_the_host() -> None:
    pods = [
        make_pod("web-0", "node-1", owner="web"),
        make_pod("web-1", "node-1", owner="web"),
        make_pod("web-2", "node-2", owner="web"),
        make_pod("web-0", "node-1", owner="web", namespace="other"),
    ]
    labels = {"matchLabels": {"app": "web"}}
    expected = AffectedBudget(
        namespace="default", name="budget", disruptionsAllowed=1, podsOnHost=2
    )
    assert find(pods, make_budget(labels, 1)).podDisruptionBudgets == [expected]
    assert find(pods, make_budget(labels, 2)).podDisruptionBudgets == []
    assert find(pods, make_budget(labels, 0, namespace="empty")).podDisruptionBudgets == []


def test_budget_counts_only_ready_pods() -> None:
    """Kubernetes does not count others as healthy, so that their loss disrupts nothing."""
    pods = [
        make_pod("web-0", "node-1", owner="web"),
        make_pod("web-1", "node-1", owner="web", ready=False),
        make_pod("web-2", "node-3", owner="web", terminating=True),
        make_pod("web-3", "node-4", owner="web"),
    ]
    labels = {"matchLabels": {"app": "web"}}
    assert find(pods, make_budget(labels, 1)).podDisruptionBudgets == []
    assert find(pods, make_budget(labels, 0)).podDisruptionBudgets[0].podsOnHost == 1


def test_selectors_of_budgets_are_those_of_kubernetes() -> None:
    pods = [make_pod("web-0", "node-1", owner="web"), make_pod("db-0", "node-1", owner="db")]

    def count(selector: object) -> int:
        budgets = find(pods, make_budget(selector, 0)).podDisruptionBudgets
        return budgets[0].podsOnHost if budgets else 0

    def expression(operator: str, *values: str) -> dict[str, object]:
        term = {"key": "app", "operator": operator, "values": list(values)}
        return {"matchExpressions": [term]}

    assert count(None) == 0
    assert count({}) == 2
    assert count(expression("In", "web", "x")) == 1
    assert count(expression("NotIn", "web")) == 1
    assert count(expression("Exists")) == 2
    assert count(expression("DoesNotExist")) == 0
    # Of a later version of Kubernetes: nothing is guessed.
    assert count(expression("Matches", "w*")) == 0
