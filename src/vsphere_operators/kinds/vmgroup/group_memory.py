"""What this process remembers of a group: clone requests, effects not yet visible, back-offs.

Is it stored?  No. A new process has only records, marks and the clone tasks in the inventory.
Is a clone in progress for a record that has no VM?  A process that dies after CloneVM_Task leaves
    only a task on the template, and the task does not name the clone. So a clone task of the
    same template that no record has counts as this record's. Without one, the record is UNKNOWN
    for 10 s. See `infer_clone_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.inventory import Change
from ...vsphere.model import Task
from .model import CloneBlocked, CloneState, OperationFailure, ReplicaRecord, ResourceAmount
from .quota import SizesInProgress
from .reasons import Reason

# The original operator retries a transient fault after 20 s, and users rely on it.
OPERATION_BACKOFF_INITIAL_SECONDS = 20.0
OPERATION_BACKOFF_MAX_SECONDS = 300.0
# A task reports its end up to this long before the inventory shows its effect.
EFFECT_TIMEOUT_SECONDS = 10.0
# The key of the group's folder among the keys of replicas; no replica can have this name.
FOLDER_KEY = "(folder)"
# One lost write may be a conflict; five in a row mean an outdated CRD.
_MAX_LOST_WRITES = 5
# vCenter starts a request within this time after its sender died or gave up, or not at all; and
# the inventory shows a VM within this time after the end of its task (docs/designs/vmgroup.md, A2).
REQUEST_SETTLE_SECONDS = 10.0
CLONE_DESCRIPTION_ID = "VirtualMachine.clone"

TaskEffect = Literal["poweredOn", "poweredOff", "resized", "destroyed"]
CloneOutcome = Literal["unsent", "accepted", "rejected", "maybe_sent"]
Clock = Callable[[], float]


class CloneTask(Struct, frozen=True, kw_only=True):
    """A clone task in the inventory; the times are by the clock of this process."""

    ref: str
    template: str
    state: Literal["running", "success", "error"]
    # When the inventory first showed it.
    seen_at: float = 0.0
    # When the inventory showed its end.
    ended_at: float = 0.0


class CloneRequest(Struct, frozen=True, kw_only=True):
    """What this process last did for a record."""

    # The record's attempt; the request no longer counts when the record has another one.
    attempt: int
    # unsent: the record is stored. accepted: vCenter returned a task. rejected: vCenter returned a
    # fault. maybe_sent: the request is about to be sent, or no response was received.
    outcome: CloneOutcome
    task: str = ""
    # When the inventory was loaded in which the task is.
    loaded_at: float = 0.0
    updated_at: float = 0.0


class _BackoffEntry(Struct, frozen=True):
    """A failure and when the operation is retried."""

    failure: OperationFailure
    failure_count: int
    retry_at: float


class UnseenEffect(Struct, frozen=True):
    """The effect of a task that has succeeded and that the inventory does not show yet."""

    effect: TaskEffect
    expires_at: float
    # The VM's config_version when the task started.
    config_version_before: str = ""


class CreatedFolder(Struct, frozen=True):
    """A folder that CreateFolder returned; it counts until the inventory shows it or it expires."""

    ref: str
    expires_at: float


class GroupMemory:
    """One group. Replicas are keyed by recorded name, VMs by reference."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.clone_requests: dict[str, CloneRequest] = {}
        self.backoffs: dict[str, _BackoffEntry] = {}
        self.unseen_effects: dict[str, UnseenEffect] = {}
        # VMs and folders with a task of this process that has not ended.
        self.busy_refs: set[str] = set()
        self.created_folder: CreatedFolder | None = None
        self._generation = 0
        # Names of the records of the last write, and how often in a row none of them was stored.
        self._expected_names: set[str] = set()
        self._lost_writes = 0
        # Sizes by replica that are about to be stored, for the quota; and those of the last write.
        self.reserved_sizes: dict[str, ResourceAmount] = {}
        self._last_sizes: dict[str, ResourceAmount] = {}
        self._version_before_write = ""

    def expect_records(
        self,
        before: Iterable[ReplicaRecord],
        after: Iterable[ReplicaRecord],
        resource_version: str = "",
    ) -> None:
        """Remember that `after` is about to be stored: its new attempts are unsent.

        The write is conditional on `resource_version`, that of `before`.

        A record that it drops or lets terminate is no longer unsent: the write may be stored
        without a response, and then the cache still has the record as it was.
        """
        before, after = tuple(before), tuple(after)
        kept_names = {record.name for record in after if not record.terminating}
        for record in before:
            request = self.clone_requests.get(record.name)
            if record.name not in kept_names and request and request.outcome == "unsent":
                del self.clone_requests[record.name]
        attempts = {record.name: record.attempt for record in before}
        self._expected_names = {record.name for record in after}
        self._last_sizes = {record.name: record.size for record in after}
        self._version_before_write = resource_version
        for name, size in self._last_sizes.items():
            self.reserved_sizes[name] = size.larger(self.reserved_sizes.get(name, size))
        for record in after:
            if attempts.get(record.name) == record.attempt:
                continue
            if record.state == "Planned":
                self.record_clone(record, "unsent")
            elif record.state == "Cloning":
                # The record of an adopted VM: another process may have sent its clone.
                self.record_clone(record, "maybe_sent")

    def observe_records(self, stored: Iterable[ReplicaRecord], resource_version: str = "") -> None:
        """Forget the reserved sizes if the last write is stored, or cannot be any more.

        A write that is not visible may have been stored all the same: its response may be late.
        Once the object has a later version, the write is in it, or was in conflict with it.
        """
        sizes = {record.name: record.size for record in stored}
        if _is_later_version(resource_version, self._version_before_write) or all(
            name in sizes and size.larger(sizes[name]) == sizes[name]
            for name, size in self._last_sizes.items()
        ):
            self.reserved_sizes, self._last_sizes = {}, {}

    def record_clone(
        self,
        record: ReplicaRecord,
        outcome: CloneOutcome,
        task: str = "",
        loaded_at: float = 0.0,
    ) -> None:
        self.clone_requests[record.name] = CloneRequest(
            attempt=record.attempt,
            outcome=outcome,
            task=task,
            loaded_at=loaded_at,
            updated_at=self.clock(),
        )

    def check_writes_kept(self, stored_names: Iterable[str]) -> None:
        """Raise CloneBlocked when the API server keeps dropping the records.

        It drops fields that its CRD does not have. Without this check the group would store its
        first records again and again.
        """
        kept = not self._expected_names or not self._expected_names.isdisjoint(stored_names)
        self._lost_writes, self._expected_names = 0 if kept else self._lost_writes + 1, set()
        if self._lost_writes >= _MAX_LOST_WRITES:
            raise CloneBlocked(
                Reason.CRD_OUTDATED,
                "The API server does not keep status.replicas, so no VM is created: the installed "
                "CRD of VmGroup is older than this manager. Apply the current CRD (make install, "
                "or kubectl apply -k config/crd).",
            )

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget replicas with other names, and effects that have expired."""
        kept_keys, now = {FOLDER_KEY, *names}, self.clock()
        self.unseen_effects = {
            ref: effect for ref, effect in self.unseen_effects.items() if effect.expires_at > now
        }
        for table in (self.clone_requests, self.backoffs):
            for name in [name for name in table if name not in kept_keys]:
                del table[name]

    def record_failure(self, name: str, failure: OperationFailure) -> None:
        """Back off for 20 s, then 40 s and so on, up to 5 minutes."""
        previous = self.backoffs.get(name)
        failure_count = previous.failure_count + 1 if previous else 1
        delay_seconds = min(
            OPERATION_BACKOFF_INITIAL_SECONDS * 2.0 ** (failure_count - 1),
            OPERATION_BACKOFF_MAX_SECONDS,
        )
        self.backoffs[name] = _BackoffEntry(failure, failure_count, self.clock() + delay_seconds)

    def record_success(self, name: str) -> None:
        self.backoffs.pop(name, None)

    def active_failures(self) -> dict[str, OperationFailure]:
        """The failures with a retry in the future, by replica."""
        now = self.clock()
        return {
            name: entry.failure for name, entry in self.backoffs.items() if entry.retry_at > now
        }

    def seconds_until_retry(self) -> float | None:
        """The time until the first retry; None if nothing backs off."""
        now = self.clock()
        return min(
            (entry.retry_at - now for entry in self.backoffs.values() if entry.retry_at > now),
            default=None,
        )

    def observe_generation(self, generation: int) -> None:
        """End all back-offs when the spec has changed: the change may be the fix."""
        if generation != self._generation:
            self.backoffs.clear()
        self._generation = generation


class GroupMemoryStore:
    """All groups in one vCenter, by uid."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._by_uid: dict[str, GroupMemory] = {}
        self.sizes_in_progress = SizesInProgress(clock)

    def for_group(self, uid: str) -> GroupMemory:
        return self._by_uid.setdefault(uid, GroupMemory(self.clock))

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)
        self.sizes_in_progress.forget(uid)

    def list_sent_tasks(self, loaded_at: float) -> set[str]:
        """The clone tasks that this process started since the inventory was loaded."""
        return {
            request.task
            for memory in self._by_uid.values()
            for request in memory.clone_requests.values()
            # Between two loads vCenter may be restored or replaced. Then the reference of an
            # earlier task is that of another clone, which no record has.
            if request.task and request.loaded_at == loaded_at
        }


