"""What VmGroups stand on: a workshop for each vCenter, and one stream that wakes the groups which a change concerns.

A name on the stream says what changed: `uid:` a group's own VMs or operations, `template:` and `folder:` something of that name or
reference, `source:` the end of a stranger's clone of that template, `owner:` whose turn it is. Changes of load wake nobody.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kubewright import Stream

from ...vcenters.registry import VCenterRegistry
from ...vsphere.inventory import Change
from ...vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Folder,
    ResourcePool,
    Task,
    VirtualMachine,
    VirtualMachineStats,
)
from ...vsphere.task_limiter import FINAL_STATES
from ...vsphere.vcenter import VCenter
from .clone_state import CLONE_DESCRIPTION_ID
from .executor import Executor

PROGRESS_INTERVAL_SECONDS = 5.0
"""How often the progress of a clone is worth a write."""


class VmGroupTriggers:
    """All workshops, and the stream."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self.vcenters = vcenters
        self.stream = Stream()
        self.progress_published_at: dict[str, float] = {}
        """When somebody was last woken for a clone's progress, by task."""
        self.executors = {
            name: self._create_executor(vcenter)
            for name, vcenter in vcenters.vcenters_by_name.items()
        }

    def _create_executor(self, vcenter: VCenter) -> Executor:
        """The workshop of one vCenter, connected to the stream."""
        made = Executor(vcenter, self.wake_group)
        vcenter.inventory.connect(
            partial(self.on_change, made),
            VirtualMachine,
            Folder,
            Datacenter,
            ComputeResource,
            ResourcePool,
            Datastore,
            Task,
        )
        vcenter.task_limiter.slot_freed.connect(lambda owner: self.stream.publish(f"owner:{owner}"))
        vcenter.state_changed.connect(self.stream.publish_all)
        return made

    def wake_group(self, uid: str) -> None:
        """Something of this group changed."""
        self.stream.publish(f"uid:{uid}")

    def on_change(self, workshop: Executor, change: Change) -> None:
        """Wake those whom a change in a vCenter concerns."""
        old, new = change.old, change.new
        match new or old:
            case VirtualMachine():
                self.on_vm_change(workshop, change)
            case Folder() if _is_structural(change):
                for folder in (each for each in (old, new) if isinstance(each, Folder)):
                    for name in (
                        f"folder:{folder.name}",
                        f"folder:{folder.ref}",
                        f"folder:{folder.parent}",
                    ):
                        self.stream.publish(name)
            case Datacenter() | ComputeResource() | ResourcePool() | Datastore() if _is_structural(
                change
            ):
                self.stream.publish_all()
            case Datastore(accessible=True) if isinstance(old, Datastore) and not old.accessible:
                self.stream.publish_all()
            case Task():
                self._on_task_change(workshop, change)

    def on_vm_change(self, workshop: Executor, change: Change) -> None:
        """A VM: of a group, a template, or something in a group's folder."""
        old, new = (
            each if isinstance(each, VirtualMachine) else None for each in (change.old, change.new)
        )
        known = [each for each in (old, new) if each is not None]
        if (
            old is not None
            and new is not None
            and replace(old, stats=VirtualMachineStats())
            == replace(new, stats=VirtualMachineStats())
            and not change.dependency_changed
        ):
            return
        mark = workshop.ownership_index.marks.get(known[0].ref)
        if mark is not None:
            self.wake_group(mark.group_id.uid)
        moved = not (old and new) or (old.name, old.parent, old.is_template) != (
            new.name,
            new.parent,
            new.is_template,
        )
        if moved or (change.dependency_changed and known[-1].is_template):
            for each in known:
                self.stream.publish(f"template:{each.name}")
                self.stream.publish(f"folder:{each.parent}")
                self.stream.publish(f"folder:{workshop.vcenter.inventory.name_of(each.parent)}")

    def _on_task_change(self, workshop: Executor, change: Change) -> None:
        """A clone: of a group that shows its progress, or a stranger's, whose end somebody may have been waiting for."""
        old, new = (each if isinstance(each, Task) else None for each in (change.old, change.new))
        known = new or old
        if known is None or known.description != CLONE_DESCRIPTION_ID:
            return
        started, now, moved = (
            workshop.pending_tasks.get(known.ref),
            workshop.clock(),
            old is None or new is None or old.state != new.state,
        )
        over, was_over = (
            new is None or new.state in FINAL_STATES,
            old is not None and old.state in FINAL_STATES,
        )
        # Ours wakes its own group, through its operation: with many groups of one template, each end would wake them all.
        if over and not was_over and known.ref not in workshop.clone_tracker.own_tasks:
            self.stream.publish(f"source:{known.entity}")
        if moved:
            self.progress_published_at[known.ref] = now
        elif (
            started is not None
            and now - self.progress_published_at.get(known.ref, now) >= PROGRESS_INTERVAL_SECONDS
        ):
            self.progress_published_at[known.ref] = now
            self.wake_group(started.group_id.uid)
        if over:
            self.progress_published_at.pop(known.ref, None)


def _is_structural(change: Change) -> bool:
    """Whether something came, went, was renamed or moved."""
    old, new = change.old, change.new
    return (
        change.dependency_changed
        or old is None
        or new is None
        or (getattr(old, "name", ""), getattr(old, "parent", ""))
        != (
            getattr(new, "name", ""),
            getattr(new, "parent", ""),
        )
    )
