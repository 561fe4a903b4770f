"""For code outside of reconciles: which objects this replica is responsible for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .cache import Origin
from .errors import ConfigError
from .kind import Key, ObjectMeta
from .lease_guard import LeaseGuard, WriteGuard
from .shard_guard import ShardGuard, in_shard
from .shard_ranges import MAX_SHARDS, ShardBy, shard_of

ChangeListener = Callable[[Key, Any, Any, Origin], None]


class Shards:
    """With one shard, everything belongs to the holder of the leader lease."""

    def __init__(self, leader_guard: LeaseGuard, count: int) -> None:
        if not 1 <= count <= MAX_SHARDS:
            raise ConfigError(f"-shards is {count}; it must be from 1 to {MAX_SHARDS}")
        self.count = count
        self.guard: WriteGuard = leader_guard
        self.is_leader: Callable[[], bool] = leader_guard.holds_lease
        """Whether this replica does the work that only one replica may do."""
        self.sharded_guard: ShardGuard | None = None
        if count > 1:
            clock = leader_guard.clock
            guards = [LeaseGuard(clock) for _ in range(count)]
            self.guard = self.sharded_guard = ShardGuard(leader_guard, guards)
            self.is_leader = self.sharded_guard.is_leader

    def context_of(self, metadata: ObjectMeta, shard_by: ShardBy) -> AbstractContextManager[Any]:
        """A context in which writes belong to the shard of the object, as in its reconcile."""
        if self.count == 1:
            return nullcontext()
        return in_shard(shard_of(metadata, shard_by, self.count))

    def in_shard_of(self, shard_by: ShardBy, listener: ChangeListener) -> ChangeListener:
        """The listener of a store's `changed`, called in the context of the changed object."""
        if self.count == 1:
            return listener

        def listen(key: Key, old: Any, new: Any, origin: Origin) -> None:
            with self.context_of((new or old).metadata, shard_by):
                listener(key, old, new, origin)

        return listen

    def is_responsible_for(self, metadata: ObjectMeta, shard_by: ShardBy) -> bool:
        """Whether this replica reconciles the object now."""
        with self.context_of(metadata, shard_by):
            return self.guard.holds_lease()
