"""All parts of a history: time, the calls in progress, and the invariants.

After each event and at each half second:
- a group has at most as many VMs and clones as its spec allowed (replicas + maxSurge), except for
  those that users brought back;
- what exists of all groups is within the quota, except for what users added;
- no call has changed anything that a manager did not create, see appliance.py.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec

from kubewright.errors import TimedOut
from vsphere_operators.kinds.vmgroup import reconciler
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import Quota
from vsphere_operators.kinds.vmgroup.ownership import mark_from_extra_config
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .api import HistoryApi
from .appliance import DISCOVERED_FOLDER, Appliance, Vm
from .manager import ManagerProcess
from .wire import MAX_LATE_SECONDS, Call

QUOTA = Quota(vms=7, cpus=10, memory_mb=10 * 1024)
# An update arrives at the manager at most this much later than the change.
MAX_LAG_SECONDS = 1.5
# Everything that is missing comes back earlier than it counts as deleted.
RETURN_SECONDS = 250.0
CALL_TIMEOUT_SECONDS = 60.0
MB_PER_GB = 1024


class World:
    manager: ManagerProcess

    def __init__(self, seed: int) -> None:
        self.seed, self.random, self.now = seed, random.Random(seed), 1000.0
        # Names of replicas are reproducible.
        names = random.Random(seed)
        reconciler.random = type("Names", (), {"SystemRandom": lambda: names})  # type: ignore
        self.api, self.counts, self.violations = HistoryApi(), Counter[str](), list[str]()
        self.events: list[str] = []
        self.appliances = [
            Appliance(uuid, self.clock, self.choose_course, self.report) for uuid in ("A", "B")
        ]
        self.served, self.vcenter_name = self.appliances[0], "vc"
        self.limits = NamespaceLimits(quota=QUOTA if self.random.random() < 0.7 else Quota())
        self.faults = True
        self.pending: list[Call] = []
        self.late: list[tuple[float, Call]] = []
        # What may exist above the limits, because users caused it: VMs and clones of each group by
        # uid, and (VMs, CPUs, MB) of all groups.
        self.allowed_counts: dict[str, int] = {}
        self.allowed_usage = (0, 0, 0)
        for appliance in self.appliances:
            self._add_strangers(appliance)

    def clock(self) -> float:
        return self.now

    def report(self, violation: str) -> None:
        self.violations.append(f"at {self.now:g}: {violation}")

    def choose_course(self) -> dict[str, Any]:
        """How the next task of vCenter goes."""
        chance = self.random
        if not self.faults:
            return {"seconds": 1.0, "fails": False, "shown_after": 1.0, "visibility_delay": 0.0}
        return {
            "seconds": chance.choice([0.5, 2.0, 8.0, 30.0]),
            "fails": chance.random() < 0.15,
            "shown_after": chance.choice([0.0, 0.3, 1.0]),
            "visibility_delay": chance.choice([0.0, 0.0, 3.5]),
        }

    def _add_strangers(self, appliance: Appliance) -> None:
        """In the second vCenter, other objects have the references that groups use in the first."""
        count = 4 if appliance is self.appliances[0] else 24
        for number in range(count):
            folder = appliance.add_folder(f"finance-{number}", "group-v1", managed=False)
            self.add_user_vm(appliance, f"finance-vm-{number}", folder.ref)

    def add_user_vm(
        self, appliance: Appliance, name: str, folder: str, options: dict[str, str] | None = None
    ) -> Vm:
        ref = appliance.new_ref("vm")
        uuid = f"{self.random.getrandbits(32):08x}-0000-4000-8000-000000000000"
        vm = Vm(ref, name, folder, uuid, options or {}, "host-1", 1, MB_PER_GB, power="poweredOn")
        vm.visible_at = self.now
        appliance.vms.append(vm)
        appliance.publish_vm(vm)
        return vm

    # The manager

    async def start_manager(self, stale_events: int = 0) -> None:
        """A new process; calls of the previous one may still be performed, now or later."""
        manager = getattr(self, "manager", None)
        if manager is not None:
            for call in list(self.pending):
                self.pending.remove(call)
                self._abandon(call)
            await manager.kill()
            self.counts["restarts"] += 1
        revisions = [revision for revision, _ in self.api.events]
        index = max(0, len(revisions) - 1 - stale_events)
        self.manager = ManagerProcess(self, self.vcenter_name, revisions[index] if revisions else 0)
        await self.settle()

    def _abandon(self, call: Call) -> None:
        """No answer will be received; the call may be performed all the same."""
        if call.is_performed or call.is_read:
            return
        roll = self.random.random()
        if roll < 0.4:
            call.perform()
        elif roll < 0.75:
            self.late.append((self.now + self.random.uniform(0.0, MAX_LATE_SECONDS), call))

    def lose(self, call: Call) -> None:
        """The sender gives up."""
        self._abandon(call)
        self.counts["answers lost"] += 1
        if call.name in ("GET", "POST", "PATCH", "PUT", "DELETE"):
            call.answer(TimedOut("no answer"))
        else:
            call.answer(Unreachable("no answer"))

    async def settle(self) -> None:
        """Run the coroutines until all of them wait for a call."""
        for _ in range(4):
            await asyncio.sleep(0)

    async def answer_all(self) -> None:
        for _ in range(40):
            await self.settle()
            if not self.pending:
                return
            for call in list(self.pending):
                if call in self.pending:
                    call.answer()

    async def run_manager(self, seconds: float, stride: float = 1.0) -> None:
        """A manager that works for a while without faults of its servers."""
        end = self.now + seconds
        while self.now < end:
            manager = self.manager
            manager.receive_objects(1000)
            manager.vcenter.receive(1000)
            manager.vcenter.notice_end()
            await self.answer_all()
            manager.start_poll()
            await self.answer_all()
            # A status that is stored first leads to another run at once.
            for _ in range(3):
                keys = manager.list_due()
                if not keys:
                    break
                for key in keys:
                    manager.start_reconcile(key)
                await self.answer_all()
            await self.advance(stride)

    # Time

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = end if self._is_idle_until(end) else min(end, self.now + 0.5)
            for appliance in self.appliances:
                for task in appliance.advance():
                    self.counts[f"{task.method} {task.state}"] += 1
                self._return_missing(appliance)
            self._continue_calls()
            await self.settle()
            self.check()

    def _is_idle_until(self, end: float) -> bool:
        """Whether nothing happens before, so that the time needs no steps."""
        watch = self.manager.vcenter.watch
        return not (
            self.pending
            or self.late
            or (watch is not None and watch.queue)
            or any(
                vm.visible_at or 0.0 < vm.missing_until <= end
                for appliance in self.appliances
                for vm in appliance.vms
            )
            or any(
                task.state == "running"
                for appliance in self.appliances
                for task in appliance.tasks.values()
            )
        )

    def _continue_calls(self) -> None:
        for at, call in list(self.late):
            if at <= self.now:
                self.late.remove((at, call))
                self.counts["calls begun late"] += 1
                call.perform()
        for call in [
            call for call in self.pending if self.now - call.sent_at > CALL_TIMEOUT_SECONDS
        ]:
            self.lose(call)
        vcenter = self.manager.vcenter
        watch = vcenter.watch
        if watch is not None:
            count = sum(at <= self.now - MAX_LAG_SECONDS for at, _ in watch.queue)
            vcenter.receive(count)
        # The long poll of an ended session fails, and configurations are read, within seconds.
        if self.random.random() < 0.3:
            vcenter.notice_end()
        if self.random.random() < 0.5:
            self.manager.start_poll()

    def _return_missing(self, appliance: Appliance) -> None:
        due = [vm for vm in appliance.vms if 0.0 < vm.missing_until <= self.now]
        for host in {vm.host for vm in due} - appliance.hosts.keys():
            self.add_host(appliance, host)
        self.register_found_vms(appliance, [vm for vm in due if vm.missing_until])

    def add_host(self, appliance: Appliance, host: str) -> None:
        appliance.hosts[host] = "connected"
        appliance.publish(appliance.build_host_update(host))
        self.register_found_vms(
            appliance, [vm for vm in appliance.vms if vm.host == host and vm.missing_until]
        )

    def register_found_vms(self, appliance: Appliance, vms: list[Vm]) -> None:
        """Register VMs again: with new references, and without the permissions set on them."""
        for vm in vms:
            if vm.folder not in appliance.folders:
                vm.folder = DISCOVERED_FOLDER
            vm.ref, vm.missing_until, vm.hidden = appliance.new_ref("vm"), 0.0, False
            # vCenter registers only VMs that it can read.
            vm.inaccessible = False
            twins = [
                other
                for other in appliance.vms
                if other is not vm
                and other.instance_uuid == vm.instance_uuid
                and appliance.is_registered(other)
            ]
            if any(other.returned for other in (vm, *twins)) and twins:
                # A user restored a VM that was cloned again.
                vm.instance_uuid, vm.owner = f"duplicate {vm.ref}", ""
            if any(
                (other.name, other.folder) == (vm.name, vm.folder)
                for other in appliance.vms
                if other is not vm
            ):
                vm.name = f"{vm.name} ({vm.ref})"
            appliance.publish_vm(vm)
        if vms:
            self.raise_allowed_usage()

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
            (uid, replica["name"]): (1, replica.get("cpu", 0), replica.get("memoryMB", 0))
            for uid, obj in groups.items()
            for replica in obj.get("status", {}).get("replicas", ())
        }
        for appliance, vm in self.list_vms():
            # Of a VM with inaccessible files, vCenter reports no configuration.
            is_known = appliance is self.served and appliance.is_seen(vm) and not vm.inaccessible
            # A user left or brought back what no record has: it counts while it can be seen.
            is_unmanaged = vm.owner not in groups or (
                (vm.returned or is_orphaning(groups[vm.owner]))
                and (vm.owner, vm.replica) not in recorded
            )
            if is_unmanaged and not is_known:
                continue
            size = vm.size
            if vm.resized and not is_known:
                # A user made it larger, and then it left the inventory.
                size = recorded.get((vm.owner, vm.replica), size)
            for ref, (cpus, memory_mb) in resizes:
                if ref == vm.ref and appliance is self.served:
                    size = 1, max(size[1], cpus), max(size[2], memory_mb)
            sizes[vm] = vm.owner, size
        for owner, spec in self.list_new_clones():
            if owner in groups:
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

    async def finish_work(self) -> None:
        """The manager finishes what it does, and knows everything."""
        await self.answer_all()
        self.manager.receive_objects(1000)
        self.manager.vcenter.receive(1000)
        await self.answer_all()

    def check(self) -> None:
        self._check_quota()
        groups = self.list_groups()
        numbers = Counter(vm.owner for _, vm in self.list_vms())
        numbers.update(owner for owner, _ in self.list_new_clones())
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

    def _check_quota(self) -> None:
        quota = self.limits.quota
        if quota == Quota():
            return
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
        if call.is_read or call.name in ("PATCH", "PUT", "POST", "DELETE"):
            return
        self.counts[f"sent {call.name}"] += 1
        groups = self.list_groups()
        if call.name == "clone":
            spec: CloneSpec = call.detail
            uid = self.find_uid_of(spec)
            status = groups.get(uid, {}).get("status", {})
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

    def _check_destroy(self, call: Call, groups: dict[str, dict[str, Any]]) -> None:
        ref = call.detail[0]
        appliance = call.manager.vcenter.session.token[0]
        vm = next((vm for vm in appliance.vms if vm.ref == ref and not vm.missing_until), None)
        if vm is None or not vm.owner:
            return
        status = groups.get(vm.owner, {}).get("status", {})
        replicas = msgspec.convert(status.get("replicas", ()), tuple[ReplicaStatus, ...])
        if not any(replica.name == vm.replica and replica.leaving for replica in replicas):
            self.report(f"{vm.label} is destroyed, and no stored record of it terminates")


def bound_of(obj: dict[str, Any]) -> int:
    spec = obj["spec"]
    return int(spec["replicas"] + (spec.get("rollout") or {}).get("maxSurge", 0))


def is_orphaning(obj: dict[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"] and obj["spec"].get("deletionPolicy") == "Orphan"
