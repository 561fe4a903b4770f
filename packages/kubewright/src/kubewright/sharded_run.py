"""Runs the controllers of a manager that shares the shards with other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .client import Client
from .engine import Engine
from .kind import Key
from .log import Log
from .metrics import Metrics
from .recorder import EventRecorder
from .shard_coordinator import ShardCoordinator
from .shard_guard import ShardGuard
from .shard_runner import ShardRunner
from .watch_set import WatchSet


class ShardedRun:
    def __init__(
        self,
        client: Client,
        lease: Key,
        identity: str,
        guard: ShardGuard,
        *,
        metrics: Metrics,
        log: Log,
        stop_seconds: float,
    ) -> None:
        """`client` writes without a check of the leases. `stop_seconds` is how long running
        reconciles may take at the end of a replica that is alone.
        """
        metrics.register_shard_metrics()
        self._client, self._lease, self._identity, self._guard = client, lease, identity, guard
        self._metrics, self._log, self._stop_seconds = metrics, log, stop_seconds
        self._coordinator: ShardCoordinator | None = None

    async def run(
        self,
        engines: Sequence[Engine[Any]],
        watches: WatchSet,
        recorder: EventRecorder,
        *,
        start_engine: Callable[[Engine[Any]], Coroutine[Any, Any, None]],
        run_as_leader: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run until `leave`, or until a lease is lost, which raises LeaseLost."""
        runner = ShardRunner(
            engines, watches, recorder, start_engine=start_engine, run_as_leader=run_as_leader
        )
        self._coordinator = coordinator = ShardCoordinator(
            self._client,
            self._lease,
            self._identity,
            self._guard,
            runner,
            metrics=self._metrics,
            log=self._log,
            stop_seconds=self._stop_seconds,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(runner.run())
            await coordinator.run()
            running.cancel()

    async def leave(self) -> None:
        """Hand over all shards; returns when none is held."""
        if self._coordinator is not None:
            await self._coordinator.leave()

    async def release(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.release()
