"""The objects of vCenter's inventory as frozen values, with units in the field names.

A number or flag that vCenter did not report (quickStats of a disconnected host) is None, never 0 or
False.
References (`ref`, `parent`, `host`) are MoRefs such as `host-12`, unique within one vCenter.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

ConnectionState = Literal["connected", "disconnected", "notResponding", ""]
PowerState = Literal["poweredOn", "poweredOff", "suspended", "standBy", "unknown", ""]
TaskState = Literal["queued", "running", "success", "error"]
FINAL_TASK_STATES: tuple[TaskState, ...] = ("success", "error")


class Entity(Struct, frozen=True, kw_only=True, gc=False):
    """An object in the inventory tree.

    No value here can be part of a reference cycle, so the garbage collector need not visit them:
    45,000 VMs took it 0.1 s each time.
    """

    ref: str
    name: str = ""
    # Of a VM: its folder, "" inside a vApp. Of the root folder: "".
    parent: str = ""


class Folder(Entity, frozen=True, kw_only=True, gc=False):
    """A folder of any type, including the root folder and datastore clusters (StoragePod)."""


class Datacenter(Entity, frozen=True, kw_only=True, gc=False):
    """In vSphere names are unique only below one parent, so two datacenters may share a name."""


class ComputeResource(Entity, frozen=True, kw_only=True, gc=False):
    """A cluster, or the ComputeResource of one standalone host."""

    is_cluster: bool = False
    # Of a cluster; None if vCenter does not report it.
    drs_enabled: bool | None = None
    # manual, partiallyAutomated or fullyAutomated.
    drs_automation: str = ""
    ha_enabled: bool | None = None
    # Whether vSphere HA reserves capacity for the failure of hosts.
    ha_admission_control: bool | None = None


class ResourcePool(Entity, frozen=True, kw_only=True, gc=False):
    """A resource pool, a cluster's invisible root pool, or a vApp."""

    owner: str = ""


class Datastore(Entity, frozen=True, kw_only=True, gc=False):
    url: str = ""
    accessible: bool | None = None
    # VMFS, NFS, NFS41, vsan, VVOL...
    type: str = ""
    capacity_bytes: int | None = None
    free_bytes: int | None = None
    # What thin disks could still grow by; None if vCenter does not report it.
    uncommitted_bytes: int | None = None
    # normal, enteringMaintenance or inMaintenance.
    maintenance_mode: str = ""
    # References of the hosts that mount it.
    hosts: tuple[str, ...] = ()


class HostStats(Struct, frozen=True, kw_only=True, gc=False):
    """quickStats, which vCenter updates every 20 s."""

    cpu_usage_mhz: int | None = None
    memory_usage_mb: int | None = None


class GraphicsDevice(Struct, frozen=True, gc=False):
    name: str = ""
    pci_id: str = ""
    # sharedDirect for vGPUs, direct for passthrough of the whole device; also basic, shared.
    type: str = ""
    memory_kb: int = 0
    # References of the VMs that use it.
    vms: tuple[str, ...] = ()


class AssignableDevice(Struct, frozen=True, order=True, gc=False):
    """A device that a host can assign to a VM at power-on: Dynamic DirectPath I/O."""

    name: str = ""
    vendor: str = ""
    # The custom label that an administrator gave it, or "".
    label: str = ""
    # Empty if vCenter does not report it.
    pci_id: str = ""


class AssignedDevice(Struct, frozen=True, order=True, gc=False):
    """A device that a host has assigned to a VM."""

    vm: str = ""
    # Empty if vCenter does not report it.
    pci_id: str = ""


class AssignableHardware(Struct, frozen=True, gc=False):
    """The devices that a host can assign to VMs, whether in use or not."""

    devices: tuple[AssignableDevice, ...] = ()
    # Vendor device groups, such as several GPUs with their interconnect.
    groups: tuple[str, ...] = ()


