"""Decides what to do for a group now; docs/designs/vmgroup.md explains why it is safe.

A plan either changes the records or has actions, never both. Changed records are stored first, and
the next plan continues from there. So every action follows from a stored record, and no VM exists
without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from .messages import (
    WAITS_FOR_QUOTA_MESSAGE,
    decide_phase_and_message,
    describe_record_changes,
    describe_sync_state,
)
from .model import (
    PENDING_CLONE_STATES,
    Action,
    Clone,
    CloneState,
    Counts,
    CreateFolder,
    DesiredState,
    DestroyFolder,
    ObservedState,
    Plan,
    Quota,
    RemoveFinalizer,
    ReplicaRecord,
    Resize,
    ResourceAmount,
)
from .ownership import instance_uuid_of
from .quota import sum_amounts
from .replica import (
    Replica,
    active_replicas,
    build_replicas,
    choose_cores_per_socket,
    count_to_create,
    counted_size,
    disruptions_allowed,
    has_current_fingerprint,
    has_desired_size,
    is_ready,
    needs_replacement,
    select_for_deletion,
)
from .vm_actions import adoption_actions, deletion_actions, power_actions, power_off_action


def plan(desired: DesiredState, observed: ObservedState, new_name: Callable[[], str]) -> Plan:
    """What to do now.

    `new_name` returns a name that no replica of the group and no VM of the vCenter has.
    """
    replicas = tuple(_with_observed_state(desired, replica) for replica in build_replicas(observed))
    current_records = tuple(replica.record for replica in replicas if replica.is_stored)
    if desired.paused:
        return _build_plan(desired, replicas, current_records, ())
    desired = _limit_surge(desired, replicas)
    records, waits_for_quota = _compute_desired_records(desired, replicas, new_name)
    if records != current_records:
        return replace(
            _build_plan(desired, replicas, records, ()),
            write_status_first=True,
            log_lines=describe_record_changes(desired, observed.records, records),
        )
    new_plan = replace(
        _build_plan(desired, replicas, records, _choose_actions(desired, observed, replicas)),
        log_lines=describe_sync_state(desired, replicas),
    )
    if waits_for_quota and new_plan.phase == "PENDING":
        return replace(
            new_plan, message=f"{new_plan.message.rstrip('.')}. {WAITS_FOR_QUOTA_MESSAGE}"
        )
    return new_plan


def _build_plan(
    desired: DesiredState,
    replicas: Sequence[Replica],
    records: tuple[ReplicaRecord, ...],
    actions: tuple[Action, ...],
) -> Plan:
    phase, message = decide_phase_and_message(desired, replicas)
    return Plan(
        records=records,
        write_status_first=False,
        actions=actions,
        phase=phase,
        message=message,
        counts=Counts(
            current=sum(replica.vm is not None for replica in replicas),
            ready=sum(is_ready(desired, replica) for replica in replicas),
            updated=sum(
                replica.vm is not None
                and has_current_fingerprint(desired, replica.vm.fingerprint)
                and has_desired_size(desired, replica.vm)
                for replica in active_replicas(replicas)
            ),
        ),
    )


def _with_observed_state(desired: DesiredState, replica: Replica) -> Replica:
    """The replica with its VM's state and size in its record.

    These are observations, which do not have to be stored before an action.
    """
    vm, record = replica.vm, replica.record
    if vm is None:
        return replica
    # A reserved size counts until the VM cannot get it any more.
    is_kept = not record.terminating and not desired.deleting
    needed = vm.size.larger(desired.size) if is_kept else vm.size
    may_be_resized = vm.busy or vm.resize_possible or replica.failure is not None
    size = vm.size.larger(record.size if may_be_resized else record.size.smaller(needed))
    record = _with_size(record, size)
    if replica.is_stored and replica.clone_state is not CloneState.RUNNING:
        record = replace(record, state="Present")
    return replace(replica, record=record)


def _with_size(record: ReplicaRecord, size: ResourceAmount) -> ReplicaRecord:
    return replace(record, cpus=size.cpus, memory_mb=size.memory_mb)


def _limit_surge(desired: DesiredState, replicas: Sequence[Replica]) -> DesiredState:
    """Without surge if the quota has no room for it: replicas are then replaced one by one.

    While a replica terminates, it is soon known whether there is room.
    """
    active, surge = active_replicas(replicas), desired.rollout.max_surge
    used = sum_amounts(counted_size(desired, replica) for replica in replicas)
    if not surge or len(active) < len(replicas) or desired.quota.covers(used + desired.size):
        return desired
    if not desired.quota.covers(used):
        # The room was used before the clone was sent. An older group may request it now, and then
        # each would wait for the other.
        active = [replica for replica in active if not _has_nothing(replica)]
    surge = min(surge, max(0, len(active) - desired.replicas))
    return replace(desired, rollout=replace(desired.rollout, max_surge=surge))


def _has_nothing(replica: Replica) -> bool:
    """Whether no VM of the record exists, and none can appear."""
    return replica.vm is None and replica.clone_state in (
        CloneState.UNSENT,
        CloneState.NOT_IN_PROGRESS,
    )


def _compute_desired_records(
    desired: DesiredState, replicas: Sequence[Replica], new_name: Callable[[], str]
) -> tuple[tuple[ReplicaRecord, ...], bool]:
    """Select replicas for deletion, drop finished records, renew failed ones, add missing ones.

    Also returns whether something has to wait until the group's part of the quota has room.
    """
    deleted_names = select_for_deletion(desired, replicas)
    selected = [
        replace(replica, record=replace(replica.record, terminating=True))
        if replica.name in deleted_names
        else replica
        for replica in replicas
    ]
    kept = [replica for replica in selected if not _can_drop_record(desired, replica)]
    used = sum_amounts(counted_size(desired, replica) for replica in kept)
    records, waits = list[ReplicaRecord](), False
    for replica in kept:
        record = _with_next_attempt(desired, replica)
        counted_then = counted_size(desired, replace(replica, record=record))
        used_then = used - counted_size(desired, replica) + counted_then
        if used_then.larger(used) == used or desired.quota.covers(used_then):
            used = used_then
        else:
            record, waits = replica.record, True
        records.append(record)
    first_number = max((replica.record.sequence_number for replica in replicas), default=-1) + 1
    is_blocked = desired.clone_blocker or desired.undo_adoption
    count = 0 if is_blocked else count_to_create(desired, kept)
    for number in range(first_number, first_number + count):
        used += desired.size
        if not desired.quota.covers(used):
            return tuple(records), True
        records.append(_new_record(desired, number, new_name()))
    return tuple(records), waits


def _can_drop_record(desired: DesiredState, replica: Replica) -> bool:
    if replica.vm is not None or replica.clone_state in PENDING_CLONE_STATES:
        return False
    if replica.clone_state is CloneState.ADOPTING:
        # Its VM stays as it is, without a mark.
        return (
            replica.terminating
            or desired.deleting
            or desired.undo_adoption
            or replica.vm_to_adopt is None
        )
    if replica.clone_state is CloneState.MISSING:
        # A VM that is not to be destroyed need not come back before the group goes. A clone that
        # was sent without an answer may still begin.
        is_orphaned = desired.deleting and desired.deletion_policy == "Orphan"
        return is_orphaned and replica.record.state != "Planned"
    if desired.quota_violation:
        # Nothing of it exists, and it would take the quota from another group.
        return True
    # Then the VM is no longer the group's, and a new replica follows.
    is_mark_removed = replica.record.state == "Present" and bool(replica.conflicting_vm)
    return replica.terminating or desired.deleting or is_mark_removed


def _with_next_attempt(desired: DesiredState, replica: Replica) -> ReplicaRecord:
    """The record for the next attempt to clone, if the last one has ended without a VM.

    It keeps its name, because the previous request may have been sent after all; vCenter then
    rejects the second VM of that name. A VM that is to be resized gets the size in its record.
    """
    record, vm = replica.record, replica.vm
    if vm is not None:
        is_resized = _is_to_be_resized(desired, replica) and desired.quota != Quota()
        return _with_size(record, record.size.larger(desired.size)) if is_resized else record
    if record.terminating or desired.clone_blocker or replica.conflicting_vm or replica.failure:
        return record
    is_planned_for_old_spec = replica.clone_state is CloneState.UNSENT and (
        record.template != desired.template
        or record.size != desired.size
        or not has_current_fingerprint(desired, record.fingerprint)
    )
    if replica.clone_state is not CloneState.NOT_IN_PROGRESS and not is_planned_for_old_spec:
        return record
    return _with_size(
        replace(
            record,
            state="Planned",
            task="",
            attempt=record.attempt + 1,
            template=desired.template,
            fingerprint=desired.fingerprint,
            adopted_from="",
        ),
        desired.size,
    )


def _new_record(desired: DesiredState, sequence_number: int, name: str) -> ReplicaRecord:
    return ReplicaRecord(
        sequence_number=sequence_number,
        name=name,
        instance_uuid=instance_uuid_of(desired.uid, name),
        template=desired.template,
        fingerprint=desired.fingerprint,
        cpus=desired.cpus,
        memory_mb=desired.memory_mb,
    )


def _choose_actions(
    desired: DesiredState, observed: ObservedState, replicas: Sequence[Replica]
) -> tuple[Action, ...]:
    """The operations to start now, the most urgent first, as many as there are free task slots."""
    is_orphaning, folder = desired.deletion_policy == "Orphan", observed.folder
    is_ready_to_finalize = (
        # A resize in progress would not count any more.
        all(
            replica.vm
            and not replica.vm.busy
            and replica.record.state == "Present"
            and replica.record.size == replica.vm.size
            for replica in replicas
        )
        if is_orphaning
        else not replicas
    )
    if desired.deleting and is_ready_to_finalize:
        if is_orphaning or folder is None or not folder.is_empty:
            return (RemoveFinalizer(),)
        return (DestroyFolder(folder),) if observed.max_actions > 0 else ()
    without_failure = [replica for replica in replicas if replica.failure is None]
    adopted = [replica for replica in without_failure if replica.record.adopted_from]
    if desired.undo_adoption and not desired.deleting:
        # Nothing else is done with these VMs until their adoption is undone.
        without_failure = [
            replica
            for replica in without_failure
            if replica.terminating or not replica.record.adopted_from
        ]
    actions: list[Action] = [
        *adoption_actions(desired, adopted),
        *deletion_actions(without_failure),
        *power_actions(desired, without_failure),
        *_clone_actions(desired, observed, replicas, without_failure),
        *_resize_actions(desired, replicas, without_failure),
    ]
    return tuple(actions[: max(0, observed.max_actions)])


def _clone_actions(
    desired: DesiredState,
    observed: ObservedState,
    replicas: Sequence[Replica],
    without_failure: Sequence[Replica],
) -> Iterator[Action]:
    """Clone the unsent records; create the folder first."""
    if desired.clone_blocker or desired.deleting or not _has_quota(desired, replicas):
        return
    unsent = [
        replica
        for replica in without_failure
        if replica.vm is None
        and replica.clone_state is CloneState.UNSENT
        and not replica.terminating
        and not replica.conflicting_vm
        # Otherwise it waits until its new size is within the quota.
        and replica.record == _with_next_attempt(desired, replica)
    ]
    if unsent and observed.folder is None:
        yield CreateFolder()
        return
    # The VMs of terminating replicas still exist.
    existing = sum(not _has_nothing(replica) for replica in replicas)
    room = max(0, desired.replicas + desired.rollout.max_surge - existing)
    for replica in unsent[:room]:
        yield Clone(replica.record, desired.template_name, power_on=desired.power == "poweredOn")


def _has_quota(desired: DesiredState, replicas: Sequence[Replica]) -> bool:
    """Whether all reserved sizes are within the quota.

    They were when they were stored. Since then an administrator may have restored VMs.
    """
    return desired.quota.covers(sum_amounts(counted_size(desired, replica) for replica in replicas))


def _is_to_be_resized(desired: DesiredState, replica: Replica) -> bool:
    if replica.vm is None or replica.terminating or desired.deleting:
        return False
    # A replica with other users' disks is never replaced, so it is resized in place.
    is_to_be_replaced = (
        needs_replacement(desired, replica)
        and not desired.clone_blocker
        and not replica.foreign_disks
    )
    return not has_desired_size(desired, replica.vm) and not is_to_be_replaced


def _resize_actions(
    desired: DesiredState, replicas: Sequence[Replica], without_failure: Sequence[Replica]
) -> Iterator[Action]:
    """Resize the VMs that are powered off; power off as many others as the rollout allows."""
    if desired.deleting:
        return
    allowed, has_quota = disruptions_allowed(desired, replicas), _has_quota(desired, replicas)
    for replica in without_failure:
        vm = replica.vm
        if (
            vm is None
            or vm.busy
            or vm.unavailable
            or not _is_to_be_resized(desired, replica)
            # Otherwise it waits until its new size is within the quota.
            or replica.record != _with_next_attempt(desired, replica)
            or (vm.size.larger(desired.size) != vm.size and not has_quota)
        ):
            continue
        if vm.power == "poweredOff":
            # First that of the template, so that resized and new replicas are the same.
            current = desired.template_cores_per_socket or vm.cores_per_socket
            cores = choose_cores_per_socket(desired.cpus, current)
            yield Resize(vm, desired.cpus, cores, desired.memory_mb)
        elif not is_ready(desired, replica) or allowed > 0:
            allowed -= is_ready(desired, replica)
            yield power_off_action(vm)
