"""Carries out what a plan says, in one vCenter: starts operations, remembers them, and takes their ends as they come.

Questions and answers:

Does anything wait here?  Only for the answer that a task has begun. Its end comes through the inventory and wakes the group.
What if the process is stopped between the look at the lease and the call?  Then the call is late, and does no harm: design, A4.
What is remembered when no answer comes?  That the clone may be under way: `sent` says "unanswered" from before the call is made.
What is looked at before a VM is destroyed?  The object, fresh from the API server; the VM, fresh from vCenter: its mark, its identity and
    whether it has somebody's disk; then the lease. A folder likewise, and it must be empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.faults import Busy, NotFound, Unreachable, VCenterError, error_type_for_name
from ...vsphere.model import Folder, Task
from ...vsphere.task_limiter import Operation
from ...vsphere.vcenter import VCenter
from ...vsphere.vm_calls import CloneSpec
from .clone_state import CloneRequest, CloneTaskTracker
from .expectations import EFFECT_TIMEOUT_SECONDS, Effect, Expectations, PendingEffect
from .messages import describe_action, describe_failure
from .model import (
    Clone,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    OperationFailure,
    PowerOff,
    PowerOn,
    Reconfigure,
    ReplicaRecord,
    ReplicaVm,
)
from .ownership import (
    GroupId,
    OwnershipIndex,
    OwnershipMark,
    is_owned_by,
    mark_from_extra_config,
    mark_to_extra_config,
)
from .placement import Placement

FOLDER_KEY = "(folder)"
"""Stands in memory for the group's folder, where replicas stand by name; no VM can be called so in a record."""


VmAction = PowerOn | PowerOff | Reconfigure | Destroy


class PreconditionFailed(Exception):
    """The last look before something final shows that it must not be done now."""


class PendingTask(Struct, frozen=True):
    """What a task is for."""

    group_id: GroupId
    name: str
    description: str
    target_ref: str = ""
    effect: Effect | None = None
    config_version_before: str = ""


class OperationContext(Struct, frozen=True, kw_only=True):
    """The group that is worked for, and what it needs beside a plan's action."""

    group_id: GroupId
    expectations: Expectations
    log: Callable[[str], None]
    """Writes a line into the log."""
    require_leadership: Callable[[], None]
    """Raises unless the lease is certainly ours; asked immediately before each call."""
    confirm_deletion: Callable[[str], Awaitable[bool]]
    """Whether the object, fresh from the API server, still wants this replica gone; "" asks for the folder."""
    extra_config: dict[str, str] = {}
    """extraConfig beside the mark."""
    linked_clone: bool = False
    storage_policy: str = ""

    @property
    def task_owner(self) -> str:
        """Who asks for room."""
        return f"{self.group_id.namespace}/{self.group_id.name}"


