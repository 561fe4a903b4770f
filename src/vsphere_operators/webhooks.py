"""Admission warnings at `kubectl apply` for names that vCenter does not have.

    Warning: vCenter "vc-1" has no host named "esxi-del-e". Did you mean "esxi-dell-e"? ...

The webhooks read only memory and never reject an object. They are silent while nothing is known (no
inventory yet, no vCenter for the namespace): the status reports that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import to_builtins

from kubewright import Admission, Cache, NotSynced, Resource, Retry, Terminal, Webhook
from kubewright.builtin import PersistentVolume

from .kinds.fcdinfo import FCDInfo, find_disk, find_volume
from .kinds.hostinfo import HostInfo
from .kinds.vmgroup.limits import NamespaceLimits
from .kinds.vmgroup.model import CloneBlocked
from .kinds.vmgroup.placement import PlacementResolver, placement_names
from .kinds.vmgroup.types import VmGroup
from .kinds.vminfo import VMInfo
from .vcenters.registry import VCenterLookup, VCenterRegistry

T = TypeVar("T", bound=Resource[Any, Any])


class NameWarningWebhook(Webhook[T], ABC):
    """Resolves the names of a new spec as its controller would, and warns if that fails."""

    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Ignore"
    warn_only: ClassVar[bool] = True
    timeout_seconds: ClassVar[int] = 2

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
            request.warn(str(error))
        except (Retry, NotSynced):
            return

    @abstractmethod
    def _check_names(self, obj: T, lookup: VCenterLookup) -> None:
        """Raise Terminal or CloneBlocked for a name that cannot be found; skip empty names."""


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
        VmGroupWebhook(vcenters, namespaces, limits_for),
    ]
