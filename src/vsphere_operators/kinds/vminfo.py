"""VMInfo: the configuration and state of one virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec.structs import replace

from kubewright import (
    Column,
    Controller,
    Doc,
    Done,
    Int64,
    ListType,
    Resource,
    Spec,
    Status,
    Terminal,
    kind,
)

from ..vcenters.registry import VCenterRegistry
from ..vsphere.lookup import MAX_NAME_LENGTH
from ..vsphere.model import Location, VirtualMachine

_TOOLS_NOT_RUNNING_STATES = ("", "guestToolsNotRunning")


class Reason(StrEnum):
    """Reasons of the Ready condition that only VMInfo has."""

    NODENAME_MISSING = "NodenameMissing"
    """spec.nodename is empty."""
    VM_DISCONNECTED = "VMDisconnected"
    """vCenter has lost the connection to the host of the VM."""
    VM_INACCESSIBLE = "VMInaccessible"
    """The host cannot read the files of the VM."""
    VM_INVALID = "VMInvalid"
    """The configuration file of the VM is corrupt."""
    VM_ORPHANED = "VMOrphaned"
    """The VM is in the inventory, but not registered on a host."""
    TEMPLATE = "Template"
    """The VM is a template and never runs."""
    POWERED_OFF = "PoweredOff"
    """The VM is powered off."""
    SUSPENDED = "Suspended"
    """The VM is suspended."""
    TOOLS_NOT_RUNNING = "ToolsNotRunning"
    """VMware Tools is not running, so the guest reports no addresses."""


# By connectionState: what it means, and what to do. vCenter has no current state of these VMs.
_UNAVAILABLE_STATES = {
    "disconnected": (
        Reason.VM_DISCONNECTED,
        "vCenter has lost the connection to its host. Reconnect the host in vCenter.",
    ),
    "inaccessible": (
        Reason.VM_INACCESSIBLE,
        "its host cannot read the files of the VM. Check the datastore.",
    ),
    "invalid": (
        Reason.VM_INVALID,
        "its configuration file is corrupt. Restore the .vmx file, or register the VM again.",
    ),
    "orphaned": (
        Reason.VM_ORPHANED,
        "it is not registered on a host. Register it again, or remove it from the inventory.",
    ),
}


class VMInfoSpec(Spec):
    """The VM to report."""

    nodename: Annotated[
        str,
        Doc(
            "Name of the virtual machine, as shown in vCenter. It need not be a Node.",
            max_length=MAX_NAME_LENGTH,
        ),
    ] = ""


class VMInfoStatus(Status):
    """The current state of the VM. Unknown values are absent, never 0."""

    guestId: Annotated[
        str | None,
        Doc("Guest operating system that VMware Tools reports, else the configured one."),
    ] = None
    totalCPU: Annotated[Int64 | None, Doc("Number of virtual CPUs.")] = None
    resvdCPU: Annotated[Int64 | None, Doc("Reserved CPU, in MHz; 0 means no reservation.")] = None
    totalMem: Annotated[Int64 | None, Doc("Memory, in MB.")] = None
    resvdMem: Annotated[Int64 | None, Doc("Reserved memory, in MB; 0 means no reservation.")] = None
    powerState: Annotated[str | None, Doc("poweredOn, poweredOff or suspended.")] = None
    hwVersion: Annotated[str | None, Doc("Version of the virtual hardware, such as vmx-19.")] = None
    ipAddress: Annotated[str | None, Doc("Primary IP address that VMware Tools reports.")] = None
    pathToVM: Annotated[
        str | None, Doc("Path of the VM's configuration file: [datastore] folder/name.vmx.")
    ] = None
    host: Annotated[str | None, Doc("ESXi host of the VM.")] = None
    connectionState: Annotated[
        str | None, Doc("connected, disconnected, inaccessible, invalid or orphaned.")
    ] = None
    toolsRunningStatus: Annotated[
        str | None, Doc("Whether VMware Tools runs: guestToolsRunning, guestToolsNotRunning...")
    ] = None
    toolsVersionStatus: Annotated[
        str | None,
        Doc("Whether VMware Tools is current: guestToolsCurrent, guestToolsUnmanaged..."),
    ] = None
    ipAddresses: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("All IP addresses, in the order that VMware Tools reports them."),
    ] = None
    datastores: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("Names of the datastores that hold the VM's files."),
    ] = None
    biosUUID: Annotated[
        str | None, Doc("BIOS UUID, which the guest and the providerID of a Node show.")
    ] = None
    instanceUUID: Annotated[
        str | None, Doc("Instance UUID, by which vCenter identifies the VM.")
    ] = None
    template: Annotated[bool | None, Doc("True if the VM is a template.")] = None
    cluster: Annotated[
        str | None, Doc("Cluster of the VM's host; absent for a standalone host.")
    ] = None
    datacenter: Annotated[str | None, Doc("Datacenter of the VM.")] = None
    inventoryPath: Annotated[str | None, Doc("Inventory path, such as /dc-1/vm/folder-1/vm-1.")] = (
        None
    )
    vcenter: Annotated[
        str | None, Doc("Name, in the manager's configuration, of the vCenter that has the VM.")
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="vminfoes",
    short=("vi",),
    columns=[
        Column("Nodename", ".spec.nodename"),
        Column("Power", ".status.powerState"),
        Column("CPUs", ".status.totalCPU"),
        Column("Memory-MB", ".status.totalMem"),
        Column("Address", ".status.ipAddress"),
        Column("Host", ".status.host", priority=1),
        Column("Guest", ".status.guestId", priority=1),
        Column("Tools", ".status.toolsRunningStatus", priority=1),
        Column("Cluster", ".status.cluster", priority=1),
    ],
)
class VMInfo(Resource[VMInfoSpec, VMInfoStatus]):
    """The configuration and state of one virtual machine."""


def vm_status_of(
    vm: VirtualMachine, location: Location, host: str, datastores: Sequence[str], vcenter: str
) -> VMInfoStatus:
    if vm.connection in _UNAVAILABLE_STATES:
        # For these VMs vCenter keeps reporting the last values that it received.
        vm = replace(
            vm, power="", ip_address="", ip_addresses=(), tools_running="", tools_version=""
        )
    return VMInfoStatus(
        guestId=vm.guest_id or vm.configured_guest_id or None,
        totalCPU=vm.cpus,
        resvdCPU=vm.cpu_reservation_mhz,
        totalMem=vm.memory_mb,
        resvdMem=vm.memory_reservation_mb,
        powerState=vm.power or None,
        hwVersion=vm.guest_hardware_version or vm.hardware_version or None,
        ipAddress=vm.ip_address or None,
        pathToVM=vm.vmx_path or None,
        host=host or None,
        connectionState=vm.connection or None,
        toolsRunningStatus=vm.tools_running or None,
        toolsVersionStatus=vm.tools_version or None,
        ipAddresses=list(vm.ip_addresses) or None,
        datastores=sorted(filter(None, datastores)) or None,
        biosUUID=vm.bios_uuid or None,
        instanceUUID=vm.instance_uuid or None,
        template=vm.is_template,
        cluster=location.cluster or None,
        datacenter=location.datacenter or None,
        inventoryPath=location.path or None,
        vcenter=vcenter,
    )


def ready_outcome(vm: VirtualMachine) -> Done:
    """Done with the reason of Ready=True; raises Terminal if vCenter does not know the state."""
    if vm.connection in _UNAVAILABLE_STATES:
        reason, explanation = _UNAVAILABLE_STATES[vm.connection]
        raise Terminal(
            reason,
            f'VM "{vm.name}" is {vm.connection}, so its state is unknown: {explanation}',
            keep_status=True,
        )
    if vm.is_template:
        return Done(Reason.TEMPLATE, f'"{vm.name}" is a template and never runs.')
    if vm.power == "poweredOff":
        return Done(Reason.POWERED_OFF, f'VM "{vm.name}" is powered off, so it has no address.')
    if vm.power == "suspended":
        return Done(Reason.SUSPENDED, f'VM "{vm.name}" is suspended, so it has no address.')
    if vm.tools_running in _TOOLS_NOT_RUNNING_STATES:
        return Done(
            Reason.TOOLS_NOT_RUNNING,
            f'VMware Tools is not running in VM "{vm.name}", so its addresses are unknown and '
            "guestId is the configured one. Install or start open-vm-tools in the guest.",
        )
    return Done()


class VMInfoController(Controller[VMInfo]):
    """Reads the inventory in memory; a change of a VM enqueues the VMInfos that name it."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self.vcenters = vcenters
        vcenters.watch_namespace_labels(self)
        self.watches(vcenters.vm_changes, index_by=lambda info: info.spec.nodename)

    async def reconcile(self, info: VMInfo) -> Done:
        if not info.spec.nodename:
            raise Terminal(
                Reason.NODENAME_MISSING,
                "spec.nodename is empty. "
                "Set it to the name of a virtual machine, as shown in vCenter.",
            )
        lookup = self.vcenters.lookup_for(info)
        vm, inventory = lookup.find_vm(info.spec.nodename), lookup.inventory
        datastores = [inventory.name_of(ref) for ref in vm.datastores]
        info.status = vm_status_of(
            vm,
            inventory.location(vm.ref),
            inventory.name_of(vm.host),
            datastores,
            lookup.vcenter_name,
        )
        return ready_outcome(vm)
