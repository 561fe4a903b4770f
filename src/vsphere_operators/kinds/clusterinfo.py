"""ClusterInfo: the capacity of one vSphere cluster, and the Nodes in it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import StrEnum
from typing import Annotated, Protocol

from msgspec import Struct

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
from kubewright.builtin import Node

from ..vcenters.registry import VCenterRegistry
from ..vsphere.cluster_summary import ClusterSummary
from ..vsphere.model import Host, Location
from ..vsphere.path_lookup import MAX_NAME_OR_PATH_LENGTH, possible_names

MAX_LISTED_NODES = 100


class Reason(StrEnum):
    """Reasons of the Ready condition that only ClusterInfo has."""

    CLUSTER_NAME_MISSING = "ClusterNameMissing"
    """spec.cluster is empty."""
    NO_HOST_AVAILABLE = "NoHostAvailable"
    """The cluster has no host that is connected, powered on and not in maintenance mode."""
    HOSTS_UNAVAILABLE = "HostsUnavailable"
    """Some hosts are disconnected, powered off or in maintenance mode; they are not counted."""


class ClusterInfoSpec(Spec):
    """The cluster to report."""

    cluster: Annotated[
        str,
        Doc(
            "Name of the vSphere cluster, as shown in vCenter, or its inventory path, such as "
            "/dc-1/host/cluster-1. A path is needed if several clusters have the name.",
            max_length=MAX_NAME_OR_PATH_LENGTH,
        ),
    ] = ""


class ClusterNodes(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The Nodes of this Kubernetes cluster with a VM in the vSphere cluster."""

    count: Annotated[Int64, Doc("Number of Nodes.")]
    names: Annotated[
        list[str] | None, ListType("atomic"), Doc(f"The first {MAX_LISTED_NODES}, by name.")
    ] = None
    more: Annotated[Int64, Doc("Number of Nodes that are not listed.")] = 0


class ClusterInfoStatus(Status):
    """The current state of the cluster. Unknown values are absent, never 0.

    CPU and memory are those of the available hosts: connected, powered on, and not in maintenance
    mode.
    """

    hosts: Annotated[Int64 | None, Doc("Number of hosts.")] = None
    availableHosts: Annotated[
        Int64 | None,
        Doc("Number of hosts that are connected, powered on and not in maintenance mode."),
    ] = None
    hostsInMaintenance: Annotated[Int64 | None, Doc("Number of hosts in maintenance mode.")] = None
    disconnectedHosts: Annotated[
        Int64 | None,
        Doc("Number of hosts that are disconnected or do not respond, without poweredDownHosts."),
    ] = None
    poweredDownHosts: Annotated[
        Int64 | None, Doc("Number of hosts that are powered off or in standby.")
    ] = None
    totalCPUMHz: Annotated[Int64 | None, Doc("CPU of all available hosts, in MHz.")] = None
    freeCPUMHz: Annotated[Int64 | None, Doc("totalCPUMHz minus CPU in use.")] = None
    headroomCPUMHz: Annotated[
        Int64 | None,
        Doc(
            "freeCPUMHz if the host with the most CPU fails. Negative: the others have too little."
        ),
    ] = None
    totalMemoryMB: Annotated[
        Int64 | None, Doc("Memory of all available hosts, in MB of 1024 x 1024 bytes.")
    ] = None
    freeMemoryMB: Annotated[Int64 | None, Doc("totalMemoryMB minus memory in use.")] = None
    headroomMemoryMB: Annotated[
        Int64 | None,
        Doc(
            "freeMemoryMB if the host with the most memory fails. Negative: the others have too "
            "little."
        ),
    ] = None
    drsEnabled: Annotated[bool | None, Doc("True if DRS is enabled.")] = None
    drsAutomation: Annotated[
        str | None, Doc("Automation of DRS: manual, partiallyAutomated or fullyAutomated.")
    ] = None
    haEnabled: Annotated[bool | None, Doc("True if vSphere HA is enabled.")] = None
    haAdmissionControl: Annotated[
        bool | None, Doc("True if vSphere HA reserves capacity for the failure of hosts.")
    ] = None
    nodes: Annotated[
        ClusterNodes | None,
        Doc("The Nodes of this Kubernetes cluster with a VM on a host of the cluster."),
    ] = None
    datacenter: Annotated[str | None, Doc("Datacenter of the cluster.")] = None
    inventoryPath: Annotated[str | None, Doc("Inventory path, such as /dc-1/host/cluster-1.")] = (
        None
    )
    vcenter: Annotated[
        str | None,
        Doc("Name, in the manager's configuration, of the vCenter that has the cluster."),
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="clusterinfoes",
    short=("ci",),
    columns=[
        Column("Cluster", ".spec.cluster"),
        Column("Hosts", ".status.hosts"),
        Column("Free-MHz", ".status.freeCPUMHz"),
        Column("Free-MB", ".status.freeMemoryMB"),
        Column("Headroom-MHz", ".status.headroomCPUMHz"),
        Column("Headroom-MB", ".status.headroomMemoryMB"),
        Column("Nodes", ".status.nodes.count"),
        Column("Total-MHz", ".status.totalCPUMHz", priority=1),
        Column("Total-MB", ".status.totalMemoryMB", priority=1),
        Column("Maintenance", ".status.hostsInMaintenance", priority=1),
        Column("Disconnected", ".status.disconnectedHosts", priority=1),
        Column("Powered-Down", ".status.poweredDownHosts", priority=1),
        Column("DRS", ".status.drsEnabled", priority=1),
        Column("HA", ".status.haEnabled", priority=1),
        Column("Datacenter", ".status.datacenter", priority=1),
    ],
)
class ClusterInfo(Resource[ClusterInfoSpec, ClusterInfoStatus]):
    """The capacity of one vSphere cluster, and the Nodes in it."""


