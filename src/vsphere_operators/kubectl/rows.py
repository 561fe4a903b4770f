"""Hosts, VMs and disks as the commands show them, from the objects that the manager wrote. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kubewright.builtin import Node

from ..kinds.fcdinfo import FCDInfo
from ..kinds.gpuinfo.matching import parse_provider_id
from ..kinds.gpuinfo.node import is_ready
from ..kinds.gpuinfo.types import Candidate, GPUInfo
from ..kinds.hostinfo import HostInfo
from ..kinds.vmgroup.types import VmGroup
from ..kinds.vminfo import VMInfo


class HostRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host. None is what nobody has told."""

    name: str
    state: str = ""
    cpuTotalMHz: int | None = None
    cpuUsedMHz: int | None = None
    memoryTotalMB: int | None = None
    memoryUsedMB: int | None = None
    vms: int | None = None
    cluster: str = ""
    datacenter: str = ""
    vcenter: str = ""
    model: str = ""
    version: str = ""


class VmRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A VM."""

    name: str
    power: str = ""
    cpus: int | None = None
    cpuDemandMHz: int | None = None
    memoryMB: int | None = None
    guestMemoryMB: int | None = None
    address: str = ""
    host: str = ""
    cluster: str = ""
    datacenter: str = ""
    vcenter: str = ""
    node: str = ""
    nodeReady: bool | None = None
    group: str = ""
    uuid: str = ""


class DiskRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A First Class Disk."""

    name: str
    sizeMB: int | None = None
    datastore: str = ""
    attachedTo: str = ""
    claim: str = ""


class ClusterObjects(Struct, frozen=True, kw_only=True):
    """What was read from the cluster."""

    hosts: Sequence[HostInfo] = ()
    vms: Sequence[VMInfo] = ()
    disks: Sequence[FCDInfo] = ()
    gpus: Sequence[GPUInfo] = ()
    groups: Sequence[VmGroup] = ()
    nodes: Sequence[Node] = ()


class Rows(Struct, frozen=True, kw_only=True):
    """All that is known, once for each host, VM and disk; and Nodes without a VM that anybody knows."""

    hosts: list[HostRow] = []
    vms: list[VmRow] = []
    disks: list[DiskRow] = []
    unmatched: list[str] = []


def rows_from_objects(objects: ClusterObjects) -> Rows:
    """What the objects tell together: each of them may know a part."""
    candidates = [each for gpu in objects.gpus for each in gpu.status.candidates or ()]
    vms = _merge_vm_rows(
        (
            *map(vm_row, objects.vms),
            *_replica_rows(objects.groups),
            *map(_candidate_row, candidates),
        )
    )
    hosts = {
        (each.vcenter, each.name): each for each in map(host_row, objects.hosts) if each is not None
    }
    known = [_with_location_of_host(row, hosts.get((row.vcenter, row.host))) for row in vms]
    matched, unmatched = match_nodes(known, objects.nodes)
    disks = {each.name: each for each in map(disk_row, objects.disks)}
    return Rows(
        hosts=list(hosts.values()), vms=matched, disks=list(disks.values()), unmatched=unmatched
    )


def host_row(info: HostInfo) -> HostRow | None:
    """From a HostInfo; None for one without an answer."""
    status = info.status
    if status.connectionState is None:
        return None
    return HostRow(
        name=info.spec.hostname,
        state="maintenance" if status.maintenanceMode else status.connectionState,
        cpuTotalMHz=status.totalCPU,
        cpuUsedMHz=_used_amount(status.totalCPU, status.freeCPU),
        memoryTotalMB=status.totalMemoryMB,
        memoryUsedMB=_used_amount(status.totalMemoryMB, status.freeMemoryMB),
        vms=status.vms,
        cluster=status.cluster or "",
        datacenter=status.datacenter or "",
        vcenter=status.vcenter or "",
        model=status.model or "",
        version=status.esxiVersion or "",
    )


def vm_row(info: VMInfo) -> VmRow:
    """From a VMInfo."""
    status = info.status
    return VmRow(
        name=info.spec.nodename,
        power=status.powerState or "",
        cpus=status.totalCPU,
        memoryMB=status.totalMem,
        address=status.ipAddress or "",
        host=status.host or "",
        cluster=status.cluster or "",
        datacenter=status.datacenter or "",
        vcenter=status.vcenter or "",
        uuid=(status.biosUUID or "").lower(),
    )


