"""The tables of `datastores`, `orphans`, `events` and `what-if`. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..console import Style
from ..topology import model
from ..topology.what_if import AffectedPod, WhatIf
from .rows import DiskRow, HostRow, Rows, VmRow
from .table import Cell, Columns, Table, build_table, format_number, render_field, render_table

_GIB = 2**30
_LOW_SPACE, _LITTLE_SPACE = 0.1, 0.2
_DATASTORE_STATES = {
    True: Cell("accessible", "good"),
    False: Cell("inaccessible", "bad"),
    None: Cell("-"),
}


class DatastoreRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A datastore, as `-o json` prints it. Unknown values are absent."""

    name: str
    type: str = ""
    accessible: bool | None = None
    capacityBytes: int | None = None
    freeBytes: int | None = None
    # What its disks could use if thin disks grow to their full size.
    provisionedBytes: int | None = None
    hosts: int
    vms: int
    volumes: int
    # Disks that no PersistentVolume of this cluster names: those that no VM uses, and the others.
    orphanedDisks: int
    foreignDisks: int
    vcenter: str
    id: str


class OrphanRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A First Class Disk that no PersistentVolume of this cluster names.

    It is orphaned if no VM uses it, and foreign otherwise, as in the metrics of datastores.
    """

    name: str
    state: Literal["orphaned", "foreign"]
    sizeMB: int | None = None
    datastore: str = ""
    vm: str = ""
    vcenter: str
    id: str


def rows_from_topology(topology: model.Topology) -> Rows:
    """The rows of `tree`: everything except templates."""
    names = {datacenter.id: datacenter.name for datacenter in topology.datacenters}
    names |= {cluster.id: cluster.name for cluster in topology.clusters}
    datastores = {datastore.id: datastore.name for datastore in topology.datastores}
    hosts = {host.id: host for host in topology.hosts}
    ready = {node.id: node.ready for node in topology.nodes}
    vms = [vm for vm in topology.vms if not vm.isTemplate]
    vm_names = {vm.id: vm.name for vm in vms}
    shown_nodes = {vm.id: vm.node for vm in vms}
    counts = Counter(vm.host for vm in topology.vms)
    return Rows(
        hosts=[
            HostRow(
                name=host.name,
                state="maintenance" if host.maintenance == "in" else host.connection,
                cpuTotalMHz=host.cpuMHz,
                cpuUsedMHz=host.cpuUsageMHz,
                memoryTotalMB=host.memoryMB,
                memoryUsedMB=host.memoryUsageMB,
                vms=counts[host.id],
                cluster=names.get(host.cluster, ""),
                datacenter=names.get(host.datacenter, ""),
                vcenter=_vcenter_of(host.id),
            )
            for host in topology.hosts
        ],
        vms=[
            VmRow(
                name=vm.name,
                power=vm.power,
                cpus=vm.cpus,
                cpuDemandMHz=vm.cpuDemandMHz,
                memoryMB=vm.memoryMB,
                guestMemoryMB=vm.guestMemoryMB,
                address=vm.ipAddress,
                host=host.name if host else "",
                cluster=names.get(host.cluster, "") if host else "",
                datacenter=names.get(host.datacenter, "") if host else "",
                vcenter=_vcenter_of(vm.id),
                node=vm.node,
                nodeReady=ready.get(vm.node),
                group=vm.vmGroup,
            )
            for vm in vms
            for host in [hosts.get(vm.host)]
        ],
        disks=[
            DiskRow(
                name=disk.name,
                sizeMB=disk.sizeMB,
                datastore=datastores.get(disk.datastore, ""),
                attachedTo=vm_names.get(disk.vm, ""),
                claim=disk.claim,
            )
            for disk in topology.disks
        ],
        # Of several Nodes with the same VM, the first is shown at the VM.
        unmatched=[node.id for node in topology.nodes if shown_nodes.get(node.vm) != node.id],
    )


def _vcenter_of(item_id: str) -> str:
    return item_id.rpartition("/")[0]


def list_datastores(topology: model.Topology) -> list[DatastoreRow]:
    """Those with the least free space first."""
    vms = Counter(datastore for vm in topology.vms for datastore in vm.datastores)
    volumes = Counter(disk.datastore for disk in topology.disks if disk.persistentVolume)
    unnamed = Counter(
        (disk.datastore, disk.isAttached) for disk in topology.disks if not disk.persistentVolume
    )
    rows = [
        DatastoreRow(
            name=item.name,
            type=item.type,
            accessible=item.accessible,
            capacityBytes=item.capacityBytes,
            freeBytes=item.freeBytes,
            provisionedBytes=None
            if item.capacityBytes is None or item.freeBytes is None or item.uncommittedBytes is None
            else item.capacityBytes - item.freeBytes + item.uncommittedBytes,
            hosts=len(item.hosts),
            vms=vms[item.id],
            volumes=volumes[item.id],
            orphanedDisks=unnamed[item.id, False],
            foreignDisks=unnamed[item.id, True],
            vcenter=_vcenter_of(item.id),
            id=item.id,
        )
        for item in topology.datastores
    ]
    return sorted(rows, key=lambda row: (_free_share(row) is None, _free_share(row) or 0, row.name))


def _free_share(row: DatastoreRow) -> float | None:
    if not row.capacityBytes or row.freeBytes is None:
        return None
    return row.freeBytes / row.capacityBytes


def datastore_table(rows: Sequence[DatastoreRow], *, wide: bool) -> Table:
    columns: Columns[DatastoreRow] = {
        "DATASTORE": lambda row: row.name,
        "TYPE": lambda row: row.type,
        "GIB": lambda row: _format_gib(row.capacityBytes),
        "FREE GIB": lambda row: _format_gib(row.freeBytes),
        "FREE": _free_cell,
        "PROVISIONED": _provisioned_cell,
        "VMS": lambda row: str(row.vms),
        "VOLUMES": lambda row: str(row.volumes),
        "ORPHANS": lambda row: str(row.orphanedDisks),
        "STATE": lambda row: _DATASTORE_STATES[row.accessible],
    }
    wide_columns: Columns[DatastoreRow] = {
        "FOREIGN": lambda row: str(row.foreignDisks),
        "HOSTS": lambda row: str(row.hosts),
        "VCENTER": lambda row: row.vcenter,
        "ID": lambda row: row.id,
    }
    return build_table(rows, {**columns, **wide_columns} if wide else columns)


def _format_gib(size: int | None) -> str:
    return "-" if size is None else f"{size / _GIB:.1f}"


def _free_cell(row: DatastoreRow) -> Cell:
    share = _free_share(row)
    if share is None:
        return Cell("-")
    style: Style = "bad" if share < _LOW_SPACE else "busy" if share < _LITTLE_SPACE else "good"
    return Cell(f"{share:.0%}", style)


def _provisioned_cell(row: DatastoreRow) -> Cell:
    if row.provisionedBytes is None or not row.capacityBytes:
        return Cell("-")
    share = row.provisionedBytes / row.capacityBytes
    return Cell(f"{share:.0%}", "busy" if share > 1 else "")


def list_orphans(topology: model.Topology) -> list[OrphanRow]:
    """Those that no VM uses first, the largest first."""
    datastores = {datastore.id: datastore.name for datastore in topology.datastores}
    vms = {vm.id: vm.name for vm in topology.vms}
    rows = [
        OrphanRow(
            name=disk.name,
            state="foreign" if disk.isAttached else "orphaned",
            sizeMB=disk.sizeMB,
            datastore=datastores.get(disk.datastore, ""),
            vm=vms.get(disk.vm, ""),
            vcenter=_vcenter_of(disk.id),
            id=disk.id,
        )
        for disk in topology.disks
        if not disk.persistentVolume
    ]
    return sorted(rows, key=lambda row: (row.state == "foreign", -(row.sizeMB or 0), row.name))


def orphan_table(rows: Sequence[OrphanRow], *, wide: bool) -> Table:
    columns: Columns[OrphanRow] = {
        "DISK": lambda row: row.name,
        "STATE": lambda row: row.state,
        "MB": lambda row: format_number(row.sizeMB),
        "DATASTORE": lambda row: row.datastore,
        "ATTACHED TO": lambda row: row.vm or "-",
    }
    wide_columns: Columns[OrphanRow] = {
        "VCENTER": lambda row: row.vcenter,
        "ID": lambda row: row.id,
    }
    return build_table(rows, {**columns, **wide_columns} if wide else columns)


def select_node_changes(
    changes: Sequence[model.Change], topology: model.Topology
) -> list[model.Change]:
    """The changes of Nodes, of their VMs, and of the hosts that these run on or ran on."""
    node_vms = [vm for vm in topology.vms if vm.node]
    ids = {vm.id for vm in node_vms} | {vm.host for vm in node_vms}
    moved_between = {
        word
        for change in changes
        if change.id in ids and change.type == "Moved"
        for word in change.message.replace(",", " ").split()
    }
    return [
        change
        for change in changes
        if change.kind == "Node"
        or change.id in ids
        or (change.kind == "Host" and change.name in moved_between)
    ]


def event_table(changes: Sequence[model.Change], *, wide: bool) -> Table:
    columns: Columns[model.Change] = {
        "TIME": lambda change: f"{change.time:%H:%M:%S}",
        "KIND": lambda change: change.kind,
        "NAME": lambda change: change.name,
        "EVENT": lambda change: change.type,
        "MESSAGE": lambda change: change.message,
    }
    first: Columns[model.Change] = {"TIME": lambda change: f"{change.time:%Y-%m-%dT%H:%M:%SZ}"}
    last: Columns[model.Change] = {"ID": lambda change: change.id}
    return build_table(changes, {**columns, **first, **last} if wide else columns)


def render_what_if(result: WhatIf, *, width: int, color: bool) -> Iterator[str]:
    """A summary, and a table for each type of object that is affected."""
    alone = sum(pod.hasReadyReplicaElsewhere is False for pod in result.pods)
    bound = sum(pod.isBoundToNode for pod in result.pods)
    stopped = f", and {result.stoppedVMs} that do not run" if result.stoppedVMs else ""
    yield render_field("Host", f"{result.host.name} ({result.host.id})", width=width)
    yield render_field("VMs", f"{len(result.vms)}{stopped}", width=width)
    yield render_field("Nodes", ", ".join(result.nodes) or "none", width=width)
    summary = f"{alone} without a ready replica elsewhere, {bound} bound to their Node"
    yield render_field("Pods", f"{len(result.pods)}, {summary}", width=width)
    for problem in result.problems:
        yield render_field("Warning", problem, width=width)
    tables: Mapping[str, Table] = {
        "Pods that stop": build_table(
            result.pods,
            {
                "NAMESPACE": lambda pod: pod.namespace,
                "POD": lambda pod: pod.name,
                "NODE": lambda pod: pod.node,
                "CONTROLLER": lambda pod: pod.controller or "-",
                "READY": lambda pod: "yes" if pod.ready else Cell("no", "busy"),
                "REPLICA ELSEWHERE": _replica_cell,
            },
        ),
        "PodDisruptionBudgets that are exceeded": build_table(
            result.podDisruptionBudgets,
            {
                "NAMESPACE": lambda budget: budget.namespace,
                "BUDGET": lambda budget: budget.name,
                "ALLOWED": lambda budget: str(budget.disruptionsAllowed),
                "ON HOST": lambda budget: Cell(str(budget.podsOnHost), "bad"),
            },
        ),
        "Volumes attached to VMs of the host": build_table(
            result.volumes,
            {
                "VOLUME": lambda volume: volume.persistentVolume,
                "CLAIM": lambda volume: volume.claim or "-",
                "DATASTORE": lambda volume: volume.datastore,
            },
        ),
        "VmGroups with replicas on the host": build_table(
            result.vmGroups,
            {
                "VMGROUP": lambda group: group.id,
                "ON HOST": lambda group: str(group.replicasOnHost),
                "REPLICAS": lambda group: str(group.replicas),
            },
        ),
        "Other VMs": build_table(
            [vm for vm in result.vms if not vm.node],
            {"VM": lambda vm: vm.name, "ID": lambda vm: vm.id},
        ),
    }
    for title, table in tables.items():
        if table.rows:
            yield from ("", f"{title}:", render_table(table, width=width, color=color))


def _replica_cell(pod: AffectedPod) -> Cell:
    if pod.isBoundToNode:
        return Cell("per node")
    return Cell("yes", "good") if pod.hasReadyReplicaElsewhere else Cell("none", "bad")
