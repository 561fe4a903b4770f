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
from .lookup import AnEntity, Lookup
from .model import Compute, Datacenter, Datastore, Entity, Folder, Host, Machine, ResourcePool, Task
from .properties import ATTRIBUTES, SORTS, Item, attribute_names, without_stale_stats
from .relations import Relations, Touched
from .updates import ObjectUpdate


class Change(Struct, frozen=True):
    """One object before and after; None is: not there."""

    old: Item | None
    new: Item | None
    around: bool = False
    """Something else that its answer holds changed, whether or not anything of its own did."""

    @property
    def derived(self) -> bool:
        """Nothing of its own changed, but something that its answer holds."""
        return self.old is self.new


class Place(Struct, frozen=True):
    """Where something is, in names; "" where there is none."""

    path: str = ""
    datacenter: str = ""
    cluster: str = ""
    """"" also for a host outside any cluster."""


Listener: TypeAlias = Callable[[Change], None]
Failed: TypeAlias = Callable[[Exception], None]


def raised(error: Exception) -> None:
    """Where nobody else takes the errors of listeners, whoever feeds the inventory gets them."""
    raise error


class Inventory:
    """What one vCenter has. `name` is the vCenter's own, for messages; `failed` gets what a listener raises."""

    def __init__(self, name: str, failed: Failed = raised) -> None:
        self.name, self.failed = name, failed
        self.listeners: list[Listener] = []
        self.hosts: dict[str, Host] = {}
        self.machines: dict[str, Machine] = {}
        self.datastores: dict[str, Datastore] = {}
        self.computes: dict[str, Compute] = {}
        self.pools: dict[str, ResourcePool] = {}
        self.folders: dict[str, Folder] = {}
        self.datacenters: dict[str, Datacenter] = {}
        self.tasks: dict[str, Task] = {}
        self.tables: Mapping[type[Item], dict[str, Any]] = {
            Host: self.hosts,
            Machine: self.machines,
            Datastore: self.datastores,
            Compute: self.computes,
            ResourcePool: self.pools,
            Folder: self.folders,
            Datacenter: self.datacenters,
            Task: self.tasks,
        }
        self.items: dict[str, Item] = {}
        """All of them, whatever they are."""
        self.told: dict[str, Item] = {}
        """The same as vCenter told it: attributes by key, load also where it is stale."""
        self.relations = Relations(self.tables)
        self.tree = self.relations.tree
        self.attribute_names: dict[str, str] = {}
        self.nameless: set[str] = set()
        """Keys of custom attributes whose names are not known."""
        self.lookups: dict[type, Lookup[Any]] = {kind: self.lookup(kind, "named", self.relations.names[kind]) for kind in WORDS}
        self.with_bios_uuid: Lookup[Machine] = self.lookup(Machine, "with the bios uuid", self.relations.bios_uuids)
        self.with_instance_uuid: Lookup[Machine] = self.lookup(Machine, "with the instance uuid", self.relations.instance_uuids)

    def lookup(self, kind: type[Item], having: str, index: Index) -> Lookup[Any]:
        """How one of a sort is found."""
        return Lookup(self.name, WORDS[kind], having, self.tables[kind], index, self.path)

    def named(self, kind: type[AnEntity]) -> Lookup[AnEntity]:
        """How those of a sort are found by name."""
        return self.lookups[kind]

    def apply(self, updates: Iterable[ObjectUpdate]) -> None:
        """Take updates in, then tell the listeners."""
        touched = Touched()
        for update in updates:
            if update.type == ATTRIBUTES:
                self.name_attributes(attribute_names(update.changes.get("field")), touched)
            elif update.type in SORTS:
                self.put(update.ref, merged(self.told, update), touched)
        self.tell(touched)

    def replace(self, updates: Iterable[ObjectUpdate]) -> None:
        """Everything anew: what is not in the updates has left."""
        reload = Reload(self)
        reload.add(updates)
        reload.commit()

    def put(self, ref: str, told: Item | None, touched: Touched) -> None:
        """Hold another value of one object, or none."""
        old, new = self.items.get(ref), None
        if told is None:
            self.told.pop(ref, None)
        else:
            self.told[ref], new = told, self.shown(told)
        if old == new:
            return
        touched.before.setdefault(ref, old)
        if new is not None:
            self.tables[type(new)][ref] = self.items[ref] = new
        elif old is not None:
            del self.tables[type(old)][ref], self.items[ref]
        self.relations.follow(ref, old, new, touched)

    def shown(self, told: Item) -> Item:
        """What vCenter told, as we tell it: attributes by name, no load of what does not report."""
        if isinstance(told, Host | Machine) and told.attributes:
            names = self.attribute_names
            self.nameless |= told.attributes.keys() - names.keys()
            told = structs.replace(told, attributes={names[key]: value for key, value in told.attributes.items() if key in names})
        return without_stale_stats(told)

    def name_attributes(self, names: dict[str, str], touched: Touched) -> None:
        """Custom attributes are called otherwise from now on."""
        if names == self.attribute_names:
            return
        self.attribute_names = names
        self.nameless.clear()
        for ref, told in list(self.told.items()):
            if isinstance(told, Host | Machine) and told.attributes:
                self.put(ref, told, touched)

    def tell(self, touched: Touched) -> None:
        """Tell the listeners what changed by itself, then what changed with it, or back to what it was."""
        dependants = self.relations.dependants(touched)
        changes = {ref: Change(old, new, ref in dependants) for ref, old in touched.before.items() if (new := self.items.get(ref)) != old}
        derived = [Change(item, item, True) for ref in sorted(dependants - changes.keys()) if (item := self.items.get(ref)) is not None]
        for change in (*changes.values(), *derived):
            for listener in self.listeners:
                try:
                    listener(change)
                except Exception as error:
                    self.failed(error)

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """For the time of a `with`, this one hears of each change."""
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def host(self, name: str) -> Host:
        """The host of this name; like all of these, raises NotFound or Ambiguous."""
        return self.named(Host).one(name)

    def machine(self, name: str) -> Machine:
        """The VM or template of this name."""
        return self.named(Machine).one(name)

    def machine_by_bios_uuid(self, uuid: str) -> Machine:
        """The VM of this bios uuid, in either case."""
        return self.with_bios_uuid.one(uuid.lower())

    def machine_by_instance_uuid(self, uuid: str) -> Machine:
        """The VM of this instance uuid, in either case."""
        return self.with_instance_uuid.one(uuid.lower())

    def datacenter(self, name: str) -> Datacenter:
        """The datacenter of this name."""
        return self.named(Datacenter).one(name)

    def cluster(self, name: str) -> Compute:
        """The cluster of this name."""
        return self.named(Compute).one(name)

    def pool(self, name: str) -> ResourcePool:
        """The resource pool of this name."""
        return self.named(ResourcePool).one(name)

    def folder(self, name: str) -> Folder:
        """The folder of this name."""
        return self.named(Folder).one(name)

    def datastore(self, name: str) -> Datastore:
        """The datastore of this name."""
        return self.named(Datastore).one(name)

    def entity(self, ref: str) -> Entity | None:
        """Whatever has a place in the tree under this reference."""
        item = self.items.get(ref)
        return item if isinstance(item, Entity) else None

    def name_of(self, ref: str) -> str:
        """The name of an entity, "" for what is not known."""
        entity = self.entity(ref)
        return entity.name if entity else ""

    def path(self, ref: str) -> str:
        """The inventory path, as vSphere writes it: `/DC0/host/C0/esxi-1`, without the root folder. "" for what is not known."""
        steps = [entity for each in self.tree.upwards(ref) if (entity := self.entity(each)) is not None]
        return "".join(f"/{step.name}" for step in reversed(steps) if not is_root(step)) or ("/" if steps else "")

    def place(self, ref: str) -> Place:
        """Where something is, in names."""
        datacenter, cluster = self.datacenter_of(ref), self.cluster_of(ref)
        return Place(self.path(ref), datacenter.name if datacenter else "", cluster.name if cluster else "")

    def datacenter_of(self, ref: str) -> Datacenter | None:
        """The datacenter that it is in."""
        return next((self.datacenters[each] for each in self.tree.upwards(ref) if each in self.datacenters), None)

    def cluster_of(self, ref: str) -> Compute | None:
        """The cluster that it is in; that of a VM is its host's."""
        machine = self.machines.get(ref)
        above = [self.computes[each] for each in self.tree.upwards(machine.host if machine else ref) if each in self.computes]
        return next((compute for compute in above if compute.is_cluster), None)

    def machines_on(self, ref: str) -> list[Machine]:
        """The VMs and templates of a host."""
        return [self.machines[each] for each in self.relations.on_host.of(ref)]

    def children(self, ref: str) -> list[Entity]:
        """What is directly below."""
        return [entity for each in self.tree.children(ref) if (entity := self.entity(each)) is not None]


