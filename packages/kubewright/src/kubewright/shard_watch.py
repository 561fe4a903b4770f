"""Keeps the objects of a changing set of shards in a store, with one watch for all of them.

    cover({0, 1})     -> list and watch these shards
    cover({0, 1, 4})  -> list shard 4 while the watch runs, then watch {0, 1, 4}
    cover({0, 4})     -> watch {0, 4}, and drop the objects of shard 1

Why not a watch for each shard?  A server without sharded list and watch would send every event
    once for each shard.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from .cache import Origin
from .errors import KubewrightError
from .kind import Key
from .log import Log
from .reader import Reader
from .reflector import MAX_BACKOFF_SECONDS, Reflector
from .shard_ranges import ShardBy, ShardScope

_LIST_RETRY_SECONDS = 0.5


class ShardWatch:
    """A reflector for a set of shards that changes."""

    def __init__(
        self, reflector: Reflector[Any], client: Reader, shard_by: ShardBy, count: int, log: Log
    ) -> None:
        self.reflector, self._client, self._log = reflector, client, log.bind(kind=reflector.name)
        self._shard_by, self._count = shard_by, count
        self._wanted: frozenset[int] = frozenset()
        self.covered: frozenset[int] = frozenset()
        """The shards that are loaded: all their objects are in the store, and are kept current."""
        self._covers_more = asyncio.Event()
        self._wanted_changed = asyncio.Event()
        reflector.scope.shards = self._scope(frozenset())
        # Not `covered`, which lacks the shards of a list that is in progress: a write to one of
        # their objects may be newer than that list.
        reflector.store.accepts = lambda metadata: reflector.scope.covers(metadata)

    def _scope(self, shards: frozenset[int]) -> ShardScope:
        return ShardScope(self._shard_by, self._count, shards)

    def cover(self, shards: frozenset[int]) -> None:
        """Keep these shards in the store from now on, and no others."""
        if shards != self._wanted:
            self._wanted = shards
            self._wanted_changed.set()

    async def wait_until_covered(self, shard: int) -> None:
        while shard not in self.covered:
            self._covers_more.clear()
            await self._covers_more.wait()

    async def run(self) -> None:
        """Follow `cover` until cancelled."""
        watch: asyncio.Task[None] | None = None
        try:
            while True:
                self._wanted_changed.clear()
                if self._wanted != self.covered or watch is None:
                    watch = await self._change(watch)
                await self._wait(watch)
        finally:
            await _cancel(watch)

    async def _wait(self, watch: asyncio.Task[None] | None) -> None:
        """Wait until other shards are wanted. A reflector only ends with a bug, which is raised."""
        changed = asyncio.create_task(self._wanted_changed.wait())
        try:
            if watch is None or self._wanted == self.covered:
                tasks = {changed, watch} if watch is not None else {changed}
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if watch is not None and watch.done():
                watch.result()
        finally:
            await _cancel(changed)

    async def _change(self, watch: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
        """Keep the shards that are wanted now; returns the new watch."""
        wanted, reflector = self._wanted, self.reflector
        if dropped := self.covered - wanted:
            self.covered &= wanted
            reflector.scope.shards = self._scope(self.covered)
            self._release(dropped)
        added = wanted - self.covered
        if not added:
            await _cancel(watch)
        elif not self.covered:
            await _cancel(watch)
            reflector.scope.extend(self._scope(wanted), [])
            reflector.resource_version = ""
            reflector.synced.clear()
        else:
            listed_at = await self._list(added)
            if listed_at is None:
                self._release(added)
                return watch
            await _cancel(watch)
            self._begin_watch_at(added, listed_at)
        if not wanted:
            return None
        watch = asyncio.create_task(reflector.run())
        if added and not reflector.synced.is_set() and not await self._wait_for_sync(watch):
            return watch
        self.covered = wanted
        self._covers_more.set()
        return watch

    def _release(self, shards: frozenset[int]) -> None:
        scope, namespace = self._scope(shards), self.reflector.namespace
        self.reflector.store.release(
            lambda metadata: namespace in ("", metadata.namespace) and scope.covers(metadata)
        )

    def _begin_watch_at(self, added: frozenset[int], listed_at: int) -> None:
        reflector, scope = self.reflector, self._scope(self.covered | added)
        if not reflector.resource_version:
            # The reflector was about to list again: the list will include the added shards.
            reflector.scope.extend(scope, [])
            reflector.synced.clear()
            return
        watched = int(reflector.resource_version)
        reflector.scope.extend(
            scope, [(watched, self._scope(self.covered)), (listed_at, self._scope(added))]
        )
        reflector.resource_version = str(min(watched, listed_at))

    async def _wait_for_sync(self, watch: asyncio.Task[None]) -> bool:
        """Whether the list is complete; False if other shards are wanted before that."""
        waits = [
            asyncio.create_task(self.reflector.synced.wait()),
            asyncio.create_task(self._wanted_changed.wait()),
        ]
        try:
            await asyncio.wait({*waits, watch}, return_when=asyncio.FIRST_COMPLETED)
            return self.reflector.synced.is_set()
        finally:
            for task in waits:
                await _cancel(task)

    async def _list(self, added: frozenset[int]) -> int | None:
        """List the added shards while the watch goes on; returns the revision of the list.

        None if other shards are wanted before it succeeds.
        """
        delay = _LIST_RETRY_SECONDS
        while True:
            try:
                return await self._list_once(self._scope(added))
            except KubewrightError as error:
                self._log.warning("listing the shards of another replica failed", error=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wanted_changed.wait()
                return None
            delay = min(2 * delay, MAX_BACKOFF_SECONDS)

    async def _list_once(self, scope: ShardScope) -> int:
        reflector, store = self.reflector, self.reflector.store
        revision, listed = 0, set[Key]()
        async for page in self._client.list_pages(
            reflector.kind, reflector.namespace, shard_selector=scope.selector
        ):
            revision = revision or int(page.resource_version)
            for item in page.items:
                if scope.covers(item.metadata):
                    listed.add(item.metadata.key)
                    store.put(item, origin=Origin.INITIAL_LIST)
        # Remove what an earlier list, which failed, has left.
        for key, obj in list(store.objects.items()):
            is_in_namespace = reflector.namespace in ("", key.namespace)
            if key not in listed and is_in_namespace and scope.covers(obj.metadata):
                store.remove(key, max(revision, obj.metadata.revision))
        self._log.debug("listed the shards of another replica", objects=len(listed))
        return revision

    # Health, as of a reflector that watches nothing while no shard is wanted

    @property
    def name(self) -> str:
        return self.reflector.name

    @property
    def problem(self) -> str:
        return self.reflector.problem if self._wanted else ""

    @property
    def is_silent(self) -> bool:
        return bool(self._wanted) and self.reflector.is_silent

    @property
    def age_seconds(self) -> float:
        return self.reflector.age_seconds if self._wanted else 0.0

    @property
    def is_listed(self) -> bool:
        return not self._wanted or bool(self.covered)


async def _cancel(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
