"""The decision: what a group does now, from what it wishes, what it recorded and what is seen; docs/designs/vmgroup.md has the argument.

A plan either changes the records or has actions, never both: what is to be stored ahead is stored first, and the next plan goes on from
there. So every action follows from a stored record, and there is no VM without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from .messages import Verdict, changes, in_step, verdict
from .model import (
    Action,
    Clone,
    Counts,
    CreateFolder,
    Destroy,
    DestroyFolder,
    Finish,
    Flight,
    Plan,
    PowerOff,
    PowerOn,
    Reconfigure,
    Record,
    Seen,
    Vm,
    Wish,
)
from .ownership import instance_uuid_of
from .replica import Member, disks_of, going, has_right_size, is_available, is_outdated, members_of, missing, spare


def plan(wish: Wish, seen: Seen, new_name: Callable[[], str]) -> Plan:
    """What to do now; `new_name` gives a name that no VM of the group ever had."""
    members = members_of(seen)
    known = {each.name for each in seen.records}
    stored = tuple(observed(each) for each in members if each.name in known)
    if wish.paused:
        return made(wish, members, stored, ())
    records = intended(wish, members, new_name)
    if records != stored:
        return structs.replace(made(wish, members, records, ()), write_ahead=True, lines=changes(wish, seen.records, records))
    actions = started(wish, seen, members)
    return structs.replace(made(wish, members, records, actions), lines=in_step(wish, members))


def made(wish: Wish, members: Sequence[Member], records: tuple[Record, ...], actions: tuple[Action, ...]) -> Plan:
    """A plan with its words and numbers."""
    told: Verdict = verdict(wish, members)
    return Plan(records=records, write_ahead=False, actions=actions, phase=told.phase, message=told.message, counts=counted(wish, members))


def counted(wish: Wish, members: Sequence[Member]) -> Counts:
    """The numbers of the status."""
    staying = [each.vm for each in members if each.vm is not None and not each.record.leaving]
    return Counts(
        current=sum(each.vm is not None for each in members),
        ready=sum(is_available(wish, each) for each in members),
        updated=sum(vm.fingerprint == wish.fingerprint and has_right_size(wish, vm) for vm in staying),
        coming=sum(each.vm is None and not each.record.leaving for each in members),
        leaving=sum(each.record.leaving for each in members),
    )


def observed(member: Member) -> Record:
    """The record with what was seen since: nothing that must be stored ahead."""
    return structs.replace(member.record, state="Present") if member.vm is not None else member.record


def intended(wish: Wish, members: Sequence[Member], new_name: Callable[[], str]) -> tuple[Record, ...]:
    """The records as they should be: who leaves is marked, who is gone is dropped, who failed is renewed, who is missing is added."""
    leaving = going(wish, members)
    marked = [structs.replace(each, record=left(each)) if each.name in leaving else each for each in members]
    kept = [each for each in marked if not is_gone(wish, each)]
    records = [renewed(wish, each) for each in kept]
    slot = max((each.record.slot for each in members), default=-1) + 1
    count = 0 if wish.obstacle else missing(wish, kept)
    return (*records, *(added(wish, slot + each, new_name()) for each in range(count)))


def left(member: Member) -> Record:
    """The record of one that is to go."""
    return structs.replace(observed(member), leaving=True)


def is_gone(wish: Wish, member: Member) -> bool:
    """Whether the record can be dropped: no VM, none that may come, and not wanted, or of no use since its VM is nobody's now."""
    return member.vm is None and not member.may_come and (member.record.leaving or wish.deleting or is_disowned(member))


def is_disowned(member: Member) -> bool:
    """Whether its VM was there, and somebody took the mark off it: it is left alone, and another takes its place."""
    return member.record.state == "Present" and bool(member.taken_by)


