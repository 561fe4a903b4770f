"""Hosts, VMs and disks as rows, from the objects that the manager wrote. Pure functions.

The fields of the rows are the keys of `-o json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kubewright.builtin import Node

from ..kinds.fcdinfo import FCDInfo
from ..kinds.gpuinfo.node import is_ready
from ..kinds.gpuinfo.types import Candidate, GPUInfo
from ..kinds.hostinfo import HostInfo, subtract
from ..kinds.vmgroup.types import VmGroup
from ..kinds.vminfo import VMInfo
from ..vcenters.node_matching import parse_provider_id


class HostRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host; None means unknown."""

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
    hosts: Sequence[HostInfo] = ()
    vms: Sequence[VMInfo] = ()
    disks: Sequence[FCDInfo] = ()
    gpus: Sequence[GPUInfo] = ()
    groups: Sequence[VmGroup] = ()
    nodes: Sequence[Node] = ()


class Rows(Struct, frozen=True, kw_only=True):
    """One row for each host, VM and disk, and the names of Nodes without a known VM."""

    hosts: list[HostRow] = []
    vms: list[VmRow] = []
    disks: list[DiskRow] = []
    unmatched: list[str] = []


def rows_from_objects(objects: ClusterObjects) -> Rows:
    """Merges all objects: each of them may have a part of a row."""
    candidates = [candidate for gpu in objects.gpus for candidate in gpu.status.candidates or ()]
    vms = _merge_vm_rows(
        (
            *map(_vm_row, objects.vms),
            *_replica_rows(objects.groups),
            *map(_candidate_row, candidates),
        )
    )
    hosts = {
        (row.vcenter, row.name): row
        for row in map(host_row, objects.hosts)
        # A HostInfo without a status has none.
        if row.state
    }
    for index, row in enumerate(vms):
        # The status of a VmGroup or a candidate has no cluster; that of its host has.
        if host := hosts.get((row.vcenter, row.host)):
            vms[index] = replace(
                row,
                cluster=row.cluster or host.cluster,
                datacenter=row.datacenter or host.datacenter,
            )
    matched, unmatched = match_nodes(vms, objects.nodes)
    disks = {row.name: row for row in map(_disk_row, objects.disks)}
    return Rows(
        hosts=list(hosts.values()), vms=matched, disks=list(disks.values()), unmatched=unmatched
    )


def host_row(info: HostInfo) -> HostRow:
    status = info.status
    return HostRow(
        name=info.spec.hostname,
        state="maintenance" if status.maintenanceMode else status.connectionState or "",
        cpuTotalMHz=status.totalCPU,
        cpuUsedMHz=subtract(status.totalCPU, status.freeCPU),
        memoryTotalMB=status.totalMemoryMB,
        memoryUsedMB=subtract(status.totalMemoryMB, status.freeMemoryMB),
        vms=status.vms,
        cluster=status.cluster or "",
        datacenter=status.datacenter or "",
        vcenter=status.vcenter or "",
        model=status.model or "",
        version=status.esxiVersion or "",
    )


def _vm_row(info: VMInfo) -> VmRow:
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
    for group in groups:
        for replica in group.status.replicas:
            # Before it has a moRef, a replica is a plan, not a VM.
            if replica.moRef:
                yield VmRow(
                    name=replica.name,
                    power=replica.power,
                    cpus=group.spec.cpu,
                    memoryMB=group.spec.memory * 1024,
                    address=replica.ipAddress,
                    host=replica.host,
                    vcenter=group.status.vcenter,
                    group=f"{group.metadata.namespace}/{group.metadata.name}",
                )


def _candidate_row(candidate: Candidate) -> VmRow:
    # A powered-off VM is never a candidate.
    return VmRow(
        name=candidate.vm or candidate.node,
        power="poweredOn",
        host=candidate.host or "",
        vcenter=candidate.vcenter or "",
        node=candidate.node,
        cpuDemandMHz=candidate.cpuDemandMHz,
        guestMemoryMB=candidate.guestMemoryMB,
    )


def _disk_row(info: FCDInfo) -> DiskRow:
    status = info.status
    return DiskRow(
        name=info.spec.pvId,
        sizeMB=status.sizeMB,
        datastore=status.datastore or "",
        attachedTo=status.attachedTo or "",
        claim=status.claim or "",
    )


def _merge_vm_rows(rows: Iterable[VmRow]) -> list[VmRow]:
    """One row for each VM, with the fields of all its rows.

    Several VMs may have one name: in two vCenters, or in two datacenters of one.
    """
    by_name: dict[str, list[VmRow]] = {}
    for row in rows:
        same_name_rows = by_name.setdefault(row.name, [])
        for index, other in enumerate(same_name_rows):
            if _can_be_same_vm(other, row):
                same_name_rows[index] = _fill_missing_fields(other, row)
                break
        else:
            same_name_rows.append(row)
    return [row for same_name_rows in by_name.values() for row in same_name_rows]


def _can_be_same_vm(one: VmRow, other: VmRow) -> bool:
    """Whether two rows of one name agree in every field that both have."""
    # The host is left out: a VM may have moved between the two reads.
    pairs = (
        (getattr(one, field), getattr(other, field))
        for field in ("vcenter", "datacenter", "uuid", "group")
    )
    return all(left == right or not left or not right for left, right in pairs)


def _fill_missing_fields(first: VmRow, other: VmRow) -> VmRow:
    missing: dict[str, Any] = {
        field: getattr(other, field)
        for field in VmRow.__struct_fields__
        if getattr(first, field) in ("", None) and getattr(other, field)
    }
    return replace(first, **missing)


def match_nodes(vms: Sequence[VmRow], nodes: Iterable[Node]) -> tuple[list[VmRow], list[str]]:
    """The VMs with the Nodes that run in them, and the names of Nodes without a VM here.

    A Node is matched by the UUID in its providerID, else by a name that only one VM has.
    """
    matched, unmatched = list(vms), list[str]()
    by_uuid = {row.uuid: index for index, row in enumerate(vms) if row.uuid}
    # A candidate of a GPUInfo has the name of its Node.
    by_node = {row.node: index for index, row in enumerate(vms) if row.node}
    names = Counter(row.name for row in vms)
    by_name = {row.name: index for index, row in enumerate(vms) if names[row.name] == 1}
    for node in nodes:
        name = node.metadata.name
        matches = (
            *(by_uuid.get(uuid) for uuid in parse_provider_id(node.spec.providerID)),
            by_node.get(name),
            by_name.get(name),
        )
        index = next((match for match in matches if match is not None), None)
        if index is None:
            unmatched.append(name)
        else:
            matched[index] = replace(matched[index], node=name, nodeReady=is_ready(node))
    return matched, unmatched
