"""HostInfo: the capacity, free capacity and state of one ESXi host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
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
from ..vsphere.model import Host, HostStats, Location, VirtualMachine

_DISCONNECTED_STATES = {
    "disconnected": "is disconnected from",
    "notResponding": "does not respond to",
}
_POWERED_DOWN_STATES = ("standBy", "poweredOff")


class Reason(StrEnum):
    """Reasons of the Ready condition that only HostInfo has."""

    HOSTNAME_MISSING = "HostnameMissing"
    """spec.hostname is empty."""
    HOST_DISCONNECTED = "HostDisconnected"
    """vCenter has lost the connection to the host, so its usage is unknown."""
    HOST_IN_STANDBY = "HostInStandby"
    """The host is powered off or in standby, so it reports no usage."""
    MAINTENANCE_MODE = "MaintenanceMode"
    """The host is in maintenance mode."""


class HostInfoSpec(Spec):
    """The host to report."""

    hostname: Annotated[
        str, Doc("Name of the ESXi host, as shown in vCenter.", max_length=MAX_NAME_LENGTH)
    ] = ""


class HostInfoStatus(Status):
    """The current state of the host. Unknown values are absent, never 0."""

    totalCPU: Annotated[
        Int64 | None, Doc("Total CPU of all cores (cpuMhz x numCpuCores), in MHz.")
    ] = None
    freeCPU: Annotated[
        Int64 | None,
        Doc("totalCPU minus CPU in use, in MHz. Negative while cores run above cpuMhz."),
    ] = None
    totalMemoryMB: Annotated[Int64 | None, Doc("Physical memory, in MB of 1024 x 1024 bytes.")] = (
        None
    )
    freeMemoryMB: Annotated[Int64 | None, Doc("totalMemoryMB minus memory in use.")] = None
    vendor: Annotated[str | None, Doc("Vendor of the machine.")] = None
    model: Annotated[str | None, Doc("Model of the machine.")] = None
    esxiVersion: Annotated[str | None, Doc("Version of ESXi, such as 8.0.3.")] = None
    esxiBuild: Annotated[str | None, Doc("Build number of ESXi.")] = None
    connectionState: Annotated[
        str | None, Doc("Connection to vCenter: connected, disconnected or notResponding.")
    ] = None
    maintenanceMode: Annotated[
        bool | None, Doc("True while the host is in maintenance mode and runs no VMs.")
    ] = None
    bootTime: Annotated[datetime | None, Doc("Time of the last boot.")] = None
    vms: Annotated[
        Int64 | None, Doc("Number of VMs that are registered on the host, without templates.")
    ] = None
    cluster: Annotated[str | None, Doc("Cluster of the host; absent for a standalone host.")] = None
    datacenter: Annotated[str | None, Doc("Datacenter of the host.")] = None
    inventoryPath: Annotated[
        str | None, Doc("Inventory path, such as /dc-1/host/cluster-1/esxi-1.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("Name, in the manager's configuration, of the vCenter that has the host.")
    ] = None
    tags: Annotated[list[str] | None, ListType("set"), Doc("vSphere tags, as category:tag.")] = None
    customAttributes: Annotated[dict[str, str] | None, Doc("Custom attributes by name.")] = None


@kind(
    "topology.corinternal.com/v1",
    # The plural and "ch" are those of the CRD of cormachogan/hostinfo-operator.
    plural="hostinfoes",
    short=("ch", "hi"),
    columns=[
        Column("Hostname", ".spec.hostname"),
        Column("CPU-MHz", ".status.totalCPU"),
        Column("Free-CPU-MHz", ".status.freeCPU"),
        Column("Memory-MB", ".status.totalMemoryMB"),
        Column("Free-Memory-MB", ".status.freeMemoryMB"),
        Column("Connection", ".status.connectionState", priority=1),
        Column("Maintenance", ".status.maintenanceMode", priority=1),
        Column("VMs", ".status.vms", priority=1),
        Column("Version", ".status.esxiVersion", priority=1),
        Column("Cluster", ".status.cluster", priority=1),
        Column("Up", ".status.bootTime", priority=1),
    ],
)
class HostInfo(Resource[HostInfoSpec, HostInfoStatus]):
    """The capacity of one ESXi host."""


def host_status_of(
    host: Host, location: Location, vms: int, tags: Sequence[str], vcenter: str
) -> HostInfoStatus:
    if host.connection in _DISCONNECTED_STATES or host.power in _POWERED_DOWN_STATES:
        # For a disconnected or powered-down host vCenter keeps reporting the last values that it
        # received.
        host = replace(host, stats=HostStats(), boot_time=None)
    total_cpu = host.cpu_mhz * host.cpu_cores if host.cpu_mhz and host.cpu_cores else None
    total_memory = host.memory_bytes // 2**20 if host.memory_bytes else None
    return HostInfoStatus(
        totalCPU=total_cpu,
        freeCPU=subtract(total_cpu, host.stats.cpu_usage_mhz),
        totalMemoryMB=total_memory,
        freeMemoryMB=subtract(total_memory, host.stats.memory_usage_mb),
        vendor=host.vendor or None,
        model=host.model or None,
        esxiVersion=host.version or None,
        esxiBuild=host.build or None,
        connectionState=host.connection or None,
        maintenanceMode=host.in_maintenance,
        bootTime=host.boot_time and host.boot_time.replace(microsecond=0),
        vms=vms,
        cluster=location.cluster or None,
        datacenter=location.datacenter or None,
        inventoryPath=location.path or None,
        vcenter=vcenter,
        tags=list(tags) or None,
        customAttributes=dict(host.attributes) or None,
    )


def count_vms(vms: Iterable[VirtualMachine]) -> int:
    """Without templates: they do not run."""
    return sum(not vm.is_template for vm in vms)


def subtract(total: int | None, used: int | None) -> int | None:
    return None if total is None or used is None else total - used


def ready_outcome(host: Host, vcenter: str) -> Done:
    """Done with the reason of Ready=True; raises Terminal if vCenter cannot reach the host."""
    if host.power in _POWERED_DOWN_STATES:
        return Done(
            Reason.HOST_IN_STANDBY,
            f'Host "{host.name}" is powered off or in standby, so it reports no usage.',
        )
    if state := _DISCONNECTED_STATES.get(host.connection):
        raise Terminal(
            Reason.HOST_DISCONNECTED,
            f'Host "{host.name}" {state} vCenter {vcenter}, so its usage is unknown. '
            "Check its power and network, then reconnect it in vCenter.",
            keep_status=True,
        )
    if host.in_maintenance:
        return Done(
            Reason.MAINTENANCE_MODE,
            f'Host "{host.name}" is in maintenance mode and runs no VMs.',
        )
    return Done()


class HostInfoController(Controller[HostInfo]):
    """Reads the inventory in memory; a change of a host enqueues the HostInfos that name it."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self.vcenters = vcenters
        vcenters.watch_namespace_labels(self)
        self.watches(vcenters.host_changes, index_by=lambda info: info.spec.hostname)

    async def reconcile(self, info: HostInfo) -> Done:
        if not info.spec.hostname:
            raise Terminal(
                Reason.HOSTNAME_MISSING,
                "spec.hostname is empty. Set it to the name of an ESXi host, as shown in vCenter.",
            )
        lookup = self.vcenters.lookup_for(info)
        host, tags = lookup.find_host(info.spec.hostname), lookup.vcenter.tags
        is_of_spec = info.status.observedGeneration == info.metadata.generation
        info.status = host_status_of(
            host,
            lookup.inventory.location(host.ref),
            count_vms(lookup.inventory.vms_on(host.ref)),
            # They are read some seconds after the hosts. Without those of before a restart, each
            # host would lose its tags for these seconds, in a write of its own.
            tags.get_or_keep(host.ref, (is_of_spec and info.status.tags) or ()),
            lookup.vcenter_name,
        )
        return ready_outcome(host, lookup.vcenter_name)
