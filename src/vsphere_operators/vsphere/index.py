"""The indexes of the inventory: references by name and uuid, the tree, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from .model import ComputeResource, Entity, VirtualMachine
from .properties import InventoryObject

_NO_REFS: frozenset[str] = frozenset()


class Index:
    """References by key. An empty key is not indexed."""

    def __init__(self) -> None:
        # A single reference is stored as a plain string: most names and uuids have one, and
        # thousands of sets would slow the garbage collector down.
        self._refs: dict[str, set[str] | str] = {}
        # Grows with each key that is added or removed.
        self.change_count = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def get(self, key: str) -> Set[str]:
        refs = self._refs.get(key, _NO_REFS)
        return frozenset((refs,)) if isinstance(refs, str) else refs

    def move(self, ref: str, before: str, after: str) -> None:
        if before:
            self.drop(before, ref)
        self.add(after, ref)

    def add(self, key: str, ref: str) -> None:
        refs = self._refs.get(key)
        if isinstance(refs, set):
            refs.add(ref)
        elif refs is not None:
            self._refs[key] = {refs, ref}
        elif key:
            self._refs[key] = ref
            self.change_count += 1

    def drop(self, key: str, ref: str) -> None:
        refs = self._refs.get(key)
        if isinstance(refs, set):
            refs.discard(ref)
        if refs == ref or refs == set():
            del self._refs[key]
            self.change_count += 1


class _Tree:
    """Parents and children by reference.

    A parent may be unknown: updates arrive in any order, and missing permissions may hide it.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._children_by_parent = Index()

    def set_parent(self, ref: str, parent: str) -> None:
        self._children_by_parent.move(ref, self._parents.pop(ref, ""), parent)
        if parent:
            self._parents[ref] = parent

    def children(self, ref: str) -> Set[str]:
        return self._children_by_parent.get(ref)

    def self_and_ancestors(self, ref: str) -> Iterator[str]:
        # Of a move across two parents only one half may have arrived, which can form a cycle.
        seen = set[str]()
        while ref and ref not in seen:
            seen.add(ref)
            yield ref
            ref = self._parents.get(ref, "")


class ChangeSet:
    """What a batch of updates has changed so far."""

    def __init__(self) -> None:
        self.old_values: dict[str, InventoryObject | None] = {}
        # Those of them in which more than the quickStats changed.
        self.refs_with_other_changes: set[str] = set()
        # Added, removed, renamed or moved: their children and the VMs on them are affected too.
        self.moved_refs: list[str] = []
        # Affected by the change of another object, without any effect on their children.
        self.affected_refs: set[str] = set()


class _Keys(NamedTuple):
    """The keys under which one object is indexed."""

    name: str = ""
    parent: str = ""
    # The name, or "" for an object that is never looked up by name.
    lookup_name: str = ""
    host: str = ""
    bios_uuid: str = ""
    instance_uuid: str = ""
    datastores: tuple[str, ...] = ()
    is_template: bool = False


_NO_KEYS = _Keys()


class Relations:
    """All indexes over the objects of one vCenter."""

    def __init__(self, types: Iterable[type[object]]) -> None:
        self.tree = _Tree()
        self.by_name: dict[type[object], Index] = {entity_type: Index() for entity_type in types}
        self.by_bios_uuid, self.by_instance_uuid = Index(), Index()
        self.vms_by_host, self._vms_by_datastore = Index(), Index()

    def update(
        self, ref: str, old: InventoryObject | None, new: InventoryObject | None, changes: ChangeSet
    ) -> None:
        """Bring the indexes up to date, and record which other objects the change affects."""
        before, after, entity_type = _read_keys(old), _read_keys(new), type(new or old)
        if not issubclass(entity_type, Entity) or (before == after and old and new):
            return
        if not (old and new) or before.name != after.name or before.parent != after.parent:
            changes.moved_refs.append(ref)
            self.tree.set_parent(ref, after.parent)
        for index, old_key, new_key in (
            (self.by_name[entity_type], before.lookup_name, after.lookup_name),
            (self.by_bios_uuid, before.bios_uuid, after.bios_uuid),
            (self.by_instance_uuid, before.instance_uuid, after.instance_uuid),
        ):
            if old_key != new_key:
                index.move(ref, old_key, new_key)
                # Whether a name or uuid is unique is part of the status of all that share it.
                changes.affected_refs.update(index.get(old_key), index.get(new_key))
        if before.host != after.host:
            self.vms_by_host.move(ref, before.host, after.host)
        if (before.host, before.is_template) != (after.host, after.is_template):
            # A host's status holds the number of its VMs, without templates.
            changes.affected_refs.update((before.host, after.host))
        if before.datastores != after.datastores:
            for datastore in before.datastores:
                self._vms_by_datastore.drop(datastore, ref)
            for datastore in after.datastores:
                self._vms_by_datastore.add(datastore, ref)

    def find_dependants(self, changes: ChangeSet) -> set[str]:
        """All objects with a status that depends on another object that changed."""
        dependants, queue = set[str](), list(changes.moved_refs)
        while queue:
            ref = queue.pop()
            if ref not in dependants:
                dependants.add(ref)
                queue.extend(self.tree.children(ref))
                queue.extend(self.vms_by_host.get(ref))
                queue.extend(self._vms_by_datastore.get(ref))
        return dependants | changes.affected_refs


def _read_keys(item: InventoryObject | None) -> _Keys:
    if item is None:
        return _NO_KEYS
    if isinstance(item, VirtualMachine):
        # By position, in the order of the fields: this runs twice per update of a VM, and keywords
        # are slower. Inside a vApp a VM has no folder, only a resource pool.
        return _Keys(
            item.name,
            item.parent or item.resource_pool,
            item.name,
            item.host,
            _to_lower(item.bios_uuid),
            _to_lower(item.instance_uuid),
            item.datastores,
            item.is_template,
        )
    if isinstance(item, ComputeResource) and not item.is_cluster:
        # The ComputeResource of a standalone host has the host's name and is not a cluster.
        return _Keys(item.name, item.parent)
    return _Keys(item.name, item.parent, item.name) if isinstance(item, Entity) else _NO_KEYS


def _to_lower(text: str) -> str:
    # The index keeps it: a lower-case text is not stored a second time.
    lower = text.lower()
    return text if lower == text else lower