class Executor:
    """One vCenter, and all groups in it. `wake` hears which group should look again, by uid."""

    def __init__(self, vcenter: VCenter, wake: Callable[[str], None]) -> None:
        self.vcenter, self.wake_group, self.clock = vcenter, wake, vcenter.clock
        self.ownership_index = OwnershipIndex(vcenter, wake)
        self.clone_tracker = CloneTaskTracker(vcenter.clock)
        self.expectations: dict[str, Expectations] = {}
        self.pending_tasks: dict[str, PendingTask] = {}
        vcenter.inventory.connect(self.clone_tracker.on_change, Task)
        vcenter.task_limiter.task_ended.connect(self._on_task_ended)

    def expectations_for(self, uid: str) -> Expectations:
        """What is remembered of a group."""
        return self.expectations.setdefault(uid, Expectations(self.clock))

    def forget_group(self, group: GroupId) -> None:
        """The group is gone."""
        self.expectations.pop(group.uid, None)
        self.vcenter.task_limiter.stop_waiting(f"{group.namespace}/{group.name}")

    def list_sent_tasks(self) -> set[str]:
        """The clone tasks that this process knows to be a record's."""
        return {
            sent.task
            for memory in self.expectations.values()
            for sent in memory.clone_requests.values()
            if sent.task
        }

    async def start_clone(
        self, job: OperationContext, action: Clone, wish: DesiredState, site: Placement, folder: str
    ) -> None:
        """Send a stored record."""
        record, memory, hands = action.record, job.expectations, self.vcenter.vm_calls
        mark = OwnershipMark(
            group_id=job.group_id,
            replica_name=record.name,
            slot=record.slot,
            fingerprint=record.fingerprint,
        )
        order = CloneSpec(
            template=record.template,
            folder=folder,
            name=record.name,
            resource_pool=site.resource_pool,
            datastore=site.datastore,
            cpus=wish.cpus,
            memory_mb=wish.memory_mb,
            instance_uuid=record.instance_uuid,
            extra_config={**job.extra_config, **mark_to_extra_config(mark)},
            power_on=action.power_on,
            linked=job.linked_clone,
            storage_policy=job.storage_policy,
        )

        async def call() -> Any:
            snapshot = await hands.read_current_snapshot(order.template) if order.linked else None
            job.require_leadership()
            job.log(describe_action(action))
            memory.clone_requests[record.name] = self._unanswered_request(record)
            return await hands.clone(order, snapshot)

        started = PendingTask(
            job.group_id,
            record.name,
            f'cloning "{record.name}" from template "{action.template_name}"',
        )
        try:
            task = await self._start_task(job, started, call)
        except VCenterError as error:
            self._record_clone_error(job, record, error)
            raise
        except BaseException:
            if memory.clone_requests[record.name].outcome == "unanswered":
                memory.clone_requests[record.name] = self._unanswered_request(record)
            raise
        memory.clone_requests[record.name] = CloneRequest(
            attempt=record.attempt, outcome="answered", task=task, updated_at_seconds=self.clock()
        )
        self.clone_tracker.own_tasks.add(task)

    def _unanswered_request(self, record: ReplicaRecord) -> CloneRequest:
        """It may be under way from now on."""
        return CloneRequest(
            attempt=record.attempt, outcome="unanswered", updated_at_seconds=self.clock()
        )

    def _record_clone_error(
        self, job: OperationContext, record: ReplicaRecord, error: VCenterError
    ) -> None:
        """Whether vCenter said no, said nothing, or was not asked at all."""
        sent = job.expectations.clone_requests[record.name]
        if sent.outcome != "unanswered":
            return
        outcome = "unanswered" if isinstance(error, Unreachable) else "refused"
        job.expectations.clone_requests[record.name] = replace(
            sent, outcome=outcome, updated_at_seconds=self.clock()
        )

    async def change_vm(self, job: OperationContext, action: VmAction) -> None:
        """Start a change of one VM."""
        vm, hands = action.vm, self.vcenter.vm_calls
        match action:
            case PowerOn():
                await self._start_vm_task(
                    job, action, "powering on", "poweredOn", lambda: hands.power_on(vm.ref)
                )
            case PowerOff():
                await self._start_vm_task(
                    job, action, "powering off", "poweredOff", lambda: hands.power_off(vm.ref)
                )
            case Reconfigure(cpus=cpus, memory_mb=memory_mb):
                await self._start_vm_task(
                    job,
                    action,
                    "resizing",
                    "resized",
                    lambda: hands.resize(vm.ref, cpus, memory_mb),
                )
            case Destroy():
                await self._start_vm_task(
                    job, action, "destroying", "destroyed", lambda: hands.destroy(vm.ref)
                )

    async def _start_vm_task(
        self,
        job: OperationContext,
        action: VmAction,
        verb: str,
        effect: Effect,
        act: Callable[[], Awaitable[Any]],
    ) -> None:
        """The way of all changes of a VM: look closely if it is final, ask the lease, call."""
        vm = action.vm
        machine = self.vcenter.inventory.vms.get(vm.ref)
        before = machine.config_version if machine else ""

        async def call() -> Any:
            if effect == "destroyed":
                await self._check_before_destroy(job, vm)
            job.require_leadership()
            job.log(describe_action(action))
            return await act()

        started = PendingTask(job.group_id, vm.name, f'{verb} "{vm.name}"', vm.ref, effect, before)
        job.expectations.busy_refs.add(vm.ref)
        try:
            await self._start_task(job, started, call)
        except (NotFound, PreconditionFailed):
            # What is gone needs nothing; what was held back is planned anew from what was seen.
            self.vcenter.vm_configs.request_refresh(vm.ref)
        finally:
            if not any(each.target_ref == vm.ref for each in self.pending_tasks.values()):
                job.expectations.busy_refs.discard(vm.ref)

    async def _check_before_destroy(self, job: OperationContext, vm: ReplicaVm) -> None:
        """Raise Held unless vCenter and the API server, both asked now, say that this VM is ours, is to go, and carries no one's disk."""
        closeup = await self.vcenter.vm_calls.read_vm(vm.ref)
        if (
            not is_owned_by(
                mark_from_extra_config(closeup.config.extra_config),
                closeup.instance_uuid,
                job.group_id,
            )
            or closeup.has_foreign_disks
        ):
            raise PreconditionFailed
        if not await job.confirm_deletion(vm.name):
            raise PreconditionFailed

    async def create_folder(self, job: OperationContext, parent: str, name: str) -> None:
        """Make the group's folder; that it is there already is as good."""

        async def call() -> str:
            job.require_leadership()
            job.log(describe_action(CreateFolder()))
            return await self.vcenter.vm_calls.create_folder(parent, name)

        try:
            made = await self.vcenter.session.call(call)
        except VCenterError as error:
            self._record_folder_error(job, parent, name, error)
            raise
        job.expectations.record_success(FOLDER_KEY)
        job.expectations.created_folder = (made, self.clock() + EFFECT_TIMEOUT_SECONDS)

    def _record_folder_error(
        self, job: OperationContext, parent: str, name: str, error: VCenterError
    ) -> None:
        """A folder of that name that is not seen yet will be; anything else of that name is in the way."""
        inventory = self.vcenter.inventory
        same = [each for each in inventory.children(parent) if each.name == name]
        if error.fault == "DuplicateName" and any(isinstance(each, Folder) for each in same):
            return
        if error.fault == "DuplicateName" and same:
            words = f"{inventory.path(same[0].ref)} has the name of the group's folder and is none; rename or move it"
            job.expectations.record_failure(
                FOLDER_KEY, OperationFailure(words, True, "FolderNameTaken")
            )
            return
        self._record_error(
            job, PendingTask(job.group_id, FOLDER_KEY, f'creating the folder "{name}"'), error
        )

    async def destroy_folder(self, job: OperationContext, action: DestroyFolder) -> None:
        """Start destroying the group's folder, if it is empty at this moment."""
        ref = action.folder.ref

        async def call() -> Any:
            if not await self.vcenter.vm_calls.is_folder_empty(
                ref
            ) or not await job.confirm_deletion(""):
                raise PreconditionFailed
            job.require_leadership()
            job.log(describe_action(action))
            return await self.vcenter.vm_calls.destroy_folder(ref)

        if ref in job.expectations.busy_refs:
            return
        job.expectations.busy_refs.add(ref)
        try:
            await self._start_task(
                job,
                PendingTask(
                    job.group_id,
                    FOLDER_KEY,
                    f'destroying the folder "{action.folder.name}"',
                    ref,
                    "destroyed",
                ),
                call,
            )
        except (NotFound, PreconditionFailed):
            return
        finally:
            if not any(each.target_ref == ref for each in self.pending_tasks.values()):
                job.expectations.busy_refs.discard(ref)

    async def _start_task(
        self, job: OperationContext, started: PendingTask, call: Callable[[], Awaitable[Any]]
    ) -> str:
        """Start an operation, and take note of a refusal; returns its task. What is gone already needs no change."""
        try:
            operation = await self.vcenter.task_limiter.start(
                job.task_owner, started.description, call
            )
        except VCenterError as error:
            waits, gone = (
                isinstance(error, Busy) and not error.fault,
                isinstance(error, NotFound) and started.effect is not None,
            )
            if not waits and not gone:
                self._record_error(job, started, error)
            raise
        self.pending_tasks[operation.task] = started
        if operation.task not in self.vcenter.task_limiter.running:
            # Its end was there before its name.
            self._on_task_ended(operation, self.vcenter.inventory.tasks.get(operation.task))
        return operation.task

    def _record_error(
        self, job: OperationContext, started: PendingTask, error: VCenterError
    ) -> None:
        """A call was refused, or not answered."""
        passing = isinstance(error, Busy | Unreachable)
        told = describe_failure(started.description, error.fault, str(error), transient=passing)
        job.expectations.record_failure(
            started.name, OperationFailure(told.message, told.permanent, told.reason)
        )

    def _on_task_ended(self, operation: Operation, task: Task | None) -> None:
        """An operation has ended; None is an end that nobody can tell any more."""
        started = self.pending_tasks.pop(operation.task, None)
        if started is None:
            return
        memory = self.expectations_for(started.group_id.uid)
        memory.busy_refs.discard(started.target_ref)
        if task is not None and task.state == "success":
            memory.record_success(started.name)
            if started.effect is not None:
                memory.pending_effects[started.target_ref] = PendingEffect(
                    started.effect,
                    self.clock() + EFFECT_TIMEOUT_SECONDS,
                    started.config_version_before,
                )
        elif task is not None:
            passing = issubclass(error_type_for_name(task.fault), Busy | Unreachable)
            told = describe_failure(
                started.description, task.fault, task.message or task.fault, transient=passing
            )
            memory.record_failure(
                started.name, OperationFailure(told.message, told.permanent, told.reason)
            )
        self.wake_group(started.group_id.uid)
