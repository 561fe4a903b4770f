"""The decision: what a group does now, from what it wishes, what it recorded and what is seen; docs/designs/vmgroup.md has the argument.

A plan either changes the records or has actions, never both: what is to be stored ahead is stored first, and the next plan goes on from
there. So every action follows from a stored record, and there is no VM without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from .messages import Summary, describe_record_changes, describe_sync_state, summarize
from .model import (
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
    Reconfigure,
    RemoveFinalizer,
    ReplicaRecord,
    ReplicaVm,
)
from .ownership import instance_uuid_of
from .replica import (
    Replica,
    build_replicas,
    count_to_create,
    disruptions_allowed,
    foreign_disks_of,
    has_desired_size,
    is_available,
    is_outdated,
    select_for_deletion,
)


def plan(wish: DesiredState, seen: ObservedState, new_name: Callable[[], str]) -> Plan:
    """What to do now; `new_name` gives a name that no VM of the group ever had."""
    members = build_replicas(seen)
    known = {each.name for each in seen.records}
    stored = tuple(_with_observed_state(each) for each in members if each.name in known)
    if wish.paused:
        return build_plan(wish, members, stored, ())
    records = _compute_desired_records(wish, members, new_name)
    if records != stored:
        return structs.replace(
            build_plan(wish, members, records, ()),
            write_status_first=True,
            log_lines=describe_record_changes(wish, seen.records, records),
        )
    actions = _choose_actions(wish, seen, members)
    return structs.replace(
        build_plan(wish, members, records, actions), log_lines=describe_sync_state(wish, members)
    )


def build_plan(
    wish: DesiredState,
    members: Sequence[Replica],
    records: tuple[ReplicaRecord, ...],
    actions: tuple[Action, ...],
) -> Plan:
    """A plan with its words and numbers."""
    told: Summary = summarize(wish, members)
    return Plan(
        records=records,
        write_status_first=False,
        actions=actions,
        phase=told.phase,
        message=told.message,
        counts=_count_replicas(wish, members),
    )


def _count_replicas(wish: DesiredState, members: Sequence[Replica]) -> Counts:
    """The numbers of the status."""
    staying = [each.vm for each in members if each.vm is not None and not each.record.terminating]
    return Counts(
        current=sum(each.vm is not None for each in members),
        ready=sum(is_available(wish, each) for each in members),
        updated=sum(
            vm.fingerprint == wish.fingerprint and has_desired_size(wish, vm) for vm in staying
        ),
        pending=sum(each.vm is None and not each.record.terminating for each in members),
        terminating=sum(each.record.terminating for each in members),
    )


def _with_observed_state(member: Replica) -> ReplicaRecord:
    """The record with what was seen since: nothing that must be stored ahead."""
    return (
        structs.replace(member.record, state="Present") if member.vm is not None else member.record
    )


def _compute_desired_records(
    wish: DesiredState, members: Sequence[Replica], new_name: Callable[[], str]
) -> tuple[ReplicaRecord, ...]:
    """The records as they should be: who leaves is marked, who is gone is dropped, who failed is renewed, who is missing is added."""
    leaving = select_for_deletion(wish, members)
    marked = [
        structs.replace(each, record=_mark_terminating(each)) if each.name in leaving else each
        for each in members
    ]
    kept = [each for each in marked if not _can_drop_record(wish, each)]
    records = [_renew_record(wish, each) for each in kept]
    slot = max((each.record.slot for each in members), default=-1) + 1
    count = 0 if wish.blocker else count_to_create(wish, kept)
    return (*records, *(_new_record(wish, slot + each, new_name()) for each in range(count)))


def _mark_terminating(member: Replica) -> ReplicaRecord:
    """The record of one that is to go."""
    return structs.replace(_with_observed_state(member), terminating=True)


def _can_drop_record(wish: DesiredState, member: Replica) -> bool:
    """Whether the record can be dropped: no VM, none that may come, and not wanted, or of no use since its VM is nobody's now."""
    return (
        member.vm is None
        and not member.can_still_appear
        and (member.record.terminating or wish.deleting or _is_disowned(member))
    )


def _is_disowned(member: Replica) -> bool:
    """Whether its VM was there, and somebody took the mark off it: it is left alone, and another takes its place."""
    return member.record.state == "Present" and bool(member.conflicting_vm)


