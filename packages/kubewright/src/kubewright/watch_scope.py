"""Which objects of a kind a reflector stores: all, or those of some shards.

Why does the client filter what the API server has selected already?  A server without sharded list
    and watch ignores the selector. Where it is supported, the check costs one hash for each event.
How does the scope grow without a list of everything?  `shard_watch.py` lists the added shards while
    the watch runs. The watch then begins again, with the larger selector, at the earlier of the two
    revisions. Events that it replays, but that were applied before, are skipped: an object that was
    deleted in the meantime would otherwise appear again for a moment.
"""

from __future__ import annotations

from .kind import ObjectMeta
from .shard_ranges import ShardScope


class WatchScope:
    def __init__(self) -> None:
        self.shards: ShardScope | None = None
        """None for all objects."""
        self._applied: list[tuple[int, ShardScope]] = []

    @property
    def selector(self) -> str:
        return self.shards.selector if self.shards is not None else ""

    def covers(self, metadata: ObjectMeta) -> bool:
        return self.shards is None or self.shards.covers(metadata)

    def extend(self, shards: ShardScope, applied: list[tuple[int, ShardScope]]) -> None:
        """Store the objects of these shards from now on.

        `applied` are the revisions up to which events of some shards were applied before.
        """
        self.shards = shards
        self._applied = sorted(applied, key=lambda entry: entry[0])

    def is_news(self, metadata: ObjectMeta, revision: int) -> bool:
        """Whether an event is about an object to store, and was not applied before."""
        while self._applied and revision > self._applied[0][0]:
            del self._applied[0]
        return self.covers(metadata) and not any(
            shards.covers(metadata) for _, shards in self._applied
        )