class CloneTaskTracker:
    """Keeps the clone tasks of one vCenter until vCenter drops them from its list."""

    def __init__(self, clock: Clock) -> None:
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


def _is_later_version(version: str, than: str) -> bool:
    """By resourceVersion, which the API server counts up. False if they cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def infer_clone_state(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    assigned_tasks: Collection[str],
    request: CloneRequest | None,
    watching_since: float,
    now: float,
) -> CloneState:
    """The clone state of a record that has no VM.

    `assigned_tasks` are the tasks of the records of all groups and of this process' requests.
    `watching_since` is when the inventory was last loaded. Times are seconds of one clock.
    """
    if request is not None and request.attempt != record.attempt:
        request = None
    since = max(watching_since, request.updated_at if request else 0.0)
    if record.state == "Present" or (request and request.outcome == "rejected"):
        return CloneState.NOT_IN_PROGRESS
    if task_ref := (request.task if request else "") or record.task:
        return _clone_state_of_task(tasks.get(task_ref), since, now)
    if request and request.outcome == "unsent":
        return CloneState.UNSENT
    candidates = _find_possible_tasks(record, tasks, assigned_tasks, since)
    if any(task.state == "running" for task in candidates):
        return CloneState.RUNNING
    return _clone_state_after_settling(max([since, *(task.ended_at for task in candidates)]), now)


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
    assigned_tasks: Collection[str],
    request: CloneRequest | None,
    watching_since: float,
    now: float,
) -> bool:
    """Whether a clone may still write the VM of a record; the arguments of `infer_clone_state`.

    vCenter shows a VM long before its clone ends, and rejects other tasks on it until then.
    """
    if request is not None and request.attempt != record.attempt:
        request = None
    own_task = tasks.get((request.task if request else "") or record.task)
    # If the own task has failed, such as with DuplicateName, another one created the VM.
    if own_task is not None and own_task.state != "error":
        return own_task.state == "running"
    if record.state == "Present":
        return False
    since = max(watching_since, request.updated_at if request else 0.0)
    return now - since < REQUEST_SETTLE_SECONDS or any(
        task.state == "running"
        for task in _find_possible_tasks(record, tasks, assigned_tasks, since)
    )


def _find_possible_tasks(
    record: ReplicaRecord,
    tasks: Mapping[str, CloneTask],
    assigned_tasks: Collection[str],
    since: float,
) -> list[CloneTask]:
    """The clone tasks that no record has and that may be this record's."""
    return [
        task
        for task in tasks.values()
        # The record of an adopted VM does not have the template.
        if record.template in ("", task.template)
        and task.ref not in assigned_tasks
        # A task that began later than this request could have is not its task.
        and task.seen_at <= since + REQUEST_SETTLE_SECONDS
    ]


def _clone_state_of_task(task: CloneTask | None, since: float, now: float) -> CloneState:
    if task is None:
        # The inventory does not show it yet, or vCenter has dropped it from its list.
        return _clone_state_after_settling(since, now)
    if task.state == "running":
        return CloneState.RUNNING
    if task.state == "error":
        return CloneState.NOT_IN_PROGRESS
    return _clone_state_after_settling(max(since, task.ended_at), now)


def _clone_state_after_settling(since: float, now: float) -> CloneState:
    return (
        CloneState.NOT_IN_PROGRESS if now - since >= REQUEST_SETTLE_SECONDS else CloneState.UNKNOWN
    )
