"""The model from inventories and objects that were read once, for tools without a manager."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from kubewright.builtin import Node, PersistentVolume

from ..kinds.vmgroup import VmGroup
from ..vcenters.node_matching import match_node
from ..vcenters.volumes import get_volume_handle
from ..vsphere.vcenter import VCenter
from . import entities, model
from .entities import qualify
from .missing_facts import describe_shared_vm


def collect_topology(
    vcenters: Sequence[VCenter],
    nodes: Iterable[Node],
    volumes: Iterable[PersistentVolume],
    groups: Iterable[VmGroup],
) -> list[model.Item]:
    """Without GPUInfos and numbers of Pods, which only the manager has."""
    inventories = {vcenter.name: vcenter.inventory for vcenter in vcenters}
    node_items = [
        entities.build_node(node, match_node(node, vcenters), None, None) for node in nodes
    ]
    group_items = [
        entities.build_vm_group(group, inventories.get(group.status.vcenter)) for group in groups
    ]
    nodes_by_vm = defaultdict[str, list[str]](list)
    for node in sorted(node_items, key=lambda item: item.id):
        if node.vm:
            nodes_by_vm[node.vm].append(node.id)
    node_items = [
        replace(item, message=describe_shared_vm(set(nodes_by_vm[item.vm]) - {item.id}))
        if len(nodes_by_vm.get(item.vm, ())) > 1
        else item
        for item in node_items
    ]
    # The first by name, as in the model of the manager.
    node_by_vm = {vm_id: names[0] for vm_id, names in nodes_by_vm.items()}
    group_by_vm = {
        member.vm: group.id for group in group_items for member in group.members if member.vm
    }
    volume_by_handle = {
        handle: volume
        for volume in sorted(volumes, key=lambda volume: volume.metadata.name, reverse=True)
        if (handle := get_volume_handle(volume))
    }
    items: list[model.Item] = [*node_items, *group_items]
    for vcenter in vcenters:
        items += _collect_vcenter(vcenter, node_by_vm, group_by_vm, volume_by_handle)
    return items


def _collect_vcenter(
    vcenter: VCenter,
    node_by_vm: dict[str, str],
    group_by_vm: dict[str, str],
    volume_by_handle: dict[str, PersistentVolume],
) -> Iterator[model.Item]:
    inventory = vcenter.inventory
    yield entities.build_vcenter(vcenter)
    for datacenter in inventory.datacenters.values():
        yield entities.build_datacenter(inventory, datacenter)
    for compute in inventory.compute_resources.values():
        if compute.is_cluster:
            yield entities.build_cluster(inventory, compute)
    for host in inventory.hosts.values():
        yield entities.build_host(inventory, host, is_entering=False)
    for vm in inventory.vms.values():
        vm_id = qualify(inventory.name, vm.ref)
        yield entities.build_vm(
            inventory, vm, node_by_vm.get(vm_id, ""), group_by_vm.get(vm_id, "")
        )
    for datastore in inventory.datastores.values():
        yield entities.build_datastore(inventory, datastore)
    for disk in vcenter.disks.disks.values():
        yield entities.build_disk(inventory, disk, volume_by_handle.get(disk.id))
