"""Which metrics of the inventory exist, and how each is read from an object of the inventory.

Units are those of Prometheus: bytes, hertz, seconds and ratios. A value that vCenter did not report
has no sample. vSphere's MB are 2^20 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from ..vsphere.model import ComputeResource, Datastore, Host, VirtualMachine

EntityT = TypeVar("EntityT")
_HERTZ_PER_MHZ = 1_000_000
_BYTES_PER_MB = 1 << 20


class Gauge(NamedTuple, Generic[EntityT]):
    name: str
    help: str
    read: Callable[[EntityT], float | None]


class InfoGauge(NamedTuple):
    """A gauge that is always 1, with what is known about an object in its labels."""

    name: str
    help: str
    # In addition to those of every metric of the type.
    label_names: tuple[str, ...]


def _to_hertz(mhz: int | None) -> int | None:
    return None if mhz is None else mhz * _HERTZ_PER_MHZ


def _to_bytes(mb: int | None) -> int | None:
    return None if mb is None else mb * _BYTES_PER_MB


def _to_number(flag: bool | None) -> int | None:
    return None if flag is None else int(flag)


def _read_cpu_capacity(host: Host) -> int | None:
    if host.cpu_mhz is None or host.cpu_cores is None:
        return None
    return host.cpu_mhz * host.cpu_cores * _HERTZ_PER_MHZ


def _read_readiness(vm: VirtualMachine) -> float | None:
    percent = vm.stats.cpu_readiness_percent
    return None if percent is None else percent / 100


def _unless_inaccessible(
    read: Callable[[Datastore], int | None],
) -> Callable[[Datastore], int | None]:
    """Without the last numbers, which vCenter keeps for a datastore that no host can access."""
    return lambda datastore: None if datastore.accessible is False else read(datastore)


# The labels of every metric of a type. The reference is part of them, since in vSphere a name is
# unique only below one parent.
HOST_LABELS = ("vcenter", "host", "host_id")
VM_LABELS = ("vcenter", "vm", "vm_id")
DATASTORE_LABELS = ("vcenter", "datastore", "datastore_id")
CLUSTER_LABELS = ("vcenter", "cluster", "cluster_id")
OMITTED_LABELS = ("vcenter", "type")

HOST_INFO = InfoGauge(
    "vsphere_host_info",
    "An ESXi host; always 1",
    ("cluster", "cluster_id", "datacenter", "vendor", "model", "version", "build"),
)
HOST_GAUGES: tuple[Gauge[Host], ...] = (
    Gauge(
        "vsphere_host_connected",
        "1 if vCenter is connected to the host, otherwise 0",
        lambda host: int(host.connection == "connected") if host.connection else None,
    ),
    Gauge(
        "vsphere_host_maintenance",
        "1 if the host is in maintenance mode, otherwise 0",
        lambda host: _to_number(host.in_maintenance),
    ),
    Gauge(
        "vsphere_host_boot_time_seconds",
        "When the host was booted, in seconds since 1970",
        lambda host: host.boot_time.timestamp() if host.boot_time else None,
    ),
    Gauge(
        "vsphere_host_cpu_capacity_hertz", "Frequency of all cores of the host", _read_cpu_capacity
    ),
    Gauge(
        "vsphere_host_cpu_usage_hertz",
        "CPU that the host uses",
        lambda host: _to_hertz(host.stats.cpu_usage_mhz),
    ),
    Gauge(
        "vsphere_host_memory_capacity_bytes",
        "Physical memory of the host",
        lambda host: host.memory_bytes,
    ),
    Gauge(
        "vsphere_host_memory_usage_bytes",
        "Physical memory that the host uses",
        lambda host: _to_bytes(host.stats.memory_usage_mb),
    ),
)
HOST_ENTERING_MAINTENANCE = Gauge[bool](
    "vsphere_host_entering_maintenance",
    "1 while a task runs that puts the host into maintenance mode, otherwise 0",
    int,
)
HOST_VMS = Gauge[int]("vsphere_host_vms", "VMs on the host, without templates", lambda count: count)

VM_INFO = InfoGauge(
    "vsphere_vm_info",
    "A VM with its host, its Kubernetes Node and its VmGroup (namespace/name), if any; always 1",
    ("host", "host_id", "node", "vmgroup"),
)
VM_GAUGES: tuple[Gauge[VirtualMachine], ...] = (
    Gauge(
        "vsphere_vm_powered_on",
        "1 if the VM is powered on, otherwise 0",
        lambda vm: int(vm.power == "poweredOn") if vm.power else None,
    ),
    Gauge("vsphere_vm_cpus", "Virtual CPUs of the VM", lambda vm: vm.cpus),
    Gauge(
        "vsphere_vm_memory_size_bytes",
        "Configured memory of the VM",
        lambda vm: _to_bytes(vm.memory_mb),
    ),
    Gauge(
        "vsphere_vm_cpu_usage_hertz",
        "CPU that the VM uses",
        lambda vm: _to_hertz(vm.stats.cpu_usage_mhz),
    ),
    Gauge(
        "vsphere_vm_cpu_demand_hertz",
        "CPU that the VM would use without contention",
        lambda vm: _to_hertz(vm.stats.cpu_demand_mhz),
    ),
    Gauge(
        "vsphere_vm_cpu_readiness_ratio",
        "Share of time in which the VM waited for a physical CPU, from 0 to 1",
        _read_readiness,
    ),
    Gauge(
        "vsphere_vm_memory_guest_usage_bytes",
        "Memory that the guest of the VM uses actively",
        lambda vm: _to_bytes(vm.stats.guest_memory_mb),
    ),
    Gauge(
        "vsphere_vm_memory_ballooned_bytes",
        "Memory that the host reclaimed from the VM by the balloon driver",
        lambda vm: _to_bytes(vm.stats.ballooned_memory_mb),
    ),
    Gauge(
        "vsphere_vm_memory_swapped_bytes",
        "Memory of the VM that the host swapped to disk",
        lambda vm: _to_bytes(vm.stats.swapped_memory_mb),
    ),
)

DATASTORE_INFO = InfoGauge(
    "vsphere_datastore_info", "A datastore; always 1", ("datacenter", "type")
)
DATASTORE_GAUGES: tuple[Gauge[Datastore], ...] = (
    Gauge(
        "vsphere_datastore_accessible",
        "1 if a host can access the datastore, otherwise 0",
        lambda datastore: _to_number(datastore.accessible),
    ),
    Gauge(
        "vsphere_datastore_maintenance",
        "1 if the datastore is in maintenance mode or enters it, otherwise 0",
        lambda datastore: (
            int(datastore.maintenance_mode != "normal") if datastore.maintenance_mode else None
        ),
    ),
    Gauge(
        "vsphere_datastore_hosts",
        "Hosts that mount the datastore",
        lambda datastore: len(datastore.hosts),
    ),
    Gauge(
        "vsphere_datastore_capacity_bytes",
        "Capacity of the datastore",
        _unless_inaccessible(lambda datastore: datastore.capacity_bytes),
    ),
    Gauge(
        "vsphere_datastore_free_bytes",
        "Free space of the datastore",
        _unless_inaccessible(lambda datastore: datastore.free_bytes),
    ),
    Gauge(
        "vsphere_datastore_uncommitted_bytes",
        "Space by which thin disks on the datastore can still grow",
        _unless_inaccessible(lambda datastore: datastore.uncommitted_bytes),
    ),
)


class DiskCount(NamedTuple):
    total: int
    # Of the disks that no PersistentVolume names; None if the PersistentVolumes are unknown.
    orphaned_attached: int | None
    orphaned_detached: int | None


DISK_GAUGES: tuple[Gauge[DiskCount], ...] = (
    Gauge(
        "vsphere_datastore_first_class_disks",
        "First Class Disks on the datastore",
        lambda count: count.total,
    ),
    Gauge(
        "vsphere_datastore_orphaned_disks",
        "First Class Disks on the datastore that no PersistentVolume of this cluster names and "
        "that are attached to no VM",
        lambda count: count.orphaned_detached,
    ),
    Gauge(
        "vsphere_datastore_foreign_disks",
        "First Class Disks on the datastore that no PersistentVolume of this cluster names but "
        "that are attached to a VM",
        lambda count: count.orphaned_attached,
    ),
)

CLUSTER_INFO = InfoGauge("vsphere_cluster_info", "A cluster of hosts; always 1", ("datacenter",))
CLUSTER_GAUGES: tuple[Gauge[ComputeResource], ...] = (
    Gauge(
        "vsphere_cluster_drs_enabled",
        "1 if DRS is on, otherwise 0",
        lambda cluster: _to_number(cluster.drs_enabled),
    ),
    Gauge(
        "vsphere_cluster_ha_enabled",
        "1 if vSphere HA is on, otherwise 0",
        lambda cluster: _to_number(cluster.ha_enabled),
    ),
    Gauge(
        "vsphere_cluster_ha_admission_control_enabled",
        "1 if vSphere HA reserves capacity for the failure of hosts, otherwise 0",
        lambda cluster: _to_number(cluster.ha_admission_control),
    ),
)
CLUSTER_HOSTS = Gauge[int]("vsphere_cluster_hosts", "Hosts in the cluster", lambda count: count)

OMITTED_OBJECTS = Gauge[int](
    "vsphere_inventory_metrics_omitted_objects",
    "Objects without metrics because of -inventory-metrics-limit",
    lambda count: count,
)


def list_metrics() -> list[tuple[str, tuple[str, ...], str]]:
    """Name, labels and description of every metric, for the documentation."""
    types: tuple[tuple[tuple[str, ...], InfoGauge, tuple[Gauge[Any], ...]], ...] = (
        (HOST_LABELS, HOST_INFO, (*HOST_GAUGES, HOST_ENTERING_MAINTENANCE, HOST_VMS)),
        (VM_LABELS, VM_INFO, VM_GAUGES),
        (DATASTORE_LABELS, DATASTORE_INFO, (*DATASTORE_GAUGES, *DISK_GAUGES)),
        (CLUSTER_LABELS, CLUSTER_INFO, (*CLUSTER_GAUGES, CLUSTER_HOSTS)),
    )
    metrics: list[tuple[str, tuple[str, ...], str]] = []
    for labels, info, gauges in types:
        metrics.append((info.name, (*labels, *info.label_names), info.help))
        metrics += [(gauge.name, labels, gauge.help) for gauge in gauges]
    return [*metrics, (OMITTED_OBJECTS.name, OMITTED_LABELS, OMITTED_OBJECTS.help)]
