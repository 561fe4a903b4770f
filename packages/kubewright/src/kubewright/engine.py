"""Runs one controller: its queue, its workers, and what follows from each reconcile.

key -> object -> ObjectReconciler -> Consequence -> queue, metrics, log
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from .cache import Cache
from .client import Client
from .consequence import Consequence, consequence_of_error, is_valid_delay
from .controller import Controller
from .kind import Key, Object
from .log import Log, current_object
from .loop_turns import LoopTurns
from .metrics import ControllerMetrics, Metrics, QueueMetrics
from .object_reconciler import ObjectReconciler
from .recorder import EventRecorder
from .responses import UndecodableObject
from .shard_keys import ShardKeys
from .slices import call_in_slices
from .source import PrimaryKindSource
from .status import StatusWriter
from .threads import loop_caller
from .workqueue import LOW_PRIORITY, NORMAL_PRIORITY, WorkQueue
from .write_limit import has_low_priority

T = TypeVar("T", bound=Object)

_FORGET_BATCH = 500
_CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled reconcile may take to end before another worker takes its place."""


class Engine(Generic[T]):
    """The queue and the workers of one controller."""

    def __init__(
        self,
        controller: Controller[T],
        *,
        cache: Cache,
        client: Client,
        recorder: EventRecorder,
        metrics: Metrics,
        log: Log,
        clears_status: bool = True,
        shards: ShardKeys | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        """`clears_status` is false if the kind has other controllers, which write to its status.
        With `shards`, only keys of active shards are handled. `turns` are shared by all engines.
        """
        self._shards = shards
        self.controller = controller
        # A class attribute cannot be generic, so mypy does not know that this is T.
        self._kind: type[T] = controller.kind  # type: ignore[assignment]
        self._metrics = ControllerMetrics(
            metrics, controller.name, controller.max_concurrent_reconciles
        )
        definition = controller.kind.definition
        self._log = log.bind(
            controller=controller.name,
            controllerGroup=definition.group,
            controllerKind=definition.name,
        )
        controller.log = self._log
        queue_metrics = QueueMetrics(metrics, controller.name)
        self.queue: WorkQueue[Key] = WorkQueue(
            queue_metrics,
            accepting=False,
            backoff=controller.backoff,
            rate_limit=controller.rate_limit,
            turns=turns,
        )
        controller.enqueue_after = self.queue.add_after
        controller.call_in_loop = loop_caller()
        self._store = cache.store(self._kind)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck_keys: set[Key | None] = set()
        self._primary_source = PrimaryKindSource(
            controller.get_predicate(), self._store, self._enqueue_change
        )
        for source in controller.sources:
            source.attach(self._store, cache, self._enqueue_change)
        self._status_writer = StatusWriter(
            controller.kind,
            client,
            recorder,
            self._metrics,
            self._log,
            own_write=self._primary_source.own_write,
            writes_status=bool(controller.writes_status),
            condition_type=controller.ready_condition or "",
            clock=controller.clock,
        )
        self._reconciler = ObjectReconciler(
            controller,
            client,
            self._status_writer,
            self._primary_source,
            self._metrics,
            clears_status=clears_status and not definition.external,
        )

    def _enqueue_change(self, key: Key, priority: int) -> None:
        if self._shards is not None and not self._shards.is_active(key):
            return
        if self.controller.debounce_seconds:
            self.queue.add_after(key, self.controller.debounce_seconds, priority)
        else:
            self.queue.add(key, priority)

    def start(self) -> None:
        """Start the workers, and enqueue every object. The caches are in sync by now.

        With shards, the objects of each are enqueued by `start_shard`.
        """
        self.queue.accepting = True
        call_in_slices(lambda key: self.queue.add(key, LOW_PRIORITY), self._keys_without_change())
        for _ in range(self.controller.max_concurrent_reconciles):
            self._start_task(self._run_worker())
        self._start_task(self._replace_stuck_workers())
        if self.controller.resync_seconds:
            self._start_task(self._resync())

    def _keys_without_change(self) -> Iterable[Key]:
        keys, shards = self._primary_source.keys_without_change(), self._shards
        return keys if shards is None else (key for key in keys if shards.is_active(key))

    def start_shard(self, shard: int) -> None:
        """Take the keys of the shard from now on. Its lease is held, and its objects are cached."""
        shards = self._shards
        if shards is None or shard in shards.active:
            return
        if self.controller.overrides("forget"):
            # Another replica may have written since this process last had the shard.
            for key in shards.keys_of(shard):
                self._forget(key)
        shards.active.add(shard)
        call_in_slices(
            lambda key: self.queue.add(key, LOW_PRIORITY),
            (
                key
                for key in self._primary_source.keys_without_change()
                if shards.shard_of_key(key) == shard
            ),
        )

    async def stop_shard(self, shard: int, timeout_seconds: float) -> None:
        """Take no new key of the shard, and wait for the running ones.

        User code that takes longer is cancelled. It may ignore that, or block a thread: then this
        does not return before it has ended.
        """
        shards = self._shards
        if shards is None or shard not in shards.active:
            return
        shards.active.discard(shard)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await shards.wait_until_idle(shard)
        for key in shards.running(shard):
            self._reconciler.running_calls.hand_over(key)
        await shards.wait_until_idle(shard)
        for number, key in enumerate(shards.keys_of(shard), 1):
            self._forget(key)
            if number % _FORGET_BATCH == 0:
                await asyncio.sleep(0)

    def _forget(self, key: Key) -> None:
        self.queue.forget(key)
        self._status_writer.forget(key)
        obj = self._store.objects.get(key)
        if obj is not None and not isinstance(obj, UndecodableObject):
            self.controller.forget(obj)

    async def _resync(self) -> None:
        seconds = self.controller.resync_seconds
        while True:
            await asyncio.sleep(seconds)
            # Spread over a tenth of the period, so that there is no burst of calls.
            call_in_slices(
                lambda key: self.queue.add_after(
                    key, random.uniform(0, seconds / 10), LOW_PRIORITY
                ),
                self._keys_without_change(),
            )

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        # The event loop keeps only weak references to tasks.
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout_seconds: float) -> None:
        """Take no new key, wait for the running reconciles, and cancel those that take longer."""
        self.queue.close()
        self._reconciler.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self.queue.idle.wait()
        self._reconciler.cancelled = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_GRACE_SECONDS)

    async def _run_worker(self) -> None:
        self._primary_source.become_writer()
        loop = asyncio.get_running_loop()
        key: Key | None = None
        # A stuck key has another worker already: this one ends once its reconcile has ended.
        while key not in self._stuck_keys and (entry := await self._next_key()) is not None:
            key, priority = entry
            if self._shards is not None and not self._shards.begin(key):
                self.queue.forget(key)
                self.queue.done(key)
                continue
            has_low_priority.set(priority < NORMAL_PRIORITY)
            self._metrics.active_workers.inc()
            started = loop.time()
            try:
                await self._process_key(key, priority)
                if self._reconciler.threads.unfinished:
                    await self._reconciler.threads.wait_until_ended(key)
            finally:
                self._metrics.active_workers.dec()
                self._metrics.reconcile_seconds.observe(loop.time() - started)
                if self._shards is not None:
                    self._shards.end(key)
                self.queue.done(key)
        self._stuck_keys.discard(key)

    async def _next_key(self) -> tuple[Key, int] | None:
        while True:
            try:
                # A reconcile that never awaits would starve the watches, the lease and the probes.
                await asyncio.sleep(0)
                return await self.queue.get()
            except asyncio.CancelledError as error:
                # A reconcile may have cancelled its own task; that arrives at the next await.
                self._reconciler.absorb_cancellation(error)

    async def _replace_stuck_workers(self) -> None:
        """Start a new worker for each reconcile that does not end after it was cancelled.

        The key of the old one stays locked: an object is never reconciled by two workers.
        """
        while True:
            await asyncio.sleep(_CANCEL_GRACE_SECONDS)
            limit = self.controller.timeout_seconds + _CANCEL_GRACE_SECONDS
            for key in self._reconciler.running_calls.keys_running_longer_than(limit):
                if key not in self._stuck_keys:
                    self._log.error(
                        "a reconcile ignores its cancellation; another worker takes its place",
                        object=str(key),
                    )
                    self._stuck_keys.add(key)
                    self._start_task(self._run_worker())

    async def _process_key(self, key: Key, priority: int) -> None:
        consequence = await self.reconcile(key)
        if consequence is None:
            self.queue.forget(key)
            return
        try:
            self._apply_consequence(key, priority, consequence)
        except Exception as error:
            # It would end the worker, and so stop other objects.
            self._log.error("the outcome could not be applied", error=error, object=str(key))
            self.queue.add_rate_limited(key, priority)

    async def reconcile(self, key: Key) -> Consequence | None:
        """Run the controller once; None if there is nothing to do for an object that is gone."""
        current_object.set((self._kind.definition.name, key))
        obj = self._store.objects.get(key)
        generation = obj.metadata.generation if obj is not None else 0
        try:
            if obj is None:
                self._status_writer.forget(key)
                if not self.controller.overrides("reconcile_deleted"):
                    return None
                return await self._reconciler.reconcile_deleted(key)
            if isinstance(obj, UndecodableObject):
                # Terminal: a retry is useless until the object changes.
                condition = await self._status_writer.write_undecodable(obj, self._kind)
                return Consequence("error", condition, terminal=True)
            return await self._reconciler.reconcile(obj)
        except (Exception, asyncio.CancelledError) as error:
            self._reconciler.absorb_cancellation(error)
            return consequence_of_error(error, generation)

    def _apply_consequence(self, key: Key, priority: int, consequence: Consequence) -> None:
        metrics, error = self._metrics, consequence.error
        metrics.results[consequence.metric_result].inc()
        if consequence.terminal:
            metrics.terminal_errors.inc()
        if consequence.unexpected:
            # What a panic is in Go: an exception that is not part of the controller's interface.
            metrics.panics.inc()
        if consequence.metric_result == "error":
            metrics.errors.inc()
        if consequence.metric_result == "error" and error is not None:
            self._log.error("Reconciler error", error=error)
        elif self._log.logger.isEnabledFor(logging.DEBUG):
            reason = consequence.condition.reason if consequence.condition is not None else ""
            if error is None:
                self._log.debug("reconciled", reason=reason)
            else:
                self._log.debug(
                    "not reconciled, retrying",
                    error=error,
                    seconds=consequence.requeue_after_seconds,
                )
        self._schedule_periodic_run(key)
        if consequence.rate_limited:
            self.queue.add_rate_limited(key, priority)
            return
        self.queue.forget(key)
        if consequence.requeue_after_seconds is not None:
            self.queue.add_after(key, consequence.requeue_after_seconds, priority)

    def _schedule_periodic_run(self, key: Key) -> None:
        if self.controller.period_of is None:
            return
        obj = self._store.objects.get(key)
        if obj is None or isinstance(obj, UndecodableObject):
            return
        try:
            seconds = self.controller.period_of(obj)
            if seconds is not None and not (is_valid_delay(seconds) and seconds > 0):
                raise ValueError(f"{seconds!r} is not a positive, finite number of seconds")
        except Exception as error:
            self._log.error("the function of reconcile_every failed", error=error, object=str(key))
            return
        if seconds is not None:
            self.queue.add_after(key, seconds, LOW_PRIORITY)