def renewed(wish: Wish, member: Member) -> Record:
    """The record to clone from, stored anew before it is sent again; under the same name, as the first may have been sent."""
    record = observed(member)
    if member.vm is not None or record.leaving or wish.obstacle or member.taken_by or member.trouble:
        return record
    unsent_and_old = member.flight is Flight.UNSENT and (record.template, record.fingerprint) != (wish.template, wish.fingerprint)
    if member.flight is not Flight.OVER and not unsent_and_old:
        return record
    return structs.replace(
        record, state="Planned", task="", attempt=record.attempt + 1, template=wish.template, fingerprint=wish.fingerprint
    )


def added(wish: Wish, slot: int, name: str) -> Record:
    """A new record."""
    return Record(
        slot=slot, name=name, instance_uuid=instance_uuid_of(wish.uid, name), template=wish.template, fingerprint=wish.fingerprint
    )


def started(wish: Wish, seen: Seen, members: Sequence[Member]) -> tuple[Action, ...]:
    """The operations to start now, the most needed first, as many as there is room for."""
    if wish.deleting and is_settled(wish, members):
        return last(wish, seen)
    calm = [each for each in members if each.trouble is None]
    actions: list[Action] = [*departures(calm), *power_changes(wish, calm), *clones(wish, seen, calm), *size_changes(wish, members, calm)]
    return tuple(actions[: max(0, seen.free)])


def is_settled(wish: Wish, members: Sequence[Member]) -> bool:
    """Whether a group that is being deleted has nothing left that it must wait for."""
    return all(wish.deletion_policy == "Orphan" and each.vm is not None for each in members)


def last(wish: Wish, seen: Seen) -> tuple[Action, ...]:
    """The folder goes if nothing is in it; then the object."""
    if wish.deletion_policy == "Orphan" or seen.folder is None or not seen.folder.is_empty:
        return (Finish(),)
    return (DestroyFolder(seen.folder),) if seen.free > 0 else ()


def idle_vms(members: Sequence[Member], *, leaving: bool) -> Iterator[Vm]:
    """VMs on which something may be started."""
    for each in members:
        if each.vm is not None and not each.vm.busy and each.record.leaving == leaving:
            yield each.vm


def departures(members: Sequence[Member]) -> Iterator[Action]:
    """Power off and destroy what leaves; never a VM with somebody else's disk."""
    for vm in idle_vms(members, leaving=True):
        if not vm.foreign_disks:
            yield Destroy(vm) if vm.power == "poweredOff" else PowerOff(vm)


def power_changes(wish: Wish, members: Sequence[Member]) -> Iterator[Action]:
    """Power as wished, for all that have the right size already."""
    if wish.deleting:
        return
    for vm in idle_vms(members, leaving=False):
        if not vm.broken and vm.power != wish.power and has_right_size(wish, vm):
            yield PowerOn(vm) if wish.power == "poweredOn" else PowerOff(vm)


def clones(wish: Wish, seen: Seen, members: Sequence[Member]) -> Iterator[Action]:
    """Send what is stored and unsent; before the first, make the folder."""
    if wish.obstacle or wish.deleting:
        return
    unsent = [
        each for each in members if each.vm is None and each.flight is Flight.UNSENT and not each.record.leaving and not each.taken_by
    ]
    if unsent and seen.folder is None:
        yield CreateFolder()
        return
    for each in unsent:
        yield Clone(each.record, wish.template_name, power_on=wish.power == "poweredOn")


def size_changes(wish: Wish, members: Sequence[Member], calm: Sequence[Member]) -> Iterator[Action]:
    """Set the size of what is off; power off as many of the others as can be spared."""
    if wish.deleting:
        return
    can_be_spared = spare(wish, members)
    for each in calm:
        vm = each.vm
        if vm is None or vm.busy or vm.broken or each.record.leaving or has_right_size(wish, vm) or is_replaced(wish, each):
            continue
        if vm.power == "poweredOff":
            yield Reconfigure(vm, wish.cpus, wish.memory_mb)
        elif not is_available(wish, each) or can_be_spared > 0:
            can_be_spared -= is_available(wish, each)
            yield PowerOff(vm)


def is_replaced(wish: Wish, member: Member) -> bool:
    """Whether a replica will be replaced, so that its size does not matter; one that keeps its place for its disks will not."""
    return is_outdated(wish, member) and not wish.obstacle and not disks_of(member)
