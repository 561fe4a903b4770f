"""Which keys of one controller this replica may reconcile, and which it is reconciling."""

from __future__ import annotations

import asyncio
from typing import Any

from .cache import Origin, Store
from .kind import Key
from .shard_guard import set_current_shard
from .shard_ranges import ShardBy, shard_of


class ShardKeys:
    def __init__(self, store: Store[Any], shard_by: ShardBy, count: int) -> None:
        self._store, self._shard_by, self._count = store, shard_by, count
        self.active: set[int] = set()
        """The shards that this replica reconciles: `begin` takes only their keys."""
        self._running: dict[Key, int] = {}
        # The shard of each deleted object: the uid of its key is no longer in the cache.
        self._deleted: dict[Key, int] = {}
        self._ended = asyncio.Event()
        store.changed.connect(self._on_change)

    def _on_change(self, key: Key, old: Any, new: Any, origin: Origin) -> None:
        if new is not None or origin is Origin.RELEASED:
            self._deleted.pop(key, None)
        else:
            shard = shard_of(old.metadata, self._shard_by, self._count)
            if shard in self.active:
                self._deleted[key] = shard

    def shard_of_key(self, key: Key) -> int | None:
        """None for a key that is not in the cache, unless it was deleted from an active shard."""
        obj = self._store.objects.get(key)
        if obj is None:
            return self._deleted.get(key)
        return shard_of(obj.metadata, self._shard_by, self._count)

    def keys_of(self, shard: int) -> list[Key]:
        return [
            key
            for key, obj in self._store.objects.items()
            if shard_of(obj.metadata, self._shard_by, self._count) == shard
        ]

    def is_active(self, key: Key) -> bool:
        return self.shard_of_key(key) in self.active

    def begin(self, key: Key) -> bool:
        """Whether the key may be handled now. Its writes belong to its shard until `end`."""
        shard = self.shard_of_key(key)
        if shard is None or shard not in self.active:
            return False
        self._running[key] = shard
        set_current_shard(shard)
        return True

    def end(self, key: Key) -> None:
        del self._running[key]
        if key not in self._store.objects:
            self._deleted.pop(key, None)
        self._ended.set()

    def running(self, shard: int) -> list[Key]:
        return [key for key, running_shard in self._running.items() if running_shard == shard]

    async def wait_until_idle(self, shard: int) -> None:
        """Wait until no key of the shard is being handled."""
        while self.running(shard):
            self._ended.clear()
            await self._ended.wait()
