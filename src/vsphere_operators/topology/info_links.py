"""Which custom resources report an object of vSphere: HostInfos, VMInfos, DatastoreInfos and
ClusterInfos, by the vCenter and the inventory path in their status.

The status counts, not the name in the spec: only the controller knows which vCenter serves a
namespace, and whether a name is ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kubewright import Cache, Key, Object

from ..kinds.clusterinfo import ClusterInfo
from ..kinds.datastoreinfo import DatastoreInfo
from ..kinds.hostinfo import HostInfo
from ..kinds.vminfo import VMInfo
from ..vsphere.inventory import Inventory
from ..vsphere.model import ComputeResource, Datastore, Entity, Host, VirtualMachine
from ..vsphere.path_lookup import possible_names
from ..vsphere.vcenter import VCenter
from . import model

_INDEX = "reported object"
# A person reads them; a host may have a HostInfo in each of 1,000 namespaces.
_MAX_INFOS = 10
_KIND_BY_ENTITY: Mapping[
    type[Entity], type[HostInfo] | type[VMInfo] | type[DatastoreInfo] | type[ClusterInfo]
] = {
    Host: HostInfo,
    VirtualMachine: VMInfo,
    Datastore: DatastoreInfo,
    ComputeResource: ClusterInfo,
}
_ItemT = TypeVar("_ItemT", bound=model.ReportedItem)


class _Location(Struct, frozen=True):
    """Where the reported object is."""

    vcenter: str
    path: str

    def __str__(self) -> str:
        # The name of a vCenter may contain a slash, but no line break.
        return f"{self.vcenter}\n{self.path}"


def _read_location(info: object) -> _Location | None:
    if not isinstance(info, HostInfo | VMInfo | DatastoreInfo | ClusterInfo):
        return None
    vcenter, path = info.status.vcenter, info.status.inventoryPath
    return _Location(vcenter, path) if vcenter and path else None


def _read_index_value(info: Object) -> str | None:
    location = _read_location(info)
    return str(location) if location is not None else None


class InfoLinks:
    """Finds the custom resources that report an object, in the cache of the manager."""

    def __init__(
        self, cache: Cache, vcenters: Mapping[str, VCenter], kinds: Collection[type[Object]]
    ) -> None:
        """`kinds` are those that the manager serves; the cache has no others."""
        self._cache, self._vcenters = cache, vcenters
        self._kinds = {
            entity_type: kind for entity_type, kind in _KIND_BY_ENTITY.items() if kind in kinds
        }
        for kind in self._kinds.values():
            cache.store(kind).add_index(_INDEX, _read_index_value)

    def connect(self, on_change: Callable[[str, Entity], None]) -> None:
        """`on_change` gets the vCenter and the object that a resource reports now, or no longer."""
        for entity_type, kind in self._kinds.items():
            self._cache.store(kind).changed.connect(
                partial(self._on_info_change, entity_type, on_change)
            )

    def _on_info_change(
        self,
        entity_type: type[Entity],
        on_change: Callable[[str, Entity], None],
        key: Key,
        old: object,
        new: object,
        *_: object,
    ) -> None:
        before, after = _read_location(old), _read_location(new)
        # Most changes are new figures of the same object.
        if before != after:
            for location in filter(None, (before, after)):
                for entity in self._find_entities(entity_type, location):
                    on_change(location.vcenter, entity)

    def _find_entities(self, entity_type: type[Entity], location: _Location) -> Iterable[Entity]:
        vcenter = self._vcenters.get(location.vcenter)
        names = possible_names(location.path) if vcenter is not None else ()
        for name in names:
            assert vcenter is not None
            yield from vcenter.inventory.by_name(entity_type, name)

    def add_infos(self, inventory: Inventory, entity: Entity, item: _ItemT) -> _ItemT:
        """The item with the resources that report the object."""
        kind = self._kinds.get(type(entity))
        index = self._cache.store(kind).indexes[_INDEX] if kind is not None else None
        # Without any such resource, the path of each object would be built for nothing.
        if kind is None or index is None or not len(index):
            return item
        value = str(_Location(inventory.name, inventory.path(entity.ref)))
        keys = sorted(index.keys_of(value))
        if not keys:
            return item
        return replace(
            item,
            infos=tuple(_build_references(kind, keys[:_MAX_INFOS])),
            omittedInfos=max(0, len(keys) - _MAX_INFOS),
        )


def _build_references(kind: type[Object], keys: Iterable[Key]) -> Iterator[model.InfoReference]:
    definition = kind.definition
    for key in keys:
        yield model.InfoReference(
            kind=definition.name,
            plural=definition.plural,
            namespace=key.namespace,
            name=key.name,
        )