def _replica_rows(groups: Iterable[VmGroup]) -> Iterable[VmRow]:
    """The VMs of VmGroups that are there."""
    for group in groups:
        for each in group.status.replicas:
            if each.moRef:
                yield VmRow(
                    name=each.name,
                    power=each.power,
                    cpus=group.spec.cpu,
                    memoryMB=group.spec.memory * 1024,
                    address=each.ipAddress,
                    host=each.host,
                    vcenter=group.status.vcenter,
                    group=f"{group.metadata.namespace}/{group.metadata.name}",
                )


def _candidate_row(candidate: Candidate) -> VmRow:
    """From a node that a GPUInfo has looked at."""
    return VmRow(
        name=candidate.vm or candidate.node,
        power="poweredOn",
        host=candidate.host or "",
        vcenter=candidate.vcenter or "",
        node=candidate.node,
        cpuDemandMHz=candidate.cpuDemandMHz,
        guestMemoryMB=candidate.guestMemoryMB,
    )


def disk_row(info: FCDInfo) -> DiskRow:
    """From an FCDInfo."""
    status = info.status
    return DiskRow(
        name=info.spec.pvId,
        sizeMB=status.sizeMB,
        datastore=status.datastore or "",
        attachedTo=status.attachedTo or "",
        claim=status.claim or "",
    )


def _merge_vm_rows(rows: Iterable[VmRow]) -> list[VmRow]:
    """Each VM once, with all that is told of it. One name may be that of several VMs: in two vCenters, or in two datacenters of one."""
    found = dict[str, list[VmRow]]()
    for row in rows:
        same = found.setdefault(row.name, [])
        place = next((index for index, each in enumerate(same) if _can_be_same_vm(each, row)), None)
        if place is None:
            same.append(row)
        else:
            same[place] = _fill_missing_fields(same[place], row)
    return [row for same in found.values() for row in same]


def _can_be_same_vm(one: VmRow, other: VmRow) -> bool:
    """Whether nothing that both know tells two VMs of one name apart; where it runs may just have changed."""
    pairs = (
        (getattr(one, field), getattr(other, field))
        for field in ("vcenter", "datacenter", "uuid", "group")
    )
    return all(mine == theirs or not mine or not theirs for mine, theirs in pairs)


def _fill_missing_fields(first: VmRow, other: VmRow) -> VmRow:
    """What the first does not know, from the other."""
    missing: dict[str, Any] = {
        field: getattr(other, field)
        for field in VmRow.__struct_fields__
        if getattr(first, field) in ("", None) and getattr(other, field)
    }
    return replace(first, **missing)


def _with_location_of_host(row: VmRow, host: HostRow | None) -> VmRow:
    """With the cluster and datacenter of its host, where that one is known."""
    if host is None:
        return row
    return replace(
        row, cluster=row.cluster or host.cluster, datacenter=row.datacenter or host.datacenter
    )


def match_nodes(vms: Sequence[VmRow], nodes: Iterable[Node]) -> tuple[list[VmRow], list[str]]:
    """The VMs with the Nodes that run in them, by uuid, else by a name that only one has; and Nodes whose VM is not among them."""
    found, unmatched = list(vms), list[str]()
    by_uuid = {row.uuid: index for index, row in enumerate(vms) if row.uuid}
    by_node = {row.node: index for index, row in enumerate(vms) if row.node}
    names = Counter(row.name for row in vms)
    by_name = {row.name: index for index, row in enumerate(vms) if names[row.name] == 1}
    for node in nodes:
        name = node.metadata.name
        ways = (
            *(by_uuid.get(uuid) for uuid in parse_provider_id(node.spec.providerID)),
            by_node.get(name),
            by_name.get(name),
        )
        place = next((each for each in ways if each is not None), None)
        if place is None:
            unmatched.append(name)
        else:
            found[place] = replace(found[place], node=name, nodeReady=is_ready(node))
    return found, unmatched


def _used_amount(total: int | None, free: int | None) -> int | None:
    """What is used; None where either is not known."""
    return None if total is None or free is None else total - free
