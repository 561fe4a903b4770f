"""All parts of a history: time, and the calls in progress."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from kubewright.errors import TimedOut
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import Quota
from vsphere_operators.vsphere.faults import Unreachable

from .api import HistoryApi
from .appliance import DISCOVERED_FOLDER, Appliance
from .invariants import Invariants
from .manager import ManagerProcess
from .model import Vm
from .wire import MAX_LATE_SECONDS, Call

QUOTA = Quota(vms=7, cpus=10, memory_mb=10 * 1024)
# An update arrives at the manager at most this much later than the change.
MAX_LAG_SECONDS = 1.5
# Everything that is missing comes back earlier than it counts as deleted.
RETURN_SECONDS = 250.0
CALL_TIMEOUT_SECONDS = 60.0
MB_PER_GB = 1024


class World(Invariants):
    # It has caches and an inventory, and reconciles nothing until the manager has died.
    standby: ManagerProcess | None = None

    def __init__(self, seed: int) -> None:
        self.seed, self.random, self.now = seed, random.Random(seed), 1000.0
        self.api, self.counts, self.violations = HistoryApi(), Counter[str](), list[str]()
        self.events: list[str] = []
        # The Events of all managers that the API server stores once: uid, message and version.
        self.group_events: dict[tuple[str, str], str] = {}
        self.appliances = [
            Appliance(uuid, self.clock, self.choose_course, self.report) for uuid in ("A", "B")
        ]
        self.served, self.vcenter_name = self.appliances[0], "vc"
        self.limits = NamespaceLimits(quota=QUOTA if self.random.random() < 0.7 else Quota())
        self.faults = True
        self.pending: list[Call] = []
        self.late: list[tuple[float, Call]] = []
        self.allowed_counts: dict[str, int] = {}
        self.orphaned: set[str] = set()
        self.confirmed: dict[str, bool] = {}
        self.adoption_requests: set[tuple[str, str]] = set()
        self.allowed_usage = (0, 0, 0)
        for appliance in self.appliances:
            self._add_strangers(appliance)

    def clock(self) -> float:
        return self.now

    def record_event(self, uid: str, version: str, reason: str, message: str) -> None:
        key = uid, f"{reason}: {message}"
        if version and self.group_events.get(key) == version:
            self.counts["Events of another manager"] += 1
            return
        # The message has the reference of the task, and a restored vCenter uses references again.
        is_restored = self.counts["restore_vcenter"] or self.counts["reuse_task"]
        if reason == "CloneStarted" and key in self.group_events and not is_restored:
            self.report(f"two Events of one clone: {message}")
        self.group_events[key] = version
        self.counts[f"Event {reason}"] += 1

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
        await self._stop_manager()
        await self.stop_standby()
        revisions = [revision for revision, _ in self.api.events]
        index = max(0, len(revisions) - 1 - stale_events)
        self.manager = ManagerProcess(self, self.vcenter_name, revisions[index] if revisions else 0)
        await self.settle()

    async def _stop_manager(self) -> None:
        manager = getattr(self, "manager", None)
        if manager is None:
            return
        for call in [call for call in self.pending if call.manager is manager]:
            self.pending.remove(call)
            self._abandon(call)
        await manager.kill()
        self.counts["restarts"] += 1

    async def start_standby(self) -> None:
        self.standby = ManagerProcess(self, self.vcenter_name, self.api.revision)
        await self.settle()

    async def stop_standby(self) -> None:
        if self.standby is not None:
            self.pending = [call for call in self.pending if call.manager is not self.standby]
            await self.standby.kill()
            self.standby = None

    async def fail_over(self) -> None:
        """The manager dies, and the standby becomes the leader."""
        assert self.standby is not None
        await self._stop_manager()
        self.manager, self.standby = self.standby, None

    @property
    def managers(self) -> list[ManagerProcess]:
        return [self.manager, *([self.standby] if self.standby else [])]

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
        return not (
            self.pending
            or self.late
            or any(
                manager.vcenter.watch and manager.vcenter.watch.queue for manager in self.managers
            )
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
        for call in list(self.pending):
            if self.now - call.sent_at > CALL_TIMEOUT_SECONDS:
                self.lose(call)
        for manager in self.managers:
            vcenter = manager.vcenter
            watch = vcenter.watch
            if watch is not None:
                count = sum(at <= self.now - MAX_LAG_SECONDS for at, _ in watch.queue)
                vcenter.receive(count)
            # The long poll of an ended session fails, and configurations are read, within seconds.
            if self.random.random() < 0.3:
                vcenter.notice_end()
            if self.random.random() < 0.5:
                manager.start_poll()

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
            folder = appliance.folders.get(vm.folder)
            # With another reference in a hidden folder, it would seem to be deleted.
            if folder is None or folder.hidden:
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

    async def finish_work(self) -> None:
        """The manager finishes what it does, and knows everything."""
        await self.answer_all()
        self.manager.receive_objects(1000)
        self.manager.vcenter.receive(1000)
        await self.answer_all()
