"""VMInfo: what one virtual machine was given, where it runs, and what its VMware Tools report."""

from __future__ import annotations

from collections.abc import Sequence
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
from ..vsphere.inventory import Location
from ..vsphere.model import VirtualMachine

UNAVAILABLE_STATES = {
    "disconnected": "vCenter does not hear from the host that it is on; reconnect that host in vCenter",
    "inaccessible": "its host cannot read the VM's files; check the datastore that they are on",
    "invalid": "its configuration file is broken; restore the .vmx file, or register the VM anew",
    "orphaned": "no host has it registered any more; register it again, or remove it from the inventory",
}
"""What it means and what to do, by the connectionState of a VM of which nothing new is heard."""
_TOOLS_NOT_RUNNING_STATES = ("", "guestToolsNotRunning")


class VMInfoSpec(Spec):
    """Which VM."""

    nodename: Annotated[str, Doc("Name of the virtual machine, as vCenter shows it.")] = ""


class VMInfoStatus(Status):
    """The VM as vCenter knows it now. What is not known is absent, never 0."""

    guestId: Annotated[
        str | None,
        Doc("Guest operating system: as VMware Tools report it, else as the VM was configured."),
    ] = None
    totalCPU: Annotated[Int64 | None, Doc("Number of virtual CPUs.")] = None
    resvdCPU: Annotated[Int64 | None, Doc("Reserved CPU, in MHz; 0 is no reservation.")] = None
    totalMem: Annotated[Int64 | None, Doc("Memory, in MB.")] = None
    resvdMem: Annotated[Int64 | None, Doc("Reserved memory, in MB; 0 is no reservation.")] = None
    powerState: Annotated[str | None, Doc("poweredOn, poweredOff or suspended.")] = None
    hwVersion: Annotated[str | None, Doc("Version of the virtual hardware, such as vmx-19.")] = None
    ipAddress: Annotated[str | None, Doc("Primary address, as VMware Tools report it.")] = None
    pathToVM: Annotated[
        str | None, Doc("The VM's configuration file: [datastore] folder/name.vmx.")
    ] = None
    host: Annotated[str | None, Doc("The ESXi host that it is on.")] = None
    connectionState: Annotated[str | None, Doc("connected, or why nothing new is heard of it.")] = (
        None
    )
    toolsRunningStatus: Annotated[
        str | None, Doc("Whether VMware Tools run: guestToolsRunning, guestToolsNotRunning...")
    ] = None
    toolsVersionStatus: Annotated[
        str | None,
        Doc("Whether VMware Tools are current: guestToolsCurrent, guestToolsUnmanaged..."),
    ] = None
    ipAddresses: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("All addresses, in the order that VMware Tools report them."),
    ] = None
    datastores: Annotated[
        list[str] | None, ListType("atomic"), Doc("Names of the datastores that hold its files.")
    ] = None
    biosUUID: Annotated[
        str | None, Doc("BIOS uuid, which the guest and a Node's providerID show.")
    ] = None
    instanceUUID: Annotated[str | None, Doc("The uuid by which vCenter tells VMs apart.")] = None
    template: Annotated[bool | None, Doc("True of a template, which never runs.")] = None
    cluster: Annotated[
        str | None, Doc("The cluster that its host is in; absent on a standalone host.")
    ] = None
    datacenter: Annotated[str | None, Doc("The datacenter it is in.")] = None
    inventoryPath: Annotated[
        str | None, Doc("Where it is in the inventory, such as /dc-1/vm/folder-1/vm-1.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("The vCenter that answered, by its name in the manager's configuration.")
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="vminfoes",
    short=("vi",),
    columns=[
        Column("Nodename", ".spec.nodename"),
        Column("Power", ".status.powerState", priority=1),
        Column("Address", ".status.ipAddress", priority=1),
        Column("CPU", ".status.totalCPU", priority=1),
        Column("Memory", ".status.totalMem", priority=1),
        Column("Host", ".status.host", priority=1),
        Column("Guest", ".status.guestId", priority=1),
        Column("Tools", ".status.toolsRunningStatus", priority=1),
        Column("Cluster", ".status.cluster", priority=1),
    ],
)
class VMInfo(Resource[VMInfoSpec, VMInfoStatus]):
    """The configuration and state of one virtual machine."""


def status_of(
    vm: VirtualMachine, place: Location, host: str, datastores: Sequence[str], vcenter: str
) -> VMInfoStatus:
    """All of the answer."""
    now = _without_stale_state(vm)
    return VMInfoStatus(
        guestId=now.guest_id or now.configured_guest_id or None,
        totalCPU=now.cpus,
        resvdCPU=now.cpu_reservation_mhz,
        totalMem=now.memory_mb,
        resvdMem=now.memory_reservation_mb,
        powerState=now.power or None,
        hwVersion=now.guest_hardware_version or now.hardware_version or None,
        ipAddress=now.ip_address or None,
        pathToVM=now.vmx_path or None,
        host=host or None,
        connectionState=now.connection or None,
        toolsRunningStatus=now.tools_running or None,
        toolsVersionStatus=now.tools_version or None,
        ipAddresses=list(now.ip_addresses) or None,
        datastores=sorted(filter(None, datastores)) or None,
        biosUUID=now.bios_uuid or None,
        instanceUUID=now.instance_uuid or None,
        template=now.is_template,
        cluster=place.cluster or None,
        datacenter=place.datacenter or None,
        inventoryPath=place.path or None,
        vcenter=vcenter,
    )


def _without_stale_state(vm: VirtualMachine) -> VirtualMachine:
    """The VM without what vCenter can only remember of one that it does not hear from."""
    if vm.connection not in UNAVAILABLE_STATES:
        return vm
    return replace(vm, power="", ip_address="", ip_addresses=(), tools_running="", tools_version="")


def ready_reason(vm: VirtualMachine) -> Done:
    """What to say with the answer; raises for a VM whose state cannot be known."""
    if why := UNAVAILABLE_STATES.get(vm.connection):
        raise Terminal(
            f"VM{vm.connection.capitalize()}",
            f'VM "{vm.name}" is {vm.connection}, so its state is not known: {why}',
            keep_status=True,
        )
    if vm.is_template:
        return Done("Template", f'"{vm.name}" is a template and never runs')
    if vm.power == "poweredOff":
        return Done("PoweredOff", f'VM "{vm.name}" is powered off, so it has no address')
    if vm.power == "suspended":
        return Done("Suspended", f'VM "{vm.name}" is suspended, so it has no address')
    if vm.tools_running in _TOOLS_NOT_RUNNING_STATES:
        return Done(
            "ToolsNotRunning",
            f'VMware Tools do not run in VM "{vm.name}", so its addresses are not known, and guestId is what the VM was made for; '
            "install or start open-vm-tools in the guest",
        )
    return Done()


class VMInfoController(Controller[VMInfo]):
    """Answers from the inventory in memory; a change of the VM in vCenter wakes the resources that name it."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self.vcenters = vcenters
        vcenters.watch_namespaces(self)
        self.wake_on(vcenters.vm_changes, by=lambda info: info.spec.nodename)

    async def reconcile(self, info: VMInfo) -> Done:
        """Find the VM by its name and tell what is known of it."""
        if not info.spec.nodename:
            raise Terminal(
                "NodenameMissing",
                "spec.nodename is empty; set it to the name of a virtual machine, as vCenter shows it",
            )
        served = self.vcenters.get_view(info)
        vm = served.find_vm(info.spec.nodename)
        datastores = [served.name_of(ref) for ref in vm.datastores]
        info.status = status_of(
            vm, served.location(vm.ref), served.name_of(vm.host), datastores, served.name
        )
        return ready_reason(vm)
