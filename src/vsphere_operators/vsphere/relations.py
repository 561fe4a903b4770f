"""Who hangs on whom: the tree and all indexes, kept in step with each change, and whose answer changes with somebody else's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .index import Index
from .model import Compute, Entity, Machine
from .properties import Item
from .tree import Tree


class Keys(NamedTuple):
    """What an object is found by."""

    name: str = ""
    above: str = ""
    sought: str = ""
    """The name, unless nobody looks for it."""
    host: str = ""
    bios_uuid: str = ""
    instance_uuid: str = ""
    datastores: tuple[str, ...] = ()


NO_KEYS = Keys()


class Touched:
    """What a batch of updates has touched so far."""

    def __init__(self) -> None:
        self.before: dict[str, Item | None] = {}
        """The values that changed, as they were."""
        self.moved: list[str] = []
        """Another name, another parent, come or gone: what hangs on it has another answer too."""
        self.concerned: set[str] = set()
        """Those whose own answer alone changed with that of another."""


class Relations:
    """The indexes over the objects of one vCenter."""

    def __init__(self, kinds: Iterable[type[Item]]) -> None:
        self.tree = Tree()
        self.names = {kind: Index() for kind in kinds}
        self.bios_uuids, self.instance_uuids = Index(), Index()
        self.on_host, self.on_datastore = Index(), Index()

    def follow(self, ref: str, old: Item | None, new: Item | None, touched: Touched) -> None:
        """Let the indexes follow a change, and note whom it concerns."""
        before, after, kind = keys_of(old), keys_of(new), type(new or old)
        if not issubclass(kind, Entity) or (before == after and old and new):
            return
        if not (old and new) or before.name != after.name or before.above != after.above:
            touched.moved.append(ref)
            self.tree.hang(ref, after.above)
        self.rename(self.names[kind], ref, before.sought, after.sought, touched)
        self.rename(self.bios_uuids, ref, before.bios_uuid, after.bios_uuid, touched)
        self.rename(self.instance_uuids, ref, before.instance_uuid, after.instance_uuid, touched)
        if before.host != after.host:
            self.on_host.move(ref, before.host, after.host)
            touched.concerned |= {before.host, after.host}
        if before.datastores != after.datastores:
            self.store(ref, before.datastores, after.datastores)

    def rename(self, index: Index, ref: str, before: str, after: str, touched: Touched) -> None:
        """Another key; it concerns all others that have or had the same, since whether they are the only one is part of their answer."""
        if before != after:
            index.move(ref, before, after)
            touched.concerned |= index.of(before) | index.of(after)

    def store(self, ref: str, before: Iterable[str], after: Iterable[str]) -> None:
        """A VM is on other datastores."""
        for datastore in before:
            self.on_datastore.drop(datastore, ref)
        for datastore in after:
            self.on_datastore.add(datastore, ref)

    def dependants(self, touched: Touched) -> set[str]:
        """All whose answer changed with somebody else's: what is below, on the host or on the datastore that moved, and those concerned."""
        found, ahead = set[str](), list(touched.moved)
        while ahead:
            ref = ahead.pop()
            if ref not in found:
                found.add(ref)
                ahead += [*self.tree.children(ref), *self.on_host.of(ref), *self.on_datastore.of(ref)]
        return found | touched.concerned


def keys_of(item: Item | None) -> Keys:
    """The keys of a value; a task has none."""
    if isinstance(item, Machine):
        above = item.parent or item.resource_pool  # inside a vApp a VM has no folder
        return Keys(item.name, above, item.name, item.host, item.bios_uuid.lower(), item.instance_uuid.lower(), item.datastores)
    if isinstance(item, Compute) and not item.is_cluster:
        return Keys(item.name, item.parent)  # what holds a single host has the host's name, and is not what is meant by it
    return Keys(item.name, item.parent, item.name) if isinstance(item, Entity) else NO_KEYS
