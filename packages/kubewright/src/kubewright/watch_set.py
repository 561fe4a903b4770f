"""The watches of all kinds that the controllers of a manager cache."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from .cache import Cache
from .client import Client
from .errors import ConfigError
from .kind import Object
from .log import Log
from .metrics import Metrics
from .reflector import Reflector
from .shard_ranges import ShardBy
from .shard_watch import ShardWatch
from .watch_health import describe_age


class WatchSet:
    def __init__(
        self,
        cache: Cache,
        client: Client,
        metrics: Metrics,
        *,
        namespaces: tuple[str, ...],
        use_watch_list: bool,
        shard_count: int,
    ) -> None:
        """`namespaces` are those that the manager is limited to."""
        self._cache, self._client, self._metrics = cache, client, metrics
        self._namespaces, self._use_watch_list = namespaces, use_watch_list
        self.shard_count = shard_count
        self._reflectors: dict[type[Object], list[Reflector[Any]]] = {}
        self._shard_watches: dict[type[Object], list[ShardWatch]] = {}

    @property
    def kinds(self) -> Collection[type[Object]]:
        return {*self._reflectors, *self._shard_watches}

    @property
    def shard_watches(self) -> list[ShardWatch]:
        return [watch for watches in self._shard_watches.values() for watch in watches]

    def add(self, kind: type[Object], shard_by: ShardBy | None = None) -> None:
        """Watch the kind; with `shard_by` only the shards that `ShardWatch.cover` names."""
        if kind in self.kinds:
            return
        reflectors = self.build_reflectors(kind)
        watches: list[Reflector[Any]] | list[ShardWatch] = reflectors
        if shard_by is None:
            self._reflectors[kind] = reflectors
        else:
            watches = self._shard_watches[kind] = [
                ShardWatch(reflector, self._client, shard_by, self.shard_count, Log("cache"))
                for reflector in reflectors
            ]
        store = self._cache.store(kind)
        self._metrics.watch_age.labels(store.name).set_function(
            lambda: max(watch.age_seconds for watch in watches)
        )
        self._metrics.watch_silent.labels(store.name).set_function(
            lambda: float(any(watch.is_silent for watch in watches))
        )
        self._metrics.cached_objects.labels(store.name).set_function(lambda: len(store.objects))

    def build_reflectors(self, kind: type[Object]) -> list[Reflector[Any]]:
        """One watch for the whole cluster, or one for each namespace that is watched."""
        return [
            Reflector(
                kind,
                self._cache.store(kind),
                self._client,
                self._metrics,
                Log("cache"),
                namespace=name,
                use_watch_list=self._use_watch_list,
            )
            for name in self._watched_namespaces(kind) or ("",)
        ]

    def _watched_namespaces(self, kind: type[Object]) -> tuple[str, ...]:
        """The namespaces that both the manager and the selection of the kind are limited to."""
        selection, limit = kind.definition.selection, self._namespaces
        if not kind.definition.namespaced:
            return ()
        if selection is None or not selection.namespaces:
            return limit
        selected = selection.namespaces
        if limit and not (selected := tuple(name for name in selected if name in limit)):
            # Without a watch the cache would be empty, as if there were no such objects.
            raise ConfigError(
                f"{kind.__name__} is outside of the namespaces that the manager watches "
                f"(-watch-namespaces={','.join(limit)}); add one of "
                f"{', '.join(selection.namespaces)}"
            )
        return selected

    def runs(self) -> list[Coroutine[Any, Any, None]]:
        return [watch.run() for watch in self._all()]

    def _all(self) -> list[Reflector[Any] | ShardWatch]:
        groups: list[list[Reflector[Any]] | list[ShardWatch]] = [
            *self._reflectors.values(),
            *self._shard_watches.values(),
        ]
        return [watch for group in groups for watch in group]

    async def wait_until_synced(self, kinds: Iterable[type[Object]]) -> None:
        """Wait for the first lists of those of these kinds that are cached in full."""
        for kind in kinds:
            for reflector in self._reflectors.get(kind, ()):
                await reflector.synced.wait()

    async def wait_until_covered(self, kind: type[Object], shard: int) -> None:
        for watch in self._shard_watches.get(kind, ()):
            await watch.wait_until_covered(shard)

    def check(self) -> str | None:
        """The problems of all watches, for /readyz."""
        problems = [
            f"{watch.name}: {problem}"
            for watch in self._all()
            if (problem := watch.problem or describe_age(watch.age_seconds, watch.is_listed))
        ]
        return "; ".join(problems) or None
