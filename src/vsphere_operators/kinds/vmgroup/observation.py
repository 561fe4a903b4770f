"""What is seen of one group: from the inventory, the marks, the clone tasks and our own memory to a `Seen`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import Folder, VirtualMachine
from ...vsphere.vcenter import VCenter
from .clone_state import CloneTaskTracker, infer_clone_state
from .expectations import Expectations, PendingEffect
from .model import CloneState, GroupFolder, ObservedState, ReplicaRecord, ReplicaVm, VmPowerState
from .ownership import GroupId, OwnershipIndex, OwnershipMark

_DISRUPTIVE_TASKS = ("powerOn", "powerOff", "suspend", "reset", "destroy", "unregister")
"""Tasks of anybody that make it useless to start something on the VM. A backup's snapshot, a vMotion or an attached disk do not."""


class ObservationSources(Struct, frozen=True, kw_only=True):
    """Whom to look at, and with what."""

    vcenter: VCenter
    ownership_index: OwnershipIndex
    clone_tracker: CloneTaskTracker
    expectations: Expectations
    group_id: GroupId
    list_claimed_tasks: Callable[[], Collection[str]]
    """Clone tasks that the records of any group name, or our memory of them."""
    last_known_refs: Mapping[str, str] = {}
    """References of the VMs as they were last told, by name of the replica."""


def observe_group(
    sight: ObservationSources, records: Sequence[ReplicaRecord], folder: GroupFolder | None
) -> ObservedState:
    """All that a plan needs."""
    memory, vcenter = sight.expectations, sight.vcenter
    told = tuple(with_task(each, memory) for each in records)
    vms = tuple(_find_replica_vms(sight, told))
    present = {vm.name for vm in vms}
    absent = [each for each in told if each.name not in present]
    accounted = sight.list_claimed_tasks() if absent else ()
    return ObservedState(
        records=told,
        vms=vms,
        clone_states={each.name: _clone_state_of(sight, each, accounted) for each in absent},
        conflicting_vms={
            each.name: path
            for each in absent
            if (path := _find_conflicting_vm(sight, each, folder))
        },
        failures=memory.active_failures(),
        folder=folder,
        # At least one is tried, so that who finds no room is written down for the next.
        max_actions=max(1, vcenter.task_limiter.free_slots),
    )


def with_task(record: ReplicaRecord, memory: Expectations) -> ReplicaRecord:
    """The record with the task that came back for it."""
    sent = memory.clone_requests.get(record.name)
    if sent and sent.attempt == record.attempt and sent.task and record.state == "Planned":
        return replace(record, state="Cloning", task=sent.task)
    return record


def _find_replica_vms(
    sight: ObservationSources, records: Sequence[ReplicaRecord]
) -> Iterable[ReplicaVm]:
    """The VMs that are the group's by their marks; of two with one mark, which cannot be, the first."""
    clusters, found = sight.group_id.cluster_id, dict[str, ReplicaVm]()
    busy = _find_busy_refs(sight.vcenter)
    cloning = {
        each.name
        for each in records
        if (task := sight.clone_tracker.tasks.get(each.task)) and task.state == "running"
    }
    for ref in sorted(sight.ownership_index.refs_by_group_uid.get(sight.group_id.uid)):
        mark, machine = sight.ownership_index.marks[ref], sight.vcenter.inventory.vms.get(ref)
        if machine is not None and mark.group_id.cluster_id == clusters:
            found.setdefault(
                mark.replica_name,
                _build_replica_vm(
                    sight, machine, mark, busy=ref in busy or mark.replica_name in cloning
                ),
            )
    return found.values()


def _find_busy_refs(vcenter: VCenter) -> set[str]:
    """VMs on which something runs that changes their power or existence."""
    tasks = (
        each for each in vcenter.inventory.tasks.values() if each.state in ("queued", "running")
    )
    return {
        each.entity for each in tasks if each.description.rpartition(".")[2] in _DISRUPTIVE_TASKS
    }


