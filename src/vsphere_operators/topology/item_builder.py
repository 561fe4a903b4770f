"""Builds one object of the model from its sources, and knows what belongs together.

A VM shows the Node that runs in it and the VmGroup that it is a replica of. Both name their VM, so
that building a Node or a VmGroup reports the VMs (`on_related_change`) that have to be built again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from msgspec.structs import replace

from kubewright import Cache, Key, Terminal
from kubewright.builtin import Node, PersistentVolume

from ..kinds.gpuinfo import GPUInfo
from ..kinds.gpuinfo.rules import Query, SelectionRules, parse_requirement
from ..kinds.gpuinfo.tracker import NodeTracker
from ..kinds.vmgroup import VmGroup
from ..vcenters.node_matching import match_node
from ..vcenters.volumes import VOLUME_HANDLE_INDEX, index_volume_handles
from ..vsphere import inventory as inventories
from ..vsphere.index import Index
from ..vsphere.pressure import MaintenanceTasks
from ..vsphere.vcenter import VCenter
from . import entities
from .cluster_objects import ClusterObjects
from .info_links import InfoLinks
from .missing_facts import describe_shared_vm
from .model import Collection, Item


class ItemBuilder:
    def __init__(
        self,
        vcenters: Mapping[str, VCenter],
        cache: Cache,
        cluster_objects: ClusterObjects,
        tracker: NodeTracker,
        rules: SelectionRules,
        info_links: InfoLinks,
    ) -> None:
        self._vcenters, self._cache, self._info_links = vcenters, cache, info_links
        self._cluster_objects, self._tracker, self._rules = cluster_objects, tracker, rules
        self.on_related_change: Callable[[Collection, str], None] = lambda collection, item_id: None
        self.maintenance_tasks = {name: MaintenanceTasks() for name in vcenters}
        index_volume_handles(cache)
        # The ids of VMs, to build both the old and the new VM of a Node or VmGroup again.
        self._vm_by_node: dict[str, str] = {}
        self._nodes_by_vm = Index()
        self._vms_by_group: dict[str, frozenset[str]] = {}
        self._group_by_vm: dict[str, str] = {}
        self._build_functions: Mapping[Collection, Callable[[str], Item | None]] = {
            "vcenters": self._build_vcenter,
            "datacenters": self._build_datacenter,
            "clusters": self._build_cluster,
            "hosts": self._build_host,
            "vms": self._build_vm,
            "datastores": self._build_datastore,
            "disks": self._build_disk,
            "nodes": self._build_node,
            "vmGroups": self._build_vm_group,
            "gpuInfos": self._build_gpu_info,
        }

    def build(self, collection: Collection, item_id: str) -> Item | None:
        """None if the object does not exist."""
        return self._build_functions[collection](item_id)

    def nodes_of(self, vm_id: str) -> Set[str]:
        return self._nodes_by_vm.get(vm_id)

    def _build_vcenter(self, name: str) -> Item | None:
        vcenter = self._vcenters.get(name)
        return entities.build_vcenter(vcenter) if vcenter is not None else None

    def _find_inventory(self, item_id: str) -> tuple[inventories.Inventory, str]:
        # The name of a vCenter may contain a slash, a reference does not.
        name, _, ref = item_id.rpartition("/")
        return self._vcenters[name].inventory, ref

    def _build_datacenter(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        datacenter = inventory.datacenters.get(ref)
        return entities.build_datacenter(inventory, datacenter) if datacenter is not None else None

    def _build_datastore(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        if (datastore := inventory.datastores.get(ref)) is None:
            return None
        item = entities.build_datastore(inventory, datastore)
        return self._info_links.add_infos(inventory, datastore, item)

    def _build_cluster(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        compute = inventory.compute_resources.get(ref)
        # The ComputeResource of a standalone host is not a cluster.
        if compute is None or not compute.is_cluster:
            return None
        item = entities.build_cluster(inventory, compute)
        return self._info_links.add_infos(inventory, compute, item)

    def _build_host(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        if (host := inventory.hosts.get(ref)) is None:
            return None
        is_entering = self.maintenance_tasks[inventory.name].is_entering(ref)
        item = entities.build_host(inventory, host, is_entering=is_entering)
        return self._info_links.add_infos(inventory, host, item)

    def _build_vm(self, item_id: str) -> Item | None:
        inventory, ref = self._find_inventory(item_id)
        if (vm := inventory.vms.get(ref)) is None:
            return None
        # The first by name, so that the result is stable.
        node = min(self._nodes_by_vm.get(item_id), default="")
        item = entities.build_vm(inventory, vm, node, self._group_by_vm.get(item_id, ""))
        return self._info_links.add_infos(inventory, vm, item)

    def _build_disk(self, item_id: str) -> Item | None:
        name, _, disk_id = item_id.rpartition("/")
        vcenter = self._vcenters[name]
        if (disk := vcenter.disks.disks.get(disk_id)) is None:
            return None
        # Two volumes may share a disk; the first by name, so that the result is stable.
        volume = min(
            self._cache.by_index(PersistentVolume, VOLUME_HANDLE_INDEX, disk_id),
            key=lambda volume: volume.metadata.name,
            default=None,
        )
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
        others = self._nodes_by_vm.get(item.vm) - {name}
        return replace(item, message=describe_shared_vm(others)) if others else item

    def _set_vm_of_node(self, node: str, vm_id: str) -> None:
        old = self._vm_by_node.pop(node, "")
        if vm_id:
            self._vm_by_node[node] = vm_id
        if old == vm_id:
            return
        self._nodes_by_vm.move(node, old, vm_id)
        for related_vm in filter(None, (old, vm_id)):
            self.on_related_change("vms", related_vm)
            for other in self._nodes_by_vm.get(related_vm) - {node}:
                self.on_related_change("nodes", other)

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
            self.on_related_change("vms", vm_id)
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
