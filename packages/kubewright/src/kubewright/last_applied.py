"""Remembers what was applied, to send nothing while nothing changed.

For each child it has the digest of the desired content, and what the live object had at the same
places after the apply, since the server writes some values in another form. The memory is a hint: a
new process, or a new leader, begins without it and compares the content itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from .comparison import Comparison, compare
from .errors import Retry
from .kind import Key, Object
from .ownership import DIGEST_ANNOTATION, DesiredChild

# Two clients that set one field to different values would otherwise write without end.
_MAX_REPAIRS, _REPAIR_WINDOW_SECONDS = 10, 60.0


class ChildContested(Retry):
    """Another client changes a child again and again."""


class _Applied(Struct):
    desired_digest: str
    live: Object | str
    """The live object after the apply, or its digest. Most children never change, so the digest is
    computed when another version arrives. Until then the cache has the same object."""
    resource_version: str
    repairs: int = 0
    first_repair_at: float = 0.0


class LastApplied:
    """The last apply of each child of each owner."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_owner_uid: dict[str, dict[tuple[type[Object], Key], _Applied]] = {}

    def __len__(self) -> int:
        """How many children it remembers."""
        return sum(map(len, self._by_owner_uid.values()))

    def needs_no_apply(self, owner_uid: str, desired: DesiredChild, live: Object) -> bool:
        """Whether the live object is as desired. Raises Retry if it was repaired too often."""
        applied = self._by_owner_uid.get(owner_uid, {}).get(desired.identity)
        if applied is None or applied.desired_digest != desired.digest:
            return self._matches_without_memory(owner_uid, desired, live)
        version = live.metadata.resourceVersion
        if applied.resource_version == version:
            return True
        if not isinstance(applied.live, str):
            applied.live = _compare(desired, applied.live).live_digest
        comparison = _compare(desired, live)
        if comparison.live_digest != applied.live:
            self._count_repair(applied, desired, comparison.differences)
            return False
        applied.resource_version = version
        return True

    def _matches_without_memory(self, owner_uid: str, desired: DesiredChild, live: Object) -> bool:
        # With another digest, the live object may have fields that are no longer desired.
        if live.metadata.annotations.get(DIGEST_ANNOTATION) != desired.digest:
            return False
        if _compare(desired, live).differences:
            return False
        self.record(owner_uid, desired, live)
        return True

    def _count_repair(
        self, applied: _Applied, desired: DesiredChild, differences: Sequence[str]
    ) -> None:
        now = self._clock()
        if now - applied.first_repair_at > _REPAIR_WINDOW_SECONDS:
            applied.repairs, applied.first_repair_at = 0, now
        applied.repairs += 1
        if applied.repairs > _MAX_REPAIRS:
            fields = ", ".join(differences) or "an item of a list"
            raise ChildContested(
                "ChildContested",
                f"{desired}: another client changed {fields} {applied.repairs} times within "
                f"{_REPAIR_WINDOW_SECONDS:g} s. Stop it, or leave the field out of the child",
                requeue_after_seconds=_REPAIR_WINDOW_SECONDS,
            )

    def record(self, owner_uid: str, desired: DesiredChild, live: Object) -> None:
        """Store that the live object is what an apply of the child produced."""
        applied = self._by_owner_uid.setdefault(owner_uid, {})
        previous = applied.get(desired.identity)
        applied[desired.identity] = _Applied(
            desired.digest,
            live,
            live.metadata.resourceVersion,
            previous.repairs if previous else 0,
            previous.first_repair_at if previous else 0.0,
        )

    def forget_child(self, owner_uid: str, kind: type[Object], key: Key) -> None:
        applied = self._by_owner_uid.get(owner_uid, {})
        applied.pop((kind, key), None)
        if not applied:
            self._by_owner_uid.pop(owner_uid, None)

    def forget_owner(self, owner_uid: str) -> None:
        self._by_owner_uid.pop(owner_uid, None)


def _compare(desired: DesiredChild, live: Object) -> Comparison:
    return compare(desired.manifest, live.encode(), desired.kind)
