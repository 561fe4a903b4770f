"""Warnings at `kubectl apply`: what the status would say of a name, at once. From memory alone, and never a refusal.

    Warning: vCenter "vc-1" has no host named "esxi-del-e". Did you mean "esxi-dell-e"? ...

Where nothing is known (no inventory yet, no vCenter for the namespace) nothing is said: that is no typing mistake, and the status tells it.
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
from .kinds.vmgroup.placement import PlacementResolver
from .kinds.vmgroup.types import VmGroup
from .kinds.vminfo import VMInfo
from .vcenters.registry import VCenterRegistry, VCenterView

T = TypeVar("T", bound=Resource[Any, Any])


class NameWarningWebhook(Webhook[T], ABC):
    """Looks for what a new spec names, in the way that its kind does, and passes on what that says."""

    failure_policy: ClassVar[Literal["Fail", "Ignore"]] = "Ignore"
    warn_only: ClassVar[bool] = True
    timeout_seconds: ClassVar[int] = 2

    def __init__(self, vcenters: VCenterRegistry, namespaces: Sequence[str]) -> None:
        """`namespaces` are those that the manager is confined to; none of them is all."""
        self.vcenters, self.namespaces = vcenters, namespaces

    async def validate(self, obj: T, old: T | None, request: Admission) -> None:
        """Warn, if the spec is new and names what cannot be found."""
        if old is not None and old.spec == obj.spec:
            return
        served = self._find_vcenter(obj)
        if served is None:
            return
        try:
            self.check_names(obj, served)
        except (Terminal, CloneBlocked) as error:
            request.warn(str(error))
        except (Retry, NotSynced):
            return

    def _find_vcenter(self, obj: T) -> VCenterView | None:
        """The vCenter of its namespace, None where none can be asked."""
        if self.namespaces and obj.metadata.namespace not in self.namespaces:
            return None
        try:
            return self.vcenters.get_view(obj)
        except (Terminal, Retry, NotSynced):
            return None

    @abstractmethod
    def check_names(self, obj: T, served: VCenterView) -> None:
        """Raise Terminal or Obstacle, in words, for what cannot be found; an empty name is not looked for."""


class HostInfoWebhook(NameWarningWebhook[HostInfo]):
    """Hosts."""

    def check_names(self, obj: HostInfo, served: VCenterView) -> None:
        """By name."""
        if obj.spec.hostname:
            served.find_host(obj.spec.hostname)


class VMInfoWebhook(NameWarningWebhook[VMInfo]):
    """VMs."""

    def check_names(self, obj: VMInfo, served: VCenterView) -> None:
        """By name."""
        if obj.spec.nodename:
            served.find_vm(obj.spec.nodename)


class FCDInfoWebhook(NameWarningWebhook[FCDInfo]):
    """First Class Disks."""

    def __init__(self, vcenters: VCenterRegistry, namespaces: Sequence[str], cache: Cache) -> None:
        super().__init__(vcenters, namespaces)
        self.cache = cache

    def check_names(self, obj: FCDInfo, served: VCenterView) -> None:
        """Through the volume of that name, so not before all volumes are known."""
        if obj.spec.pvId and self.cache.store(PersistentVolume).watched_revision(""):
            find_disk(obj.spec.pvId, find_volume(obj.spec.pvId, self.cache), served)


class VmGroupWebhook(NameWarningWebhook[VmGroup]):
    """The template and the places of a group."""

    def __init__(
        self,
        vcenters: VCenterRegistry,
        namespaces: Sequence[str],
        limits: Callable[[str], NamespaceLimits],
    ) -> None:
        super().__init__(vcenters, namespaces)
        self.limits_for = limits

    def check_names(self, obj: VmGroup, served: VCenterView) -> None:
        """The first thing that is in the way of a clone."""
        defaults = to_builtins(self.vcenters.get_config(served.name).defaults)
        PlacementResolver(
            served.inventory,
            obj.spec.requested_placement,
            defaults,
            self.limits_for(obj.metadata.namespace),
        ).resolve(obj.spec.template)


def build_webhooks(
    vcenters: VCenterRegistry,
    cache: Cache,
    limits: Callable[[str], NamespaceLimits],
    namespaces: Sequence[str] = (),
) -> list[NameWarningWebhook[Any]]:
    """One for each kind that names something in vCenter."""
    return [
        HostInfoWebhook(vcenters, namespaces),
        VMInfoWebhook(vcenters, namespaces),
        FCDInfoWebhook(vcenters, namespaces, cache),
        VmGroupWebhook(vcenters, namespaces, limits),
    ]
