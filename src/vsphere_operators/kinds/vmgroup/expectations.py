"""What this process has sent and awaits: what a plan needs in addition to records and inventory.

None of it is stored. A new process has only records, marks and clone tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from .clone_state import CloneRequest
from .model import CloneBlocked, OperationFailure, ReplicaRecord
from .reasons import Reason

# The contract: a transient fault is retried after 20 s.
INITIAL_BACKOFF_SECONDS = 20.0
MAX_BACKOFF_SECONDS = 300.0
# A task reports its end up to this long before the inventory shows its effect.
EFFECT_TIMEOUT_SECONDS = 10.0
# The key of the group's folder among the keys of replicas; no replica can have this name.
FOLDER_KEY = "(folder)"
# One lost write may be a conflict; so many in a row are not.
_MAX_LOST_WRITES = 5

Effect = Literal["poweredOn", "poweredOff", "resized", "destroyed"]
Clock = Callable[[], float]


class BackoffEntry(Struct, frozen=True):
    """A failure and when the operation is retried."""

    failure: OperationFailure
    failure_count: int
    retry_at: float


class PendingEffect(Struct, frozen=True):
    """A task has succeeded; the inventory does not show its effect yet."""

    effect: Effect
    expires_at: float
    # The VM's config_version when the task started.
    config_version_before: str = ""


class CreatedFolder(Struct, frozen=True):
    """A folder that CreateFolder returned; it counts until the inventory shows it or it expires."""

    ref: str
    expires_at: float


class Expectations:
    """One group's expectations. Replicas are keyed by recorded name, VMs by reference."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.clone_requests: dict[str, CloneRequest] = {}
        self.backoffs: dict[str, BackoffEntry] = {}
        self.pending_effects: dict[str, PendingEffect] = {}
        # VMs and folders with a task of this process that has not ended.
        self.busy_refs: set[str] = set()
        self.created_folder: CreatedFolder | None = None
        self._generation = 0
        # Names of the records of the last write, and how often in a row none of them was stored.
        self._expected_names: set[str] = set()
        self._lost_writes = 0

    def expect_records(
        self, before: Iterable[ReplicaRecord], after: Iterable[ReplicaRecord]
    ) -> None:
        """Remember that `after` is about to be stored: its new attempts are unsent."""
        attempts = {record.name: record.attempt for record in before}
        self._expected_names = {record.name for record in after}
        for record in after:
            if record.state == "Planned" and attempts.get(record.name) != record.attempt:
                self.clone_requests[record.name] = CloneRequest(
                    attempt=record.attempt, outcome="unsent", updated_at_seconds=self.clock()
                )

    def check_writes_kept(self, records: Iterable[ReplicaRecord]) -> None:
        """Raise CloneBlocked when the API server keeps dropping the records.

        It drops the fields that its CRD does not have. Without records each reconcile would clone
        again.
        """
        kept = not self._expected_names or any(
            record.name in self._expected_names for record in records
        )
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
        known, now = {FOLDER_KEY, *names}, self.clock()
        self.pending_effects = {
            ref: effect for ref, effect in self.pending_effects.items() if effect.expires_at > now
        }
        for table in (self.clone_requests, self.backoffs):
            for name in [name for name in table if name not in known]:
                del table[name]

    def record_failure(self, name: str, failure: OperationFailure) -> None:
        """Back off for 20 s, then 40 s and so on, up to 5 minutes."""
        previous = self.backoffs.get(name)
        failure_count = previous.failure_count + 1 if previous else 1
        pause = min(INITIAL_BACKOFF_SECONDS * 2.0 ** (failure_count - 1), MAX_BACKOFF_SECONDS)
        self.backoffs[name] = BackoffEntry(failure, failure_count, self.clock() + pause)

    def record_success(self, name: str) -> None:
        self.backoffs.pop(name, None)

    def active_failures(self) -> dict[str, OperationFailure]:
        """The failures that are still backing off, by replica."""
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


class ExpectationStore:
    """The expectations of all groups in one vCenter, by uid."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._by_uid: dict[str, Expectations] = {}

    def for_group(self, uid: str) -> Expectations:
        return self._by_uid.setdefault(uid, Expectations(self.clock))

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)

    def list_sent_tasks(self) -> set[str]:
        """The clone tasks that this process started for a record of any group."""
        return {
            request.task
            for expectations in self._by_uid.values()
            for request in expectations.clone_requests.values()
            if request.task
        }
