"""The messages of a VmGroup: phase, log lines, and the advice for each fault of vCenter.

Users grep for some of the log lines, and scripts wait for SUCCESS_MESSAGE: these texts are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .model import (
    Action,
    Adopt,
    Clone,
    CloneState,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    OperationFailure,
    Phase,
    PowerOff,
    PowerOn,
    RemoveFinalizer,
    ReplicaRecord,
    Resize,
    UndoAdoption,
)
from .reasons import Reason
from .replica import (
    Replica,
    active_replicas,
    count_to_create,
    has_desired_size,
    is_ready,
    needs_replacement,
    surge_allowed,
)

# The text of status.lastMessage that existing scripts wait for.
SUCCESS_MESSAGE = "successfully reconciled VmGroup"
WAITS_FOR_QUOTA_MESSAGE = (
    "Waiting for the quota of the namespace: VMs of this group that are being deleted or resized "
    "still count"
)


def decide_phase_and_message(
    desired: DesiredState, replicas: Sequence[Replica]
) -> tuple[Phase, str]:
    """The phase and the message of the status."""
    errors = list(_list_errors(desired, replicas))
    if desired.paused:
        phase: Phase = (
            "ERROR"
            if errors
            else "RUNNING"
            if _is_in_desired_state(desired, replicas)
            else "PENDING"
        )
        paused = f"Paused: {_describe_progress(desired, replicas)}."
        return phase, " ".join([paused, *errors, "Unset spec.paused to continue."])
    if errors:
        return "ERROR", " ".join(errors)
    if _is_in_desired_state(desired, replicas):
        return "RUNNING", SUCCESS_MESSAGE
    progress = _describe_progress(desired, replicas)
    problems = " ".join(_list_transient_problems(replicas))
    return "PENDING", f"{progress}. {problems}" if problems else progress


def _is_in_desired_state(desired: DesiredState, replicas: Sequence[Replica]) -> bool:
    return (
        not desired.deleting
        and len(replicas) == desired.replicas
        and all(
            is_ready(desired, replica)
            and not needs_replacement(desired, replica)
            and replica.vm is not None
            and has_desired_size(desired, replica.vm)
            for replica in replicas
        )
    )


def _list_errors(desired: DesiredState, replicas: Sequence[Replica]) -> Iterator[str]:
    """What only a user can fix."""
    if desired.clone_blocker and _needs_clone(desired, replicas):
        yield desired.clone_blocker
    elif (
        desired.quota_violation
        and not desired.deleting
        and any(
            replica.vm is not None and not has_desired_size(desired, replica.vm)
            for replica in active_replicas(replicas)
        )
    ):
        yield desired.quota_violation
    for replica in replicas:
        if replica.failure is not None and replica.failure.permanent:
            yield replica.failure.message
        if (
            replica.conflicting_vm
            and replica.vm is None
            and not replica.terminating
            and replica.clone_state is not CloneState.RUNNING
        ):
            yield (
                f'The VM {replica.conflicting_vm} has the name of replica "{replica.name}", but '
                "was not created by this group (its extraConfig has no vsphere-operators.* keys). "
                "Rename or remove that VM."
            )
    for replica in _find_blocked_by_disks(desired, replicas):
        yield (
            f'Replica "{replica.name}" is to be deleted, but disks that are not its own are '
            f"attached ({', '.join(replica.foreign_disks)}). It is kept until they are detached; "
            "for a volume, delete the Pod that uses it."
        )


def _needs_clone(desired: DesiredState, replicas: Sequence[Replica]) -> bool:
    if desired.deleting:
        return False
    active = active_replicas(replicas)
    return (
        count_to_create(desired, replicas) > 0
        or len(active) < desired.replicas
        or any(needs_replacement(desired, replica) or _is_without_vm(replica) for replica in active)
    )


def _is_without_vm(replica: Replica) -> bool:
    """Whether the replica needs a clone: its VM is neither there nor expected to come back."""
    return (
        replica.vm is None
        and replica.vm_to_adopt is None
        and replica.clone_state is not CloneState.MISSING
        and not replica.unreadable_vm
    )


def _find_blocked_by_disks(desired: DesiredState, replicas: Sequence[Replica]) -> Iterator[Replica]:
    """Replicas that would be deleted if no foreign disks were attached to them."""
    active = active_replicas(replicas)
    blocked_count = sum(bool(replica.foreign_disks) for replica in active)
    has_excess = not desired.deleting and blocked_count > desired.replicas + surge_allowed(
        desired, active
    )
    for replica in replicas:
        if replica.foreign_disks and (
            replica.terminating
            or has_excess
            or (needs_replacement(desired, replica) and not desired.deleting)
        ):
            yield replica


def _list_transient_problems(replicas: Sequence[Replica]) -> Iterator[str]:
    for replica in replicas:
        if replica.failure is not None:
            yield replica.failure.message
        if replica.missing_message:
            yield replica.missing_message
        if replica.unreadable_vm:
            yield (
                f'vCenter cannot read the configuration of replica "{replica.name}" '
                f"({replica.unreadable_vm}), usually because its files are inaccessible. "
                "Check the host and the datastore of the VM. It is not replaced, because it may "
                "come back."
            )
        if replica.vm is not None and replica.vm.unavailable and not replica.terminating:
            yield (
                f'vCenter cannot access replica "{replica.name}" (its host or its files). '
                "It is not replaced, because it may come back."
            )


def _describe_progress(desired: DesiredState, replicas: Sequence[Replica]) -> str:
    if desired.deleting:
        return describe_deletion(len(replicas))
    ready = sum(is_ready(desired, replica) for replica in replicas)
    active = active_replicas(replicas)
    parts = {
        "missing": sum(replica.clone_state is CloneState.MISSING for replica in active),
        "adopting": sum(replica.vm_to_adopt is not None for replica in active),
        "unreadable": sum(bool(replica.unreadable_vm) for replica in active),
        "cloning": sum(
            _is_without_vm(replica)
            or (replica.clone_state is CloneState.RUNNING and replica.vm_to_adopt is None)
            for replica in active
        ),
        "updating": sum(
            needs_replacement(desired, replica)
            or (replica.vm is not None and not has_desired_size(desired, replica.vm))
            for replica in active
        ),
        "deleting": len(replicas) - len(active),
    }
    progress = [f"{verb} {count}" for verb, count in parts.items() if count]
    return "; ".join([f"{ready}/{desired.replicas} replicas ready", *progress])


def describe_deletion(replica_count: int) -> str:
    noun = "replica" if replica_count == 1 else "replicas"
    return f"Deleting the group; {replica_count} {noun} left"


def describe_record_changes(
    desired: DesiredState, before: Sequence[ReplicaRecord], after: Sequence[ReplicaRecord]
) -> tuple[str, ...]:
    """The log lines of a plan that changes the records."""
    if desired.deleting:
        return ("VmGroup marked for deletion",)
    terminating_before = {record.name: record.terminating for record in before}
    new = [record for record in after if record.name not in terminating_before]
    adopted = sum(bool(record.adopted_from) for record in new)
    added = len(new) - adopted
    deleted = sum(
        record.terminating and not terminating_before.get(record.name, False) for record in after
    )
    creating = (f"too few replicas, creating {added} replica(s)",) if added else ()
    if adopted:
        creating = (*creating, f"adopting {adopted} replica(s)")
    return (*creating, f"too many replicas, deleting {deleted}") if deleted else creating


def describe_sync_state(desired: DesiredState, replicas: Sequence[Replica]) -> tuple[str, ...]:
    """The log lines of a plan that changes no record."""
    if desired.deleting:
        return ("VmGroup marked for deletion",)
    in_sync = len(replicas) == desired.replicas and not any(
        replica.vm is None or replica.terminating for replica in replicas
    )
    return ("replica count in sync, checking power state",) if in_sync else ()


def describe_action(action: Action) -> str:
    match action:
        case CreateFolder():
            return "VmGroup folder does not exist, creating folder"
        case Clone():
            return f'creating clone "{action.record.name}" from template "{action.template_name}"'
        case PowerOn():
            state = "suspended" if action.vm.power == "suspended" else "powered off"
            return f'vm "{action.vm.replica_name}" {state}, attempting to power on...'
        case Destroy():
            return f'deleting virtual machine "{action.vm.replica_name}"'
        case DestroyFolder():
            return f'deleting group folder "{action.folder.name}" (path: "{action.folder.path}")'
        case PowerOff():
            return f'powering off vm "{action.vm.replica_name}"'
        case Resize():
            return (
                f'resizing vm "{action.vm.replica_name}" to {action.cpus} vCPUs and '
                f"{action.memory_mb} MB"
            )
        case Adopt():
            return f'adopting vm "{action.record.name}" ({action.vm.ref})'
        case UndoAdoption():
            return f'undoing the adoption of vm "{action.vm.replica_name}"'
        case RemoveFinalizer():
            return "no cleanup is left, removing the finalizer"


def describe_request(namespace: str, name: str) -> str:
    return f'received reconcile request for "{name}" (namespace: "{namespace}")'


_RETRY_ADVICE = "The operation is retried automatically"
_FREE_STORAGE_ADVICE = (
    "Free space on the datastore, or select another one in spec.placement.datastore"
)
# By fault of vCenter: the reason and what to do. All of these need a change by a user.
FAULT_ADVICE = {
    "NoPermission": (
        Reason.NO_PERMISSION,
        "Grant that privilege to the role of the manager's vCenter account; `manager doctor` "
        "prints the commands",
    ),
    "InsufficientResourcesFault": (
        Reason.INSUFFICIENT_RESOURCES,
        "Free CPU or memory in the cluster or resource pool, or lower spec.cpu, spec.memory or "
        "spec.replicas",
    ),
    "InsufficientCpuResourcesFault": (
        Reason.INSUFFICIENT_RESOURCES,
        "Free CPU in the cluster or resource pool, or lower spec.cpu or spec.replicas",
    ),
    "InsufficientMemoryResourcesFault": (
        Reason.INSUFFICIENT_RESOURCES,
        "Free memory in the cluster or resource pool, or lower spec.memory",
    ),
    "InsufficientHostCapacityFault": (
        Reason.INSUFFICIENT_RESOURCES,
        "Free capacity on the hosts, or lower spec.cpu, spec.memory or spec.replicas",
    ),
    "InsufficientFailoverResourcesFault": (
        Reason.INSUFFICIENT_RESOURCES,
        "vSphere HA reserves capacity. Free some, or lower spec.replicas",
    ),
    "NoDiskSpace": (Reason.INSUFFICIENT_STORAGE, _FREE_STORAGE_ADVICE),
    "InsufficientStorageSpace": (Reason.INSUFFICIENT_STORAGE, _FREE_STORAGE_ADVICE),
    "QuotaExceeded": (
        Reason.QUOTA_EXCEEDED,
        "Raise the quota in vCenter, or lower spec.replicas",
    ),
    "LicenseExpired": (Reason.LICENSE, "Renew the license of the vCenter or its hosts"),
    "NotEnoughLicenses": (Reason.LICENSE, "Add a license to the vCenter or its hosts"),
    "NoSnapshot": (Reason.NO_SNAPSHOT, ""),
    "CannotAccessVmDisk": (Reason.STORAGE_UNAVAILABLE, "Fix the datastore of the template"),
    "InvalidDatastore": (
        Reason.STORAGE_UNAVAILABLE,
        "Fix the datastore, or select another one in spec.placement.datastore",
    ),
    "InvalidName": (Reason.INVALID_NAME, "Create the group under another name"),
}
# Faults of an operation that came too late or too early; the next plan has newer observations.
_TRANSIENT_FAULTS = (
    "InvalidPowerState",
    "DuplicateName",
    "ManagedObjectNotFound",
    "InvalidState",
    "GenericVmConfigFault",
    "ConcurrentAccess",
)


def describe_failure(
    operation: str, fault: str, message: str, *, transient: bool
) -> OperationFailure:
    """What a failed operation means; `transient`: faults.py maps it to Busy or Unreachable."""
    reason, advice = FAULT_ADVICE.get(fault, (fault or Reason.VCENTER_ERROR, ""))
    permanent = fault in FAULT_ADVICE or (not transient and fault not in _TRANSIENT_FAULTS)
    if not advice:
        advice = (
            f"See the events in vCenter for details. {_RETRY_ADVICE}"
            if permanent
            else _RETRY_ADVICE
        )
    cause = message.strip().rstrip(".")
    return OperationFailure(f"{operation} failed: {cause}. {advice}.", permanent, reason)