def _renew_record(wish: DesiredState, member: Replica) -> ReplicaRecord:
    """The record to clone from, stored anew before it is sent again; under the same name, as the first may have been sent."""
    record = _with_observed_state(member)
    if (
        member.vm is not None
        or record.terminating
        or wish.blocker
        or member.conflicting_vm
        or member.failure
    ):
        return record
    unsent_and_old = member.clone_state is CloneState.UNSENT and (
        record.template,
        record.fingerprint,
    ) != (wish.template, wish.fingerprint)
    if member.clone_state is not CloneState.ENDED and not unsent_and_old:
        return record
    return structs.replace(
        record,
        state="Planned",
        task="",
        attempt=record.attempt + 1,
        template=wish.template,
        fingerprint=wish.fingerprint,
    )


def _new_record(wish: DesiredState, slot: int, name: str) -> ReplicaRecord:
    """A new record."""
    return ReplicaRecord(
        slot=slot,
        name=name,
        instance_uuid=instance_uuid_of(wish.uid, name),
        template=wish.template,
        fingerprint=wish.fingerprint,
    )


def _choose_actions(
    wish: DesiredState, seen: ObservedState, members: Sequence[Replica]
) -> tuple[Action, ...]:
    """The operations to start now, the most needed first, as many as there is room for."""
    if wish.deleting and _is_ready_to_finalize(wish, members):
        return _choose_final_actions(wish, seen)
    calm = [each for each in members if each.failure is None]
    actions: list[Action] = [
        *_deletion_actions(calm),
        *_power_actions(wish, calm),
        *_clone_actions(wish, seen, calm),
        *_resize_actions(wish, members, calm),
    ]
    return tuple(actions[: max(0, seen.max_actions)])


def _is_ready_to_finalize(wish: DesiredState, members: Sequence[Replica]) -> bool:
    """Whether a group that is being deleted has nothing left that it must wait for."""
    return all(wish.deletion_policy == "Orphan" and each.vm is not None for each in members)


def _choose_final_actions(wish: DesiredState, seen: ObservedState) -> tuple[Action, ...]:
    """The folder goes if nothing is in it; then the object."""
    if wish.deletion_policy == "Orphan" or seen.folder is None or not seen.folder.is_empty:
        return (RemoveFinalizer(),)
    return (DestroyFolder(seen.folder),) if seen.max_actions > 0 else ()


def _idle_vms(members: Sequence[Replica], *, terminating: bool) -> Iterator[ReplicaVm]:
    """VMs on which something may be started."""
    for each in members:
        if each.vm is not None and not each.vm.busy and each.record.terminating == terminating:
            yield each.vm


def _deletion_actions(members: Sequence[Replica]) -> Iterator[Action]:
    """Power off and destroy what leaves; never a VM with somebody else's disk."""
    for vm in _idle_vms(members, terminating=True):
        if not vm.foreign_disks:
            yield Destroy(vm) if vm.power == "poweredOff" else PowerOff(vm)


def _power_actions(wish: DesiredState, members: Sequence[Replica]) -> Iterator[Action]:
    """Power as wished, for all that have the right size already."""
    if wish.deleting:
        return
    for vm in _idle_vms(members, terminating=False):
        if not vm.broken and vm.power != wish.power and has_desired_size(wish, vm):
            yield PowerOn(vm) if wish.power == "poweredOn" else PowerOff(vm)


def _clone_actions(
    wish: DesiredState, seen: ObservedState, members: Sequence[Replica]
) -> Iterator[Action]:
    """Send what is stored and unsent; before the first, make the folder."""
    if wish.blocker or wish.deleting:
        return
    unsent = [
        each
        for each in members
        if each.vm is None
        and each.clone_state is CloneState.UNSENT
        and not each.record.terminating
        and not each.conflicting_vm
    ]
    if unsent and seen.folder is None:
        yield CreateFolder()
        return
    for each in unsent:
        yield Clone(each.record, wish.template_name, power_on=wish.power == "poweredOn")


def _resize_actions(
    wish: DesiredState, members: Sequence[Replica], calm: Sequence[Replica]
) -> Iterator[Action]:
    """Set the size of what is off; power off as many of the others as can be spared."""
    if wish.deleting:
        return
    can_be_spared = disruptions_allowed(wish, members)
    for each in calm:
        vm = each.vm
        if (
            vm is None
            or vm.busy
            or vm.broken
            or each.record.terminating
            or has_desired_size(wish, vm)
            or _is_to_be_replaced(wish, each)
        ):
            continue
        if vm.power == "poweredOff":
            yield Reconfigure(vm, wish.cpus, wish.memory_mb)
        elif not is_available(wish, each) or can_be_spared > 0:
            can_be_spared -= is_available(wish, each)
            yield PowerOff(vm)


def _is_to_be_replaced(wish: DesiredState, member: Replica) -> bool:
    """Whether a replica will be replaced, so that its size does not matter; one that keeps its place for its disks will not."""
    return is_outdated(wish, member) and not wish.blocker and not foreign_disks_of(member)
