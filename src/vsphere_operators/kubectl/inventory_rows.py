"""Rows from vCenter's inventory: everything in it, with or without an object in the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kubewright.builtin import Node

from ..kinds import hostinfo
from ..kinds.hostinfo import HostInfo, HostInfoSpec
from ..vsphere.inventory import Inventory
from ..vsphere.model import Disk, Host, VirtualMachine
from .rows import DiskRow, HostRow, Rows, VmRow, host_row, match_nodes


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
    vms = hostinfo.count_vms(inventory.vms_on(host.ref))
    status = hostinfo.host_status_of(host, inventory.location(host.ref), vms, (), inventory.name)
    return host_row(HostInfo(spec=HostInfoSpec(hostname=host.name), status=status))


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
    vm = inventory.vm_of_disk(disk)
    return DiskRow(
        name=disk.name,
        sizeMB=disk.size_mb,
        datastore=inventory.name_of(disk.datastore),
        attachedTo=vm.name if vm else "",
    )
