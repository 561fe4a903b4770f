"""What replicas count for in the quota of their namespace.

What exists counts, and what is requested: for each resource the larger of both. Pausing a
    group and lowering its replicas frees nothing.
When does a replica count?  As long as it has a record, whether it surges, terminates or is still
    being cloned; and as long as it has a VM, whether its VmGroup still exists or not.
With which size?  The larger of its VM and its record. The record has the size of a clone or resize
    before it is requested, so a request that is in progress counts even after a restart, or after
    the spec has changed again.
Which group comes first?  The older one: of older groups the requests count too, of younger ones
    only what exists. Otherwise a new group that requests too much would block those that run.
What if two groups grow at the same moment?  Until the API server has answered, the records of a
    group are in its GroupMemory, and all other groups of this process count them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from .model import Quota, ReplicaRecord, ResourceAmount


class OtherGroup(Struct, frozen=True, kw_only=True):
    """Another group of the namespace."""

    uid: str
    records: tuple[ReplicaRecord, ...] = ()
    # The size of a replica in its spec.
    size: ResourceAmount
    # What it requests, if it is older; otherwise nothing.
    requested: ResourceAmount = ResourceAmount()


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
        # Of a record of an older release nothing is known before its VM is visible.
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
