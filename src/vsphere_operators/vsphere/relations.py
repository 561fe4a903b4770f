"""Who hangs on whom: the tree and all indexes, kept in step with each change, and whose answer changes with somebody else's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .index import Index
from .model import ComputeResource, Entity, VirtualMachine
from .properties import InventoryObject
from .tree import Tree


class IndexKeys(NamedTuple):
    """What an object is found by."""

    name: str = ""
    parent: str = ""
    lookup_name: str = ""
    """The name, unless nobody looks for it."""
    host: str = ""
    bios_uuid: str = ""
    instance_uuid: str = ""
    datastores: tuple[str, ...] = ()


_NO_KEYS = IndexKeys()


class ChangeSet:
    """What a batch of updates has touched so far."""

    def __init__(self) -> None:
        self.old_values: dict[str, InventoryObject | None] = {}
        """The values that changed, as they were."""
        self._moved_refs: list[str] = []
        """Another name, another parent, come or gone: what hangs on it has another answer too."""
        self._affected_refs: set[str] = set()
        """Those whose own answer alone changed with that of another."""


class Relations:
    """The indexes over the objects of one vCenter."""

    def __init__(self, kinds: Iterable[type[InventoryObject]]) -> None:
        self.tree = Tree()
        self.by_name = {kind: Index() for kind in kinds}
        self.by_bios_uuid, self.by_instance_uuid = Index(), Index()
        self.vms_by_host, self._vms_by_datastore = Index(), Index()

    def update_indexes(
        self, ref: str, old: InventoryObject | None, new: InventoryObject | None, touched: ChangeSet
    ) -> None:
        """Let the indexes follow a change, and note whom it concerns."""
        before, after, kind = _read_keys(old), _read_keys(new), type(new or old)
        if not issubclass(kind, Entity) or (before == after and old and new):
            return
        if not (old and new) or before.name != after.name or before.parent != after.parent:
            touched._moved_refs.append(ref)
            self.tree.set_parent(ref, after.parent)
        self._move_key(self.by_name[kind], ref, before.lookup_name, after.lookup_name, touched)
        self._move_key(self.by_bios_uuid, ref, before.bios_uuid, after.bios_uuid, touched)
        self._move_key(
            self.by_instance_uuid, ref, before.instance_uuid, after.instance_uuid, touched
        )
        if before.host != after.host:
            self.vms_by_host.move(ref, before.host, after.host)
            touched._affected_refs |= {before.host, after.host}
        if before.datastores != after.datastores:
            self._move_datastores(ref, before.datastores, after.datastores)

    def _move_key(
        self, index: Index, ref: str, before: str, after: str, touched: ChangeSet
    ) -> None:
        """Another key; it concerns all others that have or had the same, since whether they are the only one is part of their answer."""
        if before != after:
            index.move(ref, before, after)
            touched._affected_refs |= index.get(before) | index.get(after)

    def _move_datastores(self, ref: str, before: Iterable[str], after: Iterable[str]) -> None:
        """A VM is on other datastores."""
        for datastore in before:
            self._vms_by_datastore.drop(datastore, ref)
        for datastore in after:
            self._vms_by_datastore.add(datastore, ref)

    def find_dependants(self, touched: ChangeSet) -> set[str]:
        """All whose answer changed with somebody else's: what is below, on the host or on the datastore that moved, and those concerned."""
        found, ahead = set[str](), list(touched._moved_refs)
        while ahead:
            ref = ahead.pop()
            if ref not in found:
                found.add(ref)
                ahead += [
                    *self.tree.children(ref),
                    *self.vms_by_host.get(ref),
                    *self._vms_by_datastore.get(ref),
                ]
        return found | touched._affected_refs


def _read_keys(item: InventoryObject | None) -> IndexKeys:
    """The keys of a value; a task has none."""
    if isinstance(item, VirtualMachine):
        above = item.parent or item.resource_pool  # inside a vApp a VM has no folder
        return IndexKeys(
            item.name,
            above,
            item.name,
            item.host,
            item.bios_uuid.lower(),
            item.instance_uuid.lower(),
            item.datastores,
        )
    if isinstance(item, ComputeResource) and not item.is_cluster:
        return IndexKeys(
            item.name, item.parent
        )  # what holds a single host has the host's name, and is not what is meant by it
    return IndexKeys(item.name, item.parent, item.name) if isinstance(item, Entity) else _NO_KEYS
