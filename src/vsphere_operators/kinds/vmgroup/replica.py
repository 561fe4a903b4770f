"""Which replicas go, which are made, which are changed: the rules of counting, apart from the steps that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .model import Flight, Record, Seen, Trouble, Vm, Wish


class Member(Struct, frozen=True, kw_only=True):
    """A record with what is seen of it."""

    record: Record
    vm: Vm | None
    flight: Flight
    taken_by: str = ""
    trouble: Trouble | None = None

    @property
    def name(self) -> str:
        """The replica's recorded name."""
        return self.record.name

    @property
    def may_come(self) -> bool:
        """Whether a VM that is not there may appear."""
        return self.vm is None and self.flight in (Flight.RUNNING, Flight.UNKNOWN)


def members_of(seen: Seen) -> tuple[Member, ...]:
    """The records as stored, each with its VM; VMs without a record get one, as if it had been stored."""
    vms = {vm.name: vm for vm in seen.vms}
    known = {record.name for record in seen.records}
    strays = sorted((vm for vm in seen.vms if vm.name not in known), key=lambda vm: vm.slot)
    records = (*seen.records, *(adopted(vm) for vm in strays))
    return tuple(
        Member(
            record=record,
            vm=vms.get(record.name),
            flight=seen.flights.get(record.name, Flight.UNKNOWN),
            taken_by=seen.taken.get(record.name, ""),
            trouble=seen.troubles.get(record.name),
        )
        for record in records
    )


def adopted(vm: Vm) -> Record:
    """The record that a VM of ours must have had."""
    return Record(
        slot=vm.slot, name=vm.name, instance_uuid=vm.instance_uuid, template="", fingerprint=vm.fingerprint, state="Present", leaving=False
    )


def has_right_size(wish: Wish, vm: Vm) -> bool:
    """Whether cpu and memory are as wished."""
    return (vm.cpus, vm.memory_mb) == (wish.cpus, wish.memory_mb)


def is_available(wish: Wish, member: Member) -> bool:
    """Whether a replica does its work: there, whole, left in peace, and on (or off, if that is the wish)."""
    vm = member.vm
    return vm is not None and not member.record.leaving and not vm.broken and not vm.busy and vm.power == wish.power


def replaces(wish: Wish) -> bool:
    """Whether VMs are replaced where they differ."""
    return wish.rollout.strategy == "RollingUpdate"


def max_unavailable(wish: Wish) -> int:
    """How many may be down for a change; where neither surge nor absence is allowed nothing could ever change, so that one is."""
    return wish.rollout.max_unavailable or (0 if wish.rollout.max_surge and replaces(wish) else 1)


def is_outdated(wish: Wish, member: Member) -> bool:
    """Whether a VM must be replaced; one that may not be down for a new size is replaced too."""
    vm = member.vm
    if vm is None or not replaces(wish):
        return False
    return vm.fingerprint != wish.fingerprint or (max_unavailable(wish) == 0 and not has_right_size(wish, vm))


def surge(wish: Wish, keepers: Iterable[Member]) -> int:
    """How many more than `replicas` there may be now."""
    return min(wish.rollout.max_surge, sum(is_outdated(wish, each) for each in keepers))


def spare(wish: Wish, members: Iterable[Member]) -> int:
    """How many available replicas may be taken down now."""
    available = sum(is_available(wish, each) for each in members)
    return max(0, available - (wish.replicas - max_unavailable(wish)))


def going(wish: Wish, members: Sequence[Member]) -> frozenset[str]:
    """Who is to leave from now on."""
    keepers = [each for each in members if not each.record.leaving]
    if wish.deleting:
        return frozenset(each.name for each in keepers if wish.deletion_policy == "Destroy")
    excess = max(0, len(keepers) - wish.replicas - surge(wish, keepers))
    first = sorted((each for each in keepers if not disks_of(each)), key=lambda each: order_of_leaving(wish, each))[:excess]
    names = frozenset(each.name for each in first)
    if wish.obstacle:
        return names
    return names | rolled(wish, [each for each in keepers if each.name not in names])


def disks_of(member: Member) -> tuple[str, ...]:
    """Disks of somebody else on its VM."""
    return member.vm.foreign_disks if member.vm is not None else ()


def order_of_leaving(wish: Wish, member: Member) -> tuple[int, bool, int]:
    """What is not there, then broken, then off, then outdated, then the newest."""
    vm = member.vm
    rank = 0 if vm is None else 1 if vm.broken else 2 if vm.power != "poweredOn" else 3
    return rank, not is_outdated(wish, member), -member.record.slot


def rolled(wish: Wish, keepers: Sequence[Member]) -> frozenset[str]:
    """Outdated replicas that may go: those that do no work anyway, and as many others as can be spared."""
    outdated = sorted((each for each in keepers if is_outdated(wish, each) and not disks_of(each)), key=lambda each: each.record.slot)
    working = [each.name for each in outdated if is_available(wish, each)]
    idle = [each.name for each in outdated if not is_available(wish, each) and not (each.vm and each.vm.busy)]
    return frozenset([*idle, *working[: spare(wish, keepers)]])


def missing(wish: Wish, members: Sequence[Member]) -> int:
    """How many records to add: all that exist count, also those that leave."""
    if wish.deleting:
        return 0
    keepers = [each for each in members if not each.record.leaving]
    allowed = wish.replicas + surge(wish, keepers)
    return max(0, min(allowed - len(keepers), wish.replicas + wish.rollout.max_surge - len(members)))
