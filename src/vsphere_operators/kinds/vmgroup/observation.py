"""What is seen of one group: from the inventory, the marks, the clone tasks and our own memory to a `Seen`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import Folder, Machine
from ...vsphere.vcenter import VCenter
from .clone_state import flight_of
from .clone_tasks import CloneTasks
from .expectations import Glow, Memory
from .model import Flight, GroupFolder, Power, Record, Seen, Vm
from .ownership import Group, Mark
from .ownership_index import Owners

CHANGES = ("powerOn", "powerOff", "suspend", "reset", "destroy", "unregister")
"""Tasks of anybody that make it useless to start something on the VM. A backup's snapshot, a vMotion or an attached disk do not."""


class Sight(Struct, frozen=True, kw_only=True):
    """Whom to look at, and with what."""

    vcenter: VCenter
    owners: Owners
    clones: CloneTasks
    memory: Memory
    group: Group
    accounted: Callable[[], Collection[str]]
    """Clone tasks that the records of any group name, or our memory of them."""
    refs: Mapping[str, str] = {}
    """References of the VMs as they were last told, by name of the replica."""


def seen_by(sight: Sight, records: Sequence[Record], folder: GroupFolder | None) -> Seen:
    """All that a plan needs."""
    memory, vcenter = sight.memory, sight.vcenter
    told = tuple(with_task(each, memory) for each in records)
    vms = tuple(vms_of(sight, told))
    present = {vm.name for vm in vms}
    absent = [each for each in told if each.name not in present]
    accounted = sight.accounted() if absent else ()
    return Seen(
        records=told,
        vms=vms,
        flights={each.name: flight(sight, each, accounted) for each in absent},
        taken={each.name: path for each in absent if (path := taken_by(sight, each, folder))},
        troubles=memory.troubles(),
        folder=folder,
        # At least one is tried, so that who finds no room is written down for the next.
        free=max(1, vcenter.operations.room),
    )


def with_task(record: Record, memory: Memory) -> Record:
    """The record with the task that came back for it."""
    sent = memory.sent.get(record.name)
    if sent and sent.attempt == record.attempt and sent.task and record.state == "Planned":
        return replace(record, state="Cloning", task=sent.task)
    return record


def vms_of(sight: Sight, records: Sequence[Record]) -> Iterable[Vm]:
    """The VMs that are the group's by their marks; of two with one mark, which cannot be, the first."""
    clusters, found = sight.group.cluster, dict[str, Vm]()
    busy = busy_refs(sight.vcenter)
    cloning = {each.name for each in records if (task := sight.clones.known.get(each.task)) and task.state == "running"}
    for ref in sorted(sight.owners.by_uid.of(sight.group.uid)):
        mark, machine = sight.owners.marks[ref], sight.vcenter.inventory.machines.get(ref)
        if machine is not None and mark.group.cluster == clusters:
            found.setdefault(mark.replica, vm_of(sight, machine, mark, busy=ref in busy or mark.replica in cloning))
    return found.values()


def busy_refs(vcenter: VCenter) -> set[str]:
    """VMs on which something runs that changes their power or existence."""
    tasks = (each for each in vcenter.inventory.tasks.values() if each.state in ("queued", "running"))
    return {each.entity for each in tasks if each.description.rpartition(".")[2] in CHANGES}


def vm_of(sight: Sight, machine: Machine, mark: Mark, *, busy: bool) -> Vm:
    """One VM as a plan sees it."""
    broken = machine.connection not in ("connected", "") or machine.power not in ("poweredOn", "poweredOff", "suspended")
    glow = sight.memory.glows.get(machine.ref)
    return Vm(
        name=mark.replica,
        ref=machine.ref,
        slot=mark.slot,
        instance_uuid=machine.instance_uuid,
        fingerprint=mark.fingerprint,
        power=cast("Power", machine.power or "poweredOff"),
        cpus=machine.cpus or 0,
        memory_mb=machine.memory_mb or 0,
        broken=broken,
        busy=busy or machine.ref in sight.memory.busy or (glow is not None and is_awaited(glow, machine, sight.memory.clock())),
        foreign_disks=disk_names(sight.vcenter, machine.ref),
    )


def is_awaited(glow: Glow, machine: Machine, now: float) -> bool:
    """Whether what a task has done is still to be seen."""
    if now >= glow.until:
        return False
    if glow.effect in ("poweredOn", "poweredOff"):
        return machine.power != glow.effect
    return glow.effect == "destroyed" or machine.config_version == glow.before


def disk_names(vcenter: VCenter, ref: str) -> tuple[str, ...]:
    """Disks of a VM that are somebody else's: First Class Disks, by name where it is known, and files that lie elsewhere."""
    found, machine, disks = vcenter.belongings.known.get(ref), vcenter.inventory.machines.get(ref), vcenter.disks.disks
    if found is None or machine is None:
        return ()
    named = (disks[each].name if each in disks else each for each in found.disks)
    return (*named, *found.foreign_files(machine.path))


def flight(sight: Sight, record: Record, accounted: Collection[str]) -> Flight:
    """What may be under way; a VM with the right identity whose mark is not read yet may be it."""
    inventory, known = sight.vcenter.inventory, sight.clones.known
    last = inventory.machines.get(sight.refs.get(record.name, ""))
    silent = last is not None and not last.instance_uuid
    if silent or any(ref in sight.owners.unread for ref in inventory.relations.instance_uuids.of(record.instance_uuid)):
        return Flight.UNKNOWN
    sent = sight.memory.sent.get(record.name)
    task = (sent.task if sent and sent.attempt == record.attempt else "") or record.task
    tasks = [known[task]] if task in known else [] if task else list(known.values())
    return flight_of(record, tasks, accounted, sent, sight.vcenter.watching_since, sight.memory.clock())


def taken_by(sight: Sight, record: Record, folder: GroupFolder | None) -> str:
    """The path of a VM that is not ours and has the record's name in the folder, or its identity anywhere."""
    inventory, known = sight.vcenter.inventory, sight.owners
    namesakes = [
        ref for ref in inventory.relations.names[Machine].of(record.name) if folder and inventory.machines[ref].parent == folder.ref
    ]
    for ref in (*namesakes, *inventory.relations.instance_uuids.of(record.instance_uuid)):
        if inventory.machines[ref].instance_uuid and ref not in known.unread and ref not in known.marks:
            return inventory.path(ref)
    return ""


def folder_of(sight: Sight, ref: str, parent: str, name: str) -> GroupFolder | None:
    """The group's folder: by reference, so that it may be renamed and moved; else by name; else one that was made just now."""
    inventory, (made, until) = sight.vcenter.inventory, sight.memory.folder
    found = inventory.folders.get(ref) or inventory.folders.get(made) or child_folder(sight.vcenter, parent, name)
    if found is not None:
        return GroupFolder(ref=found.ref, name=found.name, path=inventory.path(found.ref), is_empty=not inventory.tree.children(found.ref))
    if made and sight.memory.clock() < until:
        return GroupFolder(ref=made, name=name, path=f"{inventory.path(parent)}/{name}", is_empty=True)
    return None


def child_folder(vcenter: VCenter, parent: str, name: str) -> Folder | None:
    """The folder of a name directly in another."""
    inventory = vcenter.inventory
    found = (inventory.folders[ref] for ref in inventory.relations.names[Folder].of(name))
    return next((each for each in found if parent and each.parent == parent), None)
