"""A simulated vCenter, API server and manager on which plans are tested.

The vCenter is the weakest that the design allows: it checks a clone's name only at the end of the
clone, starts a request seconds after its sender died, shows a VM long before or later than the end
of its task, and shows only the template of a task. It rejects tasks on a VM while its clone runs.
The API server may return an old version of the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from uuid import uuid4

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.clone_state import (
    CloneTask,
    infer_clone_state,
    is_clone_unfinished,
    reset_if_replaced,
)
from vsphere_operators.kinds.vmgroup.group_memory import CloneRequest
from vsphere_operators.kinds.vmgroup.model import (
    Action,
    Clone,
    CloneState,
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
    RemoveFinalizer,
    ReplicaRecord,
    ReplicaVm,
    Resize,
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
    """The state of all parts, and the invariants."""

    def __init__(self, desired: DesiredState) -> None:
        self.now, self.last_number = 100.0, 0
        self.vms: dict[str, SimulatedVm] = {}
        self.clone_calls: list[CloneCall] = []
        self.vm_tasks: list[VmTask] = []
        self.folder_ref = ""
        self.is_finished = False
        self.versions = [StoredGroup(1, desired)]
        self.manager = ManagerState(self.versions[-1], self.now)
        # The most VMs and clones that may exist now; it follows edits of the spec.
        self.max_vms = desired.replicas + desired.rollout.max_surge
        self.mutation_count = 0
        # Conditional writes and mutating calls of all managers.
        self.step_count = 0
        self.restart_count = self.vm_action_count = self.suspended_vm_action_count = 0

    @property
    def stored(self) -> StoredGroup:
        return self.versions[-1]

    def new_ref(self, kind: str) -> str:
        self.last_number += 1
        return f"{kind}-{self.last_number}"

    # Time and vCenter

    def advance_time(self, seconds: float) -> None:
        """Advance in small steps, so that events happen in order."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for call in list(self.clone_calls):
                self.advance_clone(call)
            for task in [task for task in self.vm_tasks if task.ends_at <= self.now]:
                self.vm_tasks.remove(task)
                self.finish_vm_task(task)
            self.check_vm_count()

    def advance_clone(self, call: CloneCall) -> None:
        if call.state == "wire" and call.begins_at <= self.now:
            call.state = "running"
            # A clone takes as long when it starts late.
            delay_seconds = self.now - call.begins_at
            call.ends_at += delay_seconds
            if call.shown_at is not None:
                call.shown_at += delay_seconds
        if call.state != "running":
            return
        # CloneVM_Task checks the name only when it adds the VM: A1 of docs/designs/vmgroup.md.
        is_taken = not self.folder_ref or any(
            vm.inventory_name == call.record.name and vm.folder == self.folder_ref
            for vm in self.vms.values()
        )
        is_shown = call.shown_at is not None and call.shown_at <= self.now < call.ends_at
        if is_shown and not call.vm and not is_taken:
            call.vm = self.create_cloned_vm(call)
            call.vm.is_being_cloned, call.vm.power = True, "poweredOff"
        if call.ends_at <= self.now:
            self.finish_clone(call, is_taken=is_taken)

    def finish_clone(self, call: CloneCall, *, is_taken: bool) -> None:
        call.ended_at, vm = self.now, call.vm
        if vm is None:
            call.state = "error" if call.fails or is_taken else "success"
            if call.state == "success":
                call.vm = self.create_cloned_vm(call)
            return
        # A user may have destroyed the folder, and the VM with it.
        call.state = "error" if call.fails or vm.ref not in self.vms else "success"
        vm.is_being_cloned = False
        if call.state == "success":
            vm.power = call.desired.power
        else:
            self.vms.pop(vm.ref, None)

    def create_cloned_vm(self, call: CloneCall) -> SimulatedVm:
        record, desired = call.record, call.desired
        mark = OwnershipMark(
            group_id=GROUP_ID,
            replica_name=record.name,
            sequence_number=record.sequence_number,
            fingerprint=record.fingerprint,
        )
        vm = SimulatedVm(
            self.new_ref("vm"),
            record.name,
            self.folder_ref,
            record.instance_uuid,
            mark_to_extra_config(mark),
        )
        vm.power, vm.cpus, vm.memory_mb = desired.power, desired.cpus, desired.memory_mb
        vm.visible_at = self.now + call.visibility_delay_seconds
        # A clone by a user has no mark, and an instanceUuid of its own.
        if call.is_from_user:
            vm.extra_config, vm.instance_uuid = {}, str(uuid4())
        self.vms[vm.ref] = vm
        return vm

    def finish_vm_task(self, task: VmTask) -> None:
        vm = task.vm
        # A user may have deleted the VM while the task ran.
        if task.fails or vm.ref not in self.vms:
            if vm.is_owned and vm.mark:
                self.manager.failures[vm.mark.replica_name] = (
                    OperationFailure("it failed"),
                    self.now + 5,
                )
        elif task.action_type is PowerOn:
            vm.power = "poweredOn"
        elif task.action_type is PowerOff:
            vm.power = "poweredOff"
        elif task.action_type is Resize:
            vm.cpus, vm.memory_mb = task.size
        elif task.action_type is Destroy:
            del self.vms[vm.ref]

    # The API server

    def store_records(self, desired: DesiredState, records: tuple[ReplicaRecord, ...]) -> None:
        visible = {
            vm.mark.replica_name: vm.ref
            for vm in self.list_owned_vms()
            if vm.mark and vm.visible_at <= self.now
        }
        kept = {
            record.name: self.stored.refs.get(record.name, "")
            for record in records
            if record.state == "Present"
        }
        refs = {record.name: ref for record in records if (ref := visible.get(record.name))}
        self.versions.append(StoredGroup(self.stored.version + 1, desired, records, kept | refs))
        # After a scale-down, VMs that still exist are not an error.
        bound = desired.replicas + desired.rollout.max_surge
        self.max_vms = max(
            bound,
            min(
                self.max_vms,
                max(len(records), len(self.list_owned_vms()) + len(self.list_running_clones())),
            ),
        )

    def edit_spec(self, desired: DesiredState) -> None:
        """A user changes the spec; the bound never falls below what was allowed before."""
        before = self.max_vms
        stored = self.stored
        self.versions.append(StoredGroup(stored.version + 1, desired, stored.records, stored.refs))
        # A wiped status has no records, but the VMs exist.
        existing = len(self.list_owned_vms()) + len(self.list_running_clones())
        self.max_vms = max(
            desired.replicas + desired.rollout.max_surge,
            min(before, max(len(self.stored.records), existing)),
        )

    def wipe_status(self) -> None:
        """A user restores the object from a backup that has no status."""
        self.versions.append(StoredGroup(self.stored.version + 1, self.stored.desired))

    @property
    def has_invisible_vm(self) -> bool:
        """Whether a clone or a VM is known only from the records."""
        visible = {vm.ref for vm in self.list_owned_vms() if vm.visible_at <= self.now}
        clones = self.list_unfinished_clones()
        return len(visible) < len(self.list_owned_vms()) or any(
            call.vm is None or call.vm.ref not in visible for call in clones
        )

    # The manager

    def observe(self) -> ObservedState:
        manager = self.manager
        vms = {
            replica.replica_name: replica
            for vm in self.vms.values()
            if vm.is_owned and vm.visible_at <= self.now
            for replica in [self.observe_vm(vm)]
        }
        records = tuple(self.with_task(record) for record in manager.cached_group.records)
        tasks = {
            call.ref: self.observe_clone_task(call)
            for call in self.clone_calls
            if call.state != "wire"
        }
        sent_tasks = {request.task for request in manager.clone_requests.values()}
        clone_states, unfinished = {}, set()
        for record in records:
            arguments = (
                record,
                tasks,
                sent_tasks,
                manager.find_request(record),
                manager.watching_since,
                self.now,
            )
            if record.name not in vms:
                clone_states[record.name] = infer_clone_state(*arguments)
            elif is_clone_unfinished(
                reset_if_replaced(
                    record,
                    manager.cached_group.refs.get(record.name, ""),
                    vms[record.name].ref,
                ),
                *arguments[1:],
            ):
                clone_states[record.name] = CloneState.RUNNING
                unfinished.add(record.name)
        foreign_names = {
            vm.inventory_name: f"/DC0/vm/{vm.inventory_name}"
            for vm in self.vms.values()
            if not vm.is_owned and vm.folder == self.folder_ref
        }
        empty = not any(vm.folder == self.folder_ref for vm in self.vms.values())
        return ObservedState(
            records=records,
            vms=tuple(replace(vm, busy=vm.busy or name in unfinished) for name, vm in vms.items()),
            clone_states=clone_states,
            conflicting_vms={
                record.name: foreign_names[record.name]
                for record in records
                if record.name in foreign_names and record.name not in vms
            },
            failures={
                name: failure
                for name, (failure, until) in manager.failures.items()
                if until > self.now
            },
            folder=GroupFolder(
                ref=self.folder_ref, name="team-a-web", path="/DC0/vm/team-a-web", is_empty=empty
            )
            if self.folder_ref
            else None,
            max_actions=3
            - len(self.vm_tasks)
            - len([call for call in self.clone_calls if call.state == "running"]),
        )

    def observe_vm(self, vm: SimulatedVm) -> ReplicaVm:
        mark = vm.mark
        assert mark is not None
        return ReplicaVm(
            replica_name=mark.replica_name,
            ref=vm.ref,
            sequence_number=mark.sequence_number,
            instance_uuid=vm.instance_uuid,
            fingerprint=mark.fingerprint,
            power=vm.power,
            cpus=vm.cpus,
            memory_mb=vm.memory_mb,
            unavailable=vm.unavailable,
            busy=any(task.vm is vm for task in self.vm_tasks),
            foreign_disks=vm.foreign_disks,
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
            seen_at=seen_at,
            ended_at=call.ended_at,
        )

    def new_name(self) -> str:
        self.last_number += 1
        return f"web-replica-{self.last_number:08d}"

    def make_plan(self) -> Plan:
        observed = self.observe()
        return plan(self.manager.cached_group.desired, observed, self.new_name)

    def reconcile(
        self, next_outcome: Callable[[], CallOutcome], crash_after: int | None = None
    ) -> Plan:
        """Plan, store or act; the process crashes after `crash_after` steps."""
        steps = 0
        while True:
            new_plan = self.make_plan()
            if not new_plan.write_status_first:
                break
            if crash_after is not None and steps >= crash_after:
                return self.crash(new_plan)
            steps, self.step_count = steps + 1, self.step_count + 1
            # A conflict: read the object again, and plan again.
            if not self.save_records(new_plan.records):
                self.manager.cached_group = self.stored
        for action in new_plan.actions:
            if crash_after is not None and steps >= crash_after:
                return self.crash(new_plan)
            steps, self.step_count = steps + 1, self.step_count + 1
            self.execute(action, next_outcome(), crashes=crash_after == steps)
            if crash_after == steps:
                return self.crash(new_plan)
        # Observed states are stored with the next write; a crash may lose them.
        if crash_after is None and new_plan.records != self.manager.cached_group.records:
            self.save_records(new_plan.records)
        self.check_vm_count()
        return new_plan

    def save_records(self, records: tuple[ReplicaRecord, ...]) -> bool:
        """A conditional write: it fails if the object has changed."""
        manager = self.manager
        if manager.cached_group.version != self.stored.version:
            return False
        attempts = {record.name: record.attempt for record in manager.cached_group.records}
        self.store_records(manager.cached_group.desired, records)
        manager.cached_group = self.stored
        for record in records:
            if attempts.get(record.name) != record.attempt and record.state != "Present":
                manager.clone_requests[record.name] = CloneRequest(
                    attempt=record.attempt,
                    outcome="unsent" if record.state == "Planned" else "maybe_sent",
                    updated_at=self.now,
                )
        return True

    def crash(self, new_plan: Plan) -> Plan:
        self.restart_manager()
        return new_plan

    def restart_manager(self, view: StoredGroup | None = None) -> None:
        self.manager = ManagerState(view or self.stored, self.now)
        self.restart_count += 1

    def execute(self, action: Action, call_outcome: CallOutcome, *, crashes: bool = False) -> None:
        self.mutation_count += 1
        match action:
            case Clone():
                self.send_clone(action, call_outcome, crashes)
            case CreateFolder():
                assert not self.folder_ref
                self.folder_ref = self.new_ref("group-v")
            case DestroyFolder():
                assert self.read_stored().desired.deleting
                assert not any(vm.folder == self.folder_ref for vm in self.vms.values())
                self.folder_ref = ""
            case RemoveFinalizer() if self.manager.cached_group.version == self.stored.version:
                self.finish_deletion()
            case PowerOn() | PowerOff() | Resize() | Destroy():
                self.start_vm_task(action, call_outcome)

    def send_clone(self, action: Clone, call_outcome: CallOutcome, crashes: bool) -> None:
        record, manager = action.record, self.manager
        # Only a stored record may be cloned.
        assert record in manager.cached_group.records
        call = CloneCall(
            record,
            manager.cached_group.desired,
            self.now,
            self.new_ref("task"),
            self.now + call_outcome.duration_seconds,
            call_outcome.fails,
            call_outcome.visibility_delay_seconds,
        )
        self.clone_calls.append(call)
        unanswered = call_outcome.answer_is_lost or crashes
        # vCenter may start a request after its sender gave up: A2 of the design.
        if unanswered:
            call.begins_at += call_outcome.start_delay_seconds
        if call_outcome.shown_after < 1.0:
            call.shown_at = self.now + call_outcome.shown_after * call_outcome.duration_seconds
        self.advance_clone(call)
        outcome: Literal["accepted", "maybe_sent"] = "maybe_sent" if unanswered else "accepted"
        manager.clone_requests[record.name] = CloneRequest(
            attempt=record.attempt,
            outcome=outcome,
            task="" if unanswered else call.ref,
            updated_at=self.now,
        )

    def start_vm_task(
        self, action: PowerOn | PowerOff | Resize | Destroy, call_outcome: CallOutcome
    ) -> None:
        vm = self.vms[action.vm.ref]
        assert vm.is_owned, "an action on a VM of another owner"
        assert not vm.is_being_cloned, "an action on a VM before its clone has ended"
        assert not any(task.vm is vm for task in self.vm_tasks), "one operation at a time on a VM"
        # vCenter rejects all else with InvalidPowerState.
        match action:
            case PowerOn():
                assert vm.power != "poweredOn"
            case PowerOff():
                assert vm.power == "poweredOn"
            case Resize():
                assert vm.power == "poweredOff"
            case Destroy():
                assert vm.power != "poweredOn"
        if isinstance(action, Destroy):
            stored = {record.name: record for record in self.read_stored().records}
            record = stored.get(action.vm.replica_name)
            if record is None:
                # The status was wiped: the executor does not send the call.
                return
            assert record.terminating
            assert not vm.foreign_disks
        self.vm_action_count += 1
        self.suspended_vm_action_count += vm.power == "suspended"
        size = (action.cpus, action.memory_mb) if isinstance(action, Resize) else (0, 0)
        self.vm_tasks.append(
            VmTask(
                type(action), vm, self.now + call_outcome.duration_seconds, call_outcome.fails, size
            )
        )

    def read_stored(self) -> StoredGroup:
        """The GET before a destructive action."""
        return self.stored

    # Invariants

    def list_owned_vms(self) -> list[SimulatedVm]:
        return [vm for vm in self.vms.values() if vm.is_owned]

    def list_running_clones(self) -> list[CloneCall]:
        """The clones that have no VM yet."""
        return [call for call in self.list_unfinished_clones() if call.vm is None]

    def list_unfinished_clones(self) -> list[CloneCall]:
        return [
            call
            for call in self.clone_calls
            if call.state in ("wire", "running") and not call.is_from_user
        ]

    def check_vm_count(self) -> None:
        total = len(self.list_owned_vms()) + len(self.list_running_clones())
        assert total <= self.max_vms, f"{total} VMs and clones, {self.max_vms} allowed"
        assert len(self.stored.records) <= max(self.max_vms, total)

    def finish_deletion(self) -> None:
        desired = self.read_stored().desired
        assert desired.deleting
        assert not self.list_unfinished_clones()
        if desired.deletion_policy == "Destroy":
            assert not self.list_owned_vms()
        self.is_finished = True

    # Users

    def copy_vm(self, vm: SimulatedVm) -> None:
        """A user clones a VM: the copy has its extraConfig, and a new instanceUuid."""
        self.add_foreign_vm(f"copy of {vm.inventory_name}", dict(vm.extra_config))

    def add_foreign_vm(self, name: str, options: dict[str, str] | None = None) -> SimulatedVm:
        vm = SimulatedVm(self.new_ref("vm"), name, self.folder_ref, str(uuid4()), options or {})
        self.vms[vm.ref] = vm
        return vm

    def clone_template_as_user(self, template: str, seconds: float) -> None:
        name = f"foreign-{self.last_number}"
        record = ReplicaRecord(
            sequence_number=0,
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
            shown_at=self.now + 0.3 * seconds,
        )
        self.clone_calls.append(call)
