"""Carries out the actions of a plan in one vCenter: starts tasks, and handles their ends.

Does it wait for tasks?  No. It waits only for the response that a task has started. The end of a
    task comes through the inventory and enqueues the group.
What if the process is stopped between the check of the lease and the request?  The request arrives
    late and does no harm: docs/designs/vmgroup.md, A4.
What is checked before a clone is sent?  That a task slot is free, what the clone needs of its
    template, that the inventory was read in this session, and last the lease.
    `clone` -> `_start_task` -> `_check_and_call` -> `VmCalls.clone`.
What if no response is received?  The clone may be in progress: its CloneRequest is "maybe_sent"
    from before the request is sent.
What is checked before a VM or a folder is destroyed?  First the API server: the object must still
    request it. Then vCenter: the VM must have the group's mark and uuid and no foreign disks
    (First Class Disks, and files outside its own folder: Destroy_Task deletes them too), the folder
    must be empty. Last the lease. The API server may need minutes to answer, so vCenter is read
    after it, and the call is not sent later than 2 s after that read.
And before a VM is adopted?  The same, in owner_change.py. The call names the version of the VM that
    was read, and vCenter rejects it if the VM has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kubewright.errors import NotLeader

from ...vsphere.faults import (
    Busy,
    NotAuthenticated,
    NotFound,
    Unreachable,
    VCenterError,
    error_type_for_name,
)
from ...vsphere.model import Folder, Task
from ...vsphere.task_limiter import NoFreeSlot
from ...vsphere.transport import load_types
from ...vsphere.vcenter import VCenter
from ...vsphere.vm_calls import CloneSpec
from .api_reader import ApiReader
from .clone_state import CloneTaskTracker
from .group_memory import (
    EFFECT_TIMEOUT_SECONDS,
    FOLDER_KEY,
    CreatedFolder,
    GroupMemory,
    GroupMemoryStore,
    TaskEffect,
    UnseenEffect,
)
from .messages import describe_action, describe_failure
from .model import (
    Action,
    Adopt,
    Clone,
    CreateFolder,
    Destroy,
    DestroyFolder,
    OperationFailure,
    UndoAdoption,
)
from .operation_reporter import OperationReporter
from .owner_change import ChangeNotConfirmed, OwnerChange
from .ownership import GroupId, is_owned_by, mark_from_extra_config
from .read_age import accept_read, seconds_left
from .reasons import Reason
from .step import GroupInput
from .vm_requests import Call, VmAction, build_vm_request

_ReadBeforeCall = Callable[[], Awaitable[Any]]


class InventoryOutdated(Busy):
    """The plan is from an earlier load of the inventory. Nothing was sent, or it was rejected.

    In between, vCenter may have been restored, or replaced by another one at the same address.
    """


class _TaskPurpose(Struct, frozen=True):
    """A task that this process starts, and what it is for."""

    group: GroupInput
    action: Action
    # The name of the replica, or FOLDER_KEY.
    key: str
    description: str
    target_ref: str = ""
    effect: TaskEffect | None = None
    config_version_before: str = ""
    requested_at: float = 0.0

    @property
    def group_uid(self) -> str:
        return self.group.group_id.uid


class Executor:
    """Acts for all groups of one vCenter.

    `holds_lease` returns whether this manager certainly holds the lease. `notify_group` is called
    with the uid of a group when one of its tasks has ended.
    """

    def __init__(
        self,
        vcenter: VCenter,
        api_reader: ApiReader,
        memory_store: GroupMemoryStore,
        clone_tracker: CloneTaskTracker,
        holds_lease: Callable[[], bool],
        notify_group: Callable[[str], None],
        reporter: OperationReporter,
    ) -> None:
        self._vcenter, self._api_reader, self._holds_lease = vcenter, api_reader, holds_lease
        self._memory_store, self._clone_tracker = memory_store, clone_tracker
        self._reporter = reporter
        self._notify_group, self._clock = notify_group, vcenter.clock
        self.pending_tasks: dict[str, _TaskPurpose] = {}

    async def clone(self, group: GroupInput, action: Clone, spec: CloneSpec) -> None:
        """Clone the template for a record in status.replicas."""
        record, memory = action.record, self._memory_of(group)
        description = f'Cloning "{record.name}" from template "{action.template_name}"'
        purpose = _TaskPurpose(group, action, record.name, description)
        vm_calls, template = self._vcenter.vm_calls, self._vcenter.inventory.vms.get(spec.template)
        version = template.config_version if template else ""
        read_template = partial(vm_calls.read_template, spec, version)
        try:
            task_ref = await self._start_task(
                purpose,
                call=partial(vm_calls.clone, spec),
                read_before=read_template if spec.needs_template_config else None,
            )
        except BaseException as error:
            # expect_records set it to "unsent" when the record was stored.
            if memory.clone_requests[record.name].outcome == "maybe_sent":
                # Without a response, or if cancelled, REQUEST_SETTLE_SECONDS counts from now.
                is_rejected = isinstance(error, VCenterError) and not isinstance(error, Unreachable)
                memory.record_clone(record, "rejected" if is_rejected else "maybe_sent")
            raise
        memory.record_clone(record, "accepted", task_ref, group.loaded_at)
        self._clone_tracker.own_tasks.add(task_ref)

    async def change_vm(self, group: GroupInput, action: VmAction) -> None:
        """Power a VM on or off, resize it or destroy it."""
        vm, ref = action.vm, action.vm.ref
        request = build_vm_request(action, self._vcenter.vm_calls, self._clock)
        purpose = _TaskPurpose(
            group,
            action,
            vm.replica_name,
            f'{request.verb} "{vm.replica_name}"',
            ref,
            request.effect,
            self._config_version_of(ref),
        )
        check = partial(self._check_before_destroy, group.group_id, ref, vm.replica_name)
        started = await self._start_task_on_target(
            purpose, request.call, check if isinstance(action, Destroy) else None
        )
        if not started:
            # The VM is gone, or is not what the plan was made from: read it again.
            self._vcenter.vm_configs.request_refresh(ref)

    def _config_version_of(self, ref: str) -> str:
        vm = self._vcenter.inventory.vms.get(ref)
        return vm.config_version if vm else ""

    async def change_owner(self, group: GroupInput, action: Adopt | UndoAdoption) -> None:
        """Adopt a VM, or undo that. vCenter rejects it if the VM has changed since the read."""
        memory = self._memory_of(group)
        change = OwnerChange(self._vcenter.vm_calls, self._api_reader, memory, group, action)
        ref, replica = change.ref, change.replica_name
        purpose = _TaskPurpose(
            group,
            action,
            replica,
            f'{change.verb} "{replica}"',
            ref,
            "reconfigured",
            self._config_version_of(ref),
        )
        if not await self._start_task_on_target(purpose, change.send, change.check):
            self._vcenter.vm_configs.request_refresh(ref)

    async def _check_before_destroy(self, group_id: GroupId, ref: str, replica: str) -> float:
        """Ask the API server, then read the VM; returns when that read was sent."""
        if not await self._api_reader.confirm_deletion(group_id, replica):
            raise ChangeNotConfirmed
        read_at = self._clock()
        vm = await self._vcenter.vm_calls.read_vm(ref)
        mark = mark_from_extra_config(vm.config.extra_config)
        if not is_owned_by(mark, vm.instance_uuid, group_id) or vm.has_foreign_disks:
            raise ChangeNotConfirmed
        return read_at

    async def create_folder(self, group: GroupInput, parent_ref: str) -> None:
        """Create the group's folder. CreateFolder is not a task and needs no task slot."""
        name = group.group_id.folder_name
        try:
            folder_ref = await self._check_and_call(
                group,
                CreateFolder(),
                call=lambda _: self._vcenter.vm_calls.create_folder(parent_ref, name),
            )
        except VCenterError as error:
            self._record_folder_error(group, parent_ref, name, error)
            raise
        memory = self._memory_of(group)
        memory.record_success(FOLDER_KEY)
        memory.created_folder = CreatedFolder(folder_ref, self._clock() + EFFECT_TIMEOUT_SECONDS)

    def _record_folder_error(
        self, group: GroupInput, parent_ref: str, name: str, error: VCenterError
    ) -> None:
        inventory = self._vcenter.inventory
        same_name = [child for child in inventory.children(parent_ref) if child.name == name]
        if isinstance(error, InventoryOutdated):
            return
        if error.fault == "DuplicateName" and any(isinstance(child, Folder) for child in same_name):
            # The folder exists by now; the next step finds it in the inventory.
            return
        if error.fault == "DuplicateName" and same_name:
            message = (
                f"{inventory.path(same_name[0].ref)} has the name of the group's folder, but is "
                "not a folder. Rename or move it."
            )
            self._memory_of(group).record_failure(
                FOLDER_KEY, OperationFailure(message, True, Reason.FOLDER_NAME_TAKEN)
            )
            return
        description = f'Creating the folder "{name}"'
        self._record_error(_TaskPurpose(group, CreateFolder(), FOLDER_KEY, description), error)

    async def destroy_folder(self, group: GroupInput, action: DestroyFolder) -> None:
        """Remove the group's folder, if it is empty now: what it contains would go with it."""
        folder = action.folder
        if folder.ref in self._memory_of(group).busy_refs:
            return
        await self._start_task_on_target(
            _TaskPurpose(
                group,
                action,
                FOLDER_KEY,
                f'Destroying the folder "{folder.name}"',
                folder.ref,
                "destroyed",
            ),
            call=lambda read_at: self._vcenter.vm_calls.destroy_folder(
                folder.ref, seconds_left(self._clock() - read_at)
            ),
            read_before=partial(self._check_folder_before_destroy, group.group_id, folder.ref),
        )

    async def _check_folder_before_destroy(self, group_id: GroupId, ref: str) -> float:
        """Ask the API server, then read the folder; returns when that read was sent."""
        if not await self._api_reader.confirm_deletion(group_id):
            raise ChangeNotConfirmed
        read_at = self._clock()
        if not await self._vcenter.vm_calls.is_folder_empty(ref):
            raise ChangeNotConfirmed
        return read_at

    async def _start_task_on_target(
        self, purpose: _TaskPurpose, call: Call, read_before: _ReadBeforeCall | None
    ) -> bool:
        """Start a task on a VM or folder; returns whether it started.

        The target is in `busy_refs` from before the checks until the task has ended.
        """
        busy_refs = self._memory_of(purpose.group).busy_refs
        busy_refs.add(purpose.target_ref)
        try:
            await self._start_task(purpose, call, read_before)
        except (NotFound, ChangeNotConfirmed):
            return False
        finally:
            if not any(
                task.target_ref == purpose.target_ref for task in self.pending_tasks.values()
            ):
                busy_refs.discard(purpose.target_ref)
        return True

    async def _start_task(
        self, purpose: _TaskPurpose, call: Call, read_before: _ReadBeforeCall | None = None
    ) -> str:
        """Reserve a task slot, start the task and remember it; returns its MoRef."""
        limiter, group, action = self._vcenter.task_limiter, purpose.group, purpose.action
        requested_at = self._clock()
        try:
            with limiter.reserve_slot(purpose.group_uid):
                task_ref: str = await self._check_and_call(group, action, call, read_before)
        except VCenterError as error:
            is_gone = isinstance(error, NotFound) and purpose.effect is not None
            if not isinstance(error, NoFreeSlot | InventoryOutdated) and not is_gone:
                self._record_error(purpose, error)
            raise
        # First, because `track` reports the end of a task that the inventory showed already.
        self.pending_tasks[task_ref] = replace(purpose, requested_at=requested_at)
        self._memory_store.sizes_in_progress.begin(task_ref, group.group_id, action)
        limiter.track(purpose.group_uid, task_ref)
        return task_ref

    async def _check_and_call(
        self,
        group: GroupInput,
        action: Action,
        call: Call,
        read_before: _ReadBeforeCall | None = None,
    ) -> Any:
        """Check, then call vCenter in the session in which the inventory of the plan was read.

        If that session has ended, log in again: a new plan follows when everything was read again.
        """
        session, reads = self._vcenter.session, 0
        # The first import of its types takes 0.1 s, so it comes before the checks.
        await load_types()
        while True:
            # A login can take seconds, so it comes before the checks.
            await session.login()
            login_count = session.login_count
            try:
                read_result: Any = await read_before() if read_before is not None else None
                if isinstance(action, Destroy | DestroyFolder):
                    reads += 1
                    if not accept_read(self._clock() - read_result, reads):
                        continue
                if (
                    not self._vcenter.is_inventory_of_session
                    # The checks take time, and so do the actions before this one.
                    or self._vcenter.watching_since != group.loaded_at
                ):
                    raise InventoryOutdated("the inventory is being read again, or was")
                # Last, so that as little time as possible passes between this check and the call.
                if not self._holds_lease():
                    raise NotLeader(
                        "no request is sent to vCenter: this manager may have lost the lease"
                    )
                group.log(describe_action(action))
                if isinstance(action, Clone):
                    # From here on the clone may be in progress, whatever happens to the response.
                    self._memory_of(group).record_clone(action.record, "maybe_sent")
                return await call(read_result)
            except NotAuthenticated:
                await session.renew(login_count)
                raise InventoryOutdated("the session has ended") from None

    def _memory_of(self, group: GroupInput) -> GroupMemory:
        return self._memory_store.for_group(group.group_id.uid)

    def _record_error(self, purpose: _TaskPurpose, error: VCenterError) -> None:
        """Record that vCenter rejected a request or did not respond."""
        failure = describe_failure(
            purpose.description,
            error.fault,
            str(error),
            transient=isinstance(error, Busy | Unreachable),
        )
        self._record_failure(purpose, failure)

    def _record_failure(self, purpose: _TaskPurpose, failure: OperationFailure) -> None:
        self._memory_of(purpose.group).record_failure(purpose.key, failure)
        self._reporter.report_failure(purpose.group, purpose.action, failure)

    def on_task_end(self, task_ref: str, task: Task | None) -> None:
        """A task of this process has ended; None means that its result is unknown."""
        purpose = self.pending_tasks.pop(task_ref)
        memory = self._memory_of(purpose.group)
        memory.busy_refs.discard(purpose.target_ref)
        self._memory_store.sizes_in_progress.end(
            task_ref, visible_within_seconds=EFFECT_TIMEOUT_SECONDS
        )
        if task is not None and task.state == "success":
            memory.record_success(purpose.key)
            if purpose.effect is not None:
                memory.unseen_effects[purpose.target_ref] = UnseenEffect(
                    purpose.effect,
                    self._clock() + EFFECT_TIMEOUT_SECONDS,
                    purpose.config_version_before,
                )
            seconds = self._clock() - purpose.requested_at
            self._reporter.report_success(purpose.group, purpose.action, seconds)
        elif task is not None:
            failure = describe_failure(
                purpose.description,
                task.fault,
                task.message or task.fault,
                transient=issubclass(error_type_for_name(task.fault), Busy | Unreachable),
            )
            self._record_failure(purpose, failure)
        self._notify_group(purpose.group_uid)