def _build_replica_vm(
    sight: ObservationSources, machine: VirtualMachine, mark: OwnershipMark, *, busy: bool
) -> ReplicaVm:
    """One VM as a plan sees it."""
    broken = machine.connection not in ("connected", "") or machine.power not in (
        "poweredOn",
        "poweredOff",
        "suspended",
    )
    glow = sight.expectations.pending_effects.get(machine.ref)
    return ReplicaVm(
        name=mark.replica_name,
        ref=machine.ref,
        slot=mark.slot,
        instance_uuid=machine.instance_uuid,
        fingerprint=mark.fingerprint,
        power=cast("VmPowerState", machine.power or "poweredOff"),
        cpus=machine.cpus or 0,
        memory_mb=machine.memory_mb or 0,
        broken=broken,
        busy=busy
        or machine.ref in sight.expectations.busy_refs
        or (glow is not None and _is_effect_pending(glow, machine, sight.expectations.clock())),
        foreign_disks=_foreign_disk_names(sight.vcenter, machine.ref),
    )


def _is_effect_pending(glow: PendingEffect, machine: VirtualMachine, now: float) -> bool:
    """Whether what a task has done is still to be seen."""
    if now >= glow.expires_at:
        return False
    if glow.effect in ("poweredOn", "poweredOff"):
        return machine.power != glow.effect
    return glow.effect == "destroyed" or machine.config_version == glow.config_version_before


def _foreign_disk_names(vcenter: VCenter, ref: str) -> tuple[str, ...]:
    """Disks of a VM that are somebody else's: First Class Disks, by name where it is known, and files that lie elsewhere."""
    found, machine, disks = (
        vcenter.vm_configs.values.get(ref),
        vcenter.inventory.vms.get(ref),
        vcenter.disks.disks,
    )
    if found is None or machine is None:
        return ()
    named = (disks[each].name if each in disks else each for each in found.first_class_disks)
    return (*named, *found.foreign_disk_files(machine.vmx_path))


def _clone_state_of(
    sight: ObservationSources, record: ReplicaRecord, accounted: Collection[str]
) -> CloneState:
    """What may be under way; a VM with the right identity whose mark is not read yet may be it."""
    inventory, known = sight.vcenter.inventory, sight.clone_tracker.tasks
    last = inventory.vms.get(sight.last_known_refs.get(record.name, ""))
    silent = last is not None and not last.instance_uuid
    if silent or any(
        vm.ref in sight.ownership_index.unread_refs
        for vm in inventory.by_instance_uuid(record.instance_uuid)
    ):
        return CloneState.UNKNOWN
    sent = sight.expectations.clone_requests.get(record.name)
    task = (sent.task if sent and sent.attempt == record.attempt else "") or record.task
    tasks = [known[task]] if task in known else [] if task else list(known.values())
    return infer_clone_state(
        record, tasks, accounted, sent, sight.vcenter.watching_since, sight.expectations.clock()
    )


def _find_conflicting_vm(
    sight: ObservationSources, record: ReplicaRecord, folder: GroupFolder | None
) -> str:
    """The path of a VM that is not ours and has the record's name in the folder, or its identity anywhere."""
    inventory, known = sight.vcenter.inventory, sight.ownership_index
    namesakes = [
        vm
        for vm in inventory.by_name(VirtualMachine, record.name)
        if folder and vm.parent == folder.ref
    ]
    for vm in (*namesakes, *inventory.by_instance_uuid(record.instance_uuid)):
        if vm.instance_uuid and vm.ref not in known.unread_refs and vm.ref not in known.marks:
            return inventory.path(vm.ref)
    return ""


def find_group_folder(
    sight: ObservationSources, ref: str, parent: str, name: str
) -> GroupFolder | None:
    """The group's folder: by reference, so that it may be renamed and moved; else by name; else one that was made just now."""
    inventory, (made, until) = sight.vcenter.inventory, sight.expectations.created_folder
    found = (
        inventory.folders.get(ref)
        or inventory.folders.get(made)
        or _find_child_folder(sight.vcenter, parent, name)
    )
    if found is not None:
        return GroupFolder(
            ref=found.ref,
            name=found.name,
            path=inventory.path(found.ref),
            is_empty=not inventory.children(found.ref),
        )
    if made and sight.expectations.clock() < until:
        return GroupFolder(
            ref=made, name=name, path=f"{inventory.path(parent)}/{name}", is_empty=True
        )
    return None


def _find_child_folder(vcenter: VCenter, parent: str, name: str) -> Folder | None:
    """The folder of a name directly in another."""
    inventory = vcenter.inventory
    folders = inventory.by_name(Folder, name)
    return next((folder for folder in folders if parent and folder.parent == parent), None)
