"""Finds the VMs of VmGroups by what the groups have recorded."""

from __future__ import annotations

from collections.abc import Iterable

from ...vsphere.inventory import Inventory
from .types import VmGroup


def groups_by_vm(groups: Iterable[VmGroup], inventory: Inventory) -> dict[str, str]:
    """The groups, as namespace/name, by the references of their VMs in this vCenter."""
    return {
        vm.ref: f"{group.metadata.namespace}/{group.metadata.name}"
        for group in groups
        if group.status.vcenter == inventory.name
        for replica in group.status.replicas
        for vm in inventory.by_instance_uuid(replica.instanceUUID)
    }
