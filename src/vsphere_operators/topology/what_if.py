"""What stops if a host goes: its VMs, their Nodes and Pods, budgets, volumes and groups.

Pure functions over the model, for the page and for `kubectl vsphere what-if`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from kubewright.builtin import Pod

from . import model
from .cluster_objects import PodDisruptionBudget, selector_of

_FINISHED_PHASES = ("Succeeded", "Failed")


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
    isOnlyReplica: bool


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
    """`problems` names the objects that could not be read, so that some rows may be missing."""

    host: NamedItem
    time: datetime
    vms: list[AffectedVM]
    nodes: list[str]
    pods: list[AffectedPod]
    podDisruptionBudgets: list[AffectedBudget]
    volumes: list[AffectedVolume]
    vmGroups: list[AffectedGroup]
    problems: list[str] = []


class Inventory(Struct, frozen=True, kw_only=True):
    """The objects of the model that the result follows from."""

    vms: Iterable[model.VM]
    disks: Iterable[model.Disk]
    datastores: Mapping[str, model.Datastore]
    groups: Mapping[str, model.VmGroup]


def find_affected(
    host: model.Host,
    inventory: Inventory,
    pods: Sequence[Pod],
    budgets: Iterable[PodDisruptionBudget],
    now: datetime,
    problems: Sequence[str] = (),
) -> WhatIf:
    vms = sorted(
        (vm for vm in inventory.vms if vm.host == host.id and not vm.isTemplate),
        key=lambda vm: (vm.name, vm.id),
    )
    vm_ids, nodes = {vm.id for vm in vms}, {vm.node for vm in vms if vm.node}
    running = [pod for pod in pods if pod.status.phase not in _FINISHED_PHASES]
    on_host = [pod for pod in running if pod.spec.nodeName in nodes]
    replicas = Counter(filter(None, map(_controller_uid, running)))
    group_sizes = Counter(vm.vmGroup for vm in vms if vm.vmGroup)
    return WhatIf(
        host=NamedItem(id=host.id, name=host.name),
        time=now,
        vms=[AffectedVM(id=vm.id, name=vm.name, node=vm.node) for vm in vms],
        nodes=sorted(nodes),
        pods=sorted(
            (_affected_pod(pod, replicas) for pod in on_host),
            key=lambda pod: (pod.namespace, pod.name),
        ),
        podDisruptionBudgets=_find_exceeded_budgets(budgets, on_host),
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
        problems=list(problems),
    )


def _name_of(datastores: Mapping[str, model.Datastore], item_id: str) -> str:
    datastore = datastores.get(item_id)
    return datastore.name if datastore else ""


def _controller_uid(pod: Pod) -> str:
    return next((owner.uid for owner in pod.metadata.ownerReferences if owner.controller), "")


def describe_controller(pod: Pod) -> str:
    return next(
        (
            f"{owner.kind} {owner.name}"
            for owner in pod.metadata.ownerReferences
            if owner.controller
        ),
        "",
    )


def _affected_pod(pod: Pod, replicas: Mapping[str, int]) -> AffectedPod:
    # A Pod without a controller is not started again anywhere, so that it is the only one.
    uid = _controller_uid(pod)
    return AffectedPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.nodeName,
        controller=describe_controller(pod),
        isOnlyReplica=not uid or replicas[uid] == 1,
    )


def _find_exceeded_budgets(
    budgets: Iterable[PodDisruptionBudget], on_host: Sequence[Pod]
) -> list[AffectedBudget]:
    """The budgets that have more Pods on the host than they allow to disrupt."""
    exceeded = []
    for budget in sorted(budgets, key=lambda budget: budget.key):
        selector, namespace = selector_of(budget), budget.metadata.namespace
        if selector is None:
            continue
        count = sum(
            pod.metadata.namespace == namespace and selector.matches(pod.metadata.labels)
            for pod in on_host
        )
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
