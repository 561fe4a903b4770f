"""What stops if a host goes: its VMs, their Nodes and Pods, budgets, volumes and groups.

Pure functions over the model, for the page and for `kubectl vsphere what-if`.

Which Pods are replicas elsewhere?  Those of the same controller that are ready, on a Node with a
    VM that is known to run on another host. A Node without a known VM may be on this host, so its
    Pods do not count.
What of Nodes that name the same VM?  All of them stop: it is unknown which one is outdated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime

from msgspec import Struct

from kubewright.builtin import Pod

from . import model
from .cluster_objects import PodDisruptionBudget, selector_of
from .missing_facts import describe_missing_facts
from .pods import (
    FINISHED_PHASES,
    describe_controller,
    find_controller,
    is_bound_to_node,
    is_serving,
)

# A VM with an unknown power state counts as running.
_STOPPED_STATES = ("poweredOff", "suspended")


class _Row(Struct, frozen=True, omit_defaults=True, kw_only=True): ...


class NamedItem(_Row, frozen=True, kw_only=True):
    id: str
    name: str


class AffectedVM(NamedItem, frozen=True, kw_only=True):
    node: str = ""


class AffectedPod(_Row, frozen=True, kw_only=True):
    namespace: str
    name: str
    node: str
    # Such as "StatefulSet web"; empty for a Pod without a controller.
    controller: str
    # Running, ready and not being deleted.
    ready: bool
    # Absent for a Pod that is bound to its Node.
    hasReadyReplicaElsewhere: bool | None = None
    isBoundToNode: bool = False


class AffectedBudget(_Row, frozen=True, kw_only=True):
    namespace: str
    name: str
    disruptionsAllowed: int
    podsOnHost: int


class AffectedVolume(_Row, frozen=True, kw_only=True):
    persistentVolume: str
    claim: str = ""
    disk: str
    datastore: str


class AffectedGroup(_Row, frozen=True, kw_only=True):
    id: str
    replicasOnHost: int
    replicas: int


class WhatIf(_Row, frozen=True, kw_only=True):
    """`problems` are sentences about what may be missing: why, and what to do."""

    host: NamedItem
    time: datetime
    vms: list[AffectedVM]
    # Powered off or suspended, so that nothing of them stops.
    stoppedVMs: int = 0
    nodes: list[str]
    pods: list[AffectedPod]
    podDisruptionBudgets: list[AffectedBudget]
    volumes: list[AffectedVolume]
    vmGroups: list[AffectedGroup]
    problems: list[str] = []


class Inventory(Struct, frozen=True, kw_only=True):
    """The objects of the model that the result follows from."""

    vcenters: Iterable[model.VCenter]
    vms: Mapping[str, model.VM]
    nodes: Mapping[str, model.Node]
    disks: Iterable[model.Disk]
    datastores: Mapping[str, model.Datastore]
    groups: Mapping[str, model.VmGroup]
    limits: model.Limits


def find_affected(
    host: model.Host,
    inventory: Inventory,
    pods: Sequence[Pod],
    budgets: Iterable[PodDisruptionBudget],
    now: datetime,
    problems: Sequence[str] = (),
) -> WhatIf:
    on_host = sorted(
        (vm for vm in inventory.vms.values() if vm.host == host.id and not vm.isTemplate),
        key=lambda vm: (vm.name, vm.id),
    )
    vms = [vm for vm in on_host if vm.power not in _STOPPED_STATES]
    vm_ids = {vm.id for vm in vms}
    nodes = {node.id for node in inventory.nodes.values() if node.vm in vm_ids}
    affected = [
        pod
        for pod in pods
        if pod.spec.nodeName in nodes and pod.status.phase not in FINISHED_PHASES
    ]
    served_elsewhere = _find_controllers_elsewhere(host, inventory, pods)
    group_sizes = Counter(vm.vmGroup for vm in vms if vm.vmGroup)
    return WhatIf(
        host=NamedItem(id=host.id, name=host.name),
        time=now,
        vms=[AffectedVM(id=vm.id, name=vm.name, node=vm.node) for vm in vms],
        stoppedVMs=len(on_host) - len(vms),
        nodes=sorted(nodes),
        pods=sorted(
            (_build_affected_pod(pod, served_elsewhere) for pod in affected),
            key=lambda pod: (pod.namespace, pod.name),
        ),
        podDisruptionBudgets=_find_exceeded_budgets(budgets, affected),
        volumes=[
            AffectedVolume(
                persistentVolume=disk.persistentVolume,
                claim=disk.claim,
                disk=disk.id,
                datastore=_name_of(inventory.datastores, disk.datastore),
            )
            for disk in sorted(inventory.disks, key=lambda disk: disk.persistentVolume)
            if disk.persistentVolume and disk.vm in vm_ids
        ],
        vmGroups=[
            AffectedGroup(
                id=group_id,
                replicasOnHost=count,
                replicas=inventory.groups[group_id].replicas,
            )
            for group_id, count in sorted(group_sizes.items())
            if group_id in inventory.groups
        ],
        problems=[
            *describe_missing_facts(
                inventory.vcenters, inventory.vms, inventory.nodes.values(), inventory.limits
            ),
            *problems,
        ],
    )


def _name_of(datastores: Mapping[str, model.Datastore], item_id: str) -> str:
    datastore = datastores.get(item_id)
    return datastore.name if datastore else ""


def _find_controllers_elsewhere(
    host: model.Host, inventory: Inventory, pods: Iterable[Pod]
) -> Set[str]:
    """The uids of the controllers that have a ready Pod on another host."""
    nodes_elsewhere = {
        node.id
        for node in inventory.nodes.values()
        if (vm := inventory.vms.get(node.vm)) is not None
        and vm.host not in ("", host.id)
        and vm.power not in _STOPPED_STATES
    }
    return {
        controller.uid
        for pod in pods
        if pod.spec.nodeName in nodes_elsewhere
        and is_serving(pod)
        and (controller := find_controller(pod)) is not None
    }


def _build_affected_pod(pod: Pod, served_elsewhere: Set[str]) -> AffectedPod:
    controller, is_bound = find_controller(pod), is_bound_to_node(pod)
    # A Pod without a controller is not started again anywhere.
    has_replica = controller is not None and controller.uid in served_elsewhere
    return AffectedPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.nodeName,
        controller=describe_controller(pod),
        ready=is_serving(pod),
        hasReadyReplicaElsewhere=None if is_bound else has_replica,
        isBoundToNode=is_bound,
    )


def _find_exceeded_budgets(
    budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]
) -> list[AffectedBudget]:
    """The budgets that have more ready ones of these Pods than they allow to disrupt."""
    exceeded = []
    # As in Kubernetes, a Pod that is not ready is disrupted already.
    pods_by_namespace = defaultdict[str, list[Pod]](list)
    for pod in filter(is_serving, pods):
        pods_by_namespace[pod.metadata.namespace].append(pod)
    for budget in sorted(budgets, key=lambda budget: budget.key):
        selector, namespace = selector_of(budget), budget.metadata.namespace
        if selector is None:
            continue
        count = sum(selector.matches(pod.metadata.labels) for pod in pods_by_namespace[namespace])
        if count > budget.status.disruptionsAllowed:
            exceeded.append(
                AffectedBudget(
                    namespace=namespace,
                    name=budget.metadata.name,
                    disruptionsAllowed=budget.status.disruptionsAllowed,
                    podsOnHost=count,
                )
            )
    return exceeded
