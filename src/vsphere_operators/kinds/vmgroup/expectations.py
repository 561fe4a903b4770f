"""What this process did and what came of it: what a plan needs beside stored records and inventory. It ends with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from .clone_state import CloneRequest
from .model import CloneBlocked, OperationFailure, ReplicaRecord

INITIAL_BACKOFF_SECONDS = 20.0
MAX_BACKOFF_SECONDS = 300.0
EFFECT_TIMEOUT_SECONDS = 10.0
"""How long an effect that a task has reported may take to be seen in the inventory."""

_MAX_LOST_WRITES = 5
NO_CREATED_FOLDER = ("", 0.0)
Effect = Literal["poweredOn", "poweredOff", "resized", "destroyed"]
Clock = Callable[[], float]


class BackoffEntry(Struct, frozen=True):
    """Something went wrong with a replica, and is tried again later."""

    failure: OperationFailure
    failure_count: int
    retry_at: float


class PendingEffect(Struct, frozen=True):
    """A task has ended well; its effect is on the way to us."""

    effect: Effect
    expires_at: float
    config_version_before: str = ""
    """The VM's config_version when it began."""


class Expectations:
    """Of one group. Replicas by recorded name, VMs by reference."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.generation = 0
        self._expected_names: set[str] = set()
        """Names of the records that were to be stored last."""
        self._lost_writes = 0
        """How often in a row none of them was there afterwards."""
        self.clone_requests: dict[str, CloneRequest] = {}
        self.backoffs: dict[str, BackoffEntry] = {}
        self.pending_effects: dict[str, PendingEffect] = {}
        self.busy_refs: set[str] = set()
        """VMs on which we have started something whose end we have not heard of."""
        self.created_folder: tuple[str, float] = NO_CREATED_FOLDER
        """A folder that was made just now, and until when that counts although the inventory has not shown it."""

    def expect_records(
        self, before: Iterable[ReplicaRecord], after: Iterable[ReplicaRecord]
    ) -> None:
        """These records are about to be stored: what is new in them is unsent, if and when it is seen stored."""
        attempts = {each.name: each.attempt for each in before}
        self._expected_names = {each.name for each in after}
        for each in after:
            if each.state == "Planned" and attempts.get(each.name) != each.attempt:
                self.clone_requests[each.name] = CloneRequest(
                    attempt=each.attempt, outcome="unsent", updated_at_seconds=self.clock()
                )

    def check_writes_kept(self, records: Iterable[ReplicaRecord]) -> None:
        """Raise when what we store does not stay, again and again: the API server drops what its CRD does not know."""
        stays = not self._expected_names or any(
            each.name in self._expected_names for each in records
        )
        self._lost_writes, self._expected_names = 0 if stays else self._lost_writes + 1, set()
        if self._lost_writes >= _MAX_LOST_WRITES:
            raise CloneBlocked(
                "CRDOutdated",
                "the API server does not keep status.replicas, so nothing is created: the CRD of VmGroup is older than this manager; "
                "apply the new one (make install, or kubectl apply -k config/crd)",
            )

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget replicas that are no more, and effects that must have been seen by now."""
        known, now = set(names), self.clock()
        self.pending_effects = {
            ref: glow for ref, glow in self.pending_effects.items() if glow.expires_at > now
        }
        for table in (self.clone_requests, self.backoffs):
            for name in [each for each in table if each not in known]:
                del table[name]

    def record_failure(self, name: str, trouble: OperationFailure) -> None:
        """Something went wrong: 20 s of rest, then 40, and so on."""
        before = self.backoffs.get(name)
        times = before.failure_count + 1 if before else 1
        pause = min(INITIAL_BACKOFF_SECONDS * 2.0 ** (times - 1), MAX_BACKOFF_SECONDS)
        self.backoffs[name] = BackoffEntry(trouble, times, self.clock() + pause)

    def record_success(self, name: str) -> None:
        """Something went well."""
        self.backoffs.pop(name, None)

    def active_failures(self) -> dict[str, OperationFailure]:
        """What rests now."""
        now = self.clock()
        return {name: each.failure for name, each in self.backoffs.items() if each.retry_at > now}

    def seconds_until_retry(self) -> float | None:
        """When the first of those that rest is tried again."""
        now = self.clock()
        return min(
            (each.retry_at - now for each in self.backoffs.values() if each.retry_at > now),
            default=None,
        )

    def observe_generation(self, generation: int) -> None:
        """A look at the object; if the wish is another one, what failed under the old one is tried at once."""
        if generation != self.generation:
            self.backoffs.clear()
        self.generation = generation
