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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, TypeVarTuple

from msgspec import Struct, structs

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
ObjectT_co = TypeVar("ObjectT_co", bound=Entity | Task, covariant=True)
Args = TypeVarTuple("Args")

_TYPE_LABELS: Mapping[type[Entity], str] = {Host: "host", VirtualMachine: "VM"}


class Change(Struct, Generic[ObjectT_co], frozen=True):
    """One object before and after a change. None means that it did not or does not exist."""

    old: ObjectT_co | None
    new: ObjectT_co | None
    # Another object changed on which the status of this one depends. If this one did not change
    # itself, `old` is `new`.
    related_object_changed: bool = False
    # A difference that a reload found. What happened, and whether more than once, is not known: an
    # object that is missing after a reload need not be deleted.
    reloaded: bool = False


class Signal(Generic[*Args]):
    """Calls its listeners in the order in which they were connected.

    kubewright.cache has a similar class, but this package must not import kubewright.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log = log
        self._listeners: list[Callable[[*Args], object]] = []

    def connect(self, listener: Callable[[*Args], object]) -> None:
        self._listeners.append(listener)

    def emit(self, *args: *Args) -> None:
        """Call all listeners. The error of one is logged; without a log it is raised."""
        for listener in self._listeners:
            try:
                listener(*args)
            except Exception as error:
                # An error in our own code must not count as a fault of vCenter: the session would
                # log in again and reload everything. Nor may it hide the change from the others.
                if self._log is None:
                    raise
                self._log.error("a listener failed; the others were notified", error=error)


class Inventory:
    """All objects of one vCenter. `find_host` and `find_vm` raise NotFound or Ambiguous."""

    def __init__(
        self,
        name: str,
        log: Log | None = None,
        report_undecodable: ReportUndecodable = ignore_undecodable,
    ) -> None:
        self._report_undecodable = report_undecodable
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
    ) -> None:
        """Call the listener for each change of an object of these types, or of any type.

        With `include_related` also if only an object changed on which its status depends.
        """

        def on_own_change(change: Change[ObjectT]) -> None:
            if change.old is not change.new:
                listener(change)

        for object_type in types or self._signals:
            self._signals[object_type].connect(listener if include_related else on_own_change)

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
                self._set_attribute_names(to_attribute_names(update.changes.get("field")), changes)
            elif update.type in TYPE_MAPPINGS:
                raw = _apply_update(self.raw_objects, update, self._report_undecodable)
                self._put(update.ref, raw, changes)
        self._notify(changes)

    def _put(self, ref: str, raw: InventoryObject | None, changes: ChangeSet) -> None:
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

    def _set_attribute_names(self, names: dict[str, str], changes: ChangeSet) -> None:
        if names == self._attribute_names:
            return
        self._attribute_names = names
        self.unnamed_attribute_keys.clear()
        for ref, raw in list(self.raw_objects.items()):
            if isinstance(raw, Host | VirtualMachine) and raw.attributes:
                self._put(ref, raw, changes)

    def _notify(self, changes: ChangeSet, *, reloaded: bool = False) -> None:
        dependants = self._relations.find_dependants(changes)
        # A value may have changed and changed back within one batch.
        own_changes = {
            ref: Change(old, new, ref in dependants, reloaded)
            for ref, old in changes.old_values.items()
            if (new := self.objects.get(ref)) != old
        }
        dependent_changes = [
            Change(item, item, True)
            for ref in sorted(dependants - own_changes.keys())
            if (item := self.objects.get(ref)) is not None
        ]
        for change in (*own_changes.values(), *dependent_changes):
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
        names = "".join(f"/{name}" for name in self.path_names(ref))
        return names or ("/" if self.entity(ref) is not None else "")

    def path_names(self, ref: str) -> tuple[str, ...]:
        """The names in the path. A name may contain a slash, so that the path is ambiguous."""
        entities = [
            entity
            for ancestor in self._relations.tree.self_and_ancestors(ref)
            if (entity := self.entity(ancestor)) is not None
        ]
        # The root folder is not part of paths. Any other object without a parent is not the root:
        # its parent is only unknown.
        return tuple(
            entity.name
            for entity in reversed(entities)
            if entity.parent or not isinstance(entity, Folder)
        )

    def location(self, ref: str) -> Location:
        datacenter, cluster = self.datacenter_of(ref), self._cluster_of(ref)
        return Location(
            self.path(ref), datacenter.name if datacenter else "", cluster.name if cluster else ""
        )

    def datacenter_of(self, ref: str) -> Datacenter | None:
        return next(
            (
                self.datacenters[ancestor]
                for ancestor in self._relations.tree.self_and_ancestors(ref)
                if ancestor in self.datacenters
            ),
            None,
        )

    def _cluster_of(self, ref: str) -> ComputeResource | None:
        # A VM is below its folder in the tree; its cluster is that of its host.
        vm = self.vms.get(ref)
        for ancestor in self._relations.tree.self_and_ancestors(vm.host if vm else ref):
            compute = self.compute_resources.get(ancestor)
            if compute is not None and compute.is_cluster:
                return compute
        return None

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


class InventoryReload:
    """Collects the pages of a reload; `commit` replaces the inventory with them at once."""

    def __init__(self, inventory: Inventory, instance_uuid: str = "") -> None:
        self._inventory, self._instance_uuid = inventory, instance_uuid
        self._raw_objects: dict[str, InventoryObject] = {}
        self._attribute_names: dict[str, str] = {}

    def add(self, updates: Iterable[ObjectUpdate]) -> None:
        for update in updates:
            if update.type == CUSTOM_FIELDS_MANAGER:
                self._attribute_names = to_attribute_names(update.changes.get("field"))
            elif update.type in TYPE_MAPPINGS:
                item = _apply_update(self._raw_objects, update, self._inventory._report_undecodable)
                if item is None:
                    self._raw_objects.pop(update.ref, None)
                else:
                    self._raw_objects[update.ref] = item

    def commit(self) -> None:
        """Replace the inventory, and notify listeners only of differences."""
        inventory, changes = self._inventory, ChangeSet()
        inventory.instance_uuid = self._instance_uuid
        for ref, old in list(inventory.raw_objects.items()):
            if type(self._raw_objects.get(ref)) is not type(old):
                inventory._put(ref, None, changes)
        inventory._set_attribute_names(self._attribute_names, changes)
        for ref, raw in self._raw_objects.items():
            inventory._put(ref, raw, changes)
        inventory._notify(changes, reloaded=True)


def _apply_update(
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
