"""What a plan says: phase and message for people, and the log lines that people grep for (contract.md, word for word)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .model import Action, Clone, CreateFolder, Destroy, DestroyFolder, Finish, Flight, Phase, PowerOff, PowerOn, Reconfigure, Record, Wish
from .replica import Member, disks_of, has_right_size, is_available, is_outdated, missing, surge

SUCCESS = "successfully reconciled VmGroup"


class Verdict(Struct, frozen=True):
    """How the group is."""

    phase: Phase
    message: str


def verdict(wish: Wish, members: Sequence[Member]) -> Verdict:
    """Phase and message."""
    errors = list(lasting(wish, members))
    if wish.paused:
        phase: Phase = "ERROR" if errors else "RUNNING" if is_right(wish, members) else "PENDING"
        return Verdict(phase, "; ".join([f"paused: {progress(wish, members)}", *errors, "unset spec.paused to go on"]))
    if errors:
        return Verdict("ERROR", "; ".join(errors))
    if is_right(wish, members):
        return Verdict("RUNNING", SUCCESS)
    return Verdict("PENDING", "; ".join([progress(wish, members), *passing(members)]))


def is_right(wish: Wish, members: Sequence[Member]) -> bool:
    """Whether nothing is left to do."""
    return (
        not wish.deleting
        and len(members) == wish.replicas
        and all(is_available(wish, each) and not is_outdated(wish, each) for each in members)
        and all(each.vm is not None and has_right_size(wish, each.vm) for each in members)
    )


def lasting(wish: Wish, members: Sequence[Member]) -> Iterator[str]:
    """What only a change can mend, with the change."""
    if wish.obstacle and needs_clone(wish, members):
        yield wish.obstacle
    for each in members:
        if each.trouble is not None and each.trouble.lasting:
            yield each.trouble.words
        if each.taken_by and each.vm is None and not each.record.leaving and each.flight is not Flight.RUNNING:
            yield f'the name "{each.name}" is taken by {each.taken_by}, which has no mark of this group; rename or remove that VM'
    for each in held_by_disks(wish, members):
        yield (
            f'replica "{each.name}" must go but has disks of somebody else attached ({", ".join(disks_of(each))}); '
            "it is not destroyed: detach them, for a volume by deleting the Pod that uses it"
        )


def needs_clone(wish: Wish, members: Sequence[Member]) -> bool:
    """Whether a template is needed at all."""
    if wish.deleting:
        return False
    keepers = [each for each in members if not each.record.leaving]
    return missing(wish, members) > 0 or len(keepers) < wish.replicas or any(is_outdated(wish, each) or each.vm is None for each in keepers)


def held_by_disks(wish: Wish, members: Sequence[Member]) -> Iterator[Member]:
    """Replicas that would go if they had no disks of somebody else."""
    keepers = [each for each in members if not each.record.leaving]
    free_to_go = sum(not disks_of(each) for each in keepers)
    too_many = not wish.deleting and len(keepers) - free_to_go > wish.replicas + surge(wish, keepers)
    for each in members:
        if disks_of(each) and (each.record.leaving or too_many or (is_outdated(wish, each) and not wish.deleting)):
            yield each


def passing(members: Sequence[Member]) -> Iterator[str]:
    """What may mend itself."""
    for each in members:
        if each.trouble is not None:
            yield each.trouble.words
        if each.vm is not None and each.vm.broken and not each.record.leaving:
            yield f'vCenter cannot reach replica "{each.name}" (its host or its files); it is not replaced, since it may come back'


def progress(wish: Wish, members: Sequence[Member]) -> str:
    """How far it is."""
    leaving = sum(each.record.leaving for each in members)
    if wish.deleting:
        return f"being deleted, {len(members)} replica(s) left"
    ready = sum(is_available(wish, each) for each in members)
    coming = sum(each.vm is None and not each.record.leaving for each in members)
    outdated = sum(is_outdated(wish, each) or wrong_size(wish, each) for each in members if not each.record.leaving)
    parts = [(coming, "to be cloned or being cloned"), (outdated, "to be brought up to date"), (leaving, "leaving")]
    return ", ".join([f"{ready} of {wish.replicas} replica(s) ready", *(f"{count} {what}" for count, what in parts if count)])


def wrong_size(wish: Wish, member: Member) -> bool:
    """Whether the VM is there with another size."""
    return member.vm is not None and not has_right_size(wish, member.vm)


def changes(wish: Wish, before: Sequence[Record], after: Sequence[Record]) -> tuple[str, ...]:
    """The lines for a change of the records."""
    if wish.deleting:
        return ("VmGroup marked for deletion",)
    known = {each.name: each.leaving for each in before}
    added = sum(each.name not in known for each in after)
    leaving = sum(each.leaving and not known.get(each.name, False) for each in after)
    few = (f"too few replicas, creating {added} replica(s)",) if added else ()
    return (*few, f"too many replicas, deleting {leaving}") if leaving else few


def in_step(wish: Wish, members: Sequence[Member]) -> tuple[str, ...]:
    """The lines of a plan that changes no record."""
    if wish.deleting:
        return ("VmGroup marked for deletion",)
    in_sync = len(members) == wish.replicas and not any(each.vm is None or each.record.leaving for each in members)
    return ("replica count in sync, checking power state",) if in_sync else ()


def line_of(action: Action) -> str:
    """The line for an action; the contract has some of them word for word."""
    match action:
        case CreateFolder():
            return "VmGroup folder does not exist, creating folder"
        case Clone():
            return f'creating clone "{action.record.name}" from template "{action.template_name}"'
        case PowerOn():
            return f'vm "{action.vm.name}" powered off, attempting to power on...'
        case Destroy():
            return f'deleting virtual machine "{action.vm.name}"'
        case DestroyFolder():
            return f'deleting group folder "{action.folder.name}" (path: "{action.folder.path}")'
        case PowerOff():
            return f'powering off vm "{action.vm.name}"'
        case Reconfigure():
            return f'resizing vm "{action.vm.name}" to {action.cpus} vCPUs and {action.memory_mb} MB'
        case Finish():
            return "nothing is left of this VmGroup in vCenter"


def line_of_request(namespace: str, name: str) -> str:
    """The line at the beginning of a reconcile."""
    return f'received reconcile request for "{name}" (namespace: "{namespace}")'
