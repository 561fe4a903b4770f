"""What exists in all vCenters, and what must be true of it.

After each event and at each half second:
- a group has at most as many VMs and clones as its spec allowed (replicas + maxSurge), except for
  those that users brought back;
- a clone in progress has a record in the status of its group, which has its finalizer until then;
- what exists of all groups is within the quota, except for what users added;
- no call has changed anything that a manager did not create, see appliance.py;
- no clone creates a second VM of a replica, see appliance.py;
- a VM is adopted only if a user requested it, it has no other group that exists, and its record is
  stored;
- no manager stores records that exceed the quota by what it knows, see reserved_sizes.py.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import Quota
from vsphere_operators.kinds.vmgroup.ownership import mark_from_extra_config
from vsphere_operators.kinds.vmgroup.types import VmGroup
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .api import HistoryApi, terminating_replicas
from .appliance import Appliance
from .model import Vm
from .reserved_sizes import exceeds_quota
from .wire import Call

if TYPE_CHECKING:
    from .manager import ManagerProcess


class Invariants:
    seed: int
    now: float
    api: HistoryApi
    appliances: list[Appliance]
    served: Appliance
    limits: NamespaceLimits
    # Sent and not answered; and calls that nothing waits for any more, with the time to begin.
    pending: list[Call]
    late: list[tuple[float, Call]]
    counts: Counter[str]
    events: list[str]
    violations: list[str]
    manager: ManagerProcess
    # What may exist above the limits, because users caused it: VMs and clones of each group by uid,
    # and (VMs, CPUs, MB) of all groups.
    allowed_counts: dict[str, int]
    allowed_usage: tuple[int, int, int]
    # Groups that dropped the records of missing VMs; their deletionPolicy may have changed since.
    orphaned: set[str]
    # By path of an object, whether it allowed a deletion when the manager last read it.
    confirmed: dict[str, bool]
    # What users requested: the uid of a group, with the instanceUuid of a VM or "undo".
    adoption_requests: set[tuple[str, str]]

    def report(self, violation: str) -> None:
        self.violations.append(f"at {self.now:g}: {violation}")

    # What exists

    def find_uid_of(self, spec: CloneSpec) -> str:
        mark = mark_from_extra_config(spec.extra_config)
        assert mark is not None
        return mark.group_id.uid

    def list_groups(self) -> dict[str, dict[str, Any]]:
        """The stored objects by uid."""
        return {obj["metadata"]["uid"]: obj for obj in self.api.objects.values()}

    def list_clones(self) -> list[tuple[str, CloneSpec]]:
        """The clones without a VM, from the moment they are sent, with the uid of the group."""
        running = [
            (task.owner, task.spec)
            for appliance in self.appliances
            for task in appliance.tasks.values()
            if task.method == "clone" and task.state == "running" and task.owner and not task.vm
        ]
        sent = [
            (self.find_uid_of(call.detail), call.detail)
            for call in (*self.pending, *(call for _, call in self.late))
            if call.name == "clone" and not call.is_performed
        ]
        return [(owner, spec) for owner, spec in (*running, *sent) if spec is not None]

    def list_new_clones(self) -> list[tuple[str, CloneSpec]]:
        """Those that can create a VM: of two VMs of one name in a folder vCenter creates one."""
        names = {(vm.name, vm.folder) for _, vm in self.list_vms() if not vm.missing_until}
        clones = {(spec.name, spec.folder): (owner, spec) for owner, spec in self.list_clones()}
        return [clones[key] for key in clones if key not in names]

    def list_vms(self) -> list[tuple[Appliance, Vm]]:
        return [
            (appliance, vm) for appliance in self.appliances for vm in appliance.vms if vm.owner
        ]

    def list_sizes(self) -> dict[Any, tuple[str, tuple[int, int, int]]]:
        """Each VM and each clone, with the uid of its group and the size that it may get."""
        groups, sizes = self.list_groups(), dict[Any, tuple[str, tuple[int, int, int]]]()
        resizes = [
            (task.entity, task.size)
            for appliance in self.appliances
            for task in appliance.tasks.values()
            if task.method == "reconfigure" and task.state == "running"
        ] + [
            call.detail
            for call in (*self.pending, *(call for _, call in self.late))
            if call.name == "reconfigure" and not call.is_performed
        ]
        recorded = {
            (uid, replica["name"])
            for uid, obj in groups.items()
            for replica in obj.get("status", {}).get("replicas", ())
        }
        for appliance, vm in self.list_vms():
            # Of a VM with inaccessible files, vCenter reports no configuration.
            is_known = appliance is self.served and appliance.is_seen(vm) and not vm.inaccessible
            # A user left or brought back what no record has: it counts while it can be seen.
            is_unmanaged = vm.owner not in groups or (
                (vm.returned or vm.owner in self.orphaned)
                and (vm.owner, vm.replica) not in recorded
            )
            if is_unmanaged and (vm.is_unread or not is_known):
                continue
            size = vm.size
            if vm.cpus_before and (vm.is_unread or not is_known):
                # A user made it larger, and the manager cannot know that.
                size = 1, min(vm.cpus_before, vm.cpus), vm.memory_mb
            for ref, (cpus, memory_mb) in resizes:
                if ref == vm.ref and appliance is self.served:
                    size = 1, max(size[1], cpus), max(size[2], memory_mb)
            sizes[vm] = vm.owner, size
        # The clone for a replica is a stray VM if a user has restored its VM: see appliance.py.
        restored = {
            vm.instance_uuid for _, vm in self.list_vms() if vm.returned and not vm.missing_until
        }
        for owner, spec in self.list_new_clones():
            if owner in groups and spec.instance_uuid not in restored:
                key = owner, spec.name, spec.folder
                sizes[key] = owner, (1, spec.cpus, spec.memory_mb)
        return sizes

    def measure(self, *, with_unsent: bool = False) -> tuple[int, int, int]:
        existing = self.list_sizes()
        sizes = [size for _, size in existing.values()]
        if with_unsent:
            names = {key.replica if isinstance(key, Vm) else key[1] for key in existing}
            sizes += [
                (1, replica.get("cpu", 0), replica.get("memoryMB", 0))
                for obj in self.list_groups().values()
                for replica in obj.get("status", {}).get("replicas", ())
                if replica["name"] not in names
            ]
        return (
            sum(size[0] for size in sizes),
            sum(size[1] for size in sizes),
            sum(size[2] for size in sizes),
        )

    # Invariants

    def raise_allowed_usage(self, *, is_known: bool = False) -> None:
        """Allow what a user added or made visible.

        Unless the manager knows it at once, it may still send what it had stored before.
        """
        used = self.measure(with_unsent=not is_known)
        self.allowed_usage = tuple(map(max, self.allowed_usage, used))  # type: ignore[assignment]
        for uid, count in self.count_vms().items():
            self.allowed_counts[uid] = max(count, self.allowed_counts.get(uid, 0))

    def is_mark_read(self, vm: Vm) -> bool:
        """Whether the manager knows the group of the VM."""
        marks = self.manager.reconciler.ownership_index.marks
        return vm in self.served.vms and vm.ref in marks

    def count_vms(self) -> Counter[str]:
        """VMs and clones by uid of the group, without those that users brought back."""
        return Counter(
            owner
            for item, (owner, _) in self.list_sizes().items()
            if not (isinstance(item, Vm) and item.returned)
        )

    def check(self) -> None:
        groups = self.list_groups()
        self.orphaned |= {uid for uid, obj in groups.items() if is_orphaning(obj)}
        self._check_quota()
        self._check_clones_recorded(groups)
        numbers = self.count_vms()
        for uid, obj in groups.items():
            count, bound = numbers[uid], bound_of(obj)
            allowed = max(bound, self.allowed_counts.get(uid, 0))
            if count > allowed:
                self.report(f"{uid} has {count} VMs and clones, {allowed} are allowed")
            records = len(obj.get("status", {}).get("replicas", ()))
            self.allowed_counts[uid] = max(bound, min(allowed, max(count, records)))
        if self.violations:
            raise AssertionError(
                f"seed {self.seed}: {self.violations}; events: {' | '.join(self.events[-25:])}"
            )

    def _check_clones_recorded(self, groups: dict[str, dict[str, Any]]) -> None:
        for uid, spec in self.list_clones():
            replicas = groups.get(uid, {}).get("status", {}).get("replicas", ())
            if uid in groups and all(replica["name"] != spec.name for replica in replicas):
                self.report(f"{spec.name} of {uid} is being cloned, and its record is dropped")

    def _check_quota(self) -> None:
        quota = self.limits.quota
        if quota == Quota():
            return
        for _, vm in self.list_vms():
            if vm.is_unread and self.is_mark_read(vm):
                vm.is_unread = False
                self.raise_allowed_usage()
        used = self.measure()
        limits = (quota.vms or 0, quota.cpus or 0, quota.memory_mb or 0)
        if any(
            amount > max(limit, allowed)
            for amount, limit, allowed in zip(used, limits, self.allowed_usage, strict=True)
        ):
            self.report(
                f"in use are {used}, the quota is {limits}, users caused {self.allowed_usage}"
            )
        if any(map(int.__gt__, self.allowed_usage, used)):
            used = self.measure(with_unsent=True)
            self.allowed_usage = tuple(map(min, self.allowed_usage, used))  # type: ignore[assignment]

    def on_sent(self, call: Call) -> None:
        """What must be true when the manager sends a call."""
        if exceeds_quota(call, self.pending, self.limits.quota):
            self.report(f"{call.detail.path} gets records that exceed the quota")
        if call.name == "PATCH":
            self._check_finalizer(call)
        if call.is_read or call.name in ("PATCH", "PUT", "POST", "DELETE"):
            return
        self.counts[f"sent {call.name}"] += 1
        if call.manager is not self.manager:
            self.report(f"{call.name} is sent by a standby")
        groups = self.list_groups()
        if call.name == "clone":
            spec: CloneSpec = call.detail
            uid = self.find_uid_of(spec)
            if uid not in groups:
                # A user removed the group with its finalizer, which arrives at the manager later.
                if all(group.metadata.uid != uid for group in call.manager.cache.all(VmGroup)):
                    self.report(f"{spec.name} is cloned for a group that is known to be removed")
                return
            status = groups[uid].get("status", {})
            records = {replica["name"]: replica for replica in status.get("replicas", ())}
            record = records.get(spec.name)
            if record is None:
                self.report(f"{spec.name} is cloned without a stored record")
            elif (record.get("cpu"), record.get("memoryMB")) != (spec.cpus, spec.memory_mb):
                self.report(f"{spec.name} is cloned with another size than its record: {record}")
            if status.get("vcenterUUID") != call.manager.vcenter.inventory.instance_uuid:
                self.report(f"{spec.name} is cloned in another vCenter")
        if call.name == "destroy":
            self._check_destroy(call, groups)
        if call.name == "identify":
            self._check_adoption(call, groups)

    def on_read(self, path: str) -> None:
        """The API server reads an object for the manager: what it has to respect."""
        obj = self.api.objects.get(path)
        self.confirmed[path] = (
            obj is not None and not obj["spec"].get("paused") and not is_orphaning(obj)
        )

    def _check_finalizer(self, call: Call) -> None:
        """Nothing of a group is in progress when the manager lets it go."""
        obj, manager = self.api.objects.get(call.detail.path), call.manager
        metadata = msgspec.json.decode(call.detail.body).get("metadata", {})
        if (
            obj is None
            or metadata.get("finalizers", True)
            # The API server rejects it, because it was made from an older object.
            or metadata.get("resourceVersion") != obj["metadata"]["resourceVersion"]
            # A group without its vCenter is let go at once.
            or not manager.vcenter.loaded
            or obj.get("status", {}).get("vcenterUUID") != manager.vcenter.inventory.instance_uuid
        ):
            return
        uid = obj["metadata"]["uid"]
        for owner, spec in self.list_new_clones():
            if owner == uid:
                self.report(f"{uid} is let go, and {spec.name} is being cloned")
        for appliance, vm in self.list_vms():
            if vm.owner == uid and vm.clone is not None and appliance.is_seen(vm):
                self.report(f"{uid} is let go, and {vm.label} is being cloned")

    def _check_destroy(self, call: Call, groups: dict[str, dict[str, Any]]) -> None:
        ref = call.detail[0]
        appliance = call.manager.vcenter.session.token[0]
        vm = next((vm for vm in appliance.vms if vm.ref == ref and not vm.missing_until), None)
        if vm is None or not vm.owner:
            return
        obj = groups.get(vm.owner)
        if obj is None or not self.confirmed.get(self.api.path_of(obj["metadata"]["name"])):
            self.report(f"{vm.label} is destroyed, and the API server did not confirm that")
        if obj is None or vm.replica not in terminating_replicas(obj):
            self.report(f"{vm.label} is destroyed, and no stored record of it is terminating")

    def _check_adoption(self, call: Call, groups: dict[str, dict[str, Any]]) -> None:
        """Only a VM that a user requested is adopted, and none of another group that exists."""
        ref, identity = call.detail
        appliance = call.manager.vcenter.session.token[0]
        vm = next((vm for vm in appliance.vms if vm.ref == ref and not vm.missing_until), None)
        mark = mark_from_extra_config(identity.extra_config)
        if vm is None or str(vm.change_version) != identity.change_version:
            # vCenter rejects it.
            return
        if mark is None or mark.origin is None:
            uid, before = vm.owner, mark_from_extra_config(vm.extra_config)
            if uid and (uid, "undo") not in self.adoption_requests:
                self.report(f"{vm.label} is given back, and no user requested it")
            if before is None or before.origin is None:
                self.report(f"{vm.label} is given back, and was not adopted")
            return
        uid = mark.group_id.uid
        if (uid, vm.instance_uuid) not in self.adoption_requests:
            self.report(f"{vm.label} is adopted by {uid}, and no user requested it")
        if vm.owner and vm.owner in groups:
            self.report(f"{vm.label} is adopted by {uid}, and its group exists")
        replicas = groups.get(uid, {}).get("status", {}).get("replicas", ())
        if uid in groups and all(replica["name"] != mark.replica_name for replica in replicas):
            self.report(f"{vm.label} is adopted by {uid} without a stored record")


def bound_of(obj: dict[str, Any]) -> int:
    spec = obj["spec"]
    return int(spec["replicas"] + (spec.get("rollout") or {}).get("maxSurge", 0))


def is_orphaning(obj: dict[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"] and obj["spec"].get("deletionPolicy") == "Orphan"