class Reload:
    """A second reading of everything, page by page; `commit` exchanges all at once."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.told: dict[str, Item] = {}
        self.attribute_names: dict[str, str] = {}

    def add(self, updates: Iterable[ObjectUpdate]) -> None:
        """Take a page in; nobody sees it yet."""
        for update in updates:
            if update.type == ATTRIBUTES:
                self.attribute_names = attribute_names(update.changes.get("field"))
            elif update.type in SORTS:
                if (item := merged(self.told, update)) is None:
                    self.told.pop(update.ref, None)
                else:
                    self.told[update.ref] = item

    def commit(self) -> None:
        """From now on this is the inventory; listeners hear of what differs."""
        inventory, touched = self.inventory, Touched()
        for ref in [ref for ref in inventory.told if ref not in self.told]:
            inventory.put(ref, None, touched)
        inventory.name_attributes(self.attribute_names, touched)
        for ref, told in self.told.items():
            inventory.put(ref, told, touched)
        inventory.tell(touched)


def merged(told: Mapping[str, Item], update: ObjectUpdate) -> Item | None:
    """An object after an update; None when it has left, or was never there to be modified."""
    sort = SORTS[update.type]
    if update.kind == "enter":
        return sort.updated(sort.blank(update), update)
    old = told.get(update.ref)
    return None if old is None or update.kind == "leave" else sort.updated(old, update)


def is_root(entity: Entity) -> bool:
    """The root folder has no part in paths. What else hangs nowhere is not it: its parent is only not known."""
    return isinstance(entity, Folder) and not entity.parent


WORDS: Mapping[type[Item], str] = {
    Host: "host",
    Machine: "VM",
    Datastore: "datastore",
    Compute: "cluster",
    ResourcePool: "resource pool",
    Folder: "folder",
    Datacenter: "datacenter",
}
