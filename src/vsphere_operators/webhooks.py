"""Admission warnings at `kubectl apply` for names that vCenter does not have.

    Warning: spec.hostname "esxi-del-e": vCenter has no host of that name (HostNotFound). ...

The webhooks read only memory and never reject an object. They are silent while nothing is known (no
inventory yet, no vCenter for the namespace): the status reports that.

Why do the warnings not suggest names, as the status does?  Every Pod that reaches the port can send
    a review with any namespace in it, and suggestions would list the whole inventory to it. So an
    answer has no name that was not in the request. The status, which needs permission to read the
    object, has the names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import to_builtins

from kubewright import Admission, Cache, NotSynced, Resource, Retry, Terminal, Webhook
from kubewright.builtin import PersistentVolume

from .kinds.clusterinfo import ClusterInfo
from .kinds.datastoreinfo import DatastoreInfo
from .kinds.fcdinfo import FCDInfo, find_disk, find_volume
from .kinds.hostinfo import HostInfo
from .kinds.vmgroup.limits import NamespaceLimits
from .kinds.vmgroup.model import CloneBlocked
from .kinds.vmgroup.placement import PlacementResolver, placement_names
from .kinds.vmgroup.reasons import Reason as GroupReason
from .kinds.vmgroup.types import VmGroup
from .kinds.vminfo import VMInfo
from .vcenters.registry import Reason, VCenterLookup, VCenterRegistry
from .vsphere.lookup import quote

T = TypeVar("T", bound=Resource[Any, Any])

# By reason: the field of the spec, and what is wrong with its name.
_PROBLEMS: Mapping[str, tuple[str, str]] = {
    Reason.HOST_NOT_FOUND: ("hostname", "vCenter has no host of that name"),
    Reason.HOST_AMBIGUOUS: ("hostname", "several hosts have that name"),
    Reason.VM_NOT_FOUND: ("nodename", "vCenter has no VM of that name"),
    Reason.VM_AMBIGUOUS: ("nodename", "several VMs have that name"),
    Reason.DISK_NOT_FOUND: ("pvId", "vCenter has no First Class Disk of that name or volume"),
    Reason.DISK_AMBIGUOUS: ("pvId", "several First Class Disks have that name"),
    GroupReason.PLACEMENT_NOT_ALLOWED: ("", "this namespace may not use the selected placement"),
    GroupReason.TEMPLATE_NOT_FOUND: ("template", "this namespace has no template of that name"),
    GroupReason.TEMPLATE_AMBIGUOUS: ("template", "several templates have that name"),
    GroupReason.FOLDER_NOT_FOUND: ("placement.folder", "the folder does not exist"),
    GroupReason.FOLDER_AMBIGUOUS: ("placement.folder", "several folders have that name"),
    GroupReason.DATACENTER_NOT_FOUND: ("placement.datacenter", "the datacenter does not exist"),
    GroupReason.DATACENTER_AMBIGUOUS: (
        "placement.datacenter",
        "vCenter has several datacenters of that name, or none is selected",
    ),
    GroupReason.CLUSTER_NOT_FOUND: ("placement.cluster", "the cluster does not exist"),
    GroupReason.CLUSTER_AMBIGUOUS: ("placement.cluster", "several clusters have that name"),
    GroupReason.RESOURCE_POOL_NOT_FOUND: (
        "placement.resourcePool",
        "the resource pool does not exist",
    ),
    GroupReason.RESOURCE_POOL_AMBIGUOUS: (
        "placement.resourcePool",
        "several resource pools are possible",
    ),
    GroupReason.DATASTORE_NOT_FOUND: ("placement.datastore", "the datastore does not exist"),
    GroupReason.DATASTORE_AMBIGUOUS: ("placement.datastore", "several datastores have that name"),
    GroupReason.DATASTORE_INACCESSIBLE: (
        "placement.datastore",
        "no host can access the datastore",
    ),
}


class NameWarningWebhook(Webhook[T], ABC):
    """Resolves the names of a new spec as its controller would, and warns if that fails."""

    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Ignore"
    warn_only: ClassVar[bool] = True
    timeout_seconds: ClassVar[int] = 2
    problems: ClassVar[Mapping[str, tuple[str, str]]] = _PROBLEMS

    def __init__(self, vcenters: VCenterRegistry, namespaces: Sequence[str]) -> None:
        """`namespaces` are those that the manager is restricted to; empty for all."""
        self.vcenters, self._namespaces = vcenters, namespaces

    async def validate(self, obj: T, old: T | None, request: Admission) -> None:
        if old is not None and old.spec == obj.spec:
            return
        if self._namespaces and obj.metadata.namespace not in self._namespaces:
            return
        try:
            lookup = self.vcenters.lookup_for(obj)
        except (Terminal, Retry, NotSynced):
            return
        try:
            self._check_names(obj, lookup)
        except (Terminal, CloneBlocked) as error:
            request.warn(_describe_problem(obj, error.reason, self.problems))
        except (Retry, NotSynced):
            return

    @abstractmethod
    def _check_names(self, obj: T, lookup: VCenterLookup) -> None:
        """Raise Terminal or CloneBlocked for a name that cannot be found; skip empty names."""


def _describe_problem(
    obj: Resource[Any, Any], reason: str, problems: Mapping[str, tuple[str, str]]
) -> str:
    """The warning: it names nothing but what the request names."""
    field, problem = problems.get(reason, ("", "a name in it cannot be resolved"))
    name = ""
    if field and (not field.startswith("placement.") or obj.spec.placement is not None):
        name = attrgetter(field)(obj.spec)
    return (
        f"spec{f'.{field}' if field else ''}{f' {quote(name)}' if name else ''}: {problem} "
        f"({reason}). The condition Ready of the object has the details."
    )


class HostInfoWebhook(NameWarningWebhook[HostInfo]):
    def _check_names(self, obj: HostInfo, lookup: VCenterLookup) -> None:
        if obj.spec.hostname:
            lookup.find_host(obj.spec.hostname)


class VMInfoWebhook(NameWarningWebhook[VMInfo]):
    def _check_names(self, obj: VMInfo, lookup: VCenterLookup) -> None:
        if obj.spec.nodename:
            lookup.find_vm(obj.spec.nodename)


class FCDInfoWebhook(NameWarningWebhook[FCDInfo]):
    def __init__(self, vcenters: VCenterRegistry, namespaces: Sequence[str], cache: Cache) -> None:
        super().__init__(vcenters, namespaces)
        self._cache = cache

    def _check_names(self, obj: FCDInfo, lookup: VCenterLookup) -> None:
        # A PersistentVolume of that name decides which disk is meant. Skip the check until all are
        # listed.
        if obj.spec.pvId and self._cache.store(PersistentVolume).watched_revision(""):
            find_disk(obj.spec.pvId, find_volume(obj.spec.pvId, self._cache), lookup)


class DatastoreInfoWebhook(NameWarningWebhook[DatastoreInfo]):
    # VmGroup has the same reasons, with other fields.
    problems: ClassVar[Mapping[str, tuple[str, str]]] = {
        Reason.DATASTORE_NOT_FOUND: ("datastore", "vCenter has no datastore of that name or path"),
        Reason.DATASTORE_AMBIGUOUS: ("datastore", "several datastores have that name"),
    }

    def _check_names(self, obj: DatastoreInfo, lookup: VCenterLookup) -> None:
        if obj.spec.datastore:
            lookup.find_datastore(obj.spec.datastore)


class ClusterInfoWebhook(NameWarningWebhook[ClusterInfo]):
    problems: ClassVar[Mapping[str, tuple[str, str]]] = {
        Reason.CLUSTER_NOT_FOUND: ("cluster", "vCenter has no cluster of that name or path"),
        Reason.CLUSTER_AMBIGUOUS: ("cluster", "several clusters have that name"),
    }

    def _check_names(self, obj: ClusterInfo, lookup: VCenterLookup) -> None:
        if obj.spec.cluster:
            lookup.find_cluster(obj.spec.cluster)


class VmGroupWebhook(NameWarningWebhook[VmGroup]):
    def __init__(
        self,
        vcenters: VCenterRegistry,
        namespaces: Sequence[str],
        limits_for: Callable[[str], NamespaceLimits],
    ) -> None:
        super().__init__(vcenters, namespaces)
        self._limits_for = limits_for

    def _check_names(self, obj: VmGroup, lookup: VCenterLookup) -> None:
        PlacementResolver(
            lookup.inventory,
            placement_names(obj.spec.placement),
            to_builtins(self.vcenters.get_config_by_name(lookup.vcenter_name).defaults),
            self._limits_for(obj.metadata.namespace),
        ).resolve(obj.spec.template)


def build_webhooks(
    vcenters: VCenterRegistry,
    cache: Cache,
    limits_for: Callable[[str], NamespaceLimits],
    namespaces: Sequence[str] = (),
) -> list[NameWarningWebhook[Any]]:
    return [
        HostInfoWebhook(vcenters, namespaces),
        VMInfoWebhook(vcenters, namespaces),
        FCDInfoWebhook(vcenters, namespaces, cache),
        DatastoreInfoWebhook(vcenters, namespaces),
        ClusterInfoWebhook(vcenters, namespaces),
        VmGroupWebhook(vcenters, namespaces, limits_for),
    ]
