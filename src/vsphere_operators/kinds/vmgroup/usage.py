"""Counts what a namespace uses of its quota, from records, VMs and writes in progress."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.inventory import Inventory
from .group_memory import GroupMemoryStore
from .model import DesiredState, Quota, ResourceAmount
from .ownership import OwnershipIndex
from .quota import count_other_group, find_quota_violation, sum_amounts
from .step import GroupInput

# By uid of the group and by replica.
_SizesByUid: TypeAlias = dict[str, dict[str, ResourceAmount]]


class _OtherUsage(Struct, frozen=True, kw_only=True):
    """What all but one group of a namespace count for."""

    amount: ResourceAmount = ResourceAmount()
    # How many of these VMs belong to groups that no longer exist.
    unmanaged_vms: int = 0


class UsageCounter:
    """Counts in one vCenter; all groups of a namespace are in the same one."""

    def __init__(
        self,
        inventory: Inventory,
        ownership_index: OwnershipIndex,
        memory_store: GroupMemoryStore,
    ) -> None:
        self._inventory, self._ownership_index = inventory, ownership_index
        self._memory_store = memory_store

    def apply_quota(self, group: GroupInput) -> DesiredState:
        """The desired state with the group's part of the quota, and the violation if any."""
        desired, quota = group.desired, group.limits.quota
        if quota == Quota() or desired.deleting:
            return desired
        used = self._count_others(group)
        violation = find_quota_violation(
            desired.size * desired.replicas,
            used.amount,
            quota,
            unmanaged_vms=used.unmanaged_vms,
        )
        # A part of what does not fit is of no use: nothing grows until all of it fits.
        part = Quota(vms=0, cpus=0, memory_mb=0) if violation else quota.minus(used.amount)
        return replace(desired, quota=part, quota_violation=violation)

    def _count_others(self, group: GroupInput) -> _OtherUsage:
        sizes_by_uid, others = self._list_vm_sizes(group), group.list_other_groups()
        sizes_by_uid.pop(group.group_id.uid, None)
        amounts = [
            count_other_group(
                other,
                sizes_by_uid.pop(other.uid, {}),
                self._memory_store.for_group(other.uid).reserved_sizes,
            )
            for other in others
        ]
        self._add_sizes_in_progress(
            sizes_by_uid, group, {group.group_id.uid, *(other.uid for other in others)}
        )
        unmanaged = [size for sizes in sizes_by_uid.values() for size in sizes.values()]
        return _OtherUsage(amount=sum_amounts([*amounts, *unmanaged]), unmanaged_vms=len(unmanaged))

    def _list_vm_sizes(self, group: GroupInput) -> _SizesByUid:
        """The sizes of all VMs with a mark of the namespace."""
        sizes: _SizesByUid = {}
        for ref in self._ownership_index.refs_by_namespace.get(group.group_id.namespace_key):
            mark, vm = self._ownership_index.marks[ref], self._inventory.vms.get(ref)
            if vm is not None:
                sizes.setdefault(mark.group_id.uid, {})[mark.replica_name] = ResourceAmount(
                    vms=1, cpus=vm.cpus or 0, memory_mb=vm.memory_mb or 0
                )
        return sizes

    def _add_sizes_in_progress(
        self, sizes: _SizesByUid, group: GroupInput, existing_uids: Collection[str]
    ) -> None:
        """Add clones and resizes of groups that no longer exist; all others have records."""
        in_progress = self._memory_store.sizes_in_progress
        for item in in_progress.list_for_namespace(group.group_id.namespace_key):
            if item.group_id.uid not in existing_uids:
                by_replica = sizes.setdefault(item.group_id.uid, {})
                counted_size = by_replica.get(item.replica_name, item.size)
                by_replica[item.replica_name] = item.size.larger(counted_size)
