"""Keeps the model current: a change marks the objects that it concerns, and these are built again.

What does a change cost?  One entry in a set. Five times a second at most, the marked objects are
    built, and those that differ get a number. New quickStats of 1,000 hosts build 1,000 objects.
What does it cost without a client?  Nothing but the entries in the list of changes. The model is
    built for the first request.
Which Nodes does a VM concern?  Those with its uuid or its name, and the one that it had so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice

from kubewright import Cache, Key, Terminal
from kubewright.builtin import Node, PersistentVolume, Pod
from kubewright.log import Log

from ..kinds.gpuinfo import GPUInfo
from ..kinds.gpuinfo.rules import NodeFacts, Query, SelectionRules, parse_requirement
from ..kinds.gpuinfo.tracker import NodeTracker
from ..kinds.vmgroup import VmGroup
from ..vcenters.node_matching import match_node, parse_provider_id
from ..vcenters.volumes import get_volume_handle
from ..vsphere import inventory as inventories
from ..vsphere.index import Index
from ..vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Disk,
    Entity,
    Host,
    Task,
    VirtualMachine,
)
from ..vsphere.pressure import ENTER_MAINTENANCE_DESCRIPTION_ID, MaintenanceTasks
from ..vsphere.vcenter import VCenter
from . import entities
from .cluster_objects import ClusterObjects
from .entities import qualify
from .model import Collection, Item
from .store import TopologyStore

_FLUSH_SECONDS = 0.2
# Built between two turns of the event loop: 250 objects take up to 7 ms.
_SLICE_SIZE = 250
_MODEL_COLLECTIONS: Mapping[type[Entity], Collection] = {
    Host: "hosts",
    VirtualMachine: "vms",
    Datastore: "datastores",
    ComputeResource: "clusters",
    Datacenter: "datacenters",
}


class TopologyBuilder:
    """Builds the objects of the model; `connect` attaches it to the sources."""

    def __init__(
        self,
        store: TopologyStore,
        vcenters: Mapping[str, VCenter],
        cache: Cache,
        cluster_objects: ClusterObjects,
        tracker: NodeTracker,
        rules: SelectionRules,
        log: Log,
    ) -> None:
        self._store, self._vcenters, self._cache = store, vcenters, cache
        self._cluster_objects, self._tracker, self._rules = cluster_objects, tracker, rules
        self._log = log
        self._is_built = False
        # In the order in which they were marked.
        self._marked: dict[tuple[Collection, str], None] = {}
        self._flush_task: asyncio.Task[None] | None = None
        self._first_build: asyncio.Task[None] | None = None
        self._nodes_by_uuid = Index()
        # The ids of VMs, to mark both the old and the new VM of a Node or VmGroup.
        self._vm_by_node: dict[str, str] = {}
        self._node_by_vm: dict[str, str] = {}
        self._vms_by_group: dict[str, frozenset[str]] = {}
        self._group_by_vm: dict[str, str] = {}
        self._volumes_by_handle = Index()
        self._maintenance_tasks = {name: MaintenanceTasks() for name in vcenters}
        self._build_functions: Mapping[Collection, Callable[[str], Item | None]] = {
            "vcenters": self._build_vcenter,
            "datacenters": partial(self._build_entity, Datacenter, entities.build_datacenter),
            "clusters": self._build_cluster,
            "hosts": self._build_host,
            "vms": self._build_vm,
            "datastores": partial(self._build_entity, Datastore, entities.build_datastore),
            "disks": self._build_disk,
            "nodes": self._build_node,
            "vmGroups": self._build_vm_group,
            "gpuInfos": self._build_gpu_info,
        }

    def connect(self) -> None:
        for vcenter in self._vcenters.values():
            inventory = vcenter.inventory
            inventory.connect(partial(self._on_entity_change, vcenter), *_MODEL_COLLECTIONS)
            inventory.connect_tasks(
                partial(self._on_task_change, vcenter), ENTER_MAINTENANCE_DESCRIPTION_ID
            )
            vcenter.disks.changed.connect(partial(self._on_disk_change, vcenter))
            vcenter.state_changed.connect(partial(self._on_state_change, vcenter))
        self._cache.store(Node).changed.connect(self._on_node_change)
        self._cache.store(PersistentVolume).changed.connect(self._on_volume_change)
        self._cache.store(VmGroup).changed.connect(self._on_group_change)
        self._cache.store(GPUInfo).changed.connect(lambda key, *_: self._mark("gpuInfos", str(key)))
        self._cluster_objects.pods.changed.connect(self._on_pod_change)
        self._tracker.facts_changed.connect(self._on_facts_change)

    # Changes

    def _mark(self, collection: Collection, item_id: str) -> None:
        if not item_id:
            return
        # Before the first request everything is missing, so there is nothing to mark.
        if self._is_built:
            self._marked[collection, item_id] = None
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.get_running_loop().create_task(
                self._flush_later(), name="topology: flush"
            )

    async def _flush_later(self) -> None:
        while self._marked:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Build what is marked, and notify the clients."""
        while self._marked:
            keys = list(islice(self._marked, _SLICE_SIZE))
            for key in keys:
                del self._marked[key]
                self._rebuild(*key)
            await asyncio.sleep(0)
        self._store.publish()

    def _rebuild(self, collection: Collection, item_id: str) -> None:
        try:
            item = self._build_functions[collection](item_id)
        except Exception as error:
            # One object that cannot be shown must not hide the others.
            self._log.error("an object of the topology cannot be built", error=error, id=item_id)
            item = None
        if item is None:
            self._store.remove(collection, item_id)
        else:
            self._store.put(item)

    async def build_all(self) -> None:
        """Build the whole model, if that was not done yet. All requests wait for the same build."""
        if self._first_build is None:
            self._first_build = asyncio.create_task(self._build_first(), name="topology: build")
        # Shielded: a request that is cancelled must not cancel the build that others wait for.
        await asyncio.shield(self._first_build)

    async def _build_first(self) -> None:
        # From now on changes are marked; those of objects that are not built yet are built once.
        self._is_built = True
        self._marked.update(dict.fromkeys(self._all_keys()))
        await self.flush()

    async def close(self) -> None:
        tasks = [task for task in (self._flush_task, self._first_build) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def follow_pods(self) -> None:
        """Count the Pods of each Node as soon as they are known."""
        await self._cluster_objects.wait_until_listed()
        for node in self._cache.all(Node):
            self._mark("nodes", node.metadata.name)

    def _all_keys(self) -> list[tuple[Collection, str]]:
        keys = list[tuple[Collection, str]]()
        # Nodes and groups first: they decide which VMs are theirs.
        keys += [("nodes", node.metadata.name) for node in self._cache.all(Node)]
        keys += [("vmGroups", str(group.key)) for group in self._cache.all(VmGroup)]
        for name, vcenter in self._vcenters.items():
            keys.append(("vcenters", name))
            for entity_type, collection in _MODEL_COLLECTIONS.items():
                refs = vcenter.inventory.all_of(entity_type)
                keys += [(collection, qualify(name, ref)) for ref in refs]
            keys += [("disks", qualify(name, disk)) for disk in vcenter.disks.disks]
        keys += [("gpuInfos", str(info.key)) for info in self._cache.all(GPUInfo)]
        return keys

    def _on_entity_change(self, vcenter: VCenter, change: inventories.Change[Entity]) -> None:
        if not self._is_built:
            return
        entity = change.new or change.old
        assert entity is not None
        self._mark(_MODEL_COLLECTIONS[type(entity)], qualify(vcenter.name, entity.ref))
        if isinstance(entity, VirtualMachine):
            self._mark_related_to_vm(vcenter, change)

    def _mark_related_to_vm(self, vcenter: VCenter, change: inventories.Change[Entity]) -> None:
        old = change.old if isinstance(change.old, VirtualMachine) else None
        new = change.new if isinstance(change.new, VirtualMachine) else None
        # The pressure of a host follows from the stats of its VMs.
        if old is None or new is None or old.stats != new.stats or old.host != new.host:
            for vm in (old, new):
                self._mark("hosts", qualify(vcenter.name, vm.host) if vm else "")
        if old is not None and new is not None and _identity(old) == _identity(new):
            return
        for vm in filter(None, (old, new)):
            names = {self._node_by_vm.get(qualify(vcenter.name, vm.ref), ""), vm.name}
            for name in names | self._nodes_by_uuid.get(vm.bios_uuid.lower()):
                self._mark("nodes", name)
            for uuid in (vm.bios_uuid.lower(), vm.instance_uuid.lower()):
                for disk in vcenter.disks.disks_by_vm_uuid.get(uuid, ()):
                    self._mark("disks", qualify(vcenter.name, disk.id))

    def _on_task_change(self, vcenter: VCenter, change: inventories.Change[Task]) -> None:
        host = self._maintenance_tasks[vcenter.name].on_task_change(change)
        self._mark("hosts", qualify(vcenter.name, host))

    def _on_disk_change(self, vcenter: VCenter, old: Disk | None, new: Disk | None) -> None:
        for disk in filter(None, (old, new)):
            self._mark("disks", qualify(vcenter.name, disk.id))

    def _on_state_change(self, vcenter: VCenter) -> None:
        self._mark("vcenters", vcenter.name)
        if not self._is_built:
            return
        # Whether a Node or a replica has a known VM depends on which vCenters are loaded.
        for node in self._cache.all(Node):
            self._mark("nodes", node.metadata.name)
        for group in self._cache.all(VmGroup):
            self._mark("vmGroups", str(group.key))

    def _on_node_change(self, key: Key, old: object, new: object, *_: object) -> None:
        for node, update in ((old, self._nodes_by_uuid.drop), (new, self._nodes_by_uuid.add)):
            for uuid in parse_provider_id(node.spec.providerID) if isinstance(node, Node) else ():
                update(uuid, key.name)
        self._mark("nodes", key.name)

    def _on_volume_change(self, key: Key, old: object, new: object, *_: object) -> None:
        for volume, update in (
            (old, self._volumes_by_handle.drop),
            (new, self._volumes_by_handle.add),
        ):
            if isinstance(volume, PersistentVolume):
                handle = get_volume_handle(volume)
                if not handle:
                    continue
                update(handle, key.name)
                for name, vcenter in self._vcenters.items():
                    if handle in vcenter.disks.disks:
                        self._mark("disks", qualify(name, handle))

    def _on_group_change(self, key: Key, *_: object) -> None:
        self._mark("vmGroups", str(key))

    def _on_pod_change(self, key: Key, old: object, new: object, *_: object) -> None:
        names = {pod.spec.nodeName for pod in (old, new) if isinstance(pod, Pod)}
        if len(names) > 1 or old is None or new is None:
            for name in names:
                self._mark("nodes", name)

    def _on_facts_change(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        if _selection_facts(old) == _selection_facts(new):
            return
        for facts in filter(None, (old, new)):
            self._mark("nodes", facts.name)
        for info in self._cache.all(GPUInfo) if self._is_built else ():
            self._mark("gpuInfos", str(info.key))

    # Objects by id

    def _build_vcenter(self, name: str) -> Item | None:
        vcenter = self._vcenters.get(name)
        return entities.build_vcenter(vcenter) if vcenter is not None else None

    def _find_inventory(self, item_id: str) -> tuple[inventories.Inventory, str]:
        # The name of a vCenter may contain a slash, a reference does not.
        name, _, ref = item_id.rpartition("/")
        return self._vcenters[name].inventory, ref

    def _build_entity(
        self,
        entity_type: type[inventories.EntityT],
        build: Callable[[inventories.Inventory, inventories.EntityT], Item],
        item_id: str,
    ) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        entity = inventory.all_of(entity_type).get(ref)
        return build(inventory, entity) if entity is not None else None

    def _build_cluster(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        compute = inventory.compute_resources.get(ref)
        # The ComputeResource of a standalone host is not a cluster.
        if compute is None or not compute.is_cluster:
            return None
        return entities.build_cluster(inventory, compute)

    def _build_host(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        if (host := inventory.hosts.get(ref)) is None:
            return None
        is_entering = self._maintenance_tasks[inventory.name].is_entering(ref)
        return entities.build_host(inventory, host, is_entering=is_entering)

    def _build_vm(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        if (vm := inventory.vms.get(ref)) is None:
            return None
        node, group = self._node_by_vm.get(item_id, ""), self._group_by_vm.get(item_id, "")
        return entities.build_vm(inventory, vm, node, group)

    def _build_disk(self, item_id: str) -> Item | None:
        name, _, disk_id = item_id.rpartition("/")
        vcenter = self._vcenters[name]
        if (disk := vcenter.disks.disks.get(disk_id)) is None:
            return None
        # Two volumes may share a disk; the first by name, so that the result is stable.
        volume_name = min(self._volumes_by_handle.get(disk_id), default="")
        volume = self._cache.get(PersistentVolume, Key("", volume_name)) if volume_name else None
        return entities.build_disk(vcenter.inventory, disk, volume)

    def _build_node(self, name: str) -> Item | None:
        node = self._cache.get(Node, Key("", name))
        if node is None:
            self._set_vm_of_node(name, "")
            return None
        item = entities.build_node(
            node,
            match_node(node, self._vcenters.values()),
            self._tracker.ranking.facts.get(name),
            self._cluster_objects.count_pods(name),
        )
        self._set_vm_of_node(name, item.vm)
        return item

    def _set_vm_of_node(self, node: str, vm_id: str) -> None:
        old = self._vm_by_node.pop(node, "")
        if vm_id:
            self._vm_by_node[node] = vm_id
        if old == vm_id:
            return
        if self._node_by_vm.get(old) == node:
            del self._node_by_vm[old]
        if vm_id:
            self._node_by_vm[vm_id] = node
        self._mark("vms", old)
        self._mark("vms", vm_id)

    def _build_vm_group(self, group_id: str) -> Item | None:
        namespace, _, name = group_id.partition("/")
        group, item, vms = self._cache.get(VmGroup, Key(namespace, name)), None, set[str]()
        if group is not None:
            vcenter = self._vcenters.get(group.status.vcenter)
            item = entities.build_vm_group(group, vcenter.inventory if vcenter else None)
            vms = {member.vm for member in item.members} - {""}
        old = self._vms_by_group.pop(group_id, frozenset())
        if vms:
            self._vms_by_group[group_id] = frozenset(vms)
        for vm_id in old - vms:
            if self._group_by_vm.get(vm_id) == group_id:
                del self._group_by_vm[vm_id]
        self._group_by_vm.update(dict.fromkeys(vms, group_id))
        for vm_id in old ^ vms:
            self._mark("vms", vm_id)
        return item

    def _build_gpu_info(self, info_id: str) -> Item | None:
        namespace, _, name = info_id.partition("/")
        info = self._cache.get(GPUInfo, Key(namespace, name))
        if info is None:
            return None
        try:
            query = Query(parse_requirement(info.spec), self._rules, self._tracker.clock())
        except Terminal:
            query = None
        return entities.build_gpu_info(info, self._tracker.ranking.facts, query)


def _identity(vm: VirtualMachine) -> tuple[object, ...]:
    return vm.name, vm.bios_uuid, vm.instance_uuid, vm.is_template


def _selection_facts(facts: NodeFacts | None) -> tuple[object, ...] | None:
    """What a selection depends on, except the usage, which changes every 20 s."""
    if facts is None:
        return None
    window: datetime | None = facts.next_window.start if facts.next_window else None
    return facts.rejection_for_all, facts.has_gpu, window, facts.simulated_hours