class Host(Entity, frozen=True, kw_only=True, gc=False):
    """An ESXi host; `parent` is its ComputeResource."""

    connection: ConnectionState = ""
    power: PowerState = ""
    in_maintenance: bool | None = None
    cpu_mhz: int | None = None
    cpu_cores: int | None = None
    memory_bytes: int | None = None
    vendor: str = ""
    model: str = ""
    version: str = ""
    build: str = ""
    boot_time: datetime | None = None
    attributes: dict[str, str] = {}
    graphics: tuple[GraphicsDevice, ...] = ()
    # vGPU profiles that it supports, such as grid_a100-10c.
    vgpu_profiles: tuple[str, ...] = ()
    # Devices assigned to running VMs.
    assigned_devices: tuple[AssignedDevice, ...] = ()
    stats: HostStats = HostStats()


class VirtualMachineStats(Struct, frozen=True, kw_only=True, gc=False):
    """quickStats, which vCenter updates every 20 s."""

    cpu_usage_mhz: int | None = None
    cpu_demand_mhz: int | None = None
    guest_memory_mb: int | None = None
    # The share of time, in percent, in which the VM waited for a physical CPU.
    cpu_readiness_percent: int | None = None
    # Memory that the host took from the guest by the balloon driver, and by swapping to disk.
    ballooned_memory_mb: int | None = None
    swapped_memory_mb: int | None = None


class PassthroughDevice(Struct, frozen=True, gc=False):
    """A vGPU or a PCI device of the host that is configured for a VM."""

    # The profile of a vGPU, "" for a whole device.
    vgpu_profile: str = ""
    name: str = ""
    # Empty if the host selects the device at power-on.
    pci_id: str = ""
    # Its PCI vendor id, or all that the configuration allows.
    vendor_ids: tuple[int, ...] = ()


class VirtualMachine(Entity, frozen=True, kw_only=True, gc=False):
    """A VM or a template."""

    host: str = ""
    connection: str = ""
    power: PowerState = ""
    is_template: bool = False
    bios_uuid: str = ""
    instance_uuid: str = ""
    # config.guestId: the operating system that the VM is configured for.
    configured_guest_id: str = ""
    # config.version, such as vmx-19.
    hardware_version: str = ""
    cpus: int | None = None
    # 0: vCenter chooses at power-on. Releases before 7.0 U3 do not report a 1.
    cores_per_socket: int = 1
    memory_mb: int | None = None
    cpu_reservation_mhz: int | None = None
    memory_reservation_mb: int | None = None
    # vmPathName: `[datastore] folder/vm.vmx`.
    vmx_path: str = ""
    datastores: tuple[str, ...] = ()
    resource_pool: str = ""
    # guestToolsRunning, guestToolsNotRunning, guestToolsExecutingScripts, or "".
    tools_running: str = ""
    # toolsVersionStatus2, such as guestToolsCurrent.
    tools_version: str = ""
    # summary.guest.guestId: what VMware Tools reports.
    guest_id: str = ""
    guest_hardware_version: str = ""
    ip_address: str = ""
    # All of guest.net, in the order that VMware Tools reports.
    ip_addresses: tuple[str, ...] = ()
    attributes: dict[str, str] = {}
    # config.changeVersion: differs after every change of the configuration.
    config_version: str = ""
    stats: VirtualMachineStats = VirtualMachineStats()


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """A running or recent task."""

    ref: str
    state: TaskState = "queued"
    progress_percent: int | None = None
    # Such as VirtualMachine.clone.
    description_id: str = ""
    entity: str = ""
    # The name that the entity had when the task started.
    entity_name: str = ""
    # The name of the fault's type, such as InsufficientResourcesFault.
    fault: str = ""
    message: str = ""


class Disk(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    name: str
    # The MoRef of the datastore that contains it.
    datastore: str
    size_mb: int | None = None
    file_path: str = ""
    # thin, eagerZeroedThick or lazyZeroedThick.
    provisioning: str = ""
    created_at: datetime | None = None
    # vCenter has either uuid of a VM, the BIOS or the instance one.
    attached_vm_uuids: tuple[str, ...] = ()


class Location(Struct, frozen=True, gc=False):
    """Where an object is, by names. Fields that do not apply are empty."""

    path: str = ""
    datacenter: str = ""
    # Also "" for a standalone host.
    cluster: str = ""
