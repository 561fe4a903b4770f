"""Values of a VmGroup: the desired state, the stored records, the observed state and the plan.

The record, the VM and the failure of a replica are matched by the replica's name. A record keeps
that name when a user renames the VM in vCenter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

VmPowerState = Literal["poweredOn", "poweredOff", "suspended"]
ReplicaState = Literal["Planned", "Cloning", "Present"]
Phase = Literal["RUNNING", "PENDING", "ERROR"]


class CloneState(Enum):
    """What is known of the last clone that was requested for a record."""

    UNSENT = "this process stored the record and has sent no request since"
    RUNNING = "its task runs, or a task that may belong to it"
    UNKNOWN = "a clone may be in progress; it is too early to decide"
    NOT_IN_PROGRESS = "no clone is in progress"


# The clone can still create the missing VM.
PENDING_CLONE_STATES = (CloneState.RUNNING, CloneState.UNKNOWN)


class ReplicaRecord(Struct, frozen=True, kw_only=True):
    """A ReplicaStatus as plan() uses it, stored before any request is sent for the replica."""

    # Grows with each new record: the highest number is the newest replica. `slot` in the status and
    # in the mark.
    sequence_number: int
    name: str
    instance_uuid: str
    # MoRef of the template.
    template: str
    # Identifies what the spec requested, see `ownership.compute_fingerprint`.
    fingerprint: str
    state: ReplicaState = "Planned"
    # MoRef of the clone task.
    task: str = ""
    attempt: int = 1
    # Selected for deletion, `leaving` in the status. Never reset: a Destroy_Task that arrives
    # late destroys nothing that is needed again.
    terminating: bool = False


class ReplicaVm(Struct, frozen=True, kw_only=True):
    """A VM that the group owns by its mark (see ownership.py); no other VM is part of a plan."""

    # The name in the record, which is in the mark too. A user may have renamed the VM.
    replica_name: str
    ref: str
    sequence_number: int
    instance_uuid: str
    fingerprint: str
    power: VmPowerState
    cpus: int
    memory_mb: int
    # vCenter has no current state of it: it is disconnected, inaccessible, invalid or orphaned.
    unavailable: bool = False
    # A task that changes its power, size or existence runs; a vMotion does not count.
    busy: bool = False
    # Attached disks that are not its own, such as First Class Disks: other users' data.
    foreign_disks: tuple[str, ...] = ()


class Rollout(Struct, frozen=True, kw_only=True):
    """How a change of the template reaches the replicas."""

    max_surge: int = 0
    max_unavailable: int = 1
    strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"


class DesiredState(Struct, frozen=True, kw_only=True):
    """What the spec requests; the observer adds the template's MoRef and the blocker."""

    cpus: int
    memory_mb: int
    replicas: int
    uid: str
    # MoRef; "" if the template was not found, and then `clone_blocker` has the reason.
    template: str = ""
    template_name: str = ""
    fingerprint: str = ""
    power: Literal["poweredOn", "poweredOff"] = "poweredOn"
    rollout: Rollout = Rollout()
    paused: bool = False
    deleting: bool = False
    deletion_policy: Literal["Destroy", "Orphan"] = "Destroy"
    # The message of what prevents clones now: template, folder, another owner, quota.
    clone_blocker: str = ""


class OperationFailure(Struct, frozen=True):
    """The last operation on a replica failed; nothing is started on it while this is active."""

    message: str
    # Only a change of the spec or in vCenter fixes it.
    permanent: bool = False
    # A `Reason`, or the name of vCenter's fault.
    reason: str = ""


class CloneBlocked(Exception):
    """Why no VM can be cloned, and what to do: a reason for scripts and a message for users."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class GroupFolder(Struct, frozen=True, kw_only=True):
    ref: str
    name: str
    path: str
    is_empty: bool


class ObservedState(Struct, frozen=True, kw_only=True):
    """What exists, in the status and in vCenter."""

    records: tuple[ReplicaRecord, ...] = ()
    vms: tuple[ReplicaVm, ...] = ()
    # By record; a record that is not here is UNKNOWN.
    clone_states: Mapping[str, CloneState] = {}
    # By record, the path of a VM of another owner that has its name in the folder. A VM is listed
    # only after its configuration was read: until then it may be the replica.
    conflicting_vms: Mapping[str, str] = {}
    failures: Mapping[str, OperationFailure] = {}
    folder: GroupFolder | None = None
    # How many operations may start now.
    max_actions: int = 3


class CreateFolder(Struct, frozen=True):
    """Create the group's folder."""


class Clone(Struct, frozen=True):
    """Clone the template under the record's name, with mark, size and power state."""

    record: ReplicaRecord
    template_name: str
    power_on: bool


class PowerOn(Struct, frozen=True):
    """Power a VM on, or resume it."""

    vm: ReplicaVm


class PowerOff(Struct, frozen=True):
    """Power a VM off, without a guest shutdown."""

    vm: ReplicaVm


class Resize(Struct, frozen=True):
    """Set the size of a VM that is powered off."""

    vm: ReplicaVm
    cpus: int
    memory_mb: int


class Destroy(Struct, frozen=True):
    """Destroy a VM that is powered off, after a fresh read of it and of the object."""

    vm: ReplicaVm


class DestroyFolder(Struct, frozen=True):
    """Destroy the group's empty folder, after a fresh read of it and of the object."""

    folder: GroupFolder


class RemoveFinalizer(Struct, frozen=True):
    """Remove the finalizer by a conditional write: no cleanup is left."""


Action: TypeAlias = (
    CreateFolder | Clone | PowerOn | PowerOff | Resize | Destroy | DestroyFolder | RemoveFinalizer
)


class Counts(Struct, frozen=True, kw_only=True):
    """The numbers of the status; see the fields of VmGroupStatus."""

    current: int
    ready: int
    updated: int


class Plan(Struct, frozen=True, kw_only=True):
    """What to do now, and what the status reports."""

    # What the status has to hold.
    records: tuple[ReplicaRecord, ...]
    # Store `records` by a conditional write first, then plan again; there are no actions then.
    write_status_first: bool
    actions: tuple[Action, ...]
    phase: Phase
    message: str
    counts: Counts
    # Log lines in addition to those of the actions.
    log_lines: tuple[str, ...] = ()
