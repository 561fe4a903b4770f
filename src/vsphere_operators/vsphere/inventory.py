"""The inventory of one vCenter in memory, indexed. It does no I/O: inventory_watcher.py fills it.

What does it hold?  Frozen values of model.py by reference. An update replaces a value.
What are listeners notified of?  Each object of their type that an `apply` changed, once, with its
    old and its new value. VCenter connects its own parts, build.py all other listeners.
And of an object that did not change itself?  Yes, if its status depends on one that did: a host's
    status holds the number of its VMs and the names above it, a VM's the names of its host, its
    datastores and the folders above. Then `old` and `new` are the same value.
What does that cost?  Work for what changed and what depends on it, never a scan of everything. New
    quickStats of 1,000 hosts replace 1,000 values and touch no index.
What if vCenter forgets our session, and everything is read again?  `InventoryReload` collects the
    pages and replaces all at once. A host that got another reference is never seen twice.
What if an object arrives before its parent?  It is stored below that parent's reference; its path
    begins at the topmost known object.
Why are quickStats sometimes None although vCenter sends numbers?  vCenter keeps the last numbers of
    a host that does not respond. `raw_objects` has them as received, so that they return with the
    host even if vCenter sends nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from .changes import Change as Change
from .changes import Signal as Signal
from .converters import to_attribute_names
from .decode_errors import ReportUndecodable, ignore_undecodable
from .index import ChangeSet, Index, Relations
from .log import Log
from .lookup import Suggestions, ambiguous_error, not_found_error
from .model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Disk,
    Entity,
    Folder,
    Host,
    Location,
    ResourcePool,
    Task,
    VirtualMachine,
)
from .properties import CUSTOM_FIELDS_MANAGER, TYPE_MAPPINGS, InventoryObject, without_stale_stats
from .updates import ObjectUpdate

EntityT = TypeVar("EntityT", bound=Entity)
ObjectT = TypeVar("ObjectT", bound=Entity | Task)

_TYPE_LABELS: Mapping[type[Entity], str] = {Host: "host", VirtualMachine: "VM"}


class Inventory:
    """All objects of one vCenter. `find_host` and `find_vm` raise NotFound or Ambiguous."""

    def __init__(
        self,
        name: str,
        log: Log | None = None,
        report_undecodable: ReportUndecodable = ignore_undecodable,
    ) -> None:
        self.report_undecodable = report_undecodable
        # The name in the manager's configuration.
        self.name = name
        # about.instanceUuid of the vCenter that the objects are from, "" before the first load.
        # References count in that vCenter only, whatever its name and address.
        self.instance_uuid = ""
        self.hosts: dict[str, Host] = {}
        self.vms: dict[str, VirtualMachine] = {}
        self.datastores: dict[str, Datastore] = {}
        self.compute_resources: dict[str, ComputeResource] = {}
        self.resource_pools: dict[str, ResourcePool] = {}
        self.folders: dict[str, Folder] = {}
        self.datacenters: dict[str, Datacenter] = {}
        self.tasks: dict[str, Task] = {}
        self._tables: Mapping[type[object], dict[str, Any]] = {
            Host: self.hosts,
            VirtualMachine: self.vms,
            Datastore: self.datastores,
            ComputeResource: self.compute_resources,
            ResourcePool: self.resource_pools,
            Folder: self.folders,
            Datacenter: self.datacenters,
            Task: self.tasks,
        }
        self._signals: Mapping[type[object], Signal[Change[Any]]] = {
            object_type: Signal(log) for object_type in self._tables
        }
        # For changes of nothing but quickStats, which are most of all changes.
        self._stats_signals: Mapping[type[object], Signal[Change[Any]]] = {
            object_type: Signal(log) for object_type in self._tables
        }
        self.objects: dict[str, InventoryObject] = {}
        # As received: custom attributes by key, and quickStats even where they are stale.
        self.raw_objects: dict[str, InventoryObject] = {}
        self._relations = Relations(self._tables)
        self._suggestions: dict[Index, Suggestions] = {}
        self._attribute_names: dict[str, str] = {}
        # Keys of custom attributes without a known name.
        self.unnamed_attribute_keys: set[str] = set()

    def connect(
        self,
        listener: Callable[[Change[ObjectT]], object],
        *types: type[ObjectT],
        include_related: bool = True,
        include_stats: bool = True,
    ) -> None:
        """Call the listener for each change of an object of these types, or of any type.

        With `include_related` also if only an object changed on which its status depends, and with
        `include_stats` also if only quickStats changed.
        """

        def on_own_change(change: Change[ObjectT]) -> None:
            if change.old is not change.new:
                listener(change)

        for object_type in types or self._signals:
            self._signals[object_type].connect(listener if include_related else on_own_change)
            if include_stats:
                self._stats_signals[object_type].connect(listener)

    def connect_tasks(
        self, listener: Callable[[Change[Task]], object], *description_ids: str
    ) -> None:
        """Call the listener for each change of a task with one of these parts in description_id,
        in any letter case. Most tasks of a vCenter concern no listener.
        """
        parts = [part.lower() for part in description_ids]

        def is_relevant(task: Task | None) -> bool:
            return task is not None and any(part in task.description_id.lower() for part in parts)

        def on_task_change(change: Change[Task]) -> None:
            # A restored vCenter may have given the reference to a task of another kind.
            new = change.new if is_relevant(change.new) else None
            if new or is_relevant(change.old):
                listener(structs.replace(change, new=new))

        self._signals[Task].connect(on_task_change)

    def apply(self, updates: Iterable[ObjectUpdate]) -> None:
        """Apply the updates, then notify the listeners."""
        changes = ChangeSet()
        for update in updates:
            if update.type == CUSTOM_FIELDS_MANAGER:
                self.set_attribute_names(to_attribute_names(update.changes.get("field")), changes)
            elif (mapping := TYPE_MAPPINGS.get(update.type)) is not None:
                raw = apply_update(self.raw_objects, update, self.report_undecodable)
                self.put(update.ref, raw, changes, only_stats=mapping.has_only_stats(update))
        self.notify(changes)

    def put(
        self,
        ref: str,
        raw: InventoryObject | None,
        changes: ChangeSet,
        *,
        only_stats: bool = False,
    ) -> None:
        """Replace one object, without a notification. With `only_stats` nothing else differs."""
        old, new = self.objects.get(ref), None
        if raw is None:
            self.raw_objects.pop(ref, None)
        else:
            self.raw_objects[ref], new = raw, self._to_effective(raw)
        if old == new:
            return
        changes.old_values.setdefault(ref, old)
        if new is not None:
            self._tables[type(new)][ref] = self.objects[ref] = new
        elif old is not None:
            del self._tables[type(old)][ref], self.objects[ref]
        if not only_stats:
            changes.refs_with_other_changes.add(ref)
            self._relations.update(ref, old, new, changes)

    def _to_effective(self, raw: InventoryObject) -> InventoryObject:
        """Custom attributes by name instead of by key, and no quickStats that are stale."""
        if isinstance(raw, Host | VirtualMachine) and raw.attributes:
            names = self._attribute_names
            self.unnamed_attribute_keys |= raw.attributes.keys() - names.keys()
            raw = structs.replace(
                raw,
                attributes={
                    names[key]: value for key, value in raw.attributes.items() if key in names
                },
            )
        return without_stale_stats(raw)

    def set_attribute_names(self, names: dict[str, str], changes: ChangeSet) -> None:
        if names == self._attribute_names:
            return
        self._attribute_names = names
        self.unnamed_attribute_keys.clear()
        for ref, raw in list(self.raw_objects.items()):
            if isinstance(raw, Host | VirtualMachine) and raw.attributes:
                self.put(ref, raw, changes)

    def notify(self, changes: ChangeSet, *, reloaded: bool = False) -> None:
        for _ in self.notify_in_slices(changes, reloaded=reloaded):
            pass

    def notify_in_slices(
        self,
        changes: ChangeSet,
        *,
        reloaded: bool = False,
        everything_changed: bool = False,
        slice_size: int = 1_000_000,
    ) -> Iterator[None]:
        """Call the listeners, with a pause after each slice.

        With `everything_changed` each object counts as one that depends on a changed one.
        """
        dependants = self._relations.find_dependants(changes) if not everything_changed else set()
        for count, (ref, old) in enumerate(changes.old_values.items(), 1):
            # A value may have changed and changed back within one batch.
            if (new := self.objects.get(ref)) != old:
                is_related = everything_changed or ref in dependants
                is_other = is_related or ref in changes.refs_with_other_changes
                self._emit(Change(old, new, is_related, reloaded), only_stats=not is_other)
            if count % slice_size == 0:
                yield
        others = list(self.objects) if everything_changed else sorted(dependants)
        for count, ref in enumerate(others, 1):
            item = self.objects.get(ref)
            if item is not None and changes.old_values.get(ref, item) == item:
                self._emit(Change(item, item, True))
            if count % slice_size == 0:
                yield

    def _emit(self, change: Change[Any], *, only_stats: bool = False) -> None:
        if only_stats:
            self._stats_signals[type(change.new)].emit(change)
            return
        is_replaced = None not in (change.old, change.new) and (
            type(change.old) is not type(change.new)
        )
        if is_replaced:
            # Another vCenter at the same address may use a reference for another object.
            self._signals[type(change.old)].emit(structs.replace(change, new=None))
            change = structs.replace(change, old=None)
        self._signals[type(change.new or change.old)].emit(change)

    def find_host(self, name: str) -> Host:
        return self._find(Host, name)

    def find_vm(self, name: str) -> VirtualMachine:
        """The VM or template of this name."""
        return self._find(VirtualMachine, name)

    def _find(self, entity_type: type[EntityT], name: str) -> EntityT:
        index = self._relations.by_name[entity_type]
        refs, label = index.get(name), _TYPE_LABELS[entity_type]
        if not refs:
            suggestions = self._suggestions.setdefault(index, Suggestions(index))
            raise not_found_error(self.name, label, name, suggestions)
        if len(refs) > 1:
            raise ambiguous_error(self.name, label, name, sorted(map(self.path, refs)))
        table: dict[str, EntityT] = self._tables[entity_type]
        return table[next(iter(refs))]

    def all_of(self, entity_type: type[EntityT]) -> Mapping[str, EntityT]:
        return self._tables[entity_type]

    def by_name(self, entity_type: type[EntityT], name: str) -> list[EntityT]:
        """All objects of a type that have this name, sorted by reference."""
        table: dict[str, EntityT] = self._tables[entity_type]
        return [table[ref] for ref in sorted(self._relations.by_name[entity_type].get(name))]

    def by_bios_uuid(self, uuid: str) -> list[VirtualMachine]:
        return [self.vms[ref] for ref in sorted(self._relations.by_bios_uuid.get(uuid.lower()))]

    def by_instance_uuid(self, uuid: str) -> list[VirtualMachine]:
        return [self.vms[ref] for ref in sorted(self._relations.by_instance_uuid.get(uuid.lower()))]

    def vm_of_disk(self, disk: Disk) -> VirtualMachine | None:
        """The VM that a disk is attached to, if vCenter reports it."""
        for uuid in disk.attached_vm_uuids:
            for find in (self.by_instance_uuid, self.by_bios_uuid):
                if len(vms := find(uuid)) == 1:
                    return vms[0]
        return None

    def entity(self, ref: str) -> Entity | None:
        item = self.objects.get(ref)
        return item if isinstance(item, Entity) else None

    def name_of(self, ref: str) -> str:
        """The name of an entity, "" if it is unknown."""
        entity = self.entity(ref)
        return entity.name if entity else ""

    def path(self, ref: str) -> str:
        """The inventory path as vSphere writes it, `/DC0/host/C0/esxi-1`; "" if it is unknown."""
        return _format_path(ref, self._with_ancestors(ref))

    def path_names(self, ref: str) -> tuple[str, ...]:
        """The names in the path. A name may contain a slash, so that the path is ambiguous."""
        return _path_names(self._with_ancestors(ref))

    def location(self, ref: str) -> Location:
        entities = self._with_ancestors(ref)
        # A VM is below its folder in the tree; its cluster is that of its host.
        vm = self.vms.get(ref)
        above = entities if vm is None else self._with_ancestors(vm.host)
        cluster = next(
            (item for item in above if isinstance(item, ComputeResource) and item.is_cluster), None
        )
        datacenter = _datacenter_in(entities)
        return Location(
            _format_path(ref, entities),
            datacenter.name if datacenter else "",
            cluster.name if cluster else "",
        )

    def datacenter_of(self, ref: str) -> Datacenter | None:
        return _datacenter_in(self._with_ancestors(ref))

    def _with_ancestors(self, ref: str) -> list[Entity]:
        """The entity and those above it, without the unknown ones."""
        objects = self.objects
        return [
            item
            for ancestor in self._relations.tree.self_and_ancestors(ref)
            if isinstance(item := objects.get(ancestor), Entity)
        ]

    def vms_on(self, host: str) -> list[VirtualMachine]:
        """The VMs and templates of the host with this reference."""
        return [self.vms[ref] for ref in self._relations.vms_by_host.get(host)]

    def children(self, ref: str) -> list[Entity]:
        """The known entities directly below."""
        return [
            entity
            for child in self._relations.tree.children(ref)
            if (entity := self.entity(child)) is not None
        ]


def apply_update(
    raw_objects: Mapping[str, InventoryObject], update: ObjectUpdate, report: ReportUndecodable
) -> InventoryObject | None:
    """The object after an update; None if it was removed, or if there is nothing to modify."""
    mapping, old = TYPE_MAPPINGS[update.type], raw_objects.get(update.ref)
    if old is not None and type(old) is not mapping.model_type:
        # Until the next load a reference belongs to one object, so one of the updates is broken.
        report(update.type, "obj", update.ref, TypeError(f"it was a {type(old).__name__}"))
        return old
    if update.kind == "enter":
        return mapping.apply_update(mapping.create_empty(update), update, report)
    if old is None or update.kind == "leave":
        return None
    return mapping.apply_update(old, update, report)


def _path_names(entities: Sequence[Entity]) -> tuple[str, ...]:
    """Of an entity and those above it."""
    # The root folder is not part of paths. Any other object without a parent is not the root: its
    # parent is only unknown.
    return tuple(
        [item.name for item in reversed(entities) if item.parent or not isinstance(item, Folder)]
    )


def _format_path(ref: str, entities: Sequence[Entity]) -> str:
    if names := _path_names(entities):
        return "/" + "/".join(names)
    return "/" if entities and entities[0].ref == ref else ""


def _datacenter_in(entities: Sequence[Entity]) -> Datacenter | None:
    return next((item for item in entities if isinstance(item, Datacenter)), None)
