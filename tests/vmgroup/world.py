"""A vCenter, an API server and a manager that are as simple and as nasty as can be: the ground on which plans are tried.

vCenter here is the weakest that the design allows: it looks at a clone's name only at the clone's end, begins a call some seconds after
its sender died, shows a VM later than its task's end, and shows of a task the template only. The API server may answer with the past.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from uuid import uuid4

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.clone_state import CloneRequest, CloneTask, infer_clone_state
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

from .parts import GROUP, Call, Chance, Job, Machine, Manager, Stored

LATEST_BEGIN_SECONDS = 8.0
LATEST_SIGHT_SECONDS = 4.0


class World:
    """All of it, and what must hold."""

    def __init__(self, wish: DesiredState) -> None:
        self.now, self.serial = 100.0, 0
        self.machines: dict[str, Machine] = {}
        self.calls: list[Call] = []
        self.jobs: list[Job] = []
        self.folder = ""
        self.finished = False
        self.history = [Stored(1, wish)]
        self.manager = Manager(self.history[-1], self.now)
        self.allowed = wish.replicas + wish.rollout.max_surge
        self.mutations = 0
        self.steps = 0
        """Conditional writes and mutating calls of all managers."""

    @property
    def stored(self) -> Stored:
        return self.history[-1]

    def reference(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}-{self.serial}"

    # Time and vCenter

    def pass_time(self, seconds: float) -> None:
        """Let time pass in small steps, so that things happen in their order."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for call in list(self.calls):
                self.advance(call)
            for job in [each for each in self.jobs if each.ends_at <= self.now]:
                self.jobs.remove(job)
                self.end(job)
            self.check()

    def advance(self, call: Call) -> None:
        if call.state == "wire" and call.begins_at <= self.now:
            call.state = "running"
            call.ends_at += self.now - call.begins_at
        if call.state == "running" and call.ends_at <= self.now:
            call.ended_at = self.now
            taken = any(
                each.shown_name == call.record.name and each.folder == self.folder
                for each in self.machines.values()
            )
            call.state = "error" if call.fails or taken or not self.folder else "success"
            if call.state == "success":
                self.born(call)

    def born(self, call: Call) -> None:
        record, wish = call.record, call.wish
        mark = OwnershipMark(
            group_id=GROUP,
            replica_name=record.name,
            slot=record.slot,
            fingerprint=record.fingerprint,
        )
        machine = Machine(
            self.reference("vm"),
            record.name,
            self.folder,
            record.instance_uuid,
            mark_to_extra_config(mark),
        )
        machine.power, machine.cpus, machine.memory_mb = wish.power, wish.cpus, wish.memory_mb
        machine.visible_at = self.now + call.sight_seconds
        if call.is_person:
            machine.options, machine.instance_uuid = {}, str(uuid4())
        self.machines[machine.ref] = machine

    def end(self, job: Job) -> None:
        machine = job.machine
        if job.fails or machine.ref not in self.machines:
            if machine.is_ours and machine.mark:
                self.manager.troubles[machine.mark.replica_name] = (
                    OperationFailure("it failed"),
                    self.now + 5,
                )
        elif job.kind is PowerOn:
            machine.power = "poweredOn"
        elif job.kind is PowerOff:
            machine.power = "poweredOff"
        elif job.kind is Reconfigure:
            machine.cpus, machine.memory_mb = job.size
        elif job.kind is Destroy:
            del self.machines[machine.ref]

    # The API server

    def store(self, wish: DesiredState, records: tuple[ReplicaRecord, ...]) -> None:
        self.history.append(Stored(self.stored.version + 1, wish, records))
        bound = wish.replicas + wish.rollout.max_surge
        self.allowed = max(
            bound, min(self.allowed, max(len(records), len(self.genuine()) + len(self.under_way())))
        )

    def edit(self, wish: DesiredState) -> None:
        """A person changes the spec; the bound never falls below what was rightly there."""
        before = self.allowed
        self.history.append(Stored(self.stored.version + 1, wish, self.stored.records))
        self.allowed = max(
            wish.replicas + wish.rollout.max_surge, min(before, len(self.stored.records))
        )

    # The manager

    def seen(self) -> ObservedState:
        manager = self.manager
        vms = tuple(
            self.vm_of(each)
            for each in self.machines.values()
            if each.is_ours and each.visible_at <= self.now
        )
        present = {vm.name for vm in vms}
        records = tuple(self.with_task(each) for each in manager.view.records)
        tasks = [self.task_of(each) for each in self.calls if each.state != "wire"]
        accounted = {each.task for each in records} | {each.task for each in manager.sent.values()}
        flights = {
            each.name: infer_clone_state(
                each,
                tasks,
                accounted,
                manager.sent.get(each.name),
                manager.watching_since,
                self.now,
            )
            for each in records
            if each.name not in present
        }
        others = {
            each.shown_name: f"/DC0/vm/{each.shown_name}"
            for each in self.machines.values()
            if not each.is_ours and each.folder == self.folder
        }
        empty = not any(each.folder == self.folder for each in self.machines.values())
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
                for name, (trouble, until) in manager.troubles.items()
                if until > self.now
            },
            folder=GroupFolder(
                ref=self.folder, name="team-a-web", path="/DC0/vm/team-a-web", is_empty=empty
            )
            if self.folder
            else None,
            max_actions=3
            - len(self.jobs)
            - len([each for each in self.calls if each.state == "running"]),
        )

    def vm_of(self, machine: Machine) -> ReplicaVm:
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
            busy=any(each.machine is machine for each in self.jobs),
            foreign_disks=machine.disks,
        )

    def with_task(self, record: ReplicaRecord) -> ReplicaRecord:
        sent = self.manager.sent.get(record.name)
        if sent and sent.attempt == record.attempt and sent.task and record.state == "Planned":
            return replace(record, state="Cloning", task=sent.task)
        return record

    def task_of(self, call: Call) -> CloneTask:
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
        self.serial += 1
        return f"web-replica-{self.serial:08d}"

    def think(self) -> Plan:
        seen = self.seen()
        names = iter([self.new_name() for _ in range(20)])
        return plan(self.manager.view.wish, seen, lambda: next(names))

    def reconcile(self, chance: Callable[[], Chance], crash_after: int | None = None) -> Plan:
        """Plan, store or act; `crash_after` so many steps the process dies."""
        steps = 0
        while True:
            made = self.think()
            if not made.write_status_first:
                break
            if crash_after is not None and steps >= crash_after:
                return self.died(made)
            steps, self.steps = steps + 1, self.steps + 1
            if not self.save(made.records):
                self.manager.view = self.stored
        for action in made.actions:
            if crash_after is not None and steps >= crash_after:
                return self.died(made)
            steps, self.steps = steps + 1, self.steps + 1
            self.act(action, chance(), dies=crash_after == steps)
            if crash_after == steps:
                return self.died(made)
        if crash_after is None and made.records != self.manager.view.records:
            self.save(made.records)
        self.check()
        return made

    def save(self, records: tuple[ReplicaRecord, ...]) -> bool:
        """A conditional write: it fails if the object is another by now."""
        manager = self.manager
        if manager.view.version != self.stored.version:
            return False
        attempts = {each.name: each.attempt for each in manager.view.records}
        self.store(manager.view.wish, records)
        manager.view = self.stored
        for each in records:
            if each.state == "Planned" and attempts.get(each.name) != each.attempt:
                manager.sent[each.name] = CloneRequest(
                    attempt=each.attempt, outcome="unsent", updated_at_seconds=self.now
                )
        return True

    def died(self, made: Plan) -> Plan:
        self.restart()
        return made

    def restart(self, view: Stored | None = None) -> None:
        self.manager = Manager(view or self.stored, self.now)

    def act(self, action: Action, chance: Chance, *, dies: bool = False) -> None:
        self.mutations += 1
        match action:
            case Clone():
                self.send(action, chance, dies)
            case CreateFolder():
                assert not self.folder
                self.folder = self.reference("group-v")
            case DestroyFolder():
                assert self.fresh().wish.deleting
                assert not any(each.folder == self.folder for each in self.machines.values())
                self.folder = ""
            case RemoveFinalizer() if self.manager.view.version == self.stored.version:
                self.check_end()
            case PowerOn() | PowerOff() | Reconfigure() | Destroy():
                self.start(action, chance)

    def send(self, action: Clone, chance: Chance, dies: bool) -> None:
        record, manager = action.record, self.manager
        assert record in manager.view.records
        call = Call(
            record,
            manager.view.wish,
            self.now,
            self.reference("task"),
            self.now + chance.seconds,
            chance.fails,
            chance.sight_seconds,
        )
        self.calls.append(call)
        unanswered = chance.answer_is_lost or dies
        if unanswered:
            call.begins_at += chance.late_seconds
        self.advance(call)
        outcome: Literal["answered", "unanswered"] = "unanswered" if unanswered else "answered"
        manager.sent[record.name] = CloneRequest(
            attempt=record.attempt,
            outcome=outcome,
            task="" if unanswered else call.ref,
            updated_at_seconds=self.now,
        )

    def start(self, action: PowerOn | PowerOff | Reconfigure | Destroy, chance: Chance) -> None:
        machine = self.machines[action.vm.ref]
        assert machine.is_ours, "hands off what is not ours"
        assert not any(each.machine is machine for each in self.jobs), (
            "one operation at a time on a VM"
        )
        if isinstance(action, Destroy | Reconfigure):
            assert machine.power == "poweredOff"
        if isinstance(action, Destroy):
            record = next(each for each in self.fresh().records if each.name == action.vm.name)
            assert record.terminating
            assert not machine.disks
        size = (action.cpus, action.memory_mb) if isinstance(action, Reconfigure) else (0, 0)
        self.jobs.append(Job(type(action), machine, self.now + chance.seconds, chance.fails, size))

    def fresh(self) -> Stored:
        """The GET before something destructive."""
        return self.stored

    # What must hold

    def genuine(self) -> list[Machine]:
        return [each for each in self.machines.values() if each.is_ours]

    def under_way(self) -> list[Call]:
        return [
            each for each in self.calls if each.state in ("wire", "running") and not each.is_person
        ]

    def check(self) -> None:
        total = len(self.genuine()) + len(self.under_way())
        assert total <= self.allowed, f"{total} VMs and clones, {self.allowed} allowed"
        assert len(self.stored.records) <= max(self.allowed, total)

    def check_end(self) -> None:
        wish = self.fresh().wish
        assert wish.deleting
        assert not self.under_way()
        if wish.deletion_policy == "Destroy":
            assert not self.genuine()
        self.finished = True

    # People

    def copy(self, machine: Machine) -> None:
        """Somebody clones a VM: extraConfig comes along, the instanceUuid does not."""
        self.add(f"copy of {machine.shown_name}", dict(machine.options))

    def add(self, name: str, options: dict[str, str] | None = None) -> Machine:
        machine = Machine(self.reference("vm"), name, self.folder, str(uuid4()), options or {})
        self.machines[machine.ref] = machine
        return machine

    def person_clones_template(self, template: str, seconds: float) -> None:
        name = f"theirs-{self.serial}"
        record = ReplicaRecord(
            slot=0,
            name=name,
            instance_uuid=instance_uuid_of("x", name),
            template=template,
            fingerprint="x",
        )
        call = Call(
            record,
            self.stored.wish,
            self.now,
            self.reference("task"),
            self.now + seconds,
            False,
            0.0,
            is_person=True,
            state="running",
        )
        self.calls.append(call)
