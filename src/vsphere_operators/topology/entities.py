"""The objects of vCenters and of the cluster as objects of the model. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubewright.builtin import Node, PersistentVolume

from ..kinds.gpuinfo.node import is_ready
from ..kinds.gpuinfo.rules import REJECTION_EXPLANATIONS, NodeFacts, Query
from ..kinds.gpuinfo.types import NONE_AVAILABLE, GPUInfo
from ..kinds.vmgroup.types import ReplicaStatus, VmGroup
from ..vcenters.node_matching import NodeMatch
from ..vcenters.volumes import format_claim
from ..vsphere.inventory import Inventory
from ..vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Disk,
    Host,
    VirtualMachine,
)
from ..vsphere.pressure import find_host_pressures
from ..vsphere.vcenter import VCenter
from . import model

_BYTES_PER_MB = 2**20
# What a person reads; a cluster may have 1,000 nodes that do not match.
_MAX_REJECTIONS = 50


def qualify(vcenter: str, ref: str) -> str:
    """The id of an object of a vCenter; "" without a reference."""
    return f"{vcenter}/{ref}" if ref else ""


def build_vcenter(vcenter: VCenter) -> model.VCenter:
    if vcenter.problem is not None:
        return model.VCenter(
            id=vcenter.name,
            name=vcenter.name,
            state="Unavailable",
            message=str(vcenter.problem),
            accurateUntil=vcenter.accurate_until if vcenter.loaded else None,
        )
    return model.VCenter(
        id=vcenter.name,
        name=vcenter.name,
        state="Ready" if vcenter.loaded else "Loading",
        message="",
    )


def build_datacenter(inventory: Inventory, datacenter: Datacenter) -> model.Datacenter:
    return model.Datacenter(
        id=qualify(inventory.name, datacenter.ref), name=datacenter.name, vcenter=inventory.name
    )


def build_cluster(inventory: Inventory, cluster: ComputeResource) -> model.Cluster:
    return model.Cluster(
        id=qualify(inventory.name, cluster.ref),
        name=cluster.name,
        datacenter=_datacenter_id(inventory, cluster.ref),
        drsEnabled=cluster.drs_enabled,
        haEnabled=cluster.ha_enabled,
    )


def _datacenter_id(inventory: Inventory, ref: str) -> str:
    datacenter = inventory.datacenter_of(ref)
    return qualify(inventory.name, datacenter.ref) if datacenter else ""


def build_host(inventory: Inventory, host: Host, *, is_entering: bool) -> model.Host:
    """`is_entering`: a task that enters maintenance mode runs."""
    compute = inventory.compute_resources.get(host.parent)
    total_mhz = (host.cpu_mhz or 0) * (host.cpu_cores or 0)
    memory_bytes = host.memory_bytes
    return model.Host(
        id=qualify(inventory.name, host.ref),
        name=host.name,
        datacenter=_datacenter_id(inventory, host.ref),
        cluster=qualify(inventory.name, compute.ref) if compute and compute.is_cluster else "",
        connection=host.connection,
        maintenance="in" if host.in_maintenance else "entering" if is_entering else "",
        cpuMHz=total_mhz or None,
        cpuUsageMHz=host.stats.cpu_usage_mhz,
        memoryMB=None if memory_bytes is None else memory_bytes // _BYTES_PER_MB,
        memoryUsageMB=host.stats.memory_usage_mb,
        pressure=tuple(
            model.Pressure(type=pressure.type.value, message=pressure.message)
            for pressure in find_host_pressures(
                host, inventory.vms_on(host.ref), is_entering_maintenance=is_entering
            )
        ),
    )


def build_vm(inventory: Inventory, vm: VirtualMachine, node: str, group: str) -> model.VM:
    stats = vm.stats
    return model.VM(
        id=qualify(inventory.name, vm.ref),
        name=vm.name,
        host=qualify(inventory.name, vm.host),
        power=vm.power,
        cpus=vm.cpus,
        memoryMB=vm.memory_mb,
        cpuUsageMHz=stats.cpu_usage_mhz,
        cpuDemandMHz=stats.cpu_demand_mhz,
        cpuReadinessPercent=stats.cpu_readiness_percent,
        guestMemoryMB=stats.guest_memory_mb,
        balloonedMemoryMB=stats.ballooned_memory_mb,
        swappedMemoryMB=stats.swapped_memory_mb,
        ipAddress=vm.ip_address,
        isTemplate=vm.is_template,
        datastores=tuple(qualify(inventory.name, ref) for ref in vm.datastores),
        node=node,
        vmGroup=group,
    )


def build_datastore(inventory: Inventory, datastore: Datastore) -> model.Datastore:
    return model.Datastore(
        id=qualify(inventory.name, datastore.ref),
        name=datastore.name,
        type=datastore.type,
        accessible=datastore.accessible,
        datacenter=_datacenter_id(inventory, datastore.ref),
        capacityBytes=datastore.capacity_bytes,
        freeBytes=datastore.free_bytes,
        uncommittedBytes=datastore.uncommitted_bytes,
        hosts=tuple(sorted(qualify(inventory.name, ref) for ref in datastore.hosts)),
    )


def build_disk(inventory: Inventory, disk: Disk, volume: PersistentVolume | None) -> model.Disk:
    vm = inventory.vm_of_disk(disk)
    return model.Disk(
        id=qualify(inventory.name, disk.id),
        name=disk.name,
        datastore=qualify(inventory.name, disk.datastore),
        sizeMB=disk.size_mb,
        vm=qualify(inventory.name, vm.ref) if vm else "",
        isAttached=bool(disk.attached_vm_uuids),
        persistentVolume=volume.metadata.name if volume else "",
        claim=format_claim(volume) or "",
    )


def build_node(
    node: Node, match: NodeMatch, facts: NodeFacts | None, pods: int | None
) -> model.Node:
    """`pods` is None while the Pods of the cluster are not read."""
    vm_id = ""
    if match.vcenter is not None and match.vm is not None:
        vm_id = qualify(match.vcenter.name, match.vm.ref)
    window = facts.next_window if facts is not None else None
    return model.Node(
        id=node.metadata.name,
        vm=vm_id,
        message=match.failure.message if match.failure else "",
        ready=is_ready(node),
        unschedulable=node.spec.unschedulable,
        pods=pods,
        maintenanceStart=window.start if window else None,
    )


def build_vm_group(group: VmGroup, vcenter: Inventory | None) -> model.VmGroup:
    """`vcenter` is the inventory that the references in the status belong to."""
    status, ready = group.status, group.status.condition("Ready")
    # A MoRef counts only in the vCenter that the status names.
    is_known = vcenter is not None and status.vcenterUUID in ("", vcenter.instance_uuid)
    return model.VmGroup(
        id=str(group.key),
        vcenter=status.vcenter,
        template=group.spec.template,
        replicas=group.spec.replicas,
        readyReplicas=status.readyReplicas,
        phase=status.phase,
        ready=ready is not None and ready.status == "True",
        message=ready.message if ready is not None else "",
        members=tuple(
            model.Member(
                vm=qualify(status.vcenter, replica.moRef) if is_known else "",
                name=replica.name,
                state=_member_state(replica, group.spec.powerState),
            )
            for replica in status.replicas
        ),
        tasks=tuple(
            model.Task(name="clone", vm=replica.name, percent=replica.progress)
            for replica in status.replicas
            if replica.state == "Cloning"
        ),
    )


def _member_state(replica: ReplicaStatus, desired_power: str) -> model.MemberState:
    if replica.leaving:
        return "Terminating"
    if replica.state != "Present":
        return replica.state
    return "Ready" if replica.power == desired_power else "NotReady"


def build_gpu_info(
    info: GPUInfo, facts_by_node: Mapping[str, NodeFacts], query: Query | None
) -> model.GPUInfo:
    """`query` is None if the spec is invalid."""
    status, ready = info.status, info.status.condition("Ready")
    selected = status.suitableNodeName or ""
    rejections = _find_rejections(facts_by_node, query) if query is not None else []
    return model.GPUInfo(
        id=str(info.key),
        ready=ready is not None and ready.status == "True" and selected not in ("", NONE_AVAILABLE),
        node="" if selected == NONE_AVAILABLE else selected,
        message=ready.message if ready is not None else "",
        candidates=tuple(
            model.Candidate(
                node=candidate.node,
                gpus=tuple(candidate.gpus or ()),
                availableHours=candidate.availableHours,
                cpuDemandMHz=candidate.cpuDemandMHz,
            )
            for candidate in status.candidates or ()
        ),
        rejections=tuple(rejections[:_MAX_REJECTIONS]),
        omittedRejections=max(0, len(rejections) - _MAX_REJECTIONS),
    )


def _find_rejections(
    facts_by_node: Mapping[str, NodeFacts], query: Query
) -> Sequence[model.Rejection]:
    return [
        model.Rejection(
            node=name, reason=rejection.value, message=REJECTION_EXPLANATIONS[rejection]
        )
        for name in sorted(facts_by_node)
        if (rejection := query.find_rejection(facts_by_node[name])) is not None
    ]
