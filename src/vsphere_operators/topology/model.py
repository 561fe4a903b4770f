"""The topology as JSON values; docs/designs/topology.md describes the fields.

A field with a default is absent while it is unknown. Every other field is always present.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

Collection = Literal[
    "vcenters",
    "datacenters",
    "clusters",
    "hosts",
    "vms",
    "datastores",
    "disks",
    "nodes",
    "vmGroups",
    "gpuInfos",
]
MemberState = Literal["Planned", "Cloning", "NotReady", "Ready", "Terminating"]
API_VERSION = "topology.corinternal.com/v1"


class Item(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An object of the model. The `id` stays the same when the object is renamed."""

    id: str


class InfoReference(Struct, frozen=True, kw_only=True):
    """A custom resource that reports an object of vSphere; the plural is that of its path."""

    kind: str
    plural: str
    namespace: str
    name: str


class ReportedItem(Item, frozen=True, kw_only=True):
    """An object of vSphere that HostInfos, VMInfos, DatastoreInfos or ClusterInfos may report."""

    # The first ones by namespace and name; `omittedInfos` counts the others.
    infos: tuple[InfoReference, ...] = ()
    omittedInfos: int = 0


class VCenter(Item, frozen=True, kw_only=True):
    name: str
    state: Literal["Ready", "Loading", "Unavailable"]
    message: str
    # Only while it is not Ready: until when its objects are known to be accurate.
    accurateUntil: datetime | None = None


class Datacenter(Item, frozen=True, kw_only=True):
    name: str
    vcenter: str


class Cluster(ReportedItem, frozen=True, kw_only=True):
    name: str
    datacenter: str
    drsEnabled: bool | None = None
    haEnabled: bool | None = None


class Pressure(Struct, frozen=True, kw_only=True):
    type: str
    message: str


class Host(ReportedItem, frozen=True, kw_only=True):
    name: str
    datacenter: str
    # Empty for a standalone host.
    cluster: str
    connection: str
    maintenance: Literal["", "entering", "in"]
    cpuMHz: int | None = None
    cpuUsageMHz: int | None = None
    memoryMB: int | None = None
    memoryUsageMB: int | None = None
    pressure: tuple[Pressure, ...]


class VM(ReportedItem, frozen=True, kw_only=True):
    name: str
    host: str
    power: str
    cpus: int | None = None
    memoryMB: int | None = None
    cpuUsageMHz: int | None = None
    cpuDemandMHz: int | None = None
    cpuReadinessPercent: int | None = None
    guestMemoryMB: int | None = None
    balloonedMemoryMB: int | None = None
    swappedMemoryMB: int | None = None
    ipAddress: str = ""
    isTemplate: bool
    datastores: tuple[str, ...]
    # The Node that runs in it (the first by name, if several name it), and the VmGroup that it is
    # a replica of.
    node: str = ""
    vmGroup: str = ""


class Datastore(ReportedItem, frozen=True, kw_only=True):
    name: str
    type: str = ""
    accessible: bool | None = None
    datacenter: str
    capacityBytes: int | None = None
    freeBytes: int | None = None
    uncommittedBytes: int | None = None
    hosts: tuple[str, ...]


class Disk(Item, frozen=True, kw_only=True):
    """A First Class Disk."""

    name: str
    datastore: str
    sizeMB: int | None = None
    # The VM that uses it; absent too if the vCenter account does not see that VM.
    vm: str = ""
    isAttached: bool = False
    persistentVolume: str = ""
    claim: str = ""


class Node(Item, frozen=True, kw_only=True):
    vm: str = ""
    # Why it has no VM, or which other Nodes have the same VM.
    message: str = ""
    ready: bool
    unschedulable: bool
    pods: int | None = None
    maintenanceStart: datetime | None = None


class Member(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A replica of a VmGroup."""

    vm: str = ""
    name: str
    state: MemberState


class Task(Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    vm: str
    percent: int | None = None


class VmGroup(Item, frozen=True, kw_only=True):
    vcenter: str = ""
    template: str
    replicas: int
    readyReplicas: int
    phase: str
    ready: bool
    message: str
    members: tuple[Member, ...]
    tasks: tuple[Task, ...]


class Candidate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    node: str
    gpus: tuple[str, ...] = ()
    availableHours: int | None = None
    cpuDemandMHz: int | None = None


class Rejection(Struct, frozen=True, kw_only=True):
    node: str
    reason: str
    message: str


class GPUInfo(Item, frozen=True, kw_only=True):
    ready: bool
    node: str = ""
    message: str
    candidates: tuple[Candidate, ...]
    # The first ones by name; `omittedRejections` counts the others.
    rejections: tuple[Rejection, ...]
    omittedRejections: int = 0


class Manager(Struct, frozen=True, kw_only=True):
    version: str
    identity: str
    isLeader: bool


class Limits(Struct, frozen=True, kw_only=True):
    vms: int
    omittedVMs: int


class PressureLimit(Struct, frozen=True, kw_only=True):
    """In percent of the time for CPU readiness, of the VM's memory for the other types."""

    # The Node condition VSphereHostPressure becomes True at `hot`, and False below `warm`.
    warmPercent: int
    hotPercent: int


class Topology(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole model; each collection is sorted by `id`."""

    apiVersion: str = ""
    kind: str = ""
    revision: str
    time: datetime
    manager: Manager | None = None
    vcenters: list[VCenter]
    datacenters: list[Datacenter]
    clusters: list[Cluster]
    hosts: list[Host]
    vms: list[VM]
    datastores: list[Datastore]
    disks: list[Disk]
    nodes: list[Node]
    vmGroups: list[VmGroup]
    gpuInfos: list[GPUInfo]
    limits: Limits
    pressureLimits: dict[str, PressureLimit] = {}


class Change(Struct, frozen=True, kw_only=True):
    """Something that happened to an object."""

    time: datetime
    kind: str
    id: str
    name: str
    type: str
    message: str


class Changes(Struct, frozen=True, kw_only=True):
    """What happened, newest first. The list is complete from `since` on."""

    since: datetime
    limit: int
    changes: list[Change]
