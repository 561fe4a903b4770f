"""Rows from vCenter's inventory: everything in it, with or without an object in the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kubewright.builtin import Node

from ..vsphere.inventory import Inventory
from ..vsphere.model import Disk, Host, VirtualMachine
from .rows import DiskRow, HostRow, Rows, VmRow, match_nodes


def rows_from_inventory(inventory: Inventory, disks: Sequence[Disk], nodes: Sequence[Node]) -> Rows:
    """Everything except templates."""
    vms = [_vm_row(inventory, vm) for vm in inventory.vms.values() if not vm.is_template]
    matched, unmatched = match_nodes(vms, nodes)
    return Rows(
        hosts=[_host_row(inventory, host) for host in inventory.hosts.values()],
        vms=matched,
        disks=[_disk_row(inventory, disk) for disk in disks],
        unmatched=unmatched,
    )


def _host_row(inventory: Inventory, host: Host) -> HostRow:
    location = inventory.location(host.ref)
    return HostRow(
        name=host.name,
        state="maintenance" if host.in_maintenance else host.connection,
        # As HostInfo computes totalCPU.
        cpuTotalMHz=host.cpu_mhz * host.cpu_cores if host.cpu_mhz and host.cpu_cores else None,
        cpuUsedMHz=host.stats.cpu_usage_mhz,
        memoryTotalMB=host.memory_bytes // 2**20 if host.memory_bytes else None,
        memoryUsedMB=host.stats.memory_usage_mb,
        vms=len(inventory.vms_on(host.ref)),
        cluster=location.cluster,
        datacenter=location.datacenter,
        vcenter=inventory.name,
        model=host.model,
        version=host.version,
    )


def _vm_row(inventory: Inventory, vm: VirtualMachine) -> VmRow:
    # The path of a VM goes through folders; its cluster is that of its host.
    location = inventory.location(vm.host or vm.ref)
    return VmRow(
        name=vm.name,
        power=vm.power,
        cpus=vm.cpus,
        cpuDemandMHz=vm.stats.cpu_demand_mhz,
        memoryMB=vm.memory_mb,
        guestMemoryMB=vm.stats.guest_memory_mb,
        address=vm.ip_address,
        host=inventory.name_of(vm.host),
        cluster=location.cluster,
        datacenter=location.datacenter,
        vcenter=inventory.name,
        uuid=vm.bios_uuid.lower(),
    )


def _disk_row(inventory: Inventory, disk: Disk) -> DiskRow:
    # A consumer is an instance UUID or a BIOS UUID, depending on the client that attached it.
    consumers = set(disk.consumers)
    vms = (vm.name for vm in inventory.vms.values() if {vm.instance_uuid, vm.bios_uuid} & consumers)
    return DiskRow(
        name=disk.name,
        sizeMB=disk.size_mb,
        datastore=inventory.name_of(disk.datastore),
        attachedTo=next(vms, ""),
    )
