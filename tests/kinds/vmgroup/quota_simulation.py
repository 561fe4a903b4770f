"""Several groups that share a quota, with a simulated API server and vCenter.

The plans, the memory of the manager and the counting are real. API server and vCenter are as weak
as the design allows: a write may be stored without a response, a request may begin seconds after
its sender died, a VM may be visible later than its task ends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.clone_state import CloneTask, infer_clone_state, with_task
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import (
    Action,
    Clone,
    DesiredState,
    Destroy,
    GroupFolder,
    ObservedState,
    Plan,
    PowerOff,
    PowerOn,
    Quota,
    RemoveFinalizer,
    ReplicaRecord,
    ReplicaVm,
    Resize,
    ResourceAmount,
    Rollout,
)
from vsphere_operators.kinds.vmgroup.ownership import GroupId, OwnershipMark
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.quota import OtherGroup, sum_amounts
from vsphere_operators.kinds.vmgroup.usage import UsageCounter
from vsphere_operators.vsphere.index import Index

QUOTA = Quota(vms=7, cpus=10, memory_mb=10 * 1024)
SETTLE_SECONDS = 10.0
FOLDER = GroupFolder(ref="group-v1", name="f", path="/DC0/vm/f", is_empty=False)


@dataclass
class Vm:
    ref: str
    uid: str
    record: ReplicaRecord
    size: ResourceAmount
    power: Any = "poweredOn"
    visible_at: float = 0.0


@dataclass
class Request:
    """A call to vCenter, from the moment it is sent."""

    action: Action
    uid: str
    size: ResourceAmount
    begins_at: float
    ends_at: float
    ref: str
    fails: bool
    state: Any = "wire"
    # The manager never received its reference, or was restarted since.
    lost: bool = False
    ended_at: float = 0.0


@dataclass
class StoredGroup:
    desired: DesiredState
    created_at: int
    version: int = 1
    records: tuple[ReplicaRecord, ...] = ()


@dataclass
class Write:
    """A conditional write of records that has not been answered."""

    version: int
    records: tuple[ReplicaRecord, ...]


@dataclass
class History:
    random: random.Random
    now: float = 100.0
    last_number: int = 0
    stored: dict[str, StoredGroup] = field(default_factory=dict)
    # What the manager's cache has of each group: version, desired state and records.
    cached: dict[str, StoredGroup] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    destroyed: list[Vm] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    watching_since: float = 100.0
    grown: int = 0

    def __post_init__(self) -> None:
        self.memory = GroupMemoryStore(lambda: self.now)

    def number(self) -> int:
        self.last_number += 1
        return self.last_number

    # What exists

    def measure(self) -> ResourceAmount:
        """VMs, with the larger size while a resize is in progress, and clones in progress."""
        active = [request for request in self.requests if request.state in ("wire", "running")]
        sizes = {vm.ref: vm.size for vm in self.vms.values()}
        for request in active:
            if isinstance(request.action, Resize) and request.action.vm.ref in sizes:
                ref = request.action.vm.ref
                sizes[ref] = sizes[ref].larger(request.size)
        # Of two VMs of one name in a folder vCenter creates one.
        names = {vm.record.name for vm in self.vms.values()}
        clones = dict[str, ResourceAmount]()
        for request in active:
            if isinstance(request.action, Clone) and request.action.record.name not in names:
                name = request.action.record.name
                clones[name] = request.size.larger(clones.get(name, request.size))
        return sum_amounts([*sizes.values(), *clones.values()])

    # vCenter

    def advance_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for request in self.requests:
                if request.state == "wire" and request.begins_at <= self.now:
                    request.state = "running"
                if request.state == "running" and request.ends_at <= self.now:
                    request.ended_at = self.now
                    request.state = "error" if request.fails else "success"
                    self.finish(request)
                    self.memory.sizes_in_progress.end(request.ref, visible_within_seconds=10.0)

    def finish(self, request: Request) -> None:
        action = request.action
        if isinstance(action, Clone):
            names = {vm.record.name for vm in self.vms.values()}
            if request.state == "error" or action.record.name in names:
                request.state = "error"
                return
            ref = f"vm-{self.number()}"
            power = "poweredOn" if action.power_on else "poweredOff"
            visible_at = self.now + self.random.choice([0.0, 0.0, 3.0])
            self.vms[ref] = Vm(ref, request.uid, action.record, request.size, power, visible_at)
            return
        vm = self.vms.get(cast("Any", action).vm.ref)
        if vm is None or request.state == "error":
            return
        match action:
            case PowerOn():
                vm.power = "poweredOn"
            case PowerOff():
                vm.power = "poweredOff"
            case Resize() if vm.power == "poweredOff":
                vm.size = request.size
            case Destroy() if vm.power != "poweredOn":
                self.destroyed.append(self.vms.pop(vm.ref))

    # The manager

    def observe(self, uid: str) -> ObservedState:
        memory = self.memory.for_group(uid)
        records = tuple(with_task(record, memory) for record in self.cached[uid].records)
        vms = tuple(
            self.observe_vm(vm)
            for vm in self.vms.values()
            if vm.uid == uid and vm.visible_at <= self.now
        )
        present = {vm.replica_name for vm in vms}
        tasks = {
            request.ref: CloneTask(
                ref=request.ref,
                template=request.action.record.template,
                state=request.state,
                seen_at=max(request.begins_at, self.watching_since),
                ended_at=request.ended_at,
            )
            for request in self.requests
            if isinstance(request.action, Clone) and request.state != "wire"
        }
        return ObservedState(
            records=records,
            vms=vms,
            clone_states={
                record.name: infer_clone_state(
                    record,
                    tasks,
                    self.memory.list_sent_tasks(self.watching_since),
                    memory.find_request(record, self.watching_since),
                    self.memory.acting_since(uid, self.watching_since),
                    self.now,
                )
                for record in records
                if record.name not in present
            },
            failures=memory.active_failures(),
            folder=FOLDER,
            max_actions=3,
        )

    def observe_vm(self, vm: Vm) -> ReplicaVm:
        tasks = [
            request
            for request in self.requests
            if not isinstance(request.action, Clone)
            and cast("Any", request.action).vm.ref == vm.ref
            and request.state == "running"
        ]
        return ReplicaVm(
            replica_name=vm.record.name,
            ref=vm.ref,
            sequence_number=vm.record.sequence_number,
            instance_uuid=vm.record.instance_uuid,
            fingerprint=vm.record.fingerprint,
            power=vm.power,
            cpus=vm.size.cpus,
            memory_mb=vm.size.memory_mb,
            busy=bool(tasks) or vm.ref in self.memory.for_group(vm.uid).busy_refs,
            resize_possible=self.now - self.watching_since < SETTLE_SECONDS
            or any(isinstance(request.action, Resize) for request in tasks),
        )

    def limit(self, uid: str) -> DesiredState:
        """The real count of what other groups use."""
        marks, by_namespace = {}, Index()
        for vm in self.vms.values():
            if vm.visible_at <= self.now:
                marks[vm.ref] = OwnershipMark(
                    group_id=group_id(vm.uid),
                    replica_name=vm.record.name,
                    sequence_number=vm.record.sequence_number,
                    fingerprint="f",
                )
                by_namespace.add(marks[vm.ref].group_id.namespace_key, vm.ref)
        inventory = SimpleNamespace(
            vms={
                ref: SimpleNamespace(
                    cpus=self.vms[ref].size.cpus, memory_mb=self.vms[ref].size.memory_mb
                )
                for ref in marks
            }
        )
        counter = UsageCounter(
            cast("Any", inventory),
            cast("Any", SimpleNamespace(marks=marks, refs_by_namespace=by_namespace)),
            self.memory,
        )
        group = self.cached[uid]
        return counter.apply_quota(
            cast(
                "Any",
                SimpleNamespace(
                    group_id=group_id(uid),
                    desired=group.desired,
                    limits=NamespaceLimits(quota=QUOTA),
                    list_other_groups=lambda: [
                        self.build_other(other, group)
                        for other in self.cached.values()
                        if other is not group
                    ],
                ),
            )
        )

    def build_other(self, other: StoredGroup, group: StoredGroup) -> OtherGroup:
        desired, count = other.desired, 0
        if other.created_at < group.created_at and not desired.deleting:
            count = desired.replicas
        return OtherGroup(
            uid=desired.uid,
            records=other.records,
            size=desired.size,
            requested=ResourceAmount(
                vms=count, cpus=count * desired.cpus, memory_mb=count * desired.memory_mb
            ),
        )

    def step(self, uid: str, *, faults: bool = True) -> Plan | None:
        """One reconcile; a write that it begins is answered by a later event."""
        if uid in self.writes or uid not in self.cached:
            return None
        memory, group = self.memory.for_group(uid), self.cached[uid]
        memory.observe_generation(group.version)
        memory.observe_records(group.records, str(group.version))
        desired = self.limit(uid)
        if desired.quota_violation:
            desired = replace(desired, clone_blocker=desired.quota_violation)
        observed = self.observe(uid)
        new_plan = plan(desired, observed, lambda: f"{uid}-replica-{self.number():08d}")
        if new_plan.write_status_first:
            memory.expect_records(observed.records, new_plan.records, str(group.version))
            self.writes[uid] = Write(group.version, new_plan.records)
            return new_plan
        for action in new_plan.actions:
            if isinstance(action, RemoveFinalizer):
                del self.stored[uid], self.cached[uid]
                self.memory.forget(uid)
                return new_plan
            self.send(uid, action, faults=faults)
        records = tuple(with_task(record, memory) for record in new_plan.records)
        memory.keep_only(record.name for record in records)
        if records != group.records:
            self.writes[uid] = Write(group.version, records)
        return new_plan

    def send(self, uid: str, action: Action, *, faults: bool) -> None:
        chance, memory = self.random, self.memory.for_group(uid)
        lost = faults and chance.random() < 0.15
        size = ResourceAmount(vms=1)
        match action:
            case Clone(record):
                assert record in self.stored[uid].records, "only a stored record is cloned"
                size = record.size
            case Resize(cpus=cpus, memory_mb=memory_mb):
                size = ResourceAmount(vms=1, cpus=cpus, memory_mb=memory_mb)
        begins_at = self.now + (chance.uniform(0.0, 8.0) if lost else 0.0)
        request = Request(
            action,
            uid,
            size,
            begins_at,
            begins_at + chance.choice([0.5, 2.0, 8.0, 30.0]),
            f"task-{self.number()}",
            fails=faults and chance.random() < 0.15,
            state="wire" if lost else "running",
            lost=lost,
        )
        self.requests.append(request)
        if not lost:
            self.memory.sizes_in_progress.begin(request.ref, group_id(uid), action)
        self.grown += isinstance(action, Clone | Resize)
        if isinstance(action, Clone):
            outcome: Any = "maybe_sent" if lost else "accepted"
            task = "" if lost else request.ref
            memory.record_clone(action.record, outcome, task, self.watching_since)
        if lost:
            name = action.record.name if isinstance(action, Clone) else cast("Any", action).vm
            failure = SimpleNamespace(message="no response", permanent=False, reason="")
            key = name if isinstance(name, str) else name.replica_name
            memory.record_failure(key, cast("Any", failure))

    def answer_write(self, uid: str, outcome: str) -> None:
        """`stored`, `unanswered` (stored, and the cache does not show it yet) or `lost`."""
        write = self.writes.pop(uid)
        group = self.stored.get(uid)
        if group is None or write.version != group.version or outcome == "lost":
            self.refresh(uid)
            return
        self.stored[uid] = StoredGroup(
            group.desired, group.created_at, group.version + 1, write.records
        )
        if outcome == "stored":
            self.refresh(uid)

    def refresh(self, uid: str) -> None:
        """The watch shows the group to the manager."""
        if uid in self.stored:
            self.cached[uid] = self.stored[uid]
        else:
            self.cached.pop(uid, None)

    def restart_manager(self) -> None:
        for uid in list(self.writes):
            self.answer_write(uid, self.random.choice(["stored", "lost"]))
        self.cached = dict(self.stored)
        self.memory = GroupMemoryStore(lambda: self.now)
        for request in self.requests:
            request.lost = True
        self.watching_since = self.now

    # Users

    def create_group(self) -> None:
        uid = f"uid-{self.number()}"
        desired = DesiredState(uid=uid, template="vm-t", template_name="t", **self.choose_spec())
        self.stored[uid] = StoredGroup(desired, self.number())
        self.refresh(uid)

    def choose_spec(self) -> dict[str, Any]:
        chance = self.random
        return {
            # Small enough that most requests fit, and large enough that some do not.
            "replicas": chance.randint(1, 4),
            "cpus": chance.choice([1, 1, 2, 3]),
            "memory_mb": 1024 * chance.choice([1, 1, 2, 3]),
            "paused": chance.random() < 0.15,
            "power": chance.choice(["poweredOn", "poweredOn", "poweredOff"]),
            "fingerprint": chance.choice(["f", "f", "g"]),
            "rollout": Rollout(
                max_surge=chance.randint(0, 2), max_unavailable=chance.randint(0, 2)
            ),
        }

    def edit_spec(self, uid: str, **changes: Any) -> None:
        group = self.stored[uid]
        self.stored[uid] = StoredGroup(
            replace(group.desired, **changes), group.created_at, group.version + 1, group.records
        )
        if self.random.random() < 0.8:
            self.refresh(uid)

    def edit_some_fields(self, uid: str) -> None:
        spec = self.choose_spec()
        names = self.random.sample(sorted(spec), self.random.randint(1, 3))
        self.edit_spec(uid, **{name: spec[name] for name in names})

    def wipe_group(self, uid: str) -> None:
        """A user removes the finalizer: the VMs stay, and clones and resizes go on."""
        del self.stored[uid]
        self.writes.pop(uid, None)
        self.refresh(uid)

    def is_known_to_manager(self, uid: str) -> bool:
        """Whether the manager has the task of all that is in progress, or not visible yet."""
        return not any(
            request.uid == uid
            and request.lost
            and (request.state in ("wire", "running") or self.now - request.ended_at < 10.0)
            for request in self.requests
        )

    def is_any_task_without_group(self) -> bool:
        """Whether only the memory of the manager has what is in progress, or not visible yet."""
        return any(
            request.uid not in self.stored and request.state in ("wire", "running")
            for request in self.requests
        ) or any(vm.uid not in self.stored and vm.visible_at > self.now for vm in self.vms.values())


def group_id(uid: str) -> GroupId:
    return GroupId(cluster_id="c1", namespace="team-a", name=uid, uid=uid)
