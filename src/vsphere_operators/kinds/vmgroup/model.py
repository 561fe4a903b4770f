"""What a group wishes, what it recorded, what is seen of it, and what is to be done: frozen values.

Everything is joined by `name`, the replica's name as it was recorded: it stays the same when a person renames the VM.
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
    """What is known of the last clone that was sent for a record."""

    UNSENT = "this process stored the record and has sent nothing since"
    RUNNING = "it runs, or something runs that may be it"
    UNKNOWN = "it may be under way; too early to tell"
    ENDED = "nothing of it is under way"


class ReplicaRecord(Struct, frozen=True, kw_only=True):
    """A replica's place, stored before anything is sent for it."""

    slot: int
    """Grows with each new record: the highest is the newest."""
    name: str
    instance_uuid: str
    template: str
    """MoRef of what it is cloned from."""
    fingerprint: str
    """What the spec asked for, see `marks.fingerprint`."""
    state: ReplicaState = "Planned"
    task: str = ""
    """MoRef of the clone's task."""
    attempt: int = 1
    terminating: bool = False
    """Chosen to go. Never taken back, so that a destroy that arrives late is still right."""


class ReplicaVm(Struct, frozen=True, kw_only=True):
    """A VM that is ours by its mark (`marks.replica_of`); no other VM ever reaches a plan."""

    name: str
    """The replica's recorded name, from the mark."""
    ref: str
    slot: int
    instance_uuid: str
    fingerprint: str
    power: VmPowerState
    cpus: int
    memory_mb: int
    broken: bool = False
    """Orphaned, inaccessible, invalid or disconnected."""
    busy: bool = False
    """An operation that changes its power, size or existence runs; a vMotion does not count."""
    foreign_disks: tuple[str, ...] = ()
    """Names of First Class Disks that are attached: they are somebody's data."""


class Rollout(Struct, frozen=True, kw_only=True):
    """How a change of the template reaches the replicas."""

    max_surge: int = 0
    max_unavailable: int = 1
    strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"


class DesiredState(Struct, frozen=True, kw_only=True):
    """What the object asks for."""

    cpus: int
    memory_mb: int
    replicas: int
    uid: str
    template: str = ""
    """MoRef; "" if there is none, and then `obstacle` says why."""
    template_name: str = ""
    fingerprint: str = ""
    power: Literal["poweredOn", "poweredOff"] = "poweredOn"
    rollout: Rollout = Rollout()
    paused: bool = False
    deleting: bool = False
    deletion_policy: Literal["Destroy", "Orphan"] = "Destroy"
    blocker: str = ""
    """Why nothing can be cloned now, in words: no template, no parent folder, a foreign owner, the quota."""


class OperationFailure(Struct, frozen=True):
    """The last operation on a replica failed; until the caller takes this away, nothing new starts on it."""

    message: str
    permanent: bool = False
    """Only a change can mend it."""
    reason: str = ""
    """One word for programs."""


class CloneBlocked(Exception):
    """Why nothing can be cloned, and what to do about it: a reason for programs and words for people."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


class GroupFolder(Struct, frozen=True, kw_only=True):
    """The folder of the group, as it is now."""

    ref: str
    name: str
    path: str
    is_empty: bool


class ObservedState(Struct, frozen=True, kw_only=True):
    """What is there."""

    records: tuple[ReplicaRecord, ...] = ()
    """As they are stored."""
    vms: tuple[ReplicaVm, ...] = ()
    clone_states: Mapping[str, CloneState] = {}
    """By record; one that is not named here is UNKNOWN."""
    conflicting_vms: Mapping[str, str] = {}
    """Records whose name a VM that is not ours has in the folder, and its path. A VM whose config is not told yet may be ours: not here."""
    failures: Mapping[str, OperationFailure] = {}
    folder: GroupFolder | None = None
    max_actions: int = 3
    """How many operations may start now."""


class CreateFolder(Struct, frozen=True):
    """Make the group's folder."""


class Clone(Struct, frozen=True):
    """Clone the template under the record's name, with mark, size and power."""

    record: ReplicaRecord
    template_name: str
    power_on: bool


class PowerOn(Struct, frozen=True):
    """Power a VM on, or resume it."""

    vm: ReplicaVm


class PowerOff(Struct, frozen=True):
    """Power a VM off."""

    vm: ReplicaVm


class Reconfigure(Struct, frozen=True):
    """Set the size of a VM that is off."""

    vm: ReplicaVm
    cpus: int
    memory_mb: int


class Destroy(Struct, frozen=True):
    """Destroy a VM that is off. Before it: a fresh GET, and the lease."""

    vm: ReplicaVm


class DestroyFolder(Struct, frozen=True):
    """Destroy the group's folder, which is empty. Before it: a fresh GET, and the lease."""

    folder: GroupFolder


class RemoveFinalizer(Struct, frozen=True):
    """Take the finalizer away by a conditional write: nothing of the group is left to do."""


Action: TypeAlias = (
    CreateFolder
    | Clone
    | PowerOn
    | PowerOff
    | Reconfigure
    | Destroy
    | DestroyFolder
    | RemoveFinalizer
)


class Counts(Struct, frozen=True, kw_only=True):
    """Numbers for the status."""

    current: int
    """VMs of the group that exist."""
    ready: int
    """Of these, such as are wished, not leaving, and in the wished state of power."""
    updated: int
    """Not leaving, of the wished template and size."""
    pending: int
    """Records whose VM does not exist yet."""
    terminating: int


class Plan(Struct, frozen=True, kw_only=True):
    """What to do now."""

    records: tuple[ReplicaRecord, ...]
    """What the status is to hold."""
    write_status_first: bool
    """Store `records` conditionally before anything else, then plan again; there are no actions then."""
    actions: tuple[Action, ...]
    phase: Phase
    message: str
    counts: Counts
    log_lines: tuple[str, ...] = ()
    """Log lines beside those of the actions."""
