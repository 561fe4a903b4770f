"""Limits how often changes of usage are released.

What is usage?  The quickStats of a host, their sum over the hosts of a cluster, and the free and
    uncommitted space of a datastore: its "stats". No status shows those of a VM.
What is released at once?  Every change other than of stats, and a change of stats by more than
    `change_fraction` of the total since they were last released. Each release includes the newest
    stats.
And all other changes?  Each entity has a fixed bucket, a part of the interval, by a digest of its
    reference. When the time of its bucket comes, an entity with changed stats is released. So no
    change waits longer than an interval, and small changes are released at most once per interval.
Why a bucket, and not "one interval after the last time"?  vCenter sends the stats of all hosts at
    the same moment every 20 s, and a restart reads them all at once: all hosts would be due
    together for ever. With buckets, 1,000 hosts are 17 per second.
What does it cost?  One dictionary lookup per change, and one of 60 buckets per second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeAlias, TypeVar
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from .cluster_summary import ClusterSummaries, ClusterSummary
from .inventory import Change, Inventory
from .model import Datastore, Host, HostStats

BUCKET_COUNT = 60
# The clock rate of a vCPU is that of its host, which a VirtualMachine does not know. The value only
# decides what counts as a large change.
ASSUMED_VCPU_MHZ = 2000

ThrottledEntity: TypeAlias = Host | ClusterSummary | Datastore
EntityT = TypeVar("EntityT", bound=ThrottledEntity)


class _DatastoreStats(Struct, frozen=True):
    free_bytes: int | None
    uncommitted_bytes: int | None


_Stats: TypeAlias = HostStats | _DatastoreStats


class StatsThrottle:
    """Releases changes of the objects of one vCenter, and delays those of their stats."""

    def __init__(
        self,
        inventory: Inventory,
        on_release: Callable[[ThrottledEntity], None],
        interval_seconds: float,
        change_fraction: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        on_due: Callable[[ThrottledEntity], None] | None = None,
    ) -> None:
        """`on_due` is called instead of `on_release` for a small change when its time comes."""
        self._inventory, self._on_release = inventory, on_release
        self._on_due = on_due or on_release
        self.clusters = ClusterSummaries(inventory, self.on_inventory_change)
        self._is_disabled = interval_seconds <= 0
        self._bucket_seconds = (interval_seconds if interval_seconds > 0 else 60.0) / BUCKET_COUNT
        self._change_fraction, self._clock = change_fraction, clock
        self.released_stats: dict[str, _Stats] = {}
        # By bucket, the newest stats of each entity that changed since it was released.
        self.pending_by_bucket: list[dict[str, _Stats]] = [{} for _ in range(BUCKET_COUNT)]
        self._last_bucket = self._current_bucket()

    def _current_bucket(self) -> int:
        # Counted without end, not modulo BUCKET_COUNT.
        return int(self._clock() // self._bucket_seconds)

    def on_inventory_change(self, change: Change[ThrottledEntity]) -> None:
        old, new = change.old, change.new
        if self._record_change(old, new, related_object_changed=change.related_object_changed):
            # A renamed entity is released under both names.
            entities = {entity.name: entity for entity in (old, new) if entity is not None}
            for entity in entities.values():
                self._on_release(entity)

    def release_ref(self, ref: str) -> None:
        """Release the object with this reference, if it still exists."""
        if (entity := self._find(ref)) is not None:
            self._on_release(entity)

    def _find(self, ref: str) -> ThrottledEntity | None:
        inventory = self._inventory
        return (
            inventory.hosts.get(ref)
            or inventory.datastores.get(ref)
            or self.clusters.by_ref.get(ref)
        )

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._bucket_seconds)
            self._release_due()

    def _release_due(self) -> None:
        for ref in self._take_due():
            if (entity := self._find(ref)) is not None:
                self._on_due(entity)

    def _record_change(
        self,
        old: ThrottledEntity | None,
        new: ThrottledEntity | None,
        *,
        related_object_changed: bool = False,
    ) -> bool:
        """Record a change as released or as pending; returns whether to release it now."""
        if new is None:
            if old is not None:
                self.released_stats.pop(old.ref, None)
                self.pending_by_bucket[bucket_of(old.ref)].pop(old.ref, None)
            return True
        released = self.released_stats.get(new.ref)
        pending = self.pending_by_bucket[bucket_of(new.ref)]
        if (
            released is None
            or self._is_disabled
            or related_object_changed
            or not _only_stats_changed(old, new)
            or _largest_relative_change(released, new) > self._change_fraction
        ):
            self.released_stats[new.ref] = _read_stats(new)
            pending.pop(new.ref, None)
            return True
        if _read_stats(new) == released:
            # The stats changed back before their time came.
            pending.pop(new.ref, None)
        else:
            pending[new.ref] = _read_stats(new)
        return False

    def with_released_stats(self, entity: EntityT) -> EntityT:
        """The entity with the stats that were released last.

        Without this, a reconcile for another reason would release newer stats too early.
        """
        stats = self.released_stats.get(entity.ref)
        if stats is None or stats == _read_stats(entity):
            return entity
        return _with_stats(entity, stats)

    def _take_due(self) -> list[str]:
        """The references of the pending changes that are due; they count as released."""
        current = self._current_bucket()
        # After a long pause each bucket is taken once, not once per missed round.
        buckets = range(max(self._last_bucket, current - BUCKET_COUNT) + 1, current + 1)
        self._last_bucket = current
        refs: list[str] = []
        for bucket in buckets:
            pending = self.pending_by_bucket[bucket % BUCKET_COUNT]
            self.released_stats.update(pending)
            refs.extend(pending)
            pending.clear()
        return refs


def bucket_of(ref: str) -> int:
    """The bucket of a reference, the same in every process."""
    return crc32(ref.encode()) % BUCKET_COUNT


def _read_stats(entity: ThrottledEntity) -> _Stats:
    if isinstance(entity, Datastore):
        return _DatastoreStats(entity.free_bytes, entity.uncommitted_bytes)
    return entity.stats


def _with_stats(entity: EntityT, stats: _Stats) -> EntityT:
    if isinstance(stats, _DatastoreStats):
        return replace(
            entity, free_bytes=stats.free_bytes, uncommitted_bytes=stats.uncommitted_bytes
        )
    return replace(entity, stats=stats)


def _only_stats_changed(old: ThrottledEntity | None, new: ThrottledEntity) -> bool:
    # If nothing differs, a related object has changed, such as the name of a cluster.
    if old is None or type(old) is not type(new):
        return False
    stats = _read_stats(old)
    return stats != _read_stats(new) and _with_stats(new, stats) == old


def _largest_relative_change(released: _Stats, new: ThrottledEntity) -> float:
    changes = (relative_change(*values) for values in _compare_stats(released, new))
    return max(changes, default=1.0)


def relative_change(before: int | None, now: int | None, total: float) -> float:
    """A change as a fraction of the total.

    It is 1 if the value appeared or disappeared, and 0 if the total is unknown: then the free
    amount is unknown too, and nothing would change in a status.
    """
    if before is None or now is None:
        return float(before is not now)
    return abs(now - before) / total if total else 0.0


def _compare_stats(
    released: _Stats, new: ThrottledEntity
) -> Iterator[tuple[int | None, int | None, float]]:
    """Tuples of the released value, the current value and the total."""
    if isinstance(new, Host) and isinstance(released, HostStats):
        total_mhz = (new.cpu_mhz or 0) * (new.cpu_cores or 0)
        yield released.cpu_usage_mhz, new.stats.cpu_usage_mhz, total_mhz
        yield released.memory_usage_mb, new.stats.memory_usage_mb, (new.memory_bytes or 0) / 2**20
    if isinstance(new, ClusterSummary) and isinstance(released, HostStats):
        yield released.cpu_usage_mhz, new.stats.cpu_usage_mhz, new.cpu_mhz or 0
        yield released.memory_usage_mb, new.stats.memory_usage_mb, new.memory_mb or 0
    if isinstance(new, Datastore) and isinstance(released, _DatastoreStats):
        capacity = new.capacity_bytes or 0
        yield released.free_bytes, new.free_bytes, capacity
        yield released.uncommitted_bytes, new.uncommitted_bytes, capacity
