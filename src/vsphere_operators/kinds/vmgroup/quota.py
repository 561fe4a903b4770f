"""What replicas count for in the quota of their namespace.

What counts?  What exists or what is requested, for each resource the larger of both. Pausing a
    group and lowering its replicas frees nothing.
When does a replica count?  As long as it has a record, whether it surges, terminates or is still
    being cloned; and as long as it has a VM, whether its VmGroup still exists or not.
With which size?  The larger of its VM and its record. The record has the size of a clone or resize
    before it is requested, so a request that is in progress counts even after a restart, or after
    the spec has changed again.
Which group comes first?  The older one: of older groups the requests count too, of younger ones
    only what exists. Otherwise a new group that requests too much would block those that run.
What if a user removes the finalizer of a group with clones in progress?  They count as long as
    their tasks run, and then as VMs: `SizesInProgress`. A restart of the manager forgets them.
What if two groups grow at the same moment?  Until the API server has answered, the records of a
    group are in its GroupMemory, and all other groups of this process count them there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from .model import Action, Clone, Quota, ReplicaRecord, Resize, ResourceAmount
from .ownership import GroupId


class OtherGroup(Struct, frozen=True, kw_only=True):
    """Another group of the namespace."""

    uid: str
    records: tuple[ReplicaRecord, ...] = ()
    # The size of a replica in its spec.
    size: ResourceAmount
    # What it requests, if it is older; otherwise nothing.
    requested: ResourceAmount = ResourceAmount()


class SizeInProgress(Struct, frozen=True, kw_only=True):
    """The size that a replica has at the end of a task."""

    group_id: GroupId
    replica_name: str
    size: ResourceAmount
    # The VM may not be visible at the end of the task.
    expires_at: float = math.inf


class SizesInProgress:
    """The clones and resizes that this process has started in one vCenter, by task."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_task: dict[str, SizeInProgress] = {}

    def begin(self, task: str, group_id: GroupId, action: Action) -> None:
        """Count the task of an action; those that are no clone or resize are ignored."""
        match action:
            case Clone(record):
                name, size = record.name, record.size
            case Resize(vm, cpus=cpus, memory_mb=memory_mb):
                name = vm.replica_name
                size = ResourceAmount(vms=1, cpus=cpus, memory_mb=memory_mb)
            case _:
                return
        self._by_task[task] = SizeInProgress(group_id=group_id, replica_name=name, size=size)

    def end(self, task: str, *, visible_within_seconds: float) -> None:
        now = self._clock()
        self._by_task = {ref: item for ref, item in self._by_task.items() if item.expires_at > now}
        if task in self._by_task:
            self._by_task[task] = replace(
                self._by_task[task], expires_at=now + visible_within_seconds
            )

    def forget(self, uid: str) -> None:
        """The group was deleted together with its VMs."""
        self._by_task = {
            ref: item for ref, item in self._by_task.items() if item.group_id.uid != uid
        }

    def list_for_namespace(self, namespace_key: str) -> list[SizeInProgress]:
        now = self._clock()
        return [
            item
            for item in self._by_task.values()
            if item.group_id.namespace_key == namespace_key and item.expires_at > now
        ]


def sum_amounts(amounts: Iterable[ResourceAmount]) -> ResourceAmount:
    return sum(amounts, ResourceAmount())


def count_existing(
    records: Iterable[ReplicaRecord],
    vm_sizes: Mapping[str, ResourceAmount],
    default_size: ResourceAmount,
    reserved: Mapping[str, ResourceAmount] | None = None,
) -> ResourceAmount:
    """What the replicas of a group count for; `vm_sizes` are those of its VMs by replica.

    `reserved` are the sizes by replica that are about to be stored.
    """
    sizes = dict(vm_sizes)
    for record in records:
        # A record of an older release has no size. Until its VM is visible, the spec has it.
        size = record.size if record.cpus or record.name in vm_sizes else default_size
        sizes[record.name] = size.larger(sizes.get(record.name, size))
    for name, size in (reserved or {}).items():
        sizes[name] = size.larger(sizes.get(name, size))
    return sum_amounts(sizes.values())


def count_other_group(
    other: OtherGroup,
    vm_sizes: Mapping[str, ResourceAmount],
    reserved: Mapping[str, ResourceAmount],
) -> ResourceAmount:
    return count_existing(other.records, vm_sizes, other.size, reserved).larger(other.requested)


def find_quota_violation(
    requested: ResourceAmount, used: ResourceAmount, quota: Quota, *, unmanaged_vms: int = 0
) -> str:
    """Why a group does not fit into the quota, "" if it does.

    `requested` is all of the group, as in its spec; `used` is what all else counts for, of which
    `unmanaged_vms` belong to groups that no longer exist.
    """
    rows: list[tuple[str, Callable[[ResourceAmount], int], int | None]] = [
        ("vms={}", lambda amount: amount.vms, quota.vms),
        ("cpus={}", lambda amount: amount.cpus, quota.cpus),
        ("memory={}Mi", lambda amount: amount.memory_mb, quota.memory_mb),
    ]
    exceeded = [
        (text.format(count(requested)), text.format(count(used)), text.format(limit))
        for text, count, limit in rows
        if limit is not None and count(requested) + count(used) > limit
    ]
    if not exceeded:
        return ""
    requested_text, used_text, limited_text = (
        ",".join(column) for column in zip(*exceeded, strict=True)
    )
    unmanaged = (
        f" Of these, {unmanaged_vms} VMs belong to deleted VmGroups: delete them in vCenter."
        if unmanaged_vms
        else ""
    )
    return (
        f"Exceeded quota of the namespace: requested: {requested_text}, used: {used_text}, "
        f"limited: {limited_text}.{unmanaged} Lower spec.replicas, spec.cpu or spec.memory of this "
        "or another VmGroup, or ask the administrator. VMs count until they are deleted."
    )
