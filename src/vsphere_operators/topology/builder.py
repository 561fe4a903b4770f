"""Keeps the model current: a change marks the objects that it concerns, and these are built again.

What does a change cost?  One entry in a set. Five times a second at most, the marked objects are
    built, and those that differ get a number. New quickStats of 1,000 hosts build 1,000 objects.
What does it cost without a client?  Nothing but the entries in the list of changes. The model is
    built for the first request.
Which Nodes does a VM concern?  Those with its uuid or its name, and the one that it had so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from itertools import islice

from kubewright import Cache, Key
from kubewright.builtin import Node, PersistentVolume, Pod
from kubewright.log import Log

from ..kinds.gpuinfo import GPUInfo
from ..kinds.gpuinfo.rules import NodeFacts
from ..kinds.gpuinfo.tracker import NodeTracker
from ..kinds.vmgroup import VmGroup
from ..vcenters.node_matching import parse_provider_id
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
from ..vsphere.pressure import ENTER_MAINTENANCE_DESCRIPTION_ID
from ..vsphere.vcenter import VCenter
from .cluster_objects import ClusterObjects
from .entities import qualify
from .info_links import InfoLinks
from .item_builder import ItemBuilder
from .model import Collection
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
    """Decides which objects are built when; `connect` attaches it to the sources."""

    def __init__(
        self,
        store: TopologyStore,
        vcenters: Mapping[str, VCenter],
        cache: Cache,
        cluster_objects: ClusterObjects,
        tracker: NodeTracker,
        item_builder: ItemBuilder,
        info_links: InfoLinks,
        log: Log,
    ) -> None:
        self._store, self._vcenters, self._cache = store, vcenters, cache
        self._cluster_objects, self._tracker = cluster_objects, tracker
        self._items, self._info_links, self._log = item_builder, info_links, log
        # Before the first request everything is missing, so there is nothing to mark.
        self._marks_changes = False
        # In the order in which they were marked.
        self._marked: dict[tuple[Collection, str], None] = {}
        self._flush_task: asyncio.Task[None] | None = None
        self._first_build: asyncio.Task[None] | None = None
        self._nodes_by_uuid = Index()

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
        self._items.on_related_change = self._mark
        self._info_links.connect(self._on_info_change)

    # Changes

    def _mark(self, collection: Collection, item_id: str) -> None:
        if not item_id:
            return
        if self._marks_changes:
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
            item = self._items.build(collection, item_id)
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
        self._marks_changes = True
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
        if not self._marks_changes:
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
            names = self._items.nodes_of(qualify(vcenter.name, vm.ref)) | {vm.name}
            for name in names | self._nodes_by_uuid.get(vm.bios_uuid.lower()):
                self._mark("nodes", name)
            for uuid in (vm.bios_uuid.lower(), vm.instance_uuid.lower()):
                for disk in vcenter.disks.disks_by_vm_uuid.get(uuid, ()):
                    self._mark("disks", qualify(vcenter.name, disk.id))

    def _on_task_change(self, vcenter: VCenter, change: inventories.Change[Task]) -> None:
        host = self._items.maintenance_tasks[vcenter.name].on_task_change(change)
        self._mark("hosts", qualify(vcenter.name, host))

    def _on_disk_change(self, vcenter: VCenter, old: Disk | None, new: Disk | None) -> None:
        for disk in filter(None, (old, new)):
            self._mark("disks", qualify(vcenter.name, disk.id))

    def _on_state_change(self, vcenter: VCenter) -> None:
        self._mark("vcenters", vcenter.name)
        if not self._marks_changes:
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
        for volume in (old, new):
            handle = get_volume_handle(volume) if isinstance(volume, PersistentVolume) else None
            for name, vcenter in self._vcenters.items() if handle else ():
                if handle in vcenter.disks.disks:
                    self._mark("disks", qualify(name, handle))

    def _on_info_change(self, vcenter: str, entity: Entity) -> None:
        self._mark(_MODEL_COLLECTIONS[type(entity)], qualify(vcenter, entity.ref))

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
        for info in self._cache.all(GPUInfo) if self._marks_changes else ():
            self._mark("gpuInfos", str(info.key))


def _identity(vm: VirtualMachine) -> tuple[object, ...]:
    return vm.name, vm.bios_uuid, vm.instance_uuid, vm.is_template


def _selection_facts(facts: NodeFacts | None) -> tuple[object, ...] | None:
    """What a selection depends on, except the usage, which changes every 20 s."""
    if facts is None:
        return None
    window: datetime | None = facts.next_window.start if facts.next_window else None
    return facts.rejection_for_all, facts.has_gpu, window, facts.simulated_hours