class NodeLocations(Protocol):
    def nodes_on(self, vcenter: str, host: str) -> Set[str]:
        """The names of the Nodes with a VM on the host with this reference."""
        ...


def cluster_status_of(
    summary: ClusterSummary, location: Location, nodes: Iterable[str], vcenter: str
) -> ClusterInfoStatus:
    cluster, names = summary.cluster, sorted(nodes)
    free_cpu = _subtract(summary.cpu_mhz, summary.stats.cpu_usage_mhz)
    free_memory = _subtract(summary.memory_mb, summary.stats.memory_usage_mb)
    return ClusterInfoStatus(
        hosts=summary.hosts,
        availableHosts=summary.available_hosts,
        hostsInMaintenance=summary.hosts_in_maintenance,
        disconnectedHosts=summary.disconnected_hosts,
        poweredDownHosts=summary.powered_down_hosts,
        totalCPUMHz=summary.cpu_mhz,
        freeCPUMHz=free_cpu,
        headroomCPUMHz=_subtract(free_cpu, summary.largest_cpu_mhz),
        totalMemoryMB=summary.memory_mb,
        freeMemoryMB=free_memory,
        headroomMemoryMB=_subtract(free_memory, summary.largest_memory_mb),
        drsEnabled=cluster.drs_enabled,
        drsAutomation=cluster.drs_automation or None,
        haEnabled=cluster.ha_enabled,
        haAdmissionControl=cluster.ha_admission_control,
        nodes=ClusterNodes(
            count=len(names),
            names=names[:MAX_LISTED_NODES] or None,
            more=max(len(names) - MAX_LISTED_NODES, 0),
        ),
        datacenter=location.datacenter or None,
        inventoryPath=location.path or None,
        vcenter=vcenter,
    )


def _subtract(total: int | None, used: int | None) -> int | None:
    return None if total is None or used is None else total - used


def ready_outcome(summary: ClusterSummary) -> Done:
    """Done with the reason of Ready=True; raises Terminal if no host is available."""
    if summary.available_hosts == summary.hosts > 0:
        return Done()
    if not summary.hosts:
        raise Terminal(
            Reason.NO_HOST_AVAILABLE,
            f'Cluster "{summary.name}" has no hosts. Add a host in vCenter.',
            keep_status=True,
        )
    # A host may be in several of these states.
    counts = {
        "in maintenance mode": summary.hosts_in_maintenance,
        "disconnected": summary.disconnected_hosts,
        "powered off or in standby": summary.powered_down_hosts,
        "in an unknown state": summary.unknown_hosts,
    }
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    if not summary.available_hosts:
        raise Terminal(
            Reason.NO_HOST_AVAILABLE,
            f'None of the {summary.hosts} hosts of cluster "{summary.name}" is available '
            f"({states}). Power on or reconnect a host, or end its maintenance mode.",
            keep_status=True,
        )
    return Done(
        Reason.HOSTS_UNAVAILABLE,
        f'{summary.available_hosts} of the {summary.hosts} hosts of cluster "{summary.name}" are '
        f"available ({states}). CPU and memory are those of the available hosts.",
    )


class ClusterInfoController(Controller[ClusterInfo]):
    """Reads only the caches, never vCenter itself.

    A change of a cluster, of its hosts or of the Nodes on them enqueues the ClusterInfos that name
    the cluster.
    """

    def __init__(self, vcenters: VCenterRegistry, node_locations: NodeLocations) -> None:
        self.vcenters, self.node_locations = vcenters, node_locations
        vcenters.watch_namespace_labels(self)
        self.reads(Node)
        self.watches(
            vcenters.cluster_changes, index_by=lambda info: possible_names(info.spec.cluster)
        )

    async def reconcile(self, info: ClusterInfo) -> Done:
        if not info.spec.cluster:
            raise Terminal(
                Reason.CLUSTER_NAME_MISSING,
                "spec.cluster is empty. Set it to the name of a cluster, as shown in vCenter.",
            )
        lookup = self.vcenters.lookup_for(info)
        summary, inventory = lookup.find_cluster(info.spec.cluster), lookup.inventory
        nodes = {
            node
            for host in inventory.children(summary.ref)
            if isinstance(host, Host)
            for node in self.node_locations.nodes_on(lookup.vcenter_name, host.ref)
        }
        info.status = cluster_status_of(
            summary, inventory.location(summary.ref), nodes, lookup.vcenter_name
        )
        return ready_outcome(summary)
