"""All of one vCenter's inventory in memory, indexed. No I/O: `collector.py` feeds it, tests do too.

Questions and answers:

What is in it?  Frozen values of model.py by reference. An update replaces a value; whoever holds the old one holds a moment.
Who hears of a change?  Every listener, once for each object that an `apply` touched, with the value before and the value after.
What if one of them fails?  `failed` gets the error, and all others still hear: the inventory is as true as before.
And of an object that did not change itself?  Also, if its answer did. A host's answer holds the number of its VMs and the names above it; a
    VM's holds its host's, its datastores' and those above. When one of those changes, or a second object of the same name comes or goes,
    listeners hear of all that depend on it, with `old` and `new` the same value (`change.derived`).
What does that cost?  What changed, and what depends on it; never a look at all. 1,000 hosts that only have new load touch 1,000 values
    and no index. A renamed datacenter touches what is in it, once.
What if vCenter forgets us, and everything is read again?  `Reload` takes the pages; `commit` exchanges all at once: what is not in them
    has left, and listeners hear only of what differs. Never is there a half of both: a host that got another reference is not seen twice.
What if an object comes before its parent?  It hangs under that parent's reference; its path begins where knowledge does.
Why is a load sometimes None although vCenter tells a number?  A host that does not respond keeps its last numbers in vCenter. So the value
    as told is kept apart (`told`), and comes back when the host does, even if vCenter sends nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from msgspec import Struct, structs

from .index import Index
from .lookup import EntityT, Lookup
from .model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Entity,
    Folder,
    Host,
    ResourcePool,
    Task,
    VirtualMachine,
)
from .properties import (
    CUSTOM_FIELDS_MANAGER,
    TYPE_MAPPINGS,
    InventoryObject,
    to_attribute_names,
    without_stale_stats,
)
from .relations import ChangeSet, Relations
from .updates import ObjectUpdate


class Change(Struct, frozen=True):
    """One object before and after; None is: not there."""

    old: InventoryObject | None
    new: InventoryObject | None
    dependency_changed: bool = False
    """Something else that its answer holds changed, whether or not anything of its own did."""

    @property
    def only_dependency_changed(self) -> bool:
        """Nothing of its own changed, but something that its answer holds."""
        return self.old is self.new


class Location(Struct, frozen=True):
    """Where something is, in names; "" where there is none."""

    path: str = ""
    datacenter: str = ""
    cluster: str = ""
    """"" also for a host outside any cluster."""


Listener: TypeAlias = Callable[[Change], None]
ErrorHandler: TypeAlias = Callable[[Exception], None]


def _raise_error(error: Exception) -> None:
    """Where nobody else takes the errors of listeners, whoever feeds the inventory gets them."""
    raise error


class Inventory:
    """What one vCenter has. `name` is the vCenter's own, for messages; `failed` gets what a listener raises."""

    def __init__(self, name: str, failed: ErrorHandler = _raise_error) -> None:
        self.name, self.on_listener_error = name, failed
        self.listeners: list[Listener] = []
        self.hosts: dict[str, Host] = {}
        self.vms: dict[str, VirtualMachine] = {}
        self.datastores: dict[str, Datastore] = {}
        self.compute_resources: dict[str, ComputeResource] = {}
        self.resource_pools: dict[str, ResourcePool] = {}
        self.folders: dict[str, Folder] = {}
        self.datacenters: dict[str, Datacenter] = {}
        self.tasks: dict[str, Task] = {}
        self.objects_by_type: Mapping[type[InventoryObject], dict[str, Any]] = {
            Host: self.hosts,
            VirtualMachine: self.vms,
            Datastore: self.datastores,
            ComputeResource: self.compute_resources,
            ResourcePool: self.resource_pools,
            Folder: self.folders,
            Datacenter: self.datacenters,
            Task: self.tasks,
        }
        self.objects: dict[str, InventoryObject] = {}
        """All of them, whatever they are."""
        self.raw_objects: dict[str, InventoryObject] = {}
        """The same as vCenter told it: attributes by key, load also where it is stale."""
        self.relations = Relations(self.objects_by_type)
        self.tree = self.relations.tree
        self._attribute_names: dict[str, str] = {}
        self.unnamed_attribute_keys: set[str] = set()
        """Keys of custom attributes whose names are not known."""
        self._name_lookups: dict[type, Lookup[Any]] = {
            kind: self._create_lookup(kind, "named", self.relations.by_name[kind])
            for kind in _TYPE_LABELS
        }
        self._bios_uuid_lookup: Lookup[VirtualMachine] = self._create_lookup(
            VirtualMachine, "with the bios uuid", self.relations.by_bios_uuid
        )
        self._instance_uuid_lookup: Lookup[VirtualMachine] = self._create_lookup(
            VirtualMachine, "with the instance uuid", self.relations.by_instance_uuid
        )

    def _create_lookup(self, kind: type[InventoryObject], having: str, index: Index) -> Lookup[Any]:
        """How one of a sort is found."""
        return Lookup(
            self.name, _TYPE_LABELS[kind], having, self.objects_by_type[kind], index, self.path
        )

    def _name_lookup(self, kind: type[EntityT]) -> Lookup[EntityT]:
        """How those of a sort are found by name."""
        return self._name_lookups[kind]

    def apply(self, updates: Iterable[ObjectUpdate]) -> None:
        """Take updates in, then tell the listeners."""
        touched = ChangeSet()
        for update in updates:
            if update.type == CUSTOM_FIELDS_MANAGER:
                self._set_attribute_names(to_attribute_names(update.changes.get("field")), touched)
            elif update.type in TYPE_MAPPINGS:
                self.put(update.ref, apply_update(self.raw_objects, update), touched)
        self.notify(touched)

    def replace_all(self, updates: Iterable[ObjectUpdate]) -> None:
        """Everything anew: what is not in the updates has left."""
        reload = InventoryReload(self)
        reload.add(updates)
        reload.commit()

    def put(self, ref: str, told: InventoryObject | None, touched: ChangeSet) -> None:
        """Hold another value of one object, or none."""
        old, new = self.objects.get(ref), None
        if told is None:
            self.raw_objects.pop(ref, None)
        else:
            self.raw_objects[ref], new = told, self._to_effective(told)
        if old == new:
            return
        touched.old_values.setdefault(ref, old)
        if new is not None:
            self.objects_by_type[type(new)][ref] = self.objects[ref] = new
        elif old is not None:
            del self.objects_by_type[type(old)][ref], self.objects[ref]
        self.relations.update_indexes(ref, old, new, touched)

    def _to_effective(self, told: InventoryObject) -> InventoryObject:
        """What vCenter told, as we tell it: attributes by name, no load of what does not report."""
        if isinstance(told, Host | VirtualMachine) and told.attributes:
            names = self._attribute_names
            self.unnamed_attribute_keys |= told.attributes.keys() - names.keys()
            told = structs.replace(
                told,
                attributes={
                    names[key]: value for key, value in told.attributes.items() if key in names
                },
            )
        return without_stale_stats(told)

    def _set_attribute_names(self, names: dict[str, str], touched: ChangeSet) -> None:
        """Custom attributes are called otherwise from now on."""
        if names == self._attribute_names:
            return
        self._attribute_names = names
        self.unnamed_attribute_keys.clear()
        for ref, told in list(self.raw_objects.items()):
            if isinstance(told, Host | VirtualMachine) and told.attributes:
                self.put(ref, told, touched)

    def notify(self, touched: ChangeSet) -> None:
        """Tell the listeners what changed by itself, then what changed with it, or back to what it was."""
        dependants = self.relations.find_dependants(touched)
        changes = {
            ref: Change(old, new, ref in dependants)
            for ref, old in touched.old_values.items()
            if (new := self.objects.get(ref)) != old
        }
        derived = [
            Change(item, item, True)
            for ref in sorted(dependants - changes.keys())
            if (item := self.objects.get(ref)) is not None
        ]
        for change in (*changes.values(), *derived):
            for listener in self.listeners:
                try:
                    listener(change)
                except Exception as error:
                    self.on_listener_error(error)

    @contextmanager
    def subscribe(self, listener: Listener) -> Iterator[None]:
        """For the time of a `with`, this one hears of each change."""
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def find_host(self, name: str) -> Host:
        """The host of this name; like all of these, raises NotFound or Ambiguous."""
        return self._name_lookup(Host).find(name)

    def find_vm(self, name: str) -> VirtualMachine:
        """The VM or template of this name."""
        return self._name_lookup(VirtualMachine).find(name)

    def find_vm_by_bios_uuid(self, uuid: str) -> VirtualMachine:
        """The VM of this bios uuid, in either case."""
        return self._bios_uuid_lookup.find(uuid.lower())

    def find_vm_by_instance_uuid(self, uuid: str) -> VirtualMachine:
        """The VM of this instance uuid, in either case."""
        return self._instance_uuid_lookup.find(uuid.lower())

    def find_datacenter(self, name: str) -> Datacenter:
        """The datacenter of this name."""
        return self._name_lookup(Datacenter).find(name)

    def find_cluster(self, name: str) -> ComputeResource:
        """The cluster of this name."""
        return self._name_lookup(ComputeResource).find(name)

    def find_resource_pool(self, name: str) -> ResourcePool:
        """The resource pool of this name."""
        return self._name_lookup(ResourcePool).find(name)

    def find_folder(self, name: str) -> Folder:
        """The folder of this name."""
        return self._name_lookup(Folder).find(name)

    def find_datastore(self, name: str) -> Datastore:
        """The datastore of this name."""
        return self._name_lookup(Datastore).find(name)

    def entity(self, ref: str) -> Entity | None:
        """Whatever has a place in the tree under this reference."""
        item = self.objects.get(ref)
        return item if isinstance(item, Entity) else None

    def name_of(self, ref: str) -> str:
        """The name of an entity, "" for what is not known."""
        entity = self.entity(ref)
        return entity.name if entity else ""

    def path(self, ref: str) -> str:
        """The inventory path, as vSphere writes it: `/DC0/host/C0/esxi-1`, without the root folder. "" for what is not known."""
        steps = [
            entity
            for each in self.tree.self_and_ancestors(ref)
            if (entity := self.entity(each)) is not None
        ]
        return "".join(f"/{step.name}" for step in reversed(steps) if not _is_root(step)) or (
            "/" if steps else ""
        )

    def location(self, ref: str) -> Location:
        """Where something is, in names."""
        datacenter, cluster = self.datacenter_of(ref), self._cluster_of(ref)
        return Location(
            self.path(ref), datacenter.name if datacenter else "", cluster.name if cluster else ""
        )

    def datacenter_of(self, ref: str) -> Datacenter | None:
        """The datacenter that it is in."""
        return next(
            (
                self.datacenters[each]
                for each in self.tree.self_and_ancestors(ref)
                if each in self.datacenters
            ),
            None,
        )

    def _cluster_of(self, ref: str) -> ComputeResource | None:
        """The cluster that it is in; that of a VM is its host's."""
        machine = self.vms.get(ref)
        above = [
            self.compute_resources[each]
            for each in self.tree.self_and_ancestors(machine.host if machine else ref)
            if each in self.compute_resources
        ]
        return next((compute for compute in above if compute.is_cluster), None)

    def vms_on(self, ref: str) -> list[VirtualMachine]:
        """The VMs and templates of a host."""
        return [self.vms[each] for each in self.relations.vms_by_host.get(ref)]

    def children(self, ref: str) -> list[Entity]:
        """What is directly below."""
        return [
            entity for each in self.tree.children(ref) if (entity := self.entity(each)) is not None
        ]


