"""What the records reserve of the quota, as far as a manager can know it when it stores them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vsphere_operators.kinds.vmgroup.model import Quota, ResourceAmount
from vsphere_operators.kinds.vmgroup.quota import sum_amounts
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus, VmGroup

from .wire import Call

Sizes = dict[str, ResourceAmount]


def stored_replicas(call: Call) -> list[ReplicaStatus] | None:
    """The replicas in a write of a status; None if it leaves them as they are."""
    if call.name not in ("PATCH", "PUT") or not call.detail.path.endswith("/status"):
        return None
    replicas = msgspec.json.decode(call.detail.body).get("status", {}).get("replicas")
    return None if replicas is None else msgspec.convert(replicas, list[ReplicaStatus])


def exceeds_quota(call: Call, pending: Iterable[Call], quota: Quota) -> bool:
    """Whether a write adds a clone, and all that its sender knows is above the quota then.

    The sender knows its cache, its inventory, and its own writes that have no answer yet.
    """
    replicas, manager = stored_replicas(call), call.manager
    if replicas is None or quota == Quota():
        return False
    writes = {
        other.detail.path: other_replicas
        for other in pending
        if other.manager is manager and (other_replicas := stored_replicas(other)) is not None
    }
    vm_sizes, used, is_larger = _list_vm_sizes(call), list[ResourceAmount](), False
    for group in manager.cache.all(VmGroup):
        path = f"{VmGroup.definition.path(group.metadata.namespace, group.metadata.name)}/status"
        sizes, stored = vm_sizes.pop(group.metadata.uid, {}), group.status.replicas
        if path == call.detail.path:
            is_larger = _adds_clone(stored, replicas)
            used += _largest(sizes, replicas).values()
        else:
            used += _largest(sizes, [*stored, *writes.get(path, ())]).values()
    unmanaged = [size for sizes in vm_sizes.values() for size in sizes.values()]
    return is_larger and not quota.covers(sum_amounts([*used, *unmanaged]))


def _adds_clone(before: Iterable[ReplicaStatus], after: Iterable[ReplicaStatus]) -> bool:
    stored = _largest({}, before)
    # The size of another record may be that of its VM, which a user made larger.
    planned = _largest(
        {}, [replica for replica in after if replica.state == "Planned" and not replica.moRef]
    )
    return any(
        name not in stored or size.larger(stored[name]) != stored[name]
        for name, size in planned.items()
    )


def _largest(sizes: Sizes, replicas: Iterable[ReplicaStatus]) -> Sizes:
    result = dict(sizes)
    for replica in replicas:
        size = ResourceAmount(vms=1, cpus=replica.cpu, memory_mb=replica.memoryMB)
        result[replica.name] = size.larger(result.get(replica.name, size))
    return result


def _list_vm_sizes(call: Call) -> dict[str, Sizes]:
    """The VMs in the inventory of the sender, by uid of the group and by replica."""
    sizes: dict[str, Sizes] = {}
    reconciler = call.manager.reconciler
    for ref, mark in reconciler.ownership_index.marks.items():
        vm = reconciler.inventory.vms.get(ref)
        if vm is not None:
            sizes.setdefault(mark.group_id.uid, {})[mark.replica_name] = ResourceAmount(
                vms=1, cpus=vm.cpus or 0, memory_mb=vm.memory_mb or 0
            )
    return sizes
