"""Which replicas go, which are made, which are changed: the rules of counting, apart from the steps that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .model import (
    CloneState,
    DesiredState,
    ObservedState,
    OperationFailure,
    ReplicaRecord,
    ReplicaVm,
)


class Replica(Struct, frozen=True, kw_only=True):
    """A record with what is seen of it."""

    record: ReplicaRecord
    vm: ReplicaVm | None
    clone_state: CloneState
    conflicting_vm: str = ""
    failure: OperationFailure | None = None

    @property
    def name(self) -> str:
        """The replica's recorded name."""
        return self.record.name

    @property
    def can_still_appear(self) -> bool:
        """Whether a VM that is not there may appear."""
        return self.vm is None and self.clone_state in (CloneState.RUNNING, CloneState.UNKNOWN)


def build_replicas(seen: ObservedState) -> tuple[Replica, ...]:
    """The records as stored, each with its VM; VMs without a record get one, as if it had been stored."""
    vms = {vm.name: vm for vm in seen.vms}
    known = {record.name for record in seen.records}
    strays = sorted((vm for vm in seen.vms if vm.name not in known), key=lambda vm: vm.slot)
    records = (*seen.records, *(_adopt_vm(vm) for vm in strays))
    return tuple(
        Replica(
            record=record,
            vm=vms.get(record.name),
            clone_state=seen.clone_states.get(record.name, CloneState.UNKNOWN),
            conflicting_vm=seen.conflicting_vms.get(record.name, ""),
            failure=seen.failures.get(record.name),
        )
        for record in records
    )


def _adopt_vm(vm: ReplicaVm) -> ReplicaRecord:
    """The record that a VM of ours must have had."""
    return ReplicaRecord(
        slot=vm.slot,
        name=vm.name,
        instance_uuid=vm.instance_uuid,
        template="",
        fingerprint=vm.fingerprint,
        state="Present",
        terminating=False,
    )


def has_desired_size(wish: DesiredState, vm: ReplicaVm) -> bool:
    """Whether cpu and memory are as wished."""
    return (vm.cpus, vm.memory_mb) == (wish.cpus, wish.memory_mb)


def is_available(wish: DesiredState, member: Replica) -> bool:
    """Whether a replica does its work: there, whole, left in peace, and on (or off, if that is the wish)."""
    vm = member.vm
    return (
        vm is not None
        and not member.record.terminating
        and not vm.broken
        and not vm.busy
        and vm.power == wish.power
    )


def _is_rolling_update(wish: DesiredState) -> bool:
    """Whether VMs are replaced where they differ."""
    return wish.rollout.strategy == "RollingUpdate"


def _effective_max_unavailable(wish: DesiredState) -> int:
    """How many may be down for a change; where neither surge nor absence is allowed nothing could ever change, so that one is."""
    return wish.rollout.max_unavailable or (
        0 if wish.rollout.max_surge and _is_rolling_update(wish) else 1
    )


def is_outdated(wish: DesiredState, member: Replica) -> bool:
    """Whether a VM must be replaced; one that may not be down for a new size is replaced too."""
    vm = member.vm
    if vm is None or not _is_rolling_update(wish):
        return False
    return vm.fingerprint != wish.fingerprint or (
        _effective_max_unavailable(wish) == 0 and not has_desired_size(wish, vm)
    )


def surge_allowed(wish: DesiredState, keepers: Iterable[Replica]) -> int:
    """How many more than `replicas` there may be now."""
    return min(wish.rollout.max_surge, sum(is_outdated(wish, each) for each in keepers))


def disruptions_allowed(wish: DesiredState, members: Iterable[Replica]) -> int:
    """How many available replicas may be taken down now."""
    available = sum(is_available(wish, each) for each in members)
    return max(0, available - (wish.replicas - _effective_max_unavailable(wish)))


def select_for_deletion(wish: DesiredState, members: Sequence[Replica]) -> frozenset[str]:
    """Who is to leave from now on."""
    keepers = [each for each in members if not each.record.terminating]
    if wish.deleting:
        return frozenset(each.name for each in keepers if wish.deletion_policy == "Destroy")
    excess = max(0, len(keepers) - wish.replicas - surge_allowed(wish, keepers))
    first = sorted(
        (each for each in keepers if not foreign_disks_of(each)),
        key=lambda each: _deletion_order(wish, each),
    )[:excess]
    names = frozenset(each.name for each in first)
    if wish.blocker:
        return names
    return names | _select_outdated(wish, [each for each in keepers if each.name not in names])


def foreign_disks_of(member: Replica) -> tuple[str, ...]:
    """Disks of somebody else on its VM."""
    return member.vm.foreign_disks if member.vm is not None else ()


def _deletion_order(wish: DesiredState, member: Replica) -> tuple[int, bool, int]:
    """What is not there, then broken, then off, then outdated, then the newest."""
    vm = member.vm
    rank = 0 if vm is None else 1 if vm.broken else 2 if vm.power != "poweredOn" else 3
    return rank, not is_outdated(wish, member), -member.record.slot


def _select_outdated(wish: DesiredState, keepers: Sequence[Replica]) -> frozenset[str]:
    """Outdated replicas that may go: those that do no work anyway, and as many others as can be spared."""
    outdated = sorted(
        (each for each in keepers if is_outdated(wish, each) and not foreign_disks_of(each)),
        key=lambda each: each.record.slot,
    )
    working = [each.name for each in outdated if is_available(wish, each)]
    idle = [
        each.name
        for each in outdated
        if not is_available(wish, each) and not (each.vm and each.vm.busy)
    ]
    return frozenset([*idle, *working[: disruptions_allowed(wish, keepers)]])


def count_to_create(wish: DesiredState, members: Sequence[Replica]) -> int:
    """How many records to add: all that exist count, also those that leave."""
    if wish.deleting:
        return 0
    keepers = [each for each in members if not each.record.terminating]
    allowed = wish.replicas + surge_allowed(wish, keepers)
    return max(
        0, min(allowed - len(keepers), wish.replicas + wish.rollout.max_surge - len(members))
    )
