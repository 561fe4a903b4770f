"""Which change in a vCenter enqueues which VmGroup: handlers that enqueue keys through a stream.

A key names what changed: `uid:` the VMs or tasks of a group, `template:` and `folder:` an object of
that name or reference, `foreign-clone:` the end of a clone of that template that another client
started. Changes of quickStats enqueue no group.

build.py connects the handlers.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubewright import Stream

from ...vsphere.inventory import Change, Inventory
from ...vsphere.model import (
    FINAL_TASK_STATES,
    ComputeResource,
    Datacenter,
    Datastore,
    Entity,
    Folder,
    ResourcePool,
    Task,
    VirtualMachine,
    VirtualMachineStats,
)
from ...vsphere.vcenter import VCenter
from .clone_state import CLONE_DESCRIPTION_ID, CloneTaskTracker
from .executor import Executor
from .ownership import OwnershipIndex, folder_name
from .placement import DEFAULT_PARENT_FOLDER
from .types import VmGroup

# How often the progress of a clone is written to the status.
PROGRESS_INTERVAL_SECONDS = 5.0
_NO_STATS = VirtualMachineStats()


def trigger_keys_of(group: VmGroup) -> Iterable[str]:
    """The keys that enqueue a group."""
    status, spec, metadata = group.status, group.spec, group.metadata
    parent_folder = spec.placement.folder if spec.placement else ""
    yield f"uid:{metadata.uid}"
    yield f"template:{spec.template.rpartition('/')[2]}"
    yield f"folder:{(parent_folder or DEFAULT_PARENT_FOLDER).rpartition('/')[2]}"
    # Without a folder of its own, the group may wait for the end of a conflict about its name.
    yield (
        f"folder:{status.folder.ref}"
        if status.folder is not None
        else f"folder:{folder_name(metadata.namespace, metadata.name)}"
    )
    # The clone of a record may be any running clone of its template, and a previous manager may
    # have started it.
    yield from {
        f"foreign-clone:{replica.template}"
        for replica in status.replicas
        if replica.template and replica.state != "Present"
    }


def notify_group(stream: Stream, uid: str) -> None:
    stream.notify(f"uid:{uid}")


class VmGroupTriggers:
    """The handlers of one vCenter."""

    def __init__(
        self,
        stream: Stream,
        vcenter: VCenter,
        ownership_index: OwnershipIndex,
        clone_tracker: CloneTaskTracker,
        executor: Executor,
    ) -> None:
        self._stream, self._vcenter, self._executor = stream, vcenter, executor
        self._ownership_index, self._clone_tracker = ownership_index, clone_tracker
        # When a group was last enqueued for the progress of a clone, by task.
        self.progress_reported_at: dict[str, float] = {}

    def connect(self, inventory: Inventory) -> None:
        inventory.connect(self.on_vm_change, VirtualMachine, include_stats=False)
        inventory.connect(self._on_folder_change, Folder)
        inventory.connect_tasks(self.on_task_change, CLONE_DESCRIPTION_ID)
        inventory.connect(
            self._on_placement_change, Datacenter, ComputeResource, ResourcePool, Datastore
        )

    def on_vm_change(self, change: Change[VirtualMachine]) -> None:
        old, new = change.old, change.new
        vms = [vm for vm in (old, new) if vm is not None]
        mark = self._ownership_index.marks.get(vms[0].ref)
        if mark is not None:
            notify_group(self._stream, mark.group_id.uid)
        is_structural = not (old and new) or (old.name, old.parent, old.is_template) != (
            new.name,
            new.parent,
            new.is_template,
        )
        if is_structural or (change.related_object_changed and vms[-1].is_template):
            for vm in vms:
                self._stream.notify(f"template:{vm.name}")
                self._notify_folder_of(vm)

    def on_vm_config_change(self, ref: str) -> None:
        """A VM in the folder of a group may be one that the group can adopt."""
        vm = self._vcenter.inventory.vms.get(ref)
        if vm is not None and ref not in self._ownership_index.marks:
            self._notify_folder_of(vm)

    def _notify_folder_of(self, vm: VirtualMachine) -> None:
        # By name for a group that has no folder in its status yet.
        self._stream.notify(f"folder:{vm.parent}")
        self._stream.notify(f"folder:{self._vcenter.inventory.name_of(vm.parent)}")

    def _on_folder_change(self, change: Change[Folder]) -> None:
        if not _is_structural(change):
            return
        for folder in (change.old, change.new):
            if folder is not None:
                self._stream.notify(f"folder:{folder.name}")
                self._stream.notify(f"folder:{folder.ref}")
                self._stream.notify(f"folder:{folder.parent}")

    def _on_placement_change(self, change: Change[Entity]) -> None:
        """A datacenter, compute resource, resource pool or datastore has changed.

        A new one can fix the placement of any group, and they change rarely.
        """
        old, new = change.old, change.new
        is_accessible_again = (
            isinstance(old, Datastore)
            and isinstance(new, Datastore)
            and new.accessible
            and not old.accessible
        )
        if is_accessible_again or _is_structural(change):
            self._stream.notify_all()

    def on_task_change(self, change: Change[Task]) -> None:
        """A clone task: of a group that reports its progress, or of another client."""
        old, new = change.old, change.new
        task = new or old
        if task is None:
            return
        has_ended = new is None or new.state in FINAL_TASK_STATES
        had_ended = old is not None and old.state in FINAL_TASK_STATES
        # A task of this process enqueues its own group when the executor handles its end. Otherwise
        # the end of each clone would enqueue all groups of the same template.
        if has_ended and not had_ended and task.ref not in self._clone_tracker.own_tasks:
            self._stream.notify(f"foreign-clone:{task.entity}")
        now, purpose = self._vcenter.clock(), self._executor.pending_tasks.get(task.ref)
        if old is None or new is None or old.state != new.state:
            self.progress_reported_at[task.ref] = now
        elif (
            purpose is not None
            and now - self.progress_reported_at.get(task.ref, now) >= PROGRESS_INTERVAL_SECONDS
        ):
            self.progress_reported_at[task.ref] = now
            notify_group(self._stream, purpose.group_uid)
        if has_ended:
            self.progress_reported_at.pop(task.ref, None)


def _is_structural(change: Change[Entity]) -> bool:
    """Whether the object was added, removed, renamed or moved."""
    old, new = change.old, change.new
    return (
        change.related_object_changed
        or old is None
        or new is None
        or (old.name, old.parent) != (new.name, new.parent)
    )
