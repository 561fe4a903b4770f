"""What this process remembers of a group: clone requests, effects not yet visible, back-offs.

It is not stored: a new process has only records, marks and the clone tasks in the inventory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import VirtualMachine
from .model import (
    CloneBlocked,
    CreationCause,
    OperationFailure,
    ReplicaRecord,
    ResourceAmount,
)
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

TaskEffect = Literal["poweredOn", "poweredOff", "reconfigured", "destroyed"]
CloneOutcome = Literal["unsent", "accepted", "rejected", "maybe_sent"]
Clock = Callable[[], float]


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
        # By MoRef: until when a request that changes the owner may still begin, because it has no
        # response.
        self.owner_changes: dict[str, float] = {}
        self.created_folder: CreatedFolder | None = None
        # When this process first saw a record of the group that another one has written.
        self.foreign_record_seen_at = 0.0
        self._seen_names: set[str] = set()
        # For Events and metrics only.
        self.creation_causes: dict[str, CreationCause] = {}
        self.refs_stopped_for_resize: set[str] = set()
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
        self._seen_names |= self._expected_names
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
        if not self._seen_names.issuperset(sizes):
            self.foreign_record_seen_at = self.clock()
            self._seen_names.update(sizes)
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

    def find_request(self, record: ReplicaRecord, loaded_at: float) -> CloneRequest | None:
        """What this process did for the attempt of the record.

        It has no task if the inventory was loaded again since then: vCenter may have been restored
        or replaced, and the task of that reference be another one.
        """
        request = self.clone_requests.get(record.name)
        if request is None or request.attempt != record.attempt:
            return None
        return request if request.loaded_at == loaded_at else replace(request, task="")

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
                "CRD of VmGroup is older than this manager. Apply the current CRD (kubectl apply "
                "--server-side -k config/crd; with Helm: helm upgrade with crds.install=true).",
            )

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget replicas with other names, and effects that have expired."""
        kept_keys, now = {FOLDER_KEY, *names}, self.clock()
        self._seen_names &= kept_keys
        self.unseen_effects = {
            ref: effect for ref, effect in self.unseen_effects.items() if effect.expires_at > now
        }
        for table in (self.clone_requests, self.backoffs, self.creation_causes):
            for name in [name for name in table if name not in kept_keys]:
                del table[name]

    def is_effect_pending(self, vm: VirtualMachine) -> bool:
        """Whether a task has succeeded on the VM and the inventory does not show its effect yet."""
        pending = self.unseen_effects.get(vm.ref)
        if pending is None or self.clock() >= pending.expires_at:
            return False
        if pending.effect in ("poweredOn", "poweredOff"):
            return vm.power != pending.effect
        return pending.effect == "destroyed" or vm.config_version == pending.config_version_before

    def is_owner_change_pending(self, vm: VirtualMachine) -> bool:
        """Whether a change that this process sent may not be visible yet."""
        may_begin = self.clock() < self.owner_changes.get(vm.ref, 0.0)
        return may_begin or vm.ref in self.busy_refs or self.is_effect_pending(vm)

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
        self._first_used_at = math.inf

    def for_group(self, uid: str) -> GroupMemory:
        self._first_used_at = min(self._first_used_at, self.clock())
        return self._by_uid.setdefault(uid, GroupMemory(self.clock))

    def acting_since(self, uid: str, loaded_at: float) -> float:
        """Since when no other manager can have sent a request for the group in the inventory of
        `loaded_at`.

        A standby loads the inventory long before it becomes the leader and reconciles a group. With
        shards, another replica may have had the group until this one saw its records.
        """
        memory = self._by_uid.get(uid)
        seen_at = memory.foreign_record_seen_at if memory is not None else 0.0
        return max(loaded_at, self._first_used_at, seen_at)

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


def _is_later_version(version: str, than: str) -> bool:
    """By resourceVersion, which the API server counts up. False if they cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
