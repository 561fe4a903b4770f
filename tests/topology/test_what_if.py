from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from kubewright import ObjectMeta
from kubewright.builtin import Pod, PodSpec, PodStatus
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
    name: str, node: str, *, owner: str = "", phase: str = "Running", namespace: str = "default"
) -> Pod:
    reference = OwnerReference(
        apiVersion="apps/v1", kind="StatefulSet", name=owner, uid=f"uid-{owner}", controller=True
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels={"app": owner},
            ownerReferences=[reference] if owner else [],
        ),
        spec=PodSpec(nodeName=node),
        status=PodStatus(phase=phase),
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


def find(pods: list[Pod], *budgets: PodDisruptionBudget) -> WhatIf:
    vms = [
        msgspec.structs.replace(make_vm(1), host="vc/host-1", node="node-1"),
        msgspec.structs.replace(make_vm(2), host="vc/host-2", node="node-2"),
        msgspec.structs.replace(make_vm(3), host="vc/host-1", isTemplate=True),
    ]
    inventory = Inventory(vms=vms, disks=(), datastores={}, groups={})
    return find_affected(HOST, inventory, pods, budgets, NOW)


def test_only_replicas_are_marked() -> None:
    result = find(
        [
            make_pod("alone-0", "node-1", owner="alone"),
            make_pod("spread-0", "node-1", owner="spread"),
            make_pod("spread-1", "node-2", owner="spread"),
            make_pod("both-0", "node-1", owner="both"),
            make_pod("both-1", "node-1", owner="both"),
            make_pod("bare", "node-1"),
            make_pod("done-0", "node-1", owner="done", phase="Succeeded"),
            make_pod("again-0", "node-1", owner="again"),
            make_pod("again-1", "node-2", owner="again", phase="Failed"),
            make_pod("elsewhere", "node-2"),
        ]
    )
    assert [vm.id for vm in result.vms] == ["vc/vm-1"]
    assert result.nodes == ["node-1"]
    assert {pod.name: pod.isOnlyReplica for pod in result.pods} == {
        "alone-0": True,
        "again-0": True,
        "bare": True,
        "both-0": False,
        "both-1": False,
        "spread-0": False,
    }
    assert result.pods[0].controller == "StatefulSet again"


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
