"""What a replica does with its shards: caches, controllers and the work of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from .controller import Controller
from .engine import Engine
from .kind import Object
from .recorder import EventRecorder
from .shard_guard import LEADER_SHARD, in_shard
from .shard_ranges import ShardBy
from .watch_set import WatchSet

# How long a stopping shard waits until its Events are written.
_EVENT_SECONDS = 0.3


def sharded_kinds(controllers: Iterable[Controller[Any]]) -> dict[type[Object], ShardBy]:
    """The kinds of which a replica caches only its shards.

    All other kinds are cached in full: those that a reconcile reads, or that trigger others.
    """
    controllers = list(controllers)
    in_full = {
        kind
        for controller in controllers
        # The first cached kind is the controller's own.
        for kind in controller.cached_kinds()[0 if _needs_all(controller) else 1 :]
    }
    result: dict[type[Object], ShardBy] = {}
    for controller in controllers:
        kind, shard_by = controller.kind, controller.shard_by
        if result.setdefault(kind, shard_by) != shard_by:
            in_full.add(kind)
    return {kind: shard_by for kind, shard_by in result.items() if kind not in in_full}


def _needs_all(controller: Controller[Any]) -> bool:
    return controller.caches_all_shards or controller.shard_by == "none"


class ShardRunner:
    """Implements ShardWork with the engines of a manager."""

    def __init__(
        self,
        engines: Sequence[Engine[Any]],
        watches: WatchSet,
        recorder: EventRecorder,
        *,
        start_engine: Callable[[Engine[Any]], Coroutine[Any, Any, None]],
        run_as_leader: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`run_as_leader` is the work of the replica that has shard 0."""
        self._engines, self._watches, self._recorder = engines, watches, recorder
        self._start_engine, self._run_as_leader = start_engine, run_as_leader
        self._group: asyncio.TaskGroup | None = None
        self._started: dict[Engine[Any], asyncio.Task[None]] = {}
        # The tasks of each shard: the starts of its engines, and the work of the leader.
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Run the engines and the tasks of `start`, until cancelled; raise the failure of any."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._started = {
                engine: group.create_task(self._start_engine(engine)) for engine in self._engines
            }
            await asyncio.Event().wait()

    def cover(self, shards: frozenset[int]) -> None:
        for watch in self._watches.shard_watches:
            watch.cover(shards)

    def warm_shards(self) -> frozenset[int]:
        # A kind that cannot be listed, for example without its CRD, must not delay the others.
        covered = [watch.covered for watch in self._watches.shard_watches if not watch.problem]
        if not covered:
            # All kinds are cached in full, and `_start_shard` waits for their lists.
            return frozenset(range(self._watches.shard_count))
        return frozenset.intersection(*covered)

    def start(self, shard: int) -> None:
        assert self._group is not None
        tasks = [
            self._group.create_task(self._start_shard(engine, shard)) for engine in self._engines
        ]
        if shard == LEADER_SHARD:
            with in_shard(LEADER_SHARD):
                tasks.append(self._group.create_task(self._run_as_leader()))
        self._tasks[shard] = tasks

    async def _start_shard(self, engine: Engine[Any], shard: int) -> None:
        await asyncio.wait({self._started[engine]})
        await self._watches.wait_until_covered(engine.controller.kind, shard)
        engine.start_shard(shard)

    async def stop(self, shard: int, timeout_seconds: float) -> None:
        tasks = self._tasks.pop(shard, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(
            *(engine.stop_shard(shard, timeout_seconds) for engine in self._engines)
        )
        if tasks:
            await asyncio.wait(tasks)
        # A replica without any shard must not write Events: see ANY_SHARD.
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_SECONDS):
                await self._recorder.flush()
