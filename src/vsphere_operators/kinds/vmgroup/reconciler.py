"""One reconcile of one group: observe, plan, then either report records to store first, or act.

GroupInput -> GroupObserver -> PlanInput -> plan() -> Executor -> StepResult
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from kubewright import NotSynced

from ...vsphere.faults import Unreachable, VCenterError
from ...vsphere.model import VirtualMachine
from ...vsphere.task_limiter import NoFreeSlot
from ...vsphere.vcenter import VCenter
from ...vsphere.vm_calls import CloneSpec
from .absence import AbsenceTracker
from .api_reader import ApiReader
from .causes import find_creation_causes
from .clone_state import with_task
from .executor import Executor, InventoryOutdated
from .group_memory import (
    FOLDER_KEY,
    OPERATION_BACKOFF_INITIAL_SECONDS,
    OPERATION_BACKOFF_MAX_SECONDS,
    GroupMemory,
    GroupMemoryStore,
)
from .model import (
    PENDING_CLONE_STATES,
    Action,
    Adopt,
    Clone,
    CloneBlocked,
    CreateFolder,
    DestroyFolder,
    ObservedState,
    Plan,
    RemoveFinalizer,
    UndoAdoption,
)
from .observation import GroupObserver, PlanInput
from .ownership import (
    OwnershipIndex,
    OwnershipMark,
    generate_replica_name,
    mark_to_extra_config,
)
from .plan import plan
from .reasons import Reason
from .replica import choose_cores_per_socket
from .step import GroupInput, StepResult

_SHORT_REQUEUE_SECONDS = 1.0
# The manager does not watch Secrets: that would need permission to read all of them. So these
# blockers are checked again after a while.
_UNWATCHED_REASONS = (Reason.SECRET_NOT_FOUND, Reason.SECRET_FORBIDDEN, Reason.SECRET_INCOMPLETE)


class GroupReconciler:
    def __init__(
        self,
        vcenter: VCenter,
        observer: GroupObserver,
        executor: Executor,
        api_reader: ApiReader,
        memory_store: GroupMemoryStore,
        ownership_index: OwnershipIndex,
        absences: AbsenceTracker,
    ) -> None:
        self.inventory, self.ownership_index = vcenter.inventory, ownership_index
        self.memory_store = memory_store
        self._vcenter, self._observer, self._executor = vcenter, observer, executor
        self._api_reader, self._absences = api_reader, absences

    @property
    def loaded_at(self) -> float:
        """When the inventory was last loaded."""
        return self._vcenter.watching_since

    def forget_group(self, uid: str) -> None:
        self.memory_store.forget(uid)
        self._observer.forget_group(uid)
        self._vcenter.task_limiter.stop_waiting(uid)

    async def run_step(self, group: GroupInput) -> StepResult:
        memory = self.memory_store.for_group(group.group_id.uid)
        memory.observe_generation(group.generation)
        memory.observe_records(group.records, group.resource_version)
        plan_input, new_plan = await self._observe_and_plan(group)
        for line in new_plan.log_lines:
            group.log(line)
        if new_plan.write_status_first:
            memory.expect_records(
                plan_input.observed.records, new_plan.records, group.resource_version
            )
            memory.creation_causes |= find_creation_causes(
                plan_input.desired, plan_input.observed.records, new_plan.records
            )
            self._vcenter.task_limiter.stop_waiting(group.group_id.uid)
            return _build_result(group, plan_input, new_plan, requeue_after_seconds=0.0)
        extra_config: dict[str, str] = {}
        has_clones = any(isinstance(action, Clone) for action in new_plan.actions)
        if has_clones and group.cloud_init is not None:
            try:
                extra_config = await self._api_reader.read_cloud_init(
                    group.group_id.namespace, group.cloud_init
                )
            except CloneBlocked as error:
                others = tuple(
                    action for action in new_plan.actions if not isinstance(action, Clone)
                )
                new_plan = replace(new_plan, actions=others, phase="ERROR", message=str(error))
                plan_input = replace(plan_input, blocker_reason=error.reason)
        cleanup_finished = await self._execute(group, plan_input, new_plan.actions, extra_config)
        records = tuple(with_task(record, memory) for record in new_plan.records)
        memory.keep_only(record.name for record in records)
        return _build_result(
            group,
            plan_input,
            replace(new_plan, records=records),
            requeue_after_seconds=_choose_requeue_delay(
                plan_input,
                new_plan,
                memory,
                waits_for_slot=self._vcenter.task_limiter.is_waiting(group.group_id.uid),
            ),
            cleanup_finished=cleanup_finished,
        )

    async def _observe_and_plan(self, group: GroupInput) -> tuple[PlanInput, Plan]:
        """Read missing VMs, and each VM that the plan newly selects for deletion; then plan again.

        `terminating` is never reset, and the cached configuration may be older than a volume that
        was attached to the VM.
        """
        refreshed_refs: set[str] = set()
        while True:
            if self._vcenter.watching_since != group.loaded_at:
                raise NotSynced(
                    "the inventory was loaded again", requeue_after_seconds=_SHORT_REQUEUE_SECONDS
                )
            plan_input = self._observer.observe(group)
            if missing_refs := set(plan_input.refs_to_read) - refreshed_refs:
                await self._absences.read(missing_refs)
                refreshed_refs |= missing_refs
                continue
            new_plan = plan(
                plan_input.desired, plan_input.observed, self._make_name_generator(group)
            )
            refs = [
                ref
                for ref in _newly_terminating_refs(plan_input.observed, new_plan)
                if ref not in refreshed_refs
            ]
            if not refs:
                return plan_input, new_plan
            # Without a response the plan stays; the executor reads the VM again before it acts.
            with suppress(VCenterError):
                await self._vcenter.vm_configs.refresh(refs)
            refreshed_refs.update(refs)

    def _make_name_generator(self, group: GroupInput) -> Callable[[], str]:
        """Generates names that no replica of the group and no VM of the vCenter has."""
        names = {record.name for record in group.records}
        choose = random.SystemRandom().choice

        def is_used(name: str) -> bool:
            return name in names or bool(self.inventory.by_name(VirtualMachine, name))

        def new_name() -> str:
            name = generate_replica_name(group.group_id.name, choose, is_used)
            names.add(name)
            return name

        return new_name

    async def _execute(
        self,
        group: GroupInput,
        plan_input: PlanInput,
        actions: Sequence[Action],
        extra_config: dict[str, str],
    ) -> bool:
        """Start the actions until no task slot is free.

        Returns whether the finalizer can be removed.
        """
        if not actions:
            self._vcenter.task_limiter.stop_waiting(group.group_id.uid)
        memory = self.memory_store.for_group(group.group_id.uid)
        is_folder_backing_off = FOLDER_KEY in memory.active_failures()
        for action in actions:
            try:
                match action:
                    case RemoveFinalizer():
                        return True
                    case CreateFolder() | DestroyFolder() if is_folder_backing_off:
                        return False
                    case CreateFolder():
                        await self._executor.create_folder(group, plan_input.parent_folder)
                    case DestroyFolder():
                        await self._executor.destroy_folder(group, action)
                    case Clone():
                        spec = _build_clone_spec(group, plan_input, action, extra_config)
                        self._absences.forget_vm(spec.instance_uuid)
                        await self._executor.clone(group, action, spec)
                    case Adopt() | UndoAdoption():
                        await self._executor.change_owner(group, action)
                    case _:
                        await self._executor.change_vm(group, action)
            except (NoFreeSlot, InventoryOutdated, Unreachable):
                # After Unreachable the next call would wait for its timeout, too. The next step
                # reports the failure, and continues unless vCenter is known to be unavailable.
                return False
            except VCenterError:
                # The executor recorded the failure of the replica; the next action may succeed.
                continue
        return False


def _newly_terminating_refs(observed: ObservedState, new_plan: Plan) -> list[str]:
    before = {record.name for record in observed.records if record.terminating}
    names = {record.name for record in new_plan.records if record.terminating} - before
    return [vm.ref for vm in observed.vms if vm.replica_name in names]


def _build_clone_spec(
    group: GroupInput, plan_input: PlanInput, action: Clone, extra_config: dict[str, str]
) -> CloneSpec:
    record, desired = action.record, plan_input.desired
    folder, placement = plan_input.observed.folder, plan_input.placement
    # plan() clones only without a blocker and with a folder.
    assert placement is not None
    assert folder is not None
    mark = OwnershipMark(
        group_id=group.group_id,
        replica_name=record.name,
        sequence_number=record.sequence_number,
        fingerprint=record.fingerprint,
    )
    return CloneSpec(
        template=record.template,
        folder=folder.ref,
        name=record.name,
        resource_pool=placement.resource_pool,
        datastore=placement.datastore,
        # Those of the record: the quota counts them.
        cpus=record.cpus,
        cores_per_socket=choose_cores_per_socket(record.cpus, desired.template_cores_per_socket),
        memory_mb=record.memory_mb,
        instance_uuid=record.instance_uuid,
        # The mark last, so that the Secret cannot replace it.
        extra_config={**extra_config, **mark_to_extra_config(mark)},
        power_on=action.power_on,
        linked=group.linked_clone,
        storage_policy=group.storage_policy,
        remove_vapp=group.cloud_init is not None,
    )


def _choose_requeue_delay(
    plan_input: PlanInput, plan: Plan, memory: GroupMemory, *, waits_for_slot: bool
) -> float | None:
    """When to take the next step even if no change in vCenter enqueues the group."""
    now, created_folder = memory.clock(), memory.created_folder
    if memory.active_failures().keys() - plan_input.observed.failures.keys():
        # An action of this step failed: the next step reports it.
        return 0.0
    if plan.phase == "RUNNING":
        return None
    has_created_folder = any(isinstance(action, CreateFolder) for action in plan.actions)
    if has_created_folder and created_folder is not None:
        return 0.0
    is_clone_pending = any(
        state in PENDING_CLONE_STATES for state in plan_input.observed.clone_states.values()
    )
    is_effect_pending = any(
        effect.expires_at > now for effect in memory.unseen_effects.values()
    ) or (created_folder is not None and created_folder.expires_at > now)
    if is_clone_pending or is_effect_pending or has_created_folder:
        return _SHORT_REQUEUE_SECONDS
    delay_seconds = (
        OPERATION_BACKOFF_INITIAL_SECONDS
        if plan.phase == "PENDING"
        or plan_input.blocker_reason in _UNWATCHED_REASONS
        # In phase ERROR too: one replica has failed, and others wait. The limiter drops an owner
        # that does not try again within WAITING_OWNER_SECONDS, and then does not enqueue it.
        or waits_for_slot
        else OPERATION_BACKOFF_MAX_SECONDS
    )
    if plan_input.recheck_seconds is not None:
        delay_seconds = min(delay_seconds, plan_input.recheck_seconds)
    # A little later than the retry, so that the back-off has ended for certain.
    return min(delay_seconds, memory.seconds_until_retry() or delay_seconds) + 0.05


def _is_any_unavailable(observed: ObservedState) -> bool:
    terminating = {record.name for record in observed.records if record.terminating}
    return bool(observed.unreadable_vms) or any(
        vm.unavailable and vm.replica_name not in terminating for vm in observed.vms
    )


def _build_result(
    group: GroupInput,
    plan_input: PlanInput,
    plan: Plan,
    *,
    requeue_after_seconds: float | None,
    cleanup_finished: bool = False,
) -> StepResult:
    failures = plan_input.observed.failures
    folder_failure = failures.get(FOLDER_KEY)
    if folder_failure is not None and (plan_input.desired.deleting or not folder_failure.permanent):
        message = f"{plan.message.rstrip('.')}. {folder_failure.message}"
        phase = "ERROR" if folder_failure.permanent else "PENDING"
        plan = replace(plan, phase=phase, message=message)
    reasons = [failure.reason for failure in failures.values() if failure.permanent]
    first_reason = next(filter(None, reasons), Reason.NEEDS_ATTENTION)
    return StepResult(
        plan=plan,
        reason=(
            plan_input.blocker_reason or first_reason
            if plan.phase == "ERROR"
            else Reason.VM_MISSING
            if plan_input.waits_for_missing_vm
            else Reason.VM_UNAVAILABLE
            if _is_any_unavailable(plan_input.observed)
            else Reason.PROGRESSING
        ),
        vcenter=group.vcenter,
        folder=plan_input.observed.folder,
        adoption=plan_input.adoption,
        vms_by_replica=plan_input.vms_by_replica,
        requeue_after_seconds=requeue_after_seconds,
        cleanup_finished=cleanup_finished,
    )
