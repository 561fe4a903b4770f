"""Values of a VmGroup: the desired state, the stored records, the observed state and the plan.

The record, the VM and the failure of a replica are matched by the replica's name. A record keeps
that name when a user renames the VM in vCenter.

    record       a replica in status.replicas, stored before any request for it is sent
    mark         keys in a VM's extraConfig that name its group and replica
    claim        a group and the folder that it has or would create
    fingerprint  a hash of what the spec requested when a replica was cloned
    blocker      why no VM can be cloned now
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from ...vsphere.model import VirtualMachine

VmPowerState = Literal["poweredOn", "poweredOff", "suspended"]
ReplicaState = Literal["Planned", "Cloning", "Present"]
Phase = Literal["RUNNING", "PENDING", "ERROR"]
# Why a VM is created or deleted. The values are labels of metrics. `unknown`: another process
# stored the record.
CreationCause = Literal["scale_up", "replacement", "rollout", "unknown"]
DeletionCause = Literal["scale_down", "rollout", "group_deletion"]


class CloneState(Enum):
    """What is known of the last clone that was requested for a record."""

    UNSENT = "this process stored the record and has sent no request since"
    RUNNING = "its task runs, or a task that may belong to it"
    UNKNOWN = "a clone may be in progress; it is too early to decide"
    MISSING = "the VM existed and is not in the inventory, and may come back"
    ADOPTING = "there is a VM to adopt, which does not have the group's mark yet"
    NOT_IN_PROGRESS = "no clone is in progress"


# The clone can still create the missing VM.
PENDING_CLONE_STATES = (CloneState.RUNNING, CloneState.UNKNOWN)


class ResourceAmount(Struct, frozen=True, kw_only=True):
    """A number of VMs with their vCPUs and memory."""

    vms: int = 0
    cpus: int = 0
    memory_mb: int = 0

    def __add__(self, other: ResourceAmount) -> ResourceAmount:
        return ResourceAmount(
            vms=self.vms + other.vms,
            cpus=self.cpus + other.cpus,
            memory_mb=self.memory_mb + other.memory_mb,
        )

    def larger(self, other: ResourceAmount) -> ResourceAmount:
        """The larger number of each resource."""
        return ResourceAmount(
            vms=max(self.vms, other.vms),
            cpus=max(self.cpus, other.cpus),
            memory_mb=max(self.memory_mb, other.memory_mb),
        )

    def smaller(self, other: ResourceAmount) -> ResourceAmount:
        """The smaller number of each resource."""
        return ResourceAmount(
            vms=min(self.vms, other.vms),
            cpus=min(self.cpus, other.cpus),
            memory_mb=min(self.memory_mb, other.memory_mb),
        )

    def __sub__(self, other: ResourceAmount) -> ResourceAmount:
        return ResourceAmount(
            vms=self.vms - other.vms,
            cpus=self.cpus - other.cpus,
            memory_mb=self.memory_mb - other.memory_mb,
        )

    def __mul__(self, count: int) -> ResourceAmount:
        return ResourceAmount(
            vms=count * self.vms, cpus=count * self.cpus, memory_mb=count * self.memory_mb
        )


class Quota(Struct, frozen=True, kw_only=True):
    """The most of each resource; None is no limit."""

    vms: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None

    def minus(self, used: ResourceAmount) -> Quota:
        return Quota(
            vms=None if self.vms is None else self.vms - used.vms,
            cpus=None if self.cpus is None else self.cpus - used.cpus,
            memory_mb=None if self.memory_mb is None else self.memory_mb - used.memory_mb,
        )

    def covers(self, amount: ResourceAmount) -> bool:
        return (
            (self.vms is None or amount.vms <= self.vms)
            and (self.cpus is None or amount.cpus <= self.cpus)
            and (self.memory_mb is None or amount.memory_mb <= self.memory_mb)
        )


class ReplicaRecord(Struct, frozen=True, kw_only=True):
    """A ReplicaStatus as plan() uses it, stored before any request is sent for the replica."""

    # Grows with each new record: the highest number is the newest replica. `slot` in the status and
    # in the mark.
    sequence_number: int
    name: str
    instance_uuid: str
    # MoRef of the template.
    template: str
    # Identifies what the spec requested, see fingerprint.py.
    fingerprint: str
    state: ReplicaState = "Planned"
    # MoRef of the clone task.
    task: str = ""
    attempt: int = 1
    # What it counts for in the quota even if its VM is smaller: the size of the clone or resize
    # that may be in progress. 0 if an older release stored the record.
    cpus: int = 0
    memory_mb: int = 0
    # Of a VM that the group adopts or has adopted: its instanceUuid before the adoption.
    adopted_from: str = ""
    # Selected for deletion, `leaving` in the status. Never reset: a Destroy_Task that arrives
    # late destroys nothing that is needed again.
    terminating: bool = False

    @property
    def size(self) -> ResourceAmount:
        return ResourceAmount(vms=1, cpus=self.cpus, memory_mb=self.memory_mb)


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
    # 0: vCenter chooses.
    cores_per_socket: int = 1
    # Orphaned, inaccessible, invalid or disconnected.
    unavailable: bool = False
    # A task that changes its power, size or existence runs, or its clone has not ended; a vMotion
    # does not count.
    busy: bool = False
    # A resize that this process does not know of may be in progress.
    resize_possible: bool = False
    # Attached disks that are not its own, such as First Class Disks: other users' data.
    foreign_disks: tuple[str, ...] = ()
    # Of an adopted VM: its instanceUuid before the adoption.
    adopted_from: str = ""

    @property
    def size(self) -> ResourceAmount:
        return ResourceAmount(vms=1, cpus=self.cpus, memory_mb=self.memory_mb)


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
    # 0: vCenter chooses, or the template was not found.
    template_cores_per_socket: int = 0
    # Of new replicas, and by older versions for VMs that were cloned by older releases.
    fingerprint: str = ""
    older_fingerprints: tuple[str, ...] = ()
    power: Literal["poweredOn", "poweredOff"] = "poweredOn"
    rollout: Rollout = Rollout()
    paused: bool = False
    deleting: bool = False
    deletion_policy: Literal["Destroy", "Orphan"] = "Destroy"
    # The message of what prevents clones now: template, folder, another owner, quota.
    clone_blocker: str = ""
    # A user requested that adopted VMs become what they were before.
    undo_adoption: bool = False
    # The message if the spec requests more than the quota of the namespace allows.
    quota_violation: str = ""
    # What this group may have of that quota: without what other groups have, or older ones request.
    quota: Quota = Quota()

    @property
    def size(self) -> ResourceAmount:
        """The size of one replica."""
        return ResourceAmount(vms=1, cpus=self.cpus, memory_mb=self.memory_mb)


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
    # By record; a record that is not here is UNKNOWN. With a VM, only RUNNING has a meaning: the
    # clone may still write the VM.
    clone_states: Mapping[str, CloneState] = {}
    # By record, the path of a VM of another owner that has its name in the folder. A VM is listed
    # only after its configuration was read: until then it may be the replica.
    conflicting_vms: Mapping[str, str] = {}
    # By record that is MISSING: what the group waits for.
    missing_vms: Mapping[str, str] = {}
    # By record that is UNKNOWN: the path of its last known VM, of which vCenter reports no uuid.
    unreadable_vms: Mapping[str, str] = {}
    # Records that are UNKNOWN because the mark of their VM is not read yet. A VM that was missing
    # is back in the inventory a moment before its mark is.
    unread_vms: frozenset[str] = frozenset()
    failures: Mapping[str, OperationFailure] = {}
    # The VM by the name of its record, if the VM does not have the mark yet; None if it cannot be
    # adopted.
    vms_to_adopt: Mapping[str, VirtualMachine | None] = {}
    # Records for VMs that a user requested to adopt; they are stored before any VM is marked.
    requested_adoptions: tuple[ReplicaRecord, ...] = ()
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
    """Power off a VM that is powered on, without a guest shutdown."""

    vm: ReplicaVm


class Resize(Struct, frozen=True):
    """Set the size of a VM that is powered off."""

    vm: ReplicaVm
    cpus: int
    # None is what the VM has.
    cores_per_socket: int | None
    memory_mb: int


class Destroy(Struct, frozen=True):
    """Destroy a VM that is not powered on, after a fresh read of the object and of the VM."""

    vm: ReplicaVm


class Adopt(Struct, frozen=True):
    """Write the group's mark to a VM, after a fresh read of the object and of the VM."""

    record: ReplicaRecord
    # As it was when the plan was made.
    vm: VirtualMachine


class UndoAdoption(Struct, frozen=True):
    """Make an adopted VM what it was before, after a fresh read of the object and of the VM."""

    vm: ReplicaVm


class DestroyFolder(Struct, frozen=True):
    """Remove the group's empty folder, after a fresh read of the object and of the folder."""

    folder: GroupFolder


class RemoveFinalizer(Struct, frozen=True):
    """Remove the finalizer by a conditional write: no cleanup is left."""


Action: TypeAlias = (
    CreateFolder
    | Clone
    | PowerOn
    | PowerOff
    | Resize
    | Destroy
    | Adopt
    | UndoAdoption
    | DestroyFolder
    | RemoveFinalizer
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
