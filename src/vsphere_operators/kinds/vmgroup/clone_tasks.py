"""The clone tasks of one vCenter, with the times at which we saw them begin and end, by our own clock."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ...vsphere.inventory import Change
from ...vsphere.model import Task
from .clone_state import CloneTask

CLONE_DESCRIPTION_ID = "VirtualMachine.clone"
_CLONE_TASK_STATES = {
    "queued": "running",
    "running": "running",
    "success": "success",
    "error": "error",
}


class CloneTaskTracker:
    """Hears of each task and keeps the clones; one that vCenter forgets without an end is forgotten here too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tasks: dict[str, CloneTask] = {}
        self.own_tasks: set[str] = set()
        """Tasks that this process started and vCenter has not forgotten."""

    def on_change(self, change: Change) -> None:
        """A task came, changed or went."""
        old, new = change.old, change.new
        if isinstance(new, Task):
            if new.description == CLONE_DESCRIPTION_ID:
                self._update_task(new)
        elif isinstance(old, Task):
            self.tasks.pop(old.ref, None)
            self.own_tasks.discard(old.ref)

    def _update_task(self, task: Task) -> None:
        """How a clone is now."""
        before, now, state = self.tasks.get(task.ref), self.clock(), _CLONE_TASK_STATES[task.state]
        seen = before or CloneTask(
            ref=task.ref, template=task.entity, state="running", seen_at_seconds=now
        )
        ended = (
            now
            if state != "running" and (before is None or before.state == "running")
            else seen.ended_at_seconds
        )
        self.tasks[task.ref] = replace(
            seen, template=task.entity, state=state, ended_at_seconds=ended
        )
