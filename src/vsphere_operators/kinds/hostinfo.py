"""HostInfo: what one ESXi host has, how much of it is free, and how the host is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
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
from ..vsphere.model import Host, HostStats

_DISCONNECTED_STATES = {
    "disconnected": "is disconnected from",
    "notResponding": "does not respond to",
}
_POWERED_DOWN_STATES = ("standBy", "poweredOff")


class HostInfoSpec(Spec):
    """Which host."""

    hostname: Annotated[str, Doc("Name of the ESXi host, as vCenter shows it.")] = ""


class HostInfoStatus(Status):
    """The host as vCenter knows it now. What is not known is absent, never 0."""

    totalCPU: Annotated[Int64 | None, Doc("All cores together: cpuMhz x numCpuCores, in MHz.")] = (
        None
    )
    freeCPU: Annotated[
        Int64 | None, Doc("totalCPU less what is in use, in MHz. Turbo can take it below 0.")
    ] = None
    totalMemoryMB: Annotated[Int64 | None, Doc("Physical memory, in MB of 1024 x 1024 bytes.")] = (
        None
    )
    freeMemoryMB: Annotated[Int64 | None, Doc("totalMemoryMB less what is in use.")] = None
    vendor: Annotated[str | None, Doc("Who made the machine.")] = None
    model: Annotated[str | None, Doc("What the vendor calls it.")] = None
    esxiVersion: Annotated[str | None, Doc("Version of ESXi, such as 8.0.3.")] = None
    esxiBuild: Annotated[str | None, Doc("Build number of ESXi.")] = None
    connectionState: Annotated[
        str | None, Doc("connected, disconnected or notResponding: how vCenter hears from it.")
    ] = None
    maintenanceMode: Annotated[
        bool | None, Doc("True while the host is in maintenance mode and takes no VMs.")
    ] = None
    bootTime: Annotated[datetime | None, Doc("When the host was started.")] = None
    vms: Annotated[Int64 | None, Doc("How many VMs and templates are registered on it.")] = None
    cluster: Annotated[str | None, Doc("The cluster it is in; absent for a standalone host.")] = (
        None
    )
    datacenter: Annotated[str | None, Doc("The datacenter it is in.")] = None
    inventoryPath: Annotated[
        str | None, Doc("Where it is in the inventory, such as /dc-1/host/cluster-1/esxi-1.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("The vCenter that answered, by its name in the manager's configuration.")
    ] = None
    tags: Annotated[list[str] | None, ListType("set"), Doc("vSphere tags, as category:tag.")] = None
    customAttributes: Annotated[dict[str, str] | None, Doc("Custom attributes by name.")] = None


@kind(
    "topology.corinternal.com/v1",
    plural="hostinfoes",
    short=("ch", "hi"),
    columns=[
        Column("Hostname", ".spec.hostname"),
        Column("TotalCPU", ".status.totalCPU", priority=1),
        Column("FreeCPU", ".status.freeCPU", priority=1),
        Column("TotalMemory", ".status.totalMemoryMB", priority=1),
        Column("FreeMemory", ".status.freeMemoryMB", priority=1),
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


def status_of(
    host: Host, place: Location, vms: int, tags: Sequence[str], vcenter: str
) -> HostInfoStatus:
    """All of the answer."""
    now = without_stale_stats(host)
    total_cpu = now.cpu_mhz * now.cpu_cores if now.cpu_mhz and now.cpu_cores else None
    total_memory = now.memory_bytes // 2**20 if now.memory_bytes else None
    return HostInfoStatus(
        totalCPU=total_cpu,
        freeCPU=_subtract(total_cpu, now.stats.cpu_usage_mhz),
        totalMemoryMB=total_memory,
        freeMemoryMB=_subtract(total_memory, now.stats.memory_usage_mb),
        vendor=now.vendor or None,
        model=now.model or None,
        esxiVersion=now.version or None,
        esxiBuild=now.build or None,
        connectionState=now.connection or None,
        maintenanceMode=now.in_maintenance,
        bootTime=now.boot_time and now.boot_time.replace(microsecond=0),
        vms=vms,
        cluster=place.cluster or None,
        datacenter=place.datacenter or None,
        inventoryPath=place.path or None,
        vcenter=vcenter,
        tags=list(tags) or None,
        customAttributes=dict(now.attributes) or None,
    )


def without_stale_stats(host: Host) -> Host:
    """The host without what vCenter can only remember of one that it does not hear from, or that sleeps."""
    unheard = host.connection in _DISCONNECTED_STATES or host.power in _POWERED_DOWN_STATES
    return replace(host, stats=HostStats(), boot_time=None) if unheard else host


def _subtract(total: int | None, used: int | None) -> int | None:
    """What is left, where both are known."""
    return None if total is None or used is None else total - used


def ready_reason(host: Host, vcenter: str) -> Done:
    """What to say with the answer; raises for a host whose load cannot be known."""
    if host.power in _POWERED_DOWN_STATES:
        return Done(
            "HostInStandby",
            f'host "{host.name}" is switched off or in standby, so its load is not known',
        )
    if how := _DISCONNECTED_STATES.get(host.connection):
        raise Terminal(
            "HostDisconnected",
            f'host "{host.name}" {how} vCenter {vcenter}, so its load is not known; '
            "check its power and its network, then reconnect it in vCenter",
            keep_status=True,
        )
    if host.in_maintenance:
        return Done(
            "MaintenanceMode", f'host "{host.name}" is in maintenance mode and takes no VMs'
        )
    return Done()


class HostInfoController(Controller[HostInfo]):
    """Answers from the inventory in memory; a change of the host in vCenter wakes the resources that name it."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self.vcenters = vcenters
        vcenters.watch_namespaces(self)
        self.wake_on(vcenters.host_changes, by=lambda info: info.spec.hostname)

    async def reconcile(self, info: HostInfo) -> Done:
        """Find the host by its name and tell what is known of it."""
        if not info.spec.hostname:
            raise Terminal(
                "HostnameMissing",
                "spec.hostname is empty; set it to the name of an ESXi host, as vCenter shows it",
            )
        served = self.vcenters.get_view(info)
        host = served.find_host(info.spec.hostname)
        info.status = status_of(
            host,
            served.location(host.ref),
            served.count_vms_on(host),
            served.tags(host.ref),
            served.name,
        )
        return ready_reason(host, served.name)
