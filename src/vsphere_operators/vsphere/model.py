"""What is known of vCenter's inventory: frozen values, with the units in their names.

A value is replaced, never changed: whoever holds one holds a moment. What vCenter has not told (a disconnected host's load, the
address of a VM without Tools) is None, never 0. References (`ref`, `parent`, `host`) are MoRefs such as `host-12`, unique within
one vCenter.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

ConnectionState = Literal["connected", "disconnected", "notResponding", ""]
PowerState = Literal["poweredOn", "poweredOff", "suspended", "standBy", "unknown", ""]
TaskState = Literal["queued", "running", "success", "error"]


class Entity(Struct, frozen=True, kw_only=True):
    """Anything with a place in the inventory tree."""

    ref: str
    name: str = ""
    parent: str = ""
    """Of a VM: its folder, "" inside a vApp. Of the root folder: ""."""


class Folder(Entity, frozen=True, kw_only=True):
    """A folder of any sort, the root folder and datastore clusters (StoragePod) too."""


class Datacenter(Entity, frozen=True, kw_only=True):
    """A datacenter."""


class ComputeResource(Entity, frozen=True, kw_only=True):
    """A cluster, or the ComputeResource that holds one host outside any cluster."""

    is_cluster: bool = False


class ResourcePool(Entity, frozen=True, kw_only=True):
    """A resource pool, a cluster's invisible root pool, or a vApp."""

    owner: str = ""


class Datastore(Entity, frozen=True, kw_only=True):
    """A datastore."""

    url: str = ""
    accessible: bool = False


class HostStats(Struct, frozen=True, kw_only=True):
    """What moves every 20 s."""

    cpu_usage_mhz: int | None = None
    memory_usage_mb: int | None = None


class GraphicsDevice(Struct, frozen=True, gc=False):
    """A graphics device of a host."""

    name: str = ""
    pci_id: str = ""
    type: str = ""
    """sharedDirect carries vGPUs, direct is passed through as a whole; there are also basic and shared."""
    memory_kb: int = 0
    vms: tuple[str, ...] = ()
    """References of the VMs that use it."""


class AssignableDevice(Struct, frozen=True, order=True):
    """A device that a host can give to a VM when that starts: Dynamic DirectPath I/O."""

    name: str = ""
    vendor: str = ""
    label: str = ""
    """What an administrator calls it, "" for nothing."""
    pci_id: str = ""
    """"" where vCenter does not tell."""


class AssignedDevice(Struct, frozen=True, order=True):
    """A device that a VM has got from its host."""

    vm: str = ""
    pci_id: str = ""
    """"" where vCenter does not tell."""


class AssignableHardware(Struct, frozen=True):
    """What a host can give to VMs, taken or not."""

    devices: tuple[AssignableDevice, ...] = ()
    groups: tuple[str, ...] = ()
    """Vendor device groups, such as several GPUs with the network between them."""


class Host(Entity, frozen=True, kw_only=True):
    """An ESXi host; `parent` is its Compute."""

    connection: ConnectionState = ""
    power: PowerState = ""
    in_maintenance: bool = False
    cpu_mhz: int | None = None
    cpu_cores: int | None = None
    memory_bytes: int | None = None
    vendor: str = ""
    model: str = ""
    version: str = ""
    build: str = ""
    boot_time: datetime | None = None
    attributes: dict[str, str] = {}
    """Custom attributes by name."""
    graphics: tuple[GraphicsDevice, ...] = ()
    vgpu_profiles: tuple[str, ...] = ()
    """Profiles that it offers, such as grid_a100-10c."""
    assigned_devices: tuple[AssignedDevice, ...] = ()
    """Devices that VMs have got when they started."""
    stats: HostStats = HostStats()


class VirtualMachineStats(Struct, frozen=True, kw_only=True):
    """What moves every 20 s."""

    cpu_usage_mhz: int | None = None
    cpu_demand_mhz: int | None = None
    guest_memory_mb: int | None = None


class PassthroughDevice(Struct, frozen=True, gc=False):
    """A vGPU, or a PCI device of the host, that was given to a VM."""

    vgpu_profile: str = ""
    """The profile of a vGPU, "" for a whole device."""
    name: str = ""
    pci_id: str = ""
    """"" where the host chooses the device when the VM starts."""
    vendor_ids: tuple[int, ...] = ()
    """PCI vendor ids that it has, or may have."""


class VirtualMachine(Entity, frozen=True, kw_only=True):
    """A virtual machine or a template."""

    host: str = ""
    connection: str = ""
    power: PowerState = ""
    is_template: bool = False
    bios_uuid: str = ""
    instance_uuid: str = ""
    configured_guest_id: str = ""
    """config.guestId: what the VM was made for."""
    hardware_version: str = ""
    """config.version, such as vmx-19."""
    cpus: int | None = None
    memory_mb: int | None = None
    cpu_reservation_mhz: int | None = None
    memory_reservation_mb: int | None = None
    vmx_path: str = ""
    """vmPathName: `[datastore] folder/vm.vmx`."""
    datastores: tuple[str, ...] = ()
    resource_pool: str = ""
    tools_running: str = ""
    """guestToolsRunning, guestToolsNotRunning, guestToolsExecutingScripts, or "" when never seen."""
    tools_version: str = ""
    """toolsVersionStatus2, such as guestToolsCurrent."""
    guest_id: str = ""
    """summary.guest.guestId: what Tools report."""
    guest_hardware_version: str = ""
    ip_address: str = ""
    ip_addresses: tuple[str, ...] = ()
    """All of guest.net, in the order that Tools report."""
    attributes: dict[str, str] = {}
    config_version: str = ""
    """config.changeVersion: moves with every change of its configuration."""
    stats: VirtualMachineStats = VirtualMachineStats()


class Task(Struct, frozen=True, kw_only=True):
    """A task that runs, or ran recently."""

    ref: str
    state: TaskState = "queued"
    progress_percent: int | None = None
    description: str = ""
    """descriptionId, such as VirtualMachine.clone."""
    entity: str = ""
    user: str = ""
    result: str = ""
    """The MoRef that the task made, if it made one."""
    fault: str = ""
    """The name of the fault's type, such as InsufficientResourcesFault."""
    message: str = ""


class Disk(Struct, frozen=True, kw_only=True):
    """A First Class Disk."""

    id: str
    name: str
    datastore: str
    """MoRef of its datastore."""
    size_mb: int | None = None
    file_path: str = ""
    provisioning: str = ""
    """thin, eagerZeroedThick or lazyZeroedThick."""
    created_at: datetime | None = None
    consumers: tuple[str, ...] = ()
    """Who uses it: uuids of VMs."""
