"""The same rows from vCenter itself: all that it has, whether an object asks for it or not."""

from __future__ import annotations

from collections.abc import Sequence

from kubewright.builtin import Node

from ..vsphere.inventory import Inventory
from ..vsphere.model import Disk, Host, VirtualMachine
from .rows import DiskRow, HostRow, Rows, VmRow, match_nodes


def rows_from_inventory(inventory: Inventory, disks: Sequence[Disk], nodes: Sequence[Node]) -> Rows:
    """Everything but templates."""
    vms = [vm_row(inventory, each) for each in inventory.vms.values() if not each.is_template]
    matched, unmatched = match_nodes(vms, nodes)
    hosts = [host_row(inventory, each) for each in inventory.hosts.values()]
    return Rows(
        hosts=hosts,
        vms=matched,
        disks=[disk_row(inventory, each) for each in disks],
        unmatched=unmatched,
    )


def host_row(inventory: Inventory, host: Host) -> HostRow:
    """One host."""
    place = inventory.location(host.ref)
    return HostRow(
        name=host.name,
        state="maintenance" if host.in_maintenance else host.connection,
        cpuTotalMHz=host.cpu_mhz * host.cpu_cores if host.cpu_mhz and host.cpu_cores else None,
        cpuUsedMHz=host.stats.cpu_usage_mhz,
        memoryTotalMB=host.memory_bytes // 2**20 if host.memory_bytes else None,
        memoryUsedMB=host.stats.memory_usage_mb,
        vms=len(inventory.vms_on(host.ref)),
        cluster=place.cluster,
        datacenter=place.datacenter,
        vcenter=inventory.name,
        model=host.model,
        version=host.version,
    )


def vm_row(inventory: Inventory, vm: VirtualMachine) -> VmRow:
    """One VM."""
    place = inventory.location(vm.host) if vm.host else inventory.location(vm.ref)
    return VmRow(
        name=vm.name,
        power=vm.power,
        cpus=vm.cpus,
        cpuDemandMHz=vm.stats.cpu_demand_mhz,
        memoryMB=vm.memory_mb,
        guestMemoryMB=vm.stats.guest_memory_mb,
        address=vm.ip_address,
        host=inventory.name_of(vm.host),
        cluster=place.cluster,
        datacenter=place.datacenter,
        vcenter=inventory.name,
        uuid=vm.bios_uuid.lower(),
    )


def disk_row(inventory: Inventory, disk: Disk) -> DiskRow:
    """One disk, with the VM that uses it."""
    users = [
        each.name
        for each in inventory.vms.values()
        if {each.instance_uuid, each.bios_uuid} & set(disk.consumers)
    ]
    return DiskRow(
        name=disk.name,
        sizeMB=disk.size_mb,
        datastore=inventory.name_of(disk.datastore),
        attachedTo=users[0] if users else "",
    )
