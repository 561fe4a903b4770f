"""The collector of -inventory-metrics: writes the inventory in memory as text at each scrape.

When is an object without metrics?  When it left the inventory, at the next scrape. While its
    vCenter is unavailable, since the last known numbers are not facts. Above the limit, which
    `vsphere_inventory_metrics_omitted_objects` counts.
Which manager serves them?  Only the leader, so that sums are right with two replicas.
Why not gauges that each change updates?  quickStats of all objects change every 20 s, and a scrape
    reads them every 30 s: most updates would be for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from kubewright.exposition import format_header, format_labels

from ..vsphere.inventory import Inventory
from ..vsphere.model import ComputeResource, Entity, Host, VirtualMachine
from ..vsphere.pressure import find_hosts_entering_maintenance
from ..vsphere.vcenter import VCenter
from .inventory_gauges import (
    CLUSTER_GAUGES,
    CLUSTER_HOSTS,
    CLUSTER_INFO,
    CLUSTER_LABELS,
    DATASTORE_GAUGES,
    DATASTORE_INFO,
    DATASTORE_LABELS,
    DISK_GAUGES,
    HOST_ENTERING_MAINTENANCE,
    HOST_GAUGES,
    HOST_INFO,
    HOST_LABELS,
    HOST_VMS,
    OMITTED_LABELS,
    OMITTED_OBJECTS,
    VM_GAUGES,
    VM_INFO,
    VM_LABELS,
    DiskCount,
    Gauge,
    InfoGauge,
)

_EntityT = TypeVar("_EntityT", bound=Entity)


class VmRoles(Struct, frozen=True):
    """What the VMs of one vCenter are in this cluster, by their references."""

    nodes: Mapping[str, str] = {}
    # namespace/name
    vm_groups: Mapping[str, str] = {}


class InventoryMetricsOptions(Struct, frozen=True):
    all_vms: bool = False
    # For each vCenter and type of object.
    limit: int = 5000


class _Family:
    """The samples of one metric, collected from all vCenters: they must not be apart."""

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self._header = format_header(name, "gauge", help)
        self.lines: list[str] = []

    def render(self) -> str:
        return f"{self._header}{''.join(self.lines)}" if self.lines else ""


class InventoryMetrics:
    def __init__(
        self,
        vcenters: Iterable[VCenter],
        options: InventoryMetricsOptions,
        *,
        is_active: Callable[[], bool],
        read_vm_roles: Callable[[VCenter], VmRoles],
        read_volume_handles: Callable[[], Collection[str] | None],
    ) -> None:
        """`read_volume_handles` returns None while the PersistentVolumes are unknown."""
        self._vcenters, self._options, self._is_active = list(vcenters), options, is_active
        self._read_vm_roles, self._read_volume_handles = read_vm_roles, read_volume_handles

    def render(self) -> str:
        if not self._is_active():
            return ""
        scrape = _Scrape(self._options)
        volume_handles = self._read_volume_handles()
        for vcenter in self._vcenters:
            if vcenter.loaded and vcenter.problem is None:
                scrape.add_vcenter(vcenter, self._read_vm_roles(vcenter), volume_handles)
        return scrape.render()


class _Scrape:
    def __init__(self, options: InventoryMetricsOptions) -> None:
        self._options = options
        self._families: dict[str, _Family] = {}

    def render(self) -> str:
        return "".join(family.render() for family in self._families.values())

    def add_vcenter(
        self, vcenter: VCenter, roles: VmRoles, volume_handles: Collection[str] | None
    ) -> None:
        self._add_hosts(vcenter)
        self._add_vms(vcenter, roles)
        self._add_datastores(vcenter, volume_handles)
        self._add_clusters(vcenter)

    def _add_hosts(self, vcenter: VCenter) -> None:
        inventory = vcenter.inventory
        rows = self._select(vcenter, "HostSystem", HOST_LABELS, inventory.hosts.values())
        self._add_info(
            HOST_INFO, ((labels, _describe_host(inventory, host)) for labels, host in rows)
        )
        for gauge in HOST_GAUGES:
            self._add(gauge, rows)
        entering = find_hosts_entering_maintenance(inventory.tasks.values())
        self._add(
            HOST_ENTERING_MAINTENANCE, [(labels, host.ref in entering) for labels, host in rows]
        )
        counts = [
            (labels, sum(not vm.is_template for vm in inventory.vms_on(host.ref)))
            for labels, host in rows
        ]
        self._add(HOST_VMS, counts)

    def _add_vms(self, vcenter: VCenter, roles: VmRoles) -> None:
        inventory = vcenter.inventory
        rows = self._select(
            vcenter, "VirtualMachine", VM_LABELS, self._list_vms(inventory.vms, roles)
        )
        self._add_info(
            VM_INFO,
            (
                (
                    labels,
                    (
                        inventory.name_of(vm.host),
                        vm.host,
                        roles.nodes.get(vm.ref, ""),
                        roles.vm_groups.get(vm.ref, ""),
                    ),
                )
                for labels, vm in rows
            ),
        )
        for gauge in VM_GAUGES:
            self._add(gauge, rows)

    def _list_vms(
        self, vms: Mapping[str, VirtualMachine], roles: VmRoles
    ) -> Sequence[VirtualMachine]:
        """Nodes first, so that the limit leaves out others."""
        refs = dict.fromkeys((*sorted(roles.nodes), *sorted(roles.vm_groups)))
        selected = {ref: vms[ref] for ref in refs if ref in vms}
        if self._options.all_vms:
            others = (vm for ref, vm in vms.items() if not vm.is_template and ref not in selected)
            return [*selected.values(), *others]
        return list(selected.values())

    def _add_datastores(self, vcenter: VCenter, volume_handles: Collection[str] | None) -> None:
        inventory = vcenter.inventory
        rows = self._select(vcenter, "Datastore", DATASTORE_LABELS, inventory.datastores.values())
        self._add_info(
            DATASTORE_INFO,
            (
                (labels, (_datacenter_name(inventory, datastore.ref), datastore.type))
                for labels, datastore in rows
            ),
        )
        for gauge in DATASTORE_GAUGES:
            self._add(gauge, rows)
        counts = _count_disks(vcenter, volume_handles)
        count_rows = [
            (labels, counts[datastore.ref]) for labels, datastore in rows if datastore.ref in counts
        ]
        for disk_gauge in DISK_GAUGES:
            self._add(disk_gauge, count_rows)

    def _add_clusters(self, vcenter: VCenter) -> None:
        inventory = vcenter.inventory
        clusters = [item for item in inventory.compute_resources.values() if item.is_cluster]
        rows = self._select(vcenter, "ClusterComputeResource", CLUSTER_LABELS, clusters)
        self._add_info(
            CLUSTER_INFO,
            ((labels, (_datacenter_name(inventory, cluster.ref),)) for labels, cluster in rows),
        )
        for gauge in CLUSTER_GAUGES:
            self._add(gauge, rows)
        counts = [
            (labels, sum(isinstance(child, Host) for child in inventory.children(cluster.ref)))
            for labels, cluster in rows
        ]
        self._add(CLUSTER_HOSTS, counts)

    def _select(
        self,
        vcenter: VCenter,
        type_name: str,
        label_names: Sequence[str],
        entities: Collection[_EntityT],
    ) -> list[tuple[str, _EntityT]]:
        """The objects within the limit, each with its labels; the others are counted."""
        limit = self._options.limit
        omitted_labels = format_labels(OMITTED_LABELS, (vcenter.name, type_name))
        self._add(OMITTED_OBJECTS, [(omitted_labels, max(0, len(entities) - limit))])
        # The order of the inventory does not change while the manager runs, so neither do the
        # objects that the limit leaves out.
        return [
            (format_labels(label_names, (vcenter.name, entity.name, entity.ref)), entity)
            for entity in islice(entities, limit)
        ]

    def _add(self, gauge: Gauge[Any], rows: Iterable[tuple[str, Any]]) -> None:
        family = self._family(gauge.name, gauge.help)
        append, name, read = family.lines.append, gauge.name, gauge.read
        for labels, item in rows:
            value = read(item)
            if value is not None:
                append(f"{name}{{{labels}}} {value}\n")

    def _add_info(self, info: InfoGauge, rows: Iterable[tuple[str, Sequence[str]]]) -> None:
        family = self._family(info.name, info.help)
        family.lines += [
            f"{info.name}{{{labels},{format_labels(info.label_names, values)}}} 1\n"
            for labels, values in rows
        ]

    def _family(self, name: str, help: str) -> _Family:
        if name not in self._families:
            self._families[name] = _Family(name, help)
        return self._families[name]


def _describe_host(inventory: Inventory, host: Host) -> tuple[str, ...]:
    parent = inventory.compute_resources.get(host.parent)
    cluster = parent if parent is not None and parent.is_cluster else ComputeResource(ref="")
    return (
        cluster.name,
        cluster.ref,
        _datacenter_name(inventory, host.ref),
        host.vendor,
        host.model,
        host.version,
        host.build,
    )


def _datacenter_name(inventory: Inventory, ref: str) -> str:
    datacenter = inventory.datacenter_of(ref)
    return datacenter.name if datacenter else ""


def _count_disks(vcenter: VCenter, volume_handles: Collection[str] | None) -> dict[str, DiskCount]:
    """The disks on each datastore that can be read."""
    disks = vcenter.disks
    if not disks.loaded or disks.is_stale:
        return {}
    totals = {
        ref: 0
        for ref in vcenter.inventory.datastores
        if ref in disks.listed_datastores and ref not in disks.unreadable_datastores
    }
    attached, detached = dict(totals), dict(totals)
    for disk in disks.disks.values():
        if disk.datastore not in totals:
            continue
        totals[disk.datastore] += 1
        if volume_handles is not None and disk.id not in volume_handles:
            (attached if disk.attached_vm_uuids else detached)[disk.datastore] += 1
    if volume_handles is None:
        return {ref: DiskCount(total, None, None) for ref, total in totals.items()}
    return {ref: DiskCount(total, attached[ref], detached[ref]) for ref, total in totals.items()}
