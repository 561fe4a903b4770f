"""Runs one controller: key -> object -> reconcile -> status if changed -> outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from .cache import Cache
from .client import Client
from .controller import Controller
from .errors import KindMissing, NotFound
from .kind import Resource
from .log import Log
from .meta import Condition, Key
from .metrics import Metrics
from .outcome import Outcome, outcome_from_error, outcome_from_result
from .responses import UndecodableObject
from .source import PrimaryKindSource, TimerSource
from .status import StatusWriter
from .workqueue import LOW_PRIORITY, WorkQueue

T = TypeVar("T", bound=Resource[Any, Any])

GRACE_SECONDS = 5.0
"""How long a reconcile that was told to stop may take to do so before another worker takes its place."""


class Engine(Generic[T]):
    """The queue and the workers of one controller, and what follows from each outcome."""

    def __init__(
        self,
        controller: Controller[T],
        *,
        cache: Cache,
        client: Client,
        status_writer: StatusWriter,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.controller, self.cache, self.client, self.status_writer = (
            controller,
            cache,
            client,
            status_writer,
        )
        self.kind: type[T] = controller.kind  # type: ignore[assignment]  # the class attribute cannot be generic
        self.definition = controller.kind.definition
        self.metrics = metrics.for_controller(controller.name, controller.concurrency)
        self.log = log.bind(
            controller=controller.name,
            controllerGroup=self.definition.group,
            controllerKind=self.definition.name,
        )
        controller.log = self.log
        self.queue: WorkQueue[Key] = WorkQueue(metrics.for_queue(controller.name), accepting=False)
        self.store = cache.store(self.kind)
        self.tasks: set[asyncio.Task[None]] = set()
        self._stuck_keys: set[Key | None] = set()
        self.started_at: dict[Key, float] = {}
        """Since when user code has been running, by key."""
        self._attach_sources()

    def _attach_sources(self) -> None:
        """Connect everything that wakes our objects to the queue."""
        self._primary_source = PrimaryKindSource(type(self.controller).predicate)
        self._primary_source.attach(self.store, self.queue)
        for wake in self.controller.sources:
            if not isinstance(wake, TimerSource):
                wake.attach(self.store, self.cache, self.queue)

    def start(self) -> None:
        """Start the workers and timers, and look at every object once; the caches are filled by now."""
        self.queue.accepting = True
        for key in self.store.objects:
            self.queue.add(key, LOW_PRIORITY)
        for _ in range(self.controller.concurrency):
            self.start_task(self.run_worker())
        timers = [wake for wake in self.controller.sources if isinstance(wake, TimerSource)]
        if self.controller.resync_seconds:
            timers.append(TimerSource(self.controller.resync_seconds, LOW_PRIORITY))
        self.start_task(self._replace_stuck_workers())
        for timer in timers:
            self.start_task(timer.run(self.store, self.queue))

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that we hold on to until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stop(self, grace_seconds: float) -> None:
        """Take up nothing more, let what is in work end, and cancel what does not end in time."""
        self.queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self.queue.wait_until_idle()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=GRACE_SECONDS)

    async def run_worker(self) -> None:
        """Take up keys one after the other. A worker that was replaced leaves when its reconcile ends at last."""
        loop = asyncio.get_running_loop()
        key: Key | None = None
        while key not in self._stuck_keys and (taken := await self._next_key()) is not None:
            key, priority = taken
            self.metrics.add_active_workers(1)
            started = loop.time()
            try:
                await self._process_key(key, priority)
            finally:
                self.metrics.add_active_workers(-1)
                self.metrics.observe_duration(loop.time() - started)
                self.queue.done(key)
        self._stuck_keys.discard(key)

    async def _next_key(self) -> tuple[Key, int] | None:
        """The next key; a cancellation that a reconcile has left behind for its worker comes out here, and is none of ours."""
        while True:
            try:
                # A reconcile that waits for nothing gives nobody a turn: not the watch that brings an edit, the lease, nor a probe.
                await asyncio.sleep(0)
                return await self.queue.get()
            except asyncio.CancelledError as error:
                self._raise_if_stopping(error)

    async def _replace_stuck_workers(self) -> None:
        """Replace workers whose reconcile does not stop although it was told to.

        Its key stays locked, so that it never runs twice at once; everybody else goes on.
        """
        while True:
            await asyncio.sleep(GRACE_SECONDS)
            oldest = (
                asyncio.get_running_loop().time() - self.controller.timeout_seconds - GRACE_SECONDS
            )
            for key in [
                k
                for k, started in self.started_at.items()
                if started < oldest and k not in self._stuck_keys
            ]:
                self.log.error(
                    "a reconcile does not stop although it was told to; another worker takes its place",
                    object=str(key),
                )
                self._stuck_keys.add(key)
                self.start_task(self.run_worker())

    async def _process_key(self, key: Key, priority: int) -> None:
        """One key, from the cache to the queue again; nothing that goes wrong here leaves this key."""
        seen = self.store.objects.get(key)
        if seen is None:
            self.queue.forget(key)
            return
        try:
            outcome = await (
                self.status_writer.write_undecodable(seen, self.kind)
                if isinstance(seen, UndecodableObject)
                else self._reconcile_object(seen)
            )
        except (Exception, asyncio.CancelledError) as error:
            self._raise_if_stopping(error)
            outcome = outcome_from_error(error, seen.metadata.generation)
        self._apply_outcome(key, priority, outcome)

    def _raise_if_stopping(self, error: BaseException) -> None:
        """A cancellation that is not the engine's own end came from inside the reconcile, and is that key's failure alone."""
        if isinstance(error, asyncio.CancelledError) and self.queue.closed:
            raise error
        _clear_cancellations()

    def _apply_outcome(self, key: Key, priority: int, outcome: Outcome) -> None:
        """Queue, metric and log line of an outcome."""
        self.metrics.count_result(
            outcome.result, terminal=outcome.terminal, unexpected=outcome.unexpected
        )
        if outcome.error is not None:
            self._log_failure(key, outcome, outcome.error)
        else:
            self.log.debug(
                "reconciled",
                object=str(key),
                reason=outcome.condition.reason if outcome.condition else "",
            )
        if outcome.rate_limited:
            self.queue.add_rate_limited(key, priority)
            return
        self.queue.forget(key)
        if outcome.requeue_after_seconds is not None:
            self.queue.add_after(key, outcome.requeue_after_seconds, priority)

    def _log_failure(self, key: Key, outcome: Outcome, error: BaseException) -> None:
        """The log line of a failure; what will pass is no error."""
        log = self.controller.log_for(key)
        if outcome.result == "error":
            log.error("Reconciler error", error=error)
        else:
            log.debug("not now, again later", error=error, seconds=outcome.requeue_after_seconds)

    async def _reconcile_object(self, seen: T) -> Outcome:
        """Finalizer first, then the reconcile, then the status."""
        finalizer = self.controller.finalizer
        ours = finalizer in seen.metadata.finalizers
        if seen.metadata.deletionTimestamp is not None:
            return await self._run_finalizer(seen) if ours else Outcome("success", None)
        if finalizer and not ours:
            held = await self._set_finalizers(seen, [*seen.metadata.finalizers, finalizer])
            if held is None:
                return Outcome("success", None)
            seen = held
        before = msgspec.json.encode(seen.status)
        obj: T = replace(seen, status=msgspec.json.decode(before, type=self.kind.status_type))
        given = obj.status
        outcome = await self._run_user_code(self.controller.reconcile, obj)
        if outcome.terminal and obj.status is given and msgspec.json.encode(given) == before:
            obj.status = self.kind.status_type()
        if outcome.condition is not None:
            await self._write_status(
                seen, before, obj.status, outcome.condition, warning_event=outcome.warning_event
            )
        return outcome

    async def _write_status(
        self, seen: T, before: bytes, status: Any, condition: Condition, *, warning_event: bool
    ) -> None:
        """Send the status if it changed; its echo on the watch is then known to be ours."""
        with self._primary_source.own_write(seen.key) as ours:
            written = await self.status_writer.write(
                seen, before, status, condition, self.metrics, warning_event=warning_event
            )
            if written is not None:
                ours.append(written.metadata.revision)

    async def _run_user_code(self, step: Callable[[T], Awaitable[object]], obj: T) -> Outcome:
        """Run user code within its time; whatever it raises, hangs on or returns becomes an outcome of this key."""
        seconds, generation = self.controller.timeout_seconds, obj.metadata.generation
        self.started_at[obj.key] = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds) as limit:
                returned = await step(obj)
        except TimeoutError as error:
            if not limit.expired():
                return outcome_from_error(error, generation)
            self.metrics.count_timeout()
            return outcome_from_error(
                TimeoutError(
                    f"the reconcile took longer than {seconds:g} s and was stopped; it is tried again"
                ),
                generation,
            )
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            self._raise_if_stopping(error)
            return outcome_from_error(error, generation)
        finally:
            del self.started_at[obj.key]
            _clear_cancellations()
        if not isinstance(obj.status, self.kind.status_type):
            wrong = TypeError(
                f"the reconcile set status to {type(obj.status).__name__}, not {self.kind.status_type.__name__}"
            )
            obj.status = self.kind.status_type()
            return outcome_from_error(wrong, generation)
        return outcome_from_result(returned, generation)

    async def _run_finalizer(self, seen: T) -> Outcome:
        """Finalize an object that is being deleted, then let it go."""
        before = msgspec.json.encode(seen.status)
        obj: T = replace(seen, status=msgspec.json.decode(before, type=self.kind.status_type))
        outcome = await self._run_user_code(self.controller.finalize, obj)
        if outcome.result == "success":
            await self._set_finalizers(
                seen, [f for f in seen.metadata.finalizers if f != self.controller.finalizer]
            )
        elif outcome.condition is not None:
            await self._write_status(
                seen, before, obj.status, outcome.condition, warning_event=outcome.warning_event
            )
        return outcome

    async def _set_finalizers(self, seen: T, finalizers: list[str]) -> T | None:
        """Write the list of finalizers, if nobody wrote since: a merge patch replaces it as a whole. None where the object is gone."""
        metadata = {
            "resourceVersion": seen.metadata.resourceVersion,
            "finalizers": finalizers or None,
        }
        with self._primary_source.own_write(seen.key) as ours:
            try:
                written = await self.client.patch(self.kind, seen.key, {"metadata": metadata})
            except KindMissing:
                raise
            except NotFound:
                return None
            ours.append(written.metadata.revision)
        return written


def _clear_cancellations() -> None:
    """Take back what user code left on its worker, such as a TaskGroup that failed: the next timeout would take it for the engine's end."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
