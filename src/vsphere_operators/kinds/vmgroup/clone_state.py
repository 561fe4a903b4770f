"""Whether a clone is in progress for a record, from the clone tasks in the inventory.

Which task is the clone of a record?  The one that vCenter returned for it. A process that dies
    before the response leaves only a task on the template, and the task does not name the clone. So
    a clone task of the same template that this process did not send counts as this record's.
    Without one, the record is UNKNOWN for 10 s. See `infer_clone_state`.
Does the reference in a record identify the task?  Not after a restore of vCenter from a backup: it
    then uses references again. Only a task of the record's template that was listed from the start
    may be the clone, and its failure does not prove that no VM exists: see `_find_own_task` and
    `may_have_been_cloned`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.inventory import Change
from ...vsphere.model import Task
from .group_memory import CloneRequest, GroupMemory
from .model import CloneState, ReplicaRecord

# vCenter starts a request within this time after its sender died or gave up, or not at all; and
# the inventory shows a VM within this time after the end of its task (docs/designs/vmgroup.md, A2).
REQUEST_SETTLE_SECONDS = 10.0
CLONE_DESCRIPTION_ID = "VirtualMachine.clone"


class CloneTask(Struct, frozen=True, kw_only=True):
    """A clone task in the inventory; the times are by the clock of this process."""

    ref: str
    template: str
    state: Literal["running", "success", "error"]
    # When the inventory first showed it.
    seen_at: float = 0.0
    # When the inventory showed its end.
    ended_at: float = 0.0


class CloneTaskTracker:
    """Keeps the clone tasks of one vCenter until vCenter drops them from its list."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tasks: dict[str, CloneTask] = {}
        # The tasks that this process started.
        self.own_tasks: set[str] = set()

    def on_task_change(self, change: Change[Task]) -> None:
        old, task = change.old, change.new
        if task is not None:
            self._update(task)
        elif old is not None:
            self.tasks.pop(old.ref, None)
            self.own_tasks.discard(old.ref)

    def _update(self, task: Task) -> None:
        now, state = self.clock(), "running" if task.state == "queued" else task.state
        clone_task = self.tasks.get(task.ref) or CloneTask(
            ref=task.ref, template=task.entity, state="running", seen_at=now
        )
        has_just_ended = state != "running" and clone_task.state == "running"
        self.tasks[task.ref] = replace(
            clone_task,
            template=task.entity,
            state=state,
            ended_at=now if has_just_ended else clone_task.ended_at,
        )


def with_task(record: ReplicaRecord, memory: GroupMemory) -> ReplicaRecord:
    """The record with the task that vCenter returned for it, which may not be stored yet."""
    request = memory.clone_requests.get(record.name)
    if request and request.attempt == record.attempt and request.task and record.state == "Planned":
        return replace(record, state="Cloning", task=request.task)
    return record


def infer_clone_state(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    sent_tasks: Collection[str],
    request: CloneRequest | None,
    acting_since: float,
    now: float,
) -> CloneState:
    """The clone state of a record that has no VM.

    `request` is that of `GroupMemory.find_request`; `sent_tasks` and `acting_since` are those of
    `GroupMemoryStore`. Times are seconds of one clock.
    """
    since = max(acting_since, request.updated_at if request else 0.0)
    if record.state == "Present" or (request and request.outcome == "rejected"):
        return CloneState.NOT_IN_PROGRESS
    is_sent = request is not None and bool(request.task)
    if is_sent or record.task:
        task = _find_own_task(record, tasks, request, acting_since)
        if task is None:
            # The inventory does not show it yet, or vCenter has dropped it from its list.
            return _settle(since, now)
        if task.state == "running":
            return CloneState.RUNNING
        if task.state == "error" and is_sent:
            return CloneState.NOT_IN_PROGRESS
        # After an error too: it may be that of another clone. Until then it is known whether VMs
        # are missing, as after a restore of vCenter.
        return _settle(max(since, task.ended_at), now)
    if request and request.outcome == "unsent":
        return CloneState.UNSENT
    candidates = _find_possible_tasks(record, tasks, sent_tasks, since)
    if any(task.state == "running" for task in candidates):
        return CloneState.RUNNING
    return _settle(max([since, *(task.ended_at for task in candidates)]), now)


def reset_if_replaced(record: ReplicaRecord, last_known_ref: str, ref: str) -> ReplicaRecord:
    """The record of the visible VM `ref`, Cloning without a task if it is about an earlier VM.

    The object may be stale: since then, that VM was deleted, and a clone that may not have ended
    created this one. The task in the record is that of the earlier VM.
    """
    if last_known_ref in ("", ref):
        return record
    return replace(record, state="Cloning", task="")


def is_clone_unfinished(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    sent_tasks: Collection[str],
    request: CloneRequest | None,
    acting_since: float,
    now: float,
) -> bool:
    """Whether a clone may still write the VM of a record; the arguments of `infer_clone_state`.

    vCenter shows a VM long before its clone ends, and rejects other tasks on it until then.
    """
    own_task = _find_own_task(record, tasks, request, acting_since)
    # If the own task has failed, such as with DuplicateName, another one created the VM.
    if own_task is not None and own_task.state != "error":
        return own_task.state == "running"
    if record.state == "Present":
        return False
    since = max(acting_since, request.updated_at if request else 0.0)
    return now - since < REQUEST_SETTLE_SECONDS or any(
        task.state == "running" for task in _find_possible_tasks(record, tasks, sent_tasks, since)
    )


def _find_own_task(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    request: CloneRequest | None,
    acting_since: float,
) -> CloneTask | None:
    """The clone task of a record; None if vCenter does not list it.

    After a restore of vCenter, the reference in the record may be that of another clone.
    """
    if request is not None and request.task:
        return tasks.get(request.task)
    task = tasks.get(record.task)
    if task is None or task.seen_at > acting_since + REQUEST_SETTLE_SECONDS:
        return None
    return task if record.template in ("", task.template) else None


def _find_possible_tasks(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    sent_tasks: Collection[str],
    since: float,
) -> list[CloneTask]:
    """The clone tasks of other clients or of an earlier manager that may be this record's."""
    return [
        task
        for task in tasks.values()
        # The record of an adopted VM does not have the template.
        if record.template in ("", task.template)
        and task.ref not in sent_tasks
        # A task that began later than this request could have is not its task.
        and task.seen_at <= since + REQUEST_SETTLE_SECONDS
    ]


def _settle(since: float, now: float) -> CloneState:
    return (
        CloneState.NOT_IN_PROGRESS if now - since >= REQUEST_SETTLE_SECONDS else CloneState.UNKNOWN
    )


def may_have_had_vm(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    request: CloneRequest | None,
    acting_since: float,
) -> bool:
    """Whether a VM has existed for the record, or may have."""
    # The record of an adopted VM is in state Cloning without a task.
    if record.state == "Present" or (record.state == "Cloning" and not record.task):
        return True
    # vCenter drops a task from its list some time after its end.
    task = _find_own_task(record, tasks, request, acting_since)
    return bool(record.task) and (task is None or task.state == "success")


def may_have_been_cloned(request: CloneRequest | None) -> bool:
    """Whether the end of a record's clone is unknown: it has no task, or perhaps that of another.

    `request` is that of `GroupMemory.find_request`, and the record has had no VM that is known.
    """
    return request is None or (request.outcome in ("maybe_sent", "accepted") and not request.task)
