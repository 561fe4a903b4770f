"""What a plan says: phase and message for people, and the log lines that people grep for (contract.md, word for word)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .model import (
    Action,
    Clone,
    CloneState,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    Phase,
    PowerOff,
    PowerOn,
    Reconfigure,
    RemoveFinalizer,
    ReplicaRecord,
)
from .replica import (
    Replica,
    count_to_create,
    foreign_disks_of,
    has_desired_size,
    is_available,
    is_outdated,
    surge_allowed,
)

SUCCESS_MESSAGE = "successfully reconciled VmGroup"


class Summary(Struct, frozen=True):
    """How the group is."""

    phase: Phase
    message: str


def summarize(wish: DesiredState, members: Sequence[Replica]) -> Summary:
    """Phase and message."""
    errors = list(_list_errors(wish, members))
    if wish.paused:
        phase: Phase = (
            "ERROR" if errors else "RUNNING" if _is_in_desired_state(wish, members) else "PENDING"
        )
        return Summary(
            phase,
            "; ".join(
                [
                    f"paused: {_describe_progress(wish, members)}",
                    *errors,
                    "unset spec.paused to go on",
                ]
            ),
        )
    if errors:
        return Summary("ERROR", "; ".join(errors))
    if _is_in_desired_state(wish, members):
        return Summary("RUNNING", SUCCESS_MESSAGE)
    return Summary(
        "PENDING",
        "; ".join([_describe_progress(wish, members), *_list_transient_problems(members)]),
    )


def _is_in_desired_state(wish: DesiredState, members: Sequence[Replica]) -> bool:
    """Whether nothing is left to do."""
    return (
        not wish.deleting
        and len(members) == wish.replicas
        and all(is_available(wish, each) and not is_outdated(wish, each) for each in members)
        and all(each.vm is not None and has_desired_size(wish, each.vm) for each in members)
    )


def _list_errors(wish: DesiredState, members: Sequence[Replica]) -> Iterator[str]:
    """What only a change can mend, with the change."""
    if wish.blocker and _needs_clone(wish, members):
        yield wish.blocker
    for each in members:
        if each.failure is not None and each.failure.permanent:
            yield each.failure.message
        if (
            each.conflicting_vm
            and each.vm is None
            and not each.record.terminating
            and each.clone_state is not CloneState.RUNNING
        ):
            yield f'the name "{each.name}" is taken by {each.conflicting_vm}, which has no mark of this group; rename or remove that VM'
    for each in _find_held_by_disks(wish, members):
        yield (
            f'replica "{each.name}" must go but has disks of somebody else attached ({", ".join(foreign_disks_of(each))}); '
            "it is not destroyed: detach them, for a volume by deleting the Pod that uses it"
        )


def _needs_clone(wish: DesiredState, members: Sequence[Replica]) -> bool:
    """Whether a template is needed at all."""
    if wish.deleting:
        return False
    keepers = [each for each in members if not each.record.terminating]
    return (
        count_to_create(wish, members) > 0
        or len(keepers) < wish.replicas
        or any(is_outdated(wish, each) or each.vm is None for each in keepers)
    )


def _find_held_by_disks(wish: DesiredState, members: Sequence[Replica]) -> Iterator[Replica]:
    """Replicas that would go if they had no disks of somebody else."""
    keepers = [each for each in members if not each.record.terminating]
    free_to_go = sum(not foreign_disks_of(each) for each in keepers)
    too_many = not wish.deleting and len(keepers) - free_to_go > wish.replicas + surge_allowed(
        wish, keepers
    )
    for each in members:
        if foreign_disks_of(each) and (
            each.record.terminating or too_many or (is_outdated(wish, each) and not wish.deleting)
        ):
            yield each


def _list_transient_problems(members: Sequence[Replica]) -> Iterator[str]:
    """What may mend itself."""
    for each in members:
        if each.failure is not None:
            yield each.failure.message
        if each.vm is not None and each.vm.broken and not each.record.terminating:
            yield f'vCenter cannot reach replica "{each.name}" (its host or its files); it is not replaced, since it may come back'


def _describe_progress(wish: DesiredState, members: Sequence[Replica]) -> str:
    """How far it is."""
    leaving = sum(each.record.terminating for each in members)
    if wish.deleting:
        return f"being deleted, {len(members)} replica(s) left"
    ready = sum(is_available(wish, each) for each in members)
    coming = sum(each.vm is None and not each.record.terminating for each in members)
    outdated = sum(
        is_outdated(wish, each) or _has_wrong_size(wish, each)
        for each in members
        if not each.record.terminating
    )
    parts = [
        (coming, "to be cloned or being cloned"),
        (outdated, "to be brought up to date"),
        (leaving, "leaving"),
    ]
    return ", ".join(
        [
            f"{ready} of {wish.replicas} replica(s) ready",
            *(f"{count} {what}" for count, what in parts if count),
        ]
    )


def _has_wrong_size(wish: DesiredState, member: Replica) -> bool:
    """Whether the VM is there with another size."""
    return member.vm is not None and not has_desired_size(wish, member.vm)


def describe_record_changes(
    wish: DesiredState, before: Sequence[ReplicaRecord], after: Sequence[ReplicaRecord]
) -> tuple[str, ...]:
    """The lines for a change of the records."""
    if wish.deleting:
        return ("VmGroup marked for deletion",)
    known = {each.name: each.terminating for each in before}
    added = sum(each.name not in known for each in after)
    leaving = sum(each.terminating and not known.get(each.name, False) for each in after)
    few = (f"too few replicas, creating {added} replica(s)",) if added else ()
    return (*few, f"too many replicas, deleting {leaving}") if leaving else few


def describe_sync_state(wish: DesiredState, members: Sequence[Replica]) -> tuple[str, ...]:
    """The lines of a plan that changes no record."""
    if wish.deleting:
        return ("VmGroup marked for deletion",)
    in_sync = len(members) == wish.replicas and not any(
        each.vm is None or each.record.terminating for each in members
    )
    return ("replica count in sync, checking power state",) if in_sync else ()


def describe_action(action: Action) -> str:
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
            return (
                f'resizing vm "{action.vm.name}" to {action.cpus} vCPUs and {action.memory_mb} MB'
            )
        case RemoveFinalizer():
            return "nothing is left of this VmGroup in vCenter"


def describe_request(namespace: str, name: str) -> str:
    """The line at the beginning of a reconcile."""
    return f'received reconcile request for "{name}" (namespace: "{namespace}")'


FAULT_ADVICE = {
    "NoPermission": (
        "NoPermission",
        "give that privilege to the role of the manager's user in vCenter",
    ),
    "InsufficientResourcesFault": (
        "InsufficientResources",
        "free CPU or memory in the cluster or resource pool, or lower spec",
    ),
    "InsufficientCpuResourcesFault": (
        "InsufficientResources",
        "free CPU in the cluster or resource pool, or lower spec.cpu or replicas",
    ),
    "InsufficientMemoryResourcesFault": (
        "InsufficientResources",
        "free memory in the cluster or resource pool, or lower spec.memory",
    ),
    "InsufficientHostCapacityFault": (
        "InsufficientResources",
        "free capacity on the hosts, or lower cpu, memory or replicas",
    ),
    "InsufficientFailoverResourcesFault": (
        "InsufficientResources",
        "vSphere HA keeps capacity back; free some, or lower replicas",
    ),
    "NoDiskSpace": (
        "InsufficientStorage",
        "free space on the datastore, or name another in spec.placement.datastore",
    ),
    "InsufficientStorageSpace": (
        "InsufficientStorage",
        "free space on the datastore, or name another in spec.placement.datastore",
    ),
    "QuotaExceeded": ("QuotaExceeded", "raise the quota in vCenter, or lower replicas"),
    "LicenseExpired": ("License", "renew the licence of the vCenter or its hosts"),
    "NotEnoughLicenses": ("License", "add a licence to the vCenter or its hosts"),
    "NoSnapshot": ("NoSnapshot", ""),
    "CannotAccessVmDisk": ("StorageUnavailable", "mend the datastore of the template"),
    "InvalidDatastore": (
        "StorageUnavailable",
        "mend the datastore, or name another in spec.placement.datastore",
    ),
    "InvalidName": ("InvalidName", "give the group another name"),
}
"""By vCenter's fault: a reason for programs and what to do."""


_TRANSIENT_FAULTS = (
    "InvalidPowerState",
    "DuplicateName",
    "ManagedObjectNotFound",
    "InvalidState",
    "GenericVmConfigFault",
)
"""What an operation gets that came too late or too early: the next look knows better."""


class FailureDescription(Struct, frozen=True):
    """What a failure means."""

    reason: str
    message: str
    permanent: bool


def describe_failure(doing: str, fault: str, said: str, *, transient: bool) -> FailureDescription:
    """The failure in words. `passing` is what the tree of faults thinks of it."""
    reason, cure = FAULT_ADVICE.get(fault, (fault or "VCenterError", ""))
    lasting = fault in FAULT_ADVICE or (not transient and fault not in _TRANSIENT_FAULTS)
    if not cure:
        cure = (
            "it is tried again by itself"
            if not lasting
            else "vCenter's own event log may say more; it is tried again by itself"
        )
    said = said.strip().rstrip(".")
    return FailureDescription(reason, f"{doing} failed: {said}; {cure}", lasting)
