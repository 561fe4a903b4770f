"""The API types of GPUInfo: spec, status, and the reasons of its conditions and Events."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from kubewright import Column, Doc, Int64, ListType, Resource, Spec, Status, kind

# The original operator writes this text into both names when no node matches.
NONE_AVAILABLE = "None available"
PLANS_KNOWN = "PlansKnown"


class Reason(StrEnum):
    """Reasons of the conditions of a GPUInfo, and of the Events that its controller records."""

    NODE_CHOSEN = "NodeChosen"
    """A node matches the spec; the message names it."""
    NONE_AVAILABLE = "NoneAvailable"
    """No node matches the spec; the message counts the nodes by reason."""
    NEGATIVE_TIME = "NegativeTime"
    """spec.desAccTime is negative."""
    NO_VCENTER = "NoVCenter"
    """No vCenter is configured, so the VMs of the nodes are unknown."""
    CALENDAR_UNREADABLE = "CalendarUnreadable"
    """The maintenance calendar does not exist or cannot be read."""
    ALL_READ = "AllRead"
    """PlansKnown: every source of planned maintenance was read."""
    SIMULATED = "Simulated"
    """PlansKnown: hours are simulated, so no plans are read."""
    CALENDAR_STALE = "CalendarStale"
    """PlansKnown: the calendar can no longer be read; its last known entries apply."""
    SCHEDULED_TASKS_UNREADABLE = "ScheduledTasksUnreadable"
    """PlansKnown: the scheduled tasks of a vCenter cannot be read."""
    CALENDAR_LINE_UNREADABLE = "CalendarLineUnreadable"
    """Event on the calendar's ConfigMap: a line is invalid and is ignored."""
    MAINTENANCE_UNREADABLE = "MaintenanceUnreadable"
    """Event on a Node: a maintenance annotation or custom attribute is invalid."""
    UNKNOWN_GPU_RESOURCE = "UnknownGPUResource"
    """Event on a Node: a resource may be a GPU, but -gpu-resources does not list it."""
    LABEL_LIMIT_REACHED = "LabelLimitReached"
    """Event on a GPUInfo: the selected Node, or the namespace, has the maximum of labels."""
    LABEL_LEFT = "LabelLeft"
    """Event on a Node: a label remains that the manager is not allowed to remove."""
    FINALIZER_LEFT = "FinalizerLeft"
    """Event on a GPUInfo: a finalizer remains that the manager is not allowed to remove."""


class GPUInfoSpec(Spec):
    """What the job requires of a node."""

    desAccTime: Annotated[Int64 | None, Doc("Hours for which the job needs the node.")] = None
    gpuRequired: Annotated[
        bool | None, Doc("True selects only nodes with a GPU; false only nodes without one.")
    ] = None


class Candidate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node that matches the spec. Unknown values are absent."""

    node: Annotated[str, Doc("Name of the Node.")]
    host: Annotated[str | None, Doc("ESXi host that runs the node's VM.")] = None
    vm: Annotated[str | None, Doc("Name of the node's VM.")] = None
    matchedBy: Annotated[
        str | None, Doc("How the VM was matched to the Node: providerID or name.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("Name, in the manager's configuration, of the vCenter that has the VM.")
    ] = None
    availableHours: Annotated[Int64 | None, Doc("Whole hours until the next maintenance.")] = None
    nextMaintenance: Annotated[
        datetime | None, Doc("Start of the next maintenance; absent if none is planned.")
    ] = None
    maintenanceSource: Annotated[
        str | None,
        Doc("Where that maintenance is planned: an annotation, a task, a calendar line."),
    ] = None
    cpuDemandMHz: Annotated[Int64 | None, Doc("CPU demand of the VM, in MHz.")] = None
    guestMemoryMB: Annotated[Int64 | None, Doc("Memory in use by the guest, in MB.")] = None
    freeMemoryMB: Annotated[
        Int64 | None, Doc("Memory of the VM that the guest does not use, in MB.")
    ] = None
    gpus: Annotated[
        list[str] | None, ListType("atomic"), Doc("GPUs of the node, each with its source.")
    ] = None
    hostDevices: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("Graphics devices of the host, whether or not a VM uses them."),
    ] = None


class UnmatchedNode(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A Node that could not be matched to exactly one VM."""

    node: Annotated[str, Doc("Name of the Node.")]
    reason: Annotated[str, Doc("VMNotFound or VMAmbiguous.")]
    message: Annotated[str, Doc("Explanation of the reason.")]


class UnmatchedNodes(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The Nodes that could not be matched to exactly one VM."""

    nodes: Annotated[list[UnmatchedNode], ListType("atomic"), Doc("The first of them, by name.")]
    more: Annotated[Int64, Doc("Number of unmatched Nodes that are not listed.")] = 0


class GPUInfoStatus(Status):
    """The selected node, and why it was selected."""

    suitableNodeName: Annotated[
        str | None, Doc("Name of the selected node, or `None available`.")
    ] = None
    suitableHostName: Annotated[
        str | None, Doc("ESXi host that runs the selected node, or `None available`.")
    ] = None
    nodeMemoryUsage: Annotated[Int64 | None, Doc("Guest memory in use, in MB.")] = None
    nodeCPUUsage: Annotated[Int64 | None, Doc("CPU demand, in MHz.")] = None
    availableAcceleratorTime: Annotated[
        Int64 | None, Doc("Whole hours until the next planned maintenance of the selected node.")
    ] = None
    candidates: Annotated[
        list[Candidate] | None,
        ListType("atomic"),
        Doc("The selected node, followed by the best other nodes that match."),
    ] = None
    refused: Annotated[
        dict[str, Int64] | None,
        Doc("Number of nodes that do not match, by the first reason that rejects them."),
    ] = None
    unmatched: Annotated[
        UnmatchedNodes | None,
        Doc("Nodes with no matching VM or with more than one; otherwise absent."),
    ] = None
    simulated: Annotated[
        bool | None,
        Doc("True if hours and GPUs are random numbers (-accelerator-source=simulated)."),
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="gpuinfoes",
    short=("gpu",),
    columns=[
        Column("Desired Access Time (Hrs)", ".spec.desAccTime"),
        Column("GPU Required", ".spec.gpuRequired"),
        Column("Node", ".status.suitableNodeName"),
        Column("Host", ".status.suitableHostName", priority=1),
        Column("Hours", ".status.availableAcceleratorTime", priority=1),
        Column("CPU-MHz", ".status.nodeCPUUsage", priority=1),
        Column("Memory-MB", ".status.nodeMemoryUsage", priority=1),
    ],
)
class GPUInfo(Resource[GPUInfoSpec, GPUInfoStatus]):
    """The best Kubernetes node for a long-running job."""
