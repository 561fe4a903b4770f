"""Decides what to do for a group now; docs/designs/vmgroup.md explains why it is safe.

A plan either changes the records or has actions, never both. Changed records are stored first, and
the next plan continues from there. So every action follows from a stored record, and no VM exists
without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from .model import (
    PENDING_CLONE_STATES,
    Action,
    Clone,
    CloneState,
    Counts,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    ObservedState,
    Plan,
    PowerOff,
    PowerOn,
    RemoveFinalizer,
    ReplicaRecord,
    ReplicaVm,
    Resize,
)
from .ownership import instance_uuid_of
from .replica import (
    Replica,
    active_replicas,
    build_replicas,
    count_to_create,
    disruptions_allowed,
    has_desired_size,
    is_ready,
    needs_replacement,
    select_for_deletion,
)
from .status import describe_record_changes, describe_sync_state, summarize


def plan(desired: DesiredState, observed: ObservedState, new_name: Callable[[], str]) -> Plan:
    """What to do now; `new_name` returns a name that no VM of the group ever had."""
    replicas = build_replicas(observed)
    recorded = {record.name for record in observed.records}
    current_records = tuple(
        _with_observed_state(replica) for replica in replicas if replica.name in recorded
    )
    if desired.paused:
        return _build_plan(desired, replicas, current_records, ())
    records = _compute_desired_records(desired, replicas, new_name)
    if records != current_records:
        return replace(
            _build_plan(desired, replicas, records, ()),
            write_status_first=True,
            log_lines=describe_record_changes(desired, observed.records, records),
        )
    return replace(
        _build_plan(desired, replicas, records, _choose_actions(desired, observed, replicas)),
        log_lines=describe_sync_state(desired, replicas),
    )


def _build_plan(
    desired: DesiredState,
    replicas: Sequence[Replica],
    records: tuple[ReplicaRecord, ...],
    actions: tuple[Action, ...],
) -> Plan:
    phase, message = summarize(desired, replicas)
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
                and replica.vm.fingerprint == desired.fingerprint
                and has_desired_size(desired, replica.vm)
                for replica in active_replicas(replicas)
            ),
        ),
    )


def _with_observed_state(replica: Replica) -> ReplicaRecord:
    # "Present" is an observation. It does not have to be stored before an action.
    return replace(replica.record, state="Present") if replica.vm is not None else replica.record


def _compute_desired_records(
    desired: DesiredState, replicas: Sequence[Replica], new_name: Callable[[], str]
) -> tuple[ReplicaRecord, ...]:
    """The records to store: selects replicas for deletion, drops, retries and adds records."""
    deleted_names = select_for_deletion(desired, replicas)
    selected = [
        replace(replica, record=replace(_with_observed_state(replica), terminating=True))
        if replica.name in deleted_names
        else replica
        for replica in replicas
    ]
    kept = [replica for replica in selected if not _can_drop_record(desired, replica)]
    records = [_with_next_attempt(desired, replica) for replica in kept]
    first_number = max((replica.record.sequence_number for replica in replicas), default=-1) + 1
    count = 0 if desired.clone_blocker else count_to_create(desired, kept)
    names = [new_name() for _ in range(count)]
    return (
        *records,
        *(_new_record(desired, number, name) for number, name in enumerate(names, first_number)),
    )


def _can_drop_record(desired: DesiredState, replica: Replica) -> bool:
    if replica.vm is not None or replica.clone_state in PENDING_CLONE_STATES:
        return False
    # A user removed the mark: the VM is no longer the group's, and a new replica follows.
    is_mark_removed = replica.record.state == "Present" and bool(replica.conflicting_vm)
    return replica.terminating or desired.deleting or is_mark_removed


def _with_next_attempt(desired: DesiredState, replica: Replica) -> ReplicaRecord:
    """The record for the next attempt, if the last clone ended without a VM; else as it is.

    It keeps its name, because the previous request may have been sent after all; vCenter then
    rejects the second VM of that name.
    """
    record = _with_observed_state(replica)
    if (
        replica.vm is not None
        or record.terminating
        or desired.clone_blocker
        or replica.conflicting_vm
        or replica.failure
    ):
        return record
    is_planned_for_old_spec = replica.clone_state is CloneState.UNSENT and (
        record.template,
        record.fingerprint,
    ) != (desired.template, desired.fingerprint)
    if replica.clone_state is not CloneState.NOT_IN_PROGRESS and not is_planned_for_old_spec:
        return record
    return replace(
        record,
        state="Planned",
        task="",
        attempt=record.attempt + 1,
        template=desired.template,
        fingerprint=desired.fingerprint,
    )


def _new_record(desired: DesiredState, sequence_number: int, name: str) -> ReplicaRecord:
    return ReplicaRecord(
        sequence_number=sequence_number,
        name=name,
        instance_uuid=instance_uuid_of(desired.uid, name),
        template=desired.template,
        fingerprint=desired.fingerprint,
    )


def _choose_actions(
    desired: DesiredState, observed: ObservedState, replicas: Sequence[Replica]
) -> tuple[Action, ...]:
    """The operations to start now, the most urgent first, as many as there are free slots."""
    is_orphaning, folder = desired.deletion_policy == "Orphan", observed.folder
    is_ready_to_finalize = (
        all(replica.vm is not None for replica in replicas) if is_orphaning else not replicas
    )
    if desired.deleting and is_ready_to_finalize:
        if is_orphaning or folder is None or not folder.is_empty:
            return (RemoveFinalizer(),)
        return (DestroyFolder(folder),) if observed.max_actions > 0 else ()
    without_failure = [replica for replica in replicas if replica.failure is None]
    actions: list[Action] = [
        *_deletion_actions(without_failure),
        *_power_actions(desired, without_failure),
        *_clone_actions(desired, observed, without_failure),
        *_resize_actions(desired, replicas, without_failure),
    ]
    return tuple(actions[: max(0, observed.max_actions)])


def _idle_vms(replicas: Sequence[Replica], *, terminating: bool) -> Iterator[ReplicaVm]:
    for replica in replicas:
        vm = replica.vm
        if vm is not None and not vm.busy and replica.terminating == terminating:
            yield vm


def _deletion_actions(replicas: Sequence[Replica]) -> Iterator[Action]:
    for vm in _idle_vms(replicas, terminating=True):
        # Destroy_Task deletes attached disks too, and these are other users' data.
        if not vm.foreign_disks:
            yield Destroy(vm) if vm.power == "poweredOff" else PowerOff(vm)


def _power_actions(desired: DesiredState, replicas: Sequence[Replica]) -> Iterator[Action]:
    if desired.deleting:
        return
    for vm in _idle_vms(replicas, terminating=False):
        # A VM of another size is resized first, while it is off.
        if not vm.unavailable and vm.power != desired.power and has_desired_size(desired, vm):
            yield PowerOn(vm) if desired.power == "poweredOn" else PowerOff(vm)


def _clone_actions(
    desired: DesiredState, observed: ObservedState, replicas: Sequence[Replica]
) -> Iterator[Action]:
    """Clone the unsent records; create the folder first."""
    if desired.clone_blocker or desired.deleting:
        return
    unsent = [
        replica
        for replica in replicas
        if replica.vm is None
        and replica.clone_state is CloneState.UNSENT
        and not replica.terminating
        and not replica.conflicting_vm
    ]
    if unsent and observed.folder is None:
        yield CreateFolder()
        return
    for replica in unsent:
        yield Clone(replica.record, desired.template_name, power_on=desired.power == "poweredOn")


def _resize_actions(
    desired: DesiredState, replicas: Sequence[Replica], without_failure: Sequence[Replica]
) -> Iterator[Action]:
    """Resize the VMs that are powered off; power off as many others as the rollout allows."""
    if desired.deleting:
        return
    allowed = disruptions_allowed(desired, replicas)
    for replica in without_failure:
        vm = replica.vm
        # A replica with other users' disks is never replaced, so it is resized in place.
        is_to_be_replaced = (
            needs_replacement(desired, replica)
            and not desired.clone_blocker
            and not replica.foreign_disks
        )
        if (
            vm is None
            or vm.busy
            or vm.unavailable
            or replica.terminating
            or has_desired_size(desired, vm)
            or is_to_be_replaced
        ):
            continue
        if vm.power == "poweredOff":
            yield Resize(vm, desired.cpus, desired.memory_mb)
        elif not is_ready(desired, replica) or allowed > 0:
            allowed -= is_ready(desired, replica)
            yield PowerOff(vm)
