"""Is a clone in progress for a record that has no VM?

A process that dies after sending CloneVM_Task leaves only a task on the template, and the task does
not name the clone. So a clone task of the same template that no record claims counts as this
record's. If there is no such task, some seconds must pass before that proves anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.inventory import Change
from ...vsphere.model import Task
from .model import CloneState, ReplicaRecord

# vCenter starts a request within this time after its sender died or gave up, or not at all; and
# the inventory shows a VM within this time after the end of its task (docs/designs/vmgroup.md, A2).
_CLONE_SETTLE_SECONDS = 10.0

CLONE_DESCRIPTION_ID = "VirtualMachine.clone"
_CLONE_TASK_STATES = {
    "queued": "running",
    "running": "running",
    "success": "success",
    "error": "error",
}


class CloneTask(Struct, frozen=True, kw_only=True):
    """A clone task in the inventory; the times are by the clock of this process."""

    ref: str
    template: str
    state: Literal["running", "success", "error"]
    # When the inventory first showed it.
    seen_at_seconds: float = 0.0
    # When the inventory showed its end.
    ended_at_seconds: float = 0.0


class CloneRequest(Struct, frozen=True, kw_only=True):
    """What this process last did for a record."""

    # The record's attempt; the request is void once the record has another one.
    attempt: int
    # unsent: the record is stored. answered: vCenter returned a task. refused: vCenter returned a
    # fault. unanswered: sent, and no response was received.
    outcome: Literal["unsent", "answered", "refused", "unanswered"]
    task: str = ""
    updated_at_seconds: float = 0.0


class CloneTaskTracker:
    """Keeps the clone tasks of one vCenter until vCenter drops them from its list."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tasks: dict[str, CloneTask] = {}
        # The tasks that this process started.
        self.own_tasks: set[str] = set()

    def on_task_change(self, change: Change) -> None:
        old, task = change.old, change.new
        if isinstance(task, Task):
            if task.description == CLONE_DESCRIPTION_ID:
                self._update(task)
        elif isinstance(old, Task):
            self.tasks.pop(old.ref, None)
            self.own_tasks.discard(old.ref)

    def _update(self, task: Task) -> None:
        known, now, state = self.tasks.get(task.ref), self.clock(), _CLONE_TASK_STATES[task.state]
        clone_task = known or CloneTask(
            ref=task.ref, template=task.entity, state="running", seen_at_seconds=now
        )
        has_just_ended = state != "running" and (known is None or known.state == "running")
        self.tasks[task.ref] = replace(
            clone_task,
            template=task.entity,
            state=state,
            ended_at_seconds=now if has_just_ended else clone_task.ended_at_seconds,
        )


def infer_clone_state(
    record: ReplicaRecord,
    tasks: Collection[CloneTask],
    claimed_tasks: Collection[str],
    request: CloneRequest | None,
    watching_since: float,
    now: float,
) -> CloneState:
    """The clone state of a record that has no VM.

    `claimed_tasks` are the tasks of the records of all groups and of this process' requests.
    `watching_since` is when the inventory was last loaded. Times are seconds of one clock.
    """
    if request is not None and request.attempt != record.attempt:
        request = None
    since = max(watching_since, request.updated_at_seconds if request else 0.0)
    if record.state == "Present" or (request and request.outcome == "refused"):
        return CloneState.ENDED
    if task_ref := (request.task if request else "") or record.task:
        task = next((task for task in tasks if task.ref == task_ref), None)
        return _clone_state_of_task(task, since, now)
    if request and request.outcome == "unsent":
        return CloneState.UNSENT
    candidates = [
        task
        for task in tasks
        if task.template == record.template
        and task.ref not in claimed_tasks
        # A task that began later than this request could have is not its task.
        and task.seen_at_seconds <= since + _CLONE_SETTLE_SECONDS
    ]
    if any(task.state == "running" for task in candidates):
        return CloneState.RUNNING
    return _clone_state_after_settling(
        max([since, *(task.ended_at_seconds for task in candidates)]), now
    )


def _clone_state_of_task(task: CloneTask | None, since: float, now: float) -> CloneState:
    if task is None:
        # The inventory does not show it yet, or vCenter has dropped it from its list.
        return _clone_state_after_settling(since, now)
    if task.state == "running":
        return CloneState.RUNNING
    if task.state == "error":
        return CloneState.ENDED
    return _clone_state_after_settling(max(since, task.ended_at_seconds), now)


def _clone_state_after_settling(since: float, now: float) -> CloneState:
    return CloneState.ENDED if now - since >= _CLONE_SETTLE_SECONDS else CloneState.UNKNOWN