class InventoryReload:
    """A second reading of everything, page by page; `commit` exchanges all at once."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.raw_objects: dict[str, InventoryObject] = {}
        self._attribute_names: dict[str, str] = {}

    def add(self, updates: Iterable[ObjectUpdate]) -> None:
        """Take a page in; nobody sees it yet."""
        for update in updates:
            if update.type == CUSTOM_FIELDS_MANAGER:
                self._attribute_names = to_attribute_names(update.changes.get("field"))
            elif update.type in TYPE_MAPPINGS:
                if (item := apply_update(self.raw_objects, update)) is None:
                    self.raw_objects.pop(update.ref, None)
                else:
                    self.raw_objects[update.ref] = item

    def commit(self) -> None:
        """From now on this is the inventory; listeners hear of what differs."""
        inventory, touched = self.inventory, ChangeSet()
        for ref in [ref for ref in inventory.raw_objects if ref not in self.raw_objects]:
            inventory.put(ref, None, touched)
        inventory._set_attribute_names(self._attribute_names, touched)
        for ref, told in self.raw_objects.items():
            inventory.put(ref, told, touched)
        inventory.notify(touched)


def apply_update(
    told: Mapping[str, InventoryObject], update: ObjectUpdate
) -> InventoryObject | None:
    """An object after an update; None when it has left, or was never there to be modified."""
    sort = TYPE_MAPPINGS[update.type]
    if update.kind == "enter":
        return sort.apply_update(sort.create_empty(update), update)
    old = told.get(update.ref)
    return None if old is None or update.kind == "leave" else sort.apply_update(old, update)


def _is_root(entity: Entity) -> bool:
    """The root folder has no part in paths. What else hangs nowhere is not it: its parent is only not known."""
    return isinstance(entity, Folder) and not entity.parent


_TYPE_LABELS: Mapping[type[InventoryObject], str] = {
    Host: "host",
    VirtualMachine: "VM",
    Datastore: "datastore",
    ComputeResource: "cluster",
    ResourcePool: "resource pool",
    Folder: "folder",
    Datacenter: "datacenter",
}
