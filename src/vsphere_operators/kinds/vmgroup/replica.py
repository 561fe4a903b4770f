"""A replica is a record with its VM: predicates, the deletion order and the counting rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import VirtualMachine
from .fingerprint import is_current
from .model import (
    CloneState,
    DesiredState,
    ObservedState,
    OperationFailure,
    ReplicaRecord,
    ReplicaVm,
    ResourceAmount,
)


class Replica(Struct, frozen=True, kw_only=True):
    record: ReplicaRecord
    vm: ReplicaVm | None
    clone_state: CloneState
    conflicting_vm: str = ""
    # What the group waits for while the VM is MISSING.
    missing_message: str = ""
    # The path of the VM that vCenter cannot read, or "".
    unreadable_vm: str = ""
    # The VM is in the inventory, and its mark is not read yet.
    is_vm_unread: bool = False
    failure: OperationFailure | None = None
    # The VM that the group is about to adopt; None if it cannot be adopted.
    vm_to_adopt: VirtualMachine | None = None
    # False for a VM without a record in the status.
    is_stored: bool = True

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def terminating(self) -> bool:
        return self.record.terminating

    @property
    def foreign_disks(self) -> tuple[str, ...]:
        return self.vm.foreign_disks if self.vm is not None else ()


def build_replicas(observed: ObservedState) -> tuple[Replica, ...]:
    """The stored records, each with its VM. A VM without a record gets one, as if it was stored.

    The status may have been wiped, or a clone may have ended after its record was dropped.
    """
    vms = {vm.replica_name: vm for vm in observed.vms}
    recorded = {record.name for record in observed.records}
    vms_without_record = sorted(
        (vm for vm in observed.vms if vm.replica_name not in recorded),
        key=lambda vm: vm.sequence_number,
    )
    records = (
        *(_with_origin(record, vms.get(record.name)) for record in observed.records),
        *(_build_record(vm) for vm in vms_without_record),
        *observed.requested_adoptions,
    )
    return tuple(
        Replica(
            record=record,
            vm=vms.get(record.name),
            clone_state=observed.clone_states.get(record.name, CloneState.UNKNOWN),
            conflicting_vm=observed.conflicting_vms.get(record.name, ""),
            missing_message=observed.missing_vms.get(record.name, ""),
            unreadable_vm=observed.unreadable_vms.get(record.name, ""),
            is_vm_unread=record.name in observed.unread_vms,
            failure=observed.failures.get(record.name),
            vm_to_adopt=observed.vms_to_adopt.get(record.name),
            is_stored=record.name in recorded,
        )
        for record in records
    )


def _with_origin(record: ReplicaRecord, vm: ReplicaVm | None) -> ReplicaRecord:
    """The record with `adopted_from`. After a downgrade the status lacks it: an older CRD drops it,
    and the mark of the VM still has it.
    """
    if vm is None or record.adopted_from or not vm.adopted_from:
        return record
    return replace(record, adopted_from=vm.adopted_from)


def _build_record(vm: ReplicaVm) -> ReplicaRecord:
    return ReplicaRecord(
        sequence_number=vm.sequence_number,
        name=vm.replica_name,
        instance_uuid=vm.instance_uuid,
        template="",
        fingerprint=vm.fingerprint,
        # Its clone may not have ended: a manager that died may have sent it.
        state="Cloning",
        adopted_from=vm.adopted_from,
    )


def counted_size(desired: DesiredState, replica: Replica) -> ResourceAmount:
    """What a replica counts for in the quota: the larger of its record and its VM."""
    record, vm = replica.record, replica.vm
    if vm is not None:
        return record.size.larger(vm.size)
    return record.size if record.cpus else desired.size


def active_replicas(replicas: Iterable[Replica]) -> list[Replica]:
    """The replicas that are not selected for deletion."""
    return [replica for replica in replicas if not replica.terminating]


def has_desired_size(desired: DesiredState, vm: ReplicaVm) -> bool:
    return (vm.cpus, vm.memory_mb) == (desired.cpus, desired.memory_mb)


def choose_cores_per_socket(cpus: int, current: int) -> int | None:
    """The current number if it divides `cpus`, else 1; None leaves the choice to vCenter.

    vCenter rejects a number of CPUs that is not a multiple of the cores per socket.
    """
    if current == 0:
        return None
    return current if cpus % current == 0 else 1


def is_ready(desired: DesiredState, replica: Replica) -> bool:
    """Whether the VM exists, is kept, works, has no task and has the desired power state."""
    vm = replica.vm
    return (
        vm is not None
        and not replica.terminating
        and not vm.unavailable
        and not vm.busy
        and vm.power == desired.power
    )


def _effective_max_unavailable(desired: DesiredState) -> int:
    rollout = desired.rollout
    # If neither surge nor unavailability were allowed, no change could ever be made.
    can_surge = rollout.max_surge and rollout.strategy == "RollingUpdate"
    return rollout.max_unavailable or (0 if can_surge else 1)


def has_current_fingerprint(desired: DesiredState, fingerprint: str) -> bool:
    return is_current(fingerprint, (desired.fingerprint, *desired.older_fingerprints))


def needs_replacement(desired: DesiredState, replica: Replica) -> bool:
    """Whether a new clone must replace the VM.

    The spec has another template, linkedClone or storagePolicy (see `fingerprint`), or another size
    that cannot be set in place.
    """
    vm = replica.vm
    return vm is not None and is_outdated(desired, vm.fingerprint, vm.size)


def is_outdated(desired: DesiredState, fingerprint: str, size: ResourceAmount) -> bool:
    """Whether a rolling update replaces a replica with this fingerprint and size."""
    return desired.rollout.strategy == "RollingUpdate" and (
        not has_current_fingerprint(desired, fingerprint)
        # A resize needs a power-off, and no replica may be unavailable.
        or (_effective_max_unavailable(desired) == 0 and size != desired.size)
    )


def surge_allowed(desired: DesiredState, active: Iterable[Replica]) -> int:
    """How many replicas more than `replicas` may exist now."""
    return min(
        desired.rollout.max_surge, sum(needs_replacement(desired, replica) for replica in active)
    )


def disruptions_allowed(desired: DesiredState, replicas: Iterable[Replica]) -> int:
    """How many ready replicas may be powered off or deleted now."""
    ready = sum(is_ready(desired, replica) for replica in replicas)
    return max(0, ready - (desired.replicas - _effective_max_unavailable(desired)))


def select_for_deletion(desired: DesiredState, replicas: Sequence[Replica]) -> frozenset[str]:
    """The names of the replicas to delete, in addition to those that terminate already."""
    active = active_replicas(replicas)
    if desired.deleting:
        destroy = desired.deletion_policy == "Destroy"
        return frozenset(replica.name for replica in active if destroy)
    # After a restore from backup, old VMs may be back and newer ones missing. Until they are found,
    # only a record that never had a VM is selected: no VM is destroyed for one that is missing.
    is_any_expected = any(map(_is_vm_expected, active))
    excess = max(0, len(active) - desired.replicas - surge_allowed(desired, active))
    in_deletion_order = sorted(
        (
            replica
            for replica in active
            if not replica.foreign_disks
            and (not is_any_expected or (replica.vm is None and not _is_vm_expected(replica)))
        ),
        key=lambda replica: _deletion_order(desired, replica),
    )
    names = frozenset(replica.name for replica in in_deletion_order[:excess])
    if desired.clone_blocker or is_any_expected:
        # No replica is deleted to be replaced while no new one can be cloned.
        return names
    return names | _select_for_replacement(
        desired, [replica for replica in active if replica.name not in names]
    )


def _is_vm_expected(replica: Replica) -> bool:
    """Whether a VM of the replica may come back, or is back and not read yet."""
    return replica.clone_state is CloneState.MISSING or replica.is_vm_unread


def _deletion_order(desired: DesiredState, replica: Replica) -> tuple[int, bool, int]:
    """Missing VMs, unavailable, powered off, on; among these those to replace, then the newest."""
    vm = replica.vm
    rank = 0 if vm is None else 1 if vm.unavailable else 2 if vm.power != "poweredOn" else 3
    return rank, not needs_replacement(desired, replica), -replica.record.sequence_number


def _select_for_replacement(desired: DesiredState, active: Sequence[Replica]) -> frozenset[str]:
    """The replicas to replace now: all that are not ready, and as many others as is allowed."""
    to_replace = sorted(
        (
            replica
            for replica in active
            if needs_replacement(desired, replica) and not replica.foreign_disks
        ),
        key=lambda replica: replica.record.sequence_number,
    )
    ready = [replica.name for replica in to_replace if is_ready(desired, replica)]
    not_ready = [
        replica.name
        for replica in to_replace
        if not is_ready(desired, replica) and not (replica.vm and replica.vm.busy)
    ]
    return frozenset([*not_ready, *ready[: disruptions_allowed(desired, active)]])


def count_to_create(desired: DesiredState, replicas: Sequence[Replica]) -> int:
    """How many records to add. Terminating replicas count too: their VMs still exist."""
    if desired.deleting:
        return 0
    active = active_replicas(replicas)
    allowed = desired.replicas + surge_allowed(desired, active)
    max_total = desired.replicas + desired.rollout.max_surge
    return max(0, min(allowed - len(active), max_total - len(replicas)))
