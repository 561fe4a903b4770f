"""What may still be under way for a record: the part of the truth that no VM shows.

Who dies after sending a clone leaves no trace but a task on the template, which does not tell the name of the clone. So a clone of that
template that no record accounts for counts as this one; and where there is none, some seconds must pass before that means anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.inventory import Change
from ...vsphere.model import Task
from .model import CloneState, ReplicaRecord

_CLONE_SETTLE_SECONDS = 10.0
"""What vCenter has not begun so long after the sender died or gave up, it will not begin; and a VM is seen so soon after its task's end."""


class CloneTask(Struct, frozen=True, kw_only=True):
    """A clone task in the inventory; times are of our own clock."""

    ref: str
    template: str
    state: Literal["running", "success", "error"]
    seen_at_seconds: float = 0.0
    """When the inventory first showed it."""
    ended_at_seconds: float = 0.0
    """When the inventory showed its end."""


class CloneRequest(Struct, frozen=True, kw_only=True):
    """What this process last did for a record."""

    attempt: int
    """Of the record; once the record has another, this is void."""
    outcome: Literal["unsent", "answered", "refused", "unanswered"]
    """Stored only; a task came back; vCenter said no; no answer came."""
    task: str = ""
    updated_at_seconds: float = 0.0


def infer_clone_state(
    record: ReplicaRecord,
    tasks: Collection[CloneTask],
    accounted: Collection[str],
    sent: CloneRequest | None,
    watching_since: float,
    now: float,
) -> CloneState:
    """The flight of a record that has no VM.

    `accounted` are the tasks that the records of any group name, or their Sent. `watching_since` is when the inventory was last loaded;
    times are seconds of one clock.
    """
    known = sent if sent is not None and sent.attempt == record.attempt else None
    since = max(watching_since, known.updated_at_seconds if known else 0.0)
    if record.state == "Present" or (known and known.outcome == "refused"):
        return CloneState.ENDED
    if task := (known.task if known else "") or record.task:
        return _clone_state_of_task(
            next((each for each in tasks if each.ref == task), None), since, now
        )
    if known and known.outcome == "unsent":
        return CloneState.UNSENT
    candidates = [each for each in tasks if _is_candidate_task(record, each, accounted, since)]
    if any(each.state == "running" for each in candidates):
        return CloneState.RUNNING
    return _clone_state_after_settling(
        max([since, *(each.ended_at_seconds for each in candidates)]), now
    )


def _is_candidate_task(
    record: ReplicaRecord, task: CloneTask, accounted: Collection[str], since: float
) -> bool:
    """Whether a task may be the clone of this record; one that began later than ours could have, is not."""
    return (
        task.template == record.template
        and task.ref not in accounted
        and task.seen_at_seconds <= since + _CLONE_SETTLE_SECONDS
    )


def _clone_state_of_task(task: CloneTask | None, since: float, now: float) -> CloneState:
    """The flight of a record whose task is known; one that the inventory does not have is too new, or long forgotten."""
    if task is None:
        return _clone_state_after_settling(since, now)
    if task.state == "running":
        return CloneState.RUNNING
    return (
        CloneState.ENDED
        if task.state == "error"
        else _clone_state_after_settling(max(since, task.ended_at_seconds), now)
    )


def _clone_state_after_settling(since: float, now: float) -> CloneState:
    """Whether enough time passed."""
    return CloneState.ENDED if now - since >= _CLONE_SETTLE_SECONDS else CloneState.UNKNOWN


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
