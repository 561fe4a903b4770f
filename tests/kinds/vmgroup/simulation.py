"""A vCenter, an API server and a manager that are as simple and as nasty as can be: the ground on which plans are tried.

vCenter here is the weakest that the design allows: it looks at a clone's name only at the clone's end, begins a call some seconds after
its sender died, shows a VM later than its task's end, and shows of a task the template only. The API server may answer with the past.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from uuid import uuid4

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.expectations import CloneRequest, CloneTask, infer_clone_state
from vsphere_operators.kinds.vmgroup.model import (
    Action,
    Clone,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    GroupFolder,
    ObservedState,
    OperationFailure,
    Plan,
    PowerOff,
    PowerOn,
    Reconfigure,
    RemoveFinalizer,
    ReplicaRecord,
    ReplicaVm,
)
from vsphere_operators.kinds.vmgroup.ownership import (
    OwnershipMark,
    instance_uuid_of,
    mark_to_extra_config,
)
from vsphere_operators.kinds.vmgroup.plan import plan

from .simulation_model import (
    GROUP_ID,
    CallOutcome,
    CloneCall,
    ManagerState,
    SimulatedVm,
    StoredGroup,
    VmTask,
)

MAX_START_DELAY_SECONDS = 8.0
MAX_VISIBILITY_DELAY_SECONDS = 4.0


class GroupSimulation:
    """All of it, and what must hold."""

    def __init__(self, wish: DesiredState) -> None:
        self.now, self.last_number = 100.0, 0
        self.vms: dict[str, SimulatedVm] = {}
        self.clone_calls: list[CloneCall] = []
        self.vm_tasks: list[VmTask] = []
        self.folder_ref = ""
        self.is_finished = False
        self.versions = [StoredGroup(1, wish)]
        self.manager = ManagerState(self.versions[-1], self.now)
        self.max_vms = wish.replicas + wish.rollout.max_surge
        self.mutation_count = 0
        self.step_count = 0
        """Conditional writes and mutating calls of all managers."""

    @property
    def stored(self) -> StoredGroup:
        return self.versions[-1]

    def new_ref(self, kind: str) -> str:
        self.last_number += 1
        return f"{kind}-{self.last_number}"

    # Time and vCenter

    def advance_time(self, seconds: float) -> None:
        """Let time pass in small steps, so that things happen in their order."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for call in list(self.clone_calls):
                self.advance_clone(call)
            for job in [each for each in self.vm_tasks if each.ends_at <= self.now]:
                self.vm_tasks.remove(job)
                self.finish_vm_task(job)
            self.check_vm_count()

    def advance_clone(self, call: CloneCall) -> None:
        if call.state == "wire" and call.begins_at <= self.now:
            call.state = "running"
            call.ends_at += self.now - call.begins_at
        if call.state == "running" and call.ends_at <= self.now:
            call.ended_at = self.now
            taken = any(
                each.inventory_name == call.record.name and each.folder == self.folder_ref
                for each in self.vms.values()
            )
            call.state = "error" if call.fails or taken or not self.folder_ref else "success"
            if call.state == "success":
                self.create_cloned_vm(call)

    def create_cloned_vm(self, call: CloneCall) -> None:
        record, wish = call.record, call.desired
        mark = OwnershipMark(
            group_id=GROUP_ID,
            replica_name=record.name,
            slot=record.slot,
            fingerprint=record.fingerprint,
        )
        machine = SimulatedVm(
            self.new_ref("vm"),
            record.name,
            self.folder_ref,
            record.instance_uuid,
            mark_to_extra_config(mark),
        )
        machine.power, machine.cpus, machine.memory_mb = wish.power, wish.cpus, wish.memory_mb
        machine.visible_at = self.now + call.visibility_delay_seconds
        if call.is_from_user:
            machine.extra_config, machine.instance_uuid = {}, str(uuid4())
        self.vms[machine.ref] = machine

    def finish_vm_task(self, job: VmTask) -> None:
        machine = job.vm
        if job.fails or machine.ref not in self.vms:
            if machine.is_owned and machine.mark:
                self.manager.failures[machine.mark.replica_name] = (
                    OperationFailure("it failed"),
                    self.now + 5,
                )
        elif job.action_type is PowerOn:
            machine.power = "poweredOn"
        elif job.action_type is PowerOff:
            machine.power = "poweredOff"
        elif job.action_type is Reconfigure:
            machine.cpus, machine.memory_mb = job.size
        elif job.action_type is Destroy:
            del self.vms[machine.ref]

    # The API server

    def store_records(self, wish: DesiredState, records: tuple[ReplicaRecord, ...]) -> None:
        self.versions.append(StoredGroup(self.stored.version + 1, wish, records))
        bound = wish.replicas + wish.rollout.max_surge
        self.max_vms = max(
            bound,
            min(
                self.max_vms,
                max(len(records), len(self.list_owned_vms()) + len(self.list_running_clones())),
            ),
        )

    def edit_spec(self, wish: DesiredState) -> None:
        """A person changes the spec; the bound never falls below what was rightly there."""
        before = self.max_vms
        self.versions.append(StoredGroup(self.stored.version + 1, wish, self.stored.records))
        self.max_vms = max(
            wish.replicas + wish.rollout.max_surge, min(before, len(self.stored.records))
        )

    # The manager

    def observe(self) -> ObservedState:
        manager = self.manager
        vms = tuple(
            self.observe_vm(each)
            for each in self.vms.values()
            if each.is_owned and each.visible_at <= self.now
        )
        present = {vm.name for vm in vms}
        records = tuple(self.with_task(each) for each in manager.cached_group.records)
        tasks = [self.observe_clone_task(each) for each in self.clone_calls if each.state != "wire"]
        accounted = {each.task for each in records} | {
            each.task for each in manager.clone_requests.values()
        }
        flights = {
            each.name: infer_clone_state(
                each,
                tasks,
                accounted,
                manager.clone_requests.get(each.name),
                manager.watching_since,
                self.now,
            )
            for each in records
            if each.name not in present
        }
        others = {
            each.inventory_name: f"/DC0/vm/{each.inventory_name}"
            for each in self.vms.values()
            if not each.is_owned and each.folder == self.folder_ref
        }
        empty = not any(each.folder == self.folder_ref for each in self.vms.values())
        return ObservedState(
            records=records,
            vms=vms,
            clone_states=flights,
            conflicting_vms={
                each.name: others[each.name]
                for each in records
                if each.name in others and each.name not in present
            },
            failures={
                name: trouble
                for name, (trouble, until) in manager.failures.items()
                if until > self.now
            },
            folder=GroupFolder(
                ref=self.folder_ref, name="team-a-web", path="/DC0/vm/team-a-web", is_empty=empty
            )
            if self.folder_ref
            else None,
            max_actions=3
            - len(self.vm_tasks)
            - len([each for each in self.clone_calls if each.state == "running"]),
        )

    def observe_vm(self, machine: SimulatedVm) -> ReplicaVm:
        mark = machine.mark
        assert mark is not None
        return ReplicaVm(
            name=mark.replica_name,
            ref=machine.ref,
            slot=mark.slot,
            instance_uuid=machine.instance_uuid,
            fingerprint=mark.fingerprint,
            power=machine.power,
            cpus=machine.cpus,
            memory_mb=machine.memory_mb,
            broken=machine.broken,
            busy=any(each.vm is machine for each in self.vm_tasks),
            foreign_disks=machine.foreign_disks,
        )

    def with_task(self, record: ReplicaRecord) -> ReplicaRecord:
        sent = self.manager.clone_requests.get(record.name)
        if sent and sent.attempt == record.attempt and sent.task and record.state == "Planned":
            return replace(record, state="Cloning", task=sent.task)
        return record

    def observe_clone_task(self, call: CloneCall) -> CloneTask:
        state: Literal["running", "success", "error"] = (
            "running" if call.state == "wire" else call.state
        )
        seen_at = max(call.begins_at, self.manager.watching_since)
        return CloneTask(
            ref=call.ref,
            template=call.record.template,
            state=state,
            seen_at_seconds=seen_at,
            ended_at_seconds=call.ended_at,
        )

    def new_name(self) -> str:
        self.last_number += 1
        return f"web-replica-{self.last_number:08d}"

    def make_plan(self) -> Plan:
        seen = self.observe()
        names = iter([self.new_name() for _ in range(20)])
        return plan(self.manager.cached_group.desired, seen, lambda: next(names))

    def reconcile(self, chance: Callable[[], CallOutcome], crash_after: int | None = None) -> Plan:
        """Plan, store or act; `crash_after` so many steps the process dies."""
        steps = 0
        while True:
            made = self.make_plan()
            if not made.write_status_first:
                break
            if crash_after is not None and steps >= crash_after:
                return self.crash(made)
            steps, self.step_count = steps + 1, self.step_count + 1
            if not self.save_records(made.records):
                self.manager.cached_group = self.stored
        for action in made.actions:
            if crash_after is not None and steps >= crash_after:
                return self.crash(made)
            steps, self.step_count = steps + 1, self.step_count + 1
            self.execute(action, chance(), crashes=crash_after == steps)
            if crash_after == steps:
                return self.crash(made)
        if crash_after is None and made.records != self.manager.cached_group.records:
            self.save_records(made.records)
        self.check_vm_count()
        return made

    def save_records(self, records: tuple[ReplicaRecord, ...]) -> bool:
        """A conditional write: it fails if the object is another by now."""
        manager = self.manager
        if manager.cached_group.version != self.stored.version:
            return False
        attempts = {each.name: each.attempt for each in manager.cached_group.records}
        self.store_records(manager.cached_group.desired, records)
        manager.cached_group = self.stored
        for each in records:
            if each.state == "Planned" and attempts.get(each.name) != each.attempt:
                manager.clone_requests[each.name] = CloneRequest(
                    attempt=each.attempt, outcome="unsent", updated_at_seconds=self.now
                )
        return True

    def crash(self, made: Plan) -> Plan:
        self.restart_manager()
        return made

    def restart_manager(self, view: StoredGroup | None = None) -> None:
        self.manager = ManagerState(view or self.stored, self.now)

    def execute(self, action: Action, chance: CallOutcome, *, crashes: bool = False) -> None:
        self.mutation_count += 1
        match action:
            case Clone():
                self.send_clone(action, chance, crashes)
            case CreateFolder():
                assert not self.folder_ref
                self.folder_ref = self.new_ref("group-v")
            case DestroyFolder():
                assert self.read_stored().desired.deleting
                assert not any(each.folder == self.folder_ref for each in self.vms.values())
                self.folder_ref = ""
            case RemoveFinalizer() if self.manager.cached_group.version == self.stored.version:
                self.finish_deletion()
            case PowerOn() | PowerOff() | Reconfigure() | Destroy():
                self.start_vm_task(action, chance)

    def send_clone(self, action: Clone, chance: CallOutcome, dies: bool) -> None:
        record, manager = action.record, self.manager
        assert record in manager.cached_group.records
        call = CloneCall(
            record,
            manager.cached_group.desired,
            self.now,
            self.new_ref("task"),
            self.now + chance.duration_seconds,
            chance.fails,
            chance.visibility_delay_seconds,
        )
        self.clone_calls.append(call)
        unanswered = chance.answer_is_lost or dies
        if unanswered:
            call.begins_at += chance.start_delay_seconds
        self.advance_clone(call)
        outcome: Literal["answered", "unanswered"] = "unanswered" if unanswered else "answered"
        manager.clone_requests[record.name] = CloneRequest(
            attempt=record.attempt,
            outcome=outcome,
            task="" if unanswered else call.ref,
            updated_at_seconds=self.now,
        )

    def start_vm_task(
        self, action: PowerOn | PowerOff | Reconfigure | Destroy, chance: CallOutcome
    ) -> None:
        machine = self.vms[action.vm.ref]
        assert machine.is_owned, "hands off what is not ours"
        assert not any(each.vm is machine for each in self.vm_tasks), (
            "one operation at a time on a VM"
        )
        if isinstance(action, Destroy | Reconfigure):
            assert machine.power == "poweredOff"
        if isinstance(action, Destroy):
            record = next(
                each for each in self.read_stored().records if each.name == action.vm.name
            )
            assert record.terminating
            assert not machine.foreign_disks
        size = (action.cpus, action.memory_mb) if isinstance(action, Reconfigure) else (0, 0)
        self.vm_tasks.append(
            VmTask(type(action), machine, self.now + chance.duration_seconds, chance.fails, size)
        )

    def read_stored(self) -> StoredGroup:
        """The GET before something destructive."""
        return self.stored

    # What must hold

    def list_owned_vms(self) -> list[SimulatedVm]:
        return [each for each in self.vms.values() if each.is_owned]

    def list_running_clones(self) -> list[CloneCall]:
        return [
            each
            for each in self.clone_calls
            if each.state in ("wire", "running") and not each.is_from_user
        ]

    def check_vm_count(self) -> None:
        total = len(self.list_owned_vms()) + len(self.list_running_clones())
        assert total <= self.max_vms, f"{total} VMs and clones, {self.max_vms} allowed"
        assert len(self.stored.records) <= max(self.max_vms, total)

    def finish_deletion(self) -> None:
        wish = self.read_stored().desired
        assert wish.deleting
        assert not self.list_running_clones()
        if wish.deletion_policy == "Destroy":
            assert not self.list_owned_vms()
        self.is_finished = True

    # People

    def copy_vm(self, machine: SimulatedVm) -> None:
        """Somebody clones a VM: extraConfig comes along, the instanceUuid does not."""
        self.add_foreign_vm(f"copy of {machine.inventory_name}", dict(machine.extra_config))

    def add_foreign_vm(self, name: str, options: dict[str, str] | None = None) -> SimulatedVm:
        machine = SimulatedVm(
            self.new_ref("vm"), name, self.folder_ref, str(uuid4()), options or {}
        )
        self.vms[machine.ref] = machine
        return machine

    def clone_template_as_user(self, template: str, seconds: float) -> None:
        name = f"theirs-{self.last_number}"
        record = ReplicaRecord(
            slot=0,
            name=name,
            instance_uuid=instance_uuid_of("x", name),
            template=template,
            fingerprint="x",
        )
        call = CloneCall(
            record,
            self.stored.desired,
            self.now,
            self.new_ref("task"),
            self.now + seconds,
            False,
            0.0,
            is_from_user=True,
            state="running",
        )
        self.clone_calls.append(call)
