"""Runs one controller: key -> object -> reconcile -> outcome -> status patch -> queue.

`_outcome_from_result` and `_outcome_from_error` are the only place that maps each way to end a
reconcile to queue, condition, Event, metric and log line.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from .cache import Cache
from .client import Client
from .controller import Controller, Done, Waiting
from .errors import (
    Conflict,
    KubewrightError,
    NotFound,
    NotLeader,
    NotSynced,
    Retry,
    Terminal,
    TooManyRequests,
    redact,
)
from .kind import Condition, Key, Resource
from .log import Log
from .metrics import ControllerMetrics, Metrics, QueueMetrics, ReconcileResult
from .recorder import EventRecorder
from .responses import UndecodableObject
from .source import PrimaryKindSource, TimerSource
from .status import StatusWriter, ready_condition
from .workqueue import LOW_PRIORITY, WorkQueue

T = TypeVar("T", bound=Resource[Any, Any])

_CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled reconcile may take to end before another worker takes its place."""
_VALID_DELAY = "it must be a finite number of seconds, 0 or more"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The consequences of a reconcile for the queue, the status, the metrics and the log."""

    result: ReconcileResult
    condition: Condition | None
    """None leaves the status as it is, because the reconcile found out nothing about the object."""
    requeue_after_seconds: float | None = None
    rate_limited: bool = False
    terminal: bool = False
    clear_status: bool = False
    unexpected: bool = False
    warning_event: bool = True
    error: BaseException | None = None


def _outcome_from_result(returned: object, generation: int) -> _Outcome:
    status: Literal["True", "False"]
    match Done() if returned is None else returned:
        case Done(reason, message, after):
            status, field = "True", "requeue_after_seconds"
        case Waiting(reason, message, after, write_status_first):
            status, field = "False", "after"
            # The next run acts on the record in this status: there is nothing else to wait for.
            after = 0.0 if write_status_first else after
        case _:
            message = f"the reconcile returned {type(returned).__name__}; "
            message += "return None, Done(...) or Waiting(...)"
            return _outcome_from_error(TypeError(message), generation)
    if after is not None and not _is_valid_delay(after):
        message = f"{field} is {after!r}; {_VALID_DELAY}"
        return _outcome_from_error(TypeError(message), generation)
    condition = ready_condition(status, reason, message, generation)
    result: ReconcileResult = "success" if after is None else "requeue_after"
    return _Outcome(result, condition, after, warning_event=False)


def _is_valid_delay(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]


def _outcome_from_error(error: BaseException, generation: int) -> _Outcome:
    match error:
        case Retry() | NotSynced() if not _is_valid_delay(error.after):
            message = f"{type(error).__name__}(after={error.after!r}): {_VALID_DELAY}"
            return _outcome_from_error(TypeError(message), generation)
        case NotSynced():
            return _Outcome("requeue_after", None, error.after, error=error)
        case Retry():
            condition = ready_condition("False", error.reason, str(error), generation)
            return _Outcome("requeue_after", condition, error.after, error=error)
        case Terminal():
            condition = ready_condition("False", error.reason, str(error), generation)
            return _Outcome(
                "error", condition, terminal=True, clear_status=not error.keep_status, error=error
            )
        case NotLeader():
            # Either the process is about to end and the next leader does the work, or the lease
            # is renewed late and we do.
            return _Outcome("requeue", None, rate_limited=True, error=error)
        case Conflict():
            # Another client wrote first. Its change will arrive through the watch.
            return _Outcome("requeue", None, rate_limited=True, error=error)
        case TooManyRequests(retry_after=float() | int() as after):
            return _Outcome("requeue_after", None, float(after), error=error)
        case KubewrightError():
            condition = ready_condition("False", type(error).__name__, str(error), generation)
        case TimeoutError():
            condition = ready_condition("False", "TimedOut", str(error) or "Timed out", generation)
        case _:
            message = f"{type(error).__name__}: {redact(str(error))}; it is retried with back-off"
            condition = ready_condition("False", "Error", message, generation)
            return _Outcome("error", condition, rate_limited=True, unexpected=True, error=error)
    return _Outcome("error", condition, rate_limited=True, error=error)


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
    ) -> None:
        self.controller, self.client = controller, client
        # A class attribute cannot be generic, so mypy does not know that this is T.
        self._kind: type[T] = controller.kind  # type: ignore[assignment]
        self._metrics = ControllerMetrics(metrics, controller.name, controller.concurrency)
        self._status_writer = StatusWriter(client, recorder, self._metrics)
        definition = controller.kind.definition
        self._log = log.bind(
            controller=controller.name,
            controllerGroup=definition.group,
            controllerKind=definition.name,
        )
        controller.log = self._log
        queue_metrics = QueueMetrics(metrics, controller.name)
        self.queue: WorkQueue[Key] = WorkQueue(queue_metrics, accepting=False)
        self._store = cache.store(self._kind)
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled = False
        """Whether `stop` has cancelled the workers."""
        self._stuck_keys: set[Key | None] = set()
        self._started_at: dict[Key, float] = {}
        """When user code began to run, by key."""
        self._primary_source = PrimaryKindSource(type(controller).predicate)
        self._primary_source.attach(self._store, self.queue)
        for source in controller.sources:
            if not isinstance(source, TimerSource):
                source.attach(self._store, cache, self.queue)

    def start(self) -> None:
        """Start the workers and timers, and enqueue every object. The caches are in sync by now."""
        self.queue.accepting = True
        for key in self._store.objects:
            self.queue.add(key, LOW_PRIORITY)
        for _ in range(self.controller.concurrency):
            self._start_task(self._run_worker())
        self._start_task(self._replace_stuck_workers())
        timers = [source for source in self.controller.sources if isinstance(source, TimerSource)]
        if self.controller.resync_seconds:
            timers.append(TimerSource(self.controller.resync_seconds, LOW_PRIORITY))
        for timer in timers:
            self._start_task(timer.run(self._store, self.queue))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        # The event loop keeps only weak references to tasks.
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout_seconds: float) -> None:
        """Take no new key, wait for the running reconciles, and cancel those that take longer."""
        self.queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self.queue.idle.wait()
        self._cancelled = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_GRACE_SECONDS)

    async def _run_worker(self) -> None:
        loop = asyncio.get_running_loop()
        key: Key | None = None
        # A stuck key has another worker already: this one ends once its reconcile has ended.
        while key not in self._stuck_keys and (entry := await self._next_key()) is not None:
            key, priority = entry
            self._metrics.active_workers.inc()
            started = loop.time()
            try:
                await self._process_key(key, priority)
            finally:
                self._metrics.active_workers.dec()
                self._metrics.reconcile_seconds.observe(loop.time() - started)
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
                self._absorb_cancellation(error)

    async def _replace_stuck_workers(self) -> None:
        """Start a new worker for each reconcile that does not end after it was cancelled.

        The key of the old one stays locked: an object is never reconciled by two workers.
        """
        while True:
            await asyncio.sleep(_CANCEL_GRACE_SECONDS)
            limit = self.controller.timeout_seconds + _CANCEL_GRACE_SECONDS
            started_before = asyncio.get_running_loop().time() - limit
            for key, started in self._started_at.items():
                if started < started_before and key not in self._stuck_keys:
                    self._log.error(
                        "a reconcile ignores its cancellation; another worker takes its place",
                        object=str(key),
                    )
                    self._stuck_keys.add(key)
                    self._start_task(self._run_worker())

    async def _process_key(self, key: Key, priority: int) -> None:
        obj = self._store.objects.get(key)
        if obj is None:
            self.queue.forget(key)
            return
        try:
            if isinstance(obj, UndecodableObject):
                # Terminal: a retry is useless until the object changes.
                condition = await self._status_writer.write_undecodable(obj, self._kind)
                outcome = _Outcome("error", condition, terminal=True)
            else:
                outcome = await self._reconcile_object(obj)
        except (Exception, asyncio.CancelledError) as error:
            self._absorb_cancellation(error)
            outcome = _outcome_from_error(error, obj.metadata.generation)
        self._apply_outcome(key, priority, outcome)

    def _absorb_cancellation(self, error: BaseException) -> None:
        """Only `stop` ends a worker. Any other cancellation came from inside a reconcile, and is a
        failure of that key alone.
        """
        if isinstance(error, asyncio.CancelledError) and self.queue.closed:
            raise error
        _clear_cancellations()

    def _apply_outcome(self, key: Key, priority: int, outcome: _Outcome) -> None:
        metrics, error = self._metrics, outcome.error
        metrics.results[outcome.result].inc()
        if outcome.terminal:
            metrics.terminal_errors.inc()
        if outcome.unexpected:
            # What a panic is in Go: an exception that is not part of the controller's interface.
            metrics.panics.inc()
        if outcome.result == "error":
            metrics.errors.inc()
        if outcome.result == "error" and error is not None:
            self._log.for_object(self._kind.definition.name, key).error(
                "Reconciler error", error=error
            )
        elif self._log.logger.isEnabledFor(logging.DEBUG):
            reason = outcome.condition.reason if outcome.condition is not None else ""
            if error is None:
                self._log.debug("reconciled", object=str(key), reason=reason)
            else:
                self._log.for_object(self._kind.definition.name, key).debug(
                    "not reconciled, retrying", error=error, seconds=outcome.requeue_after_seconds
                )
        if outcome.rate_limited:
            self.queue.add_rate_limited(key, priority)
            return
        self.queue.forget(key)
        if outcome.requeue_after_seconds is not None:
            self.queue.add_after(key, outcome.requeue_after_seconds, priority)

    async def _reconcile_object(self, obj: T) -> _Outcome:
        finalizer, finalizers = self.controller.finalizer, obj.metadata.finalizers
        deleting = obj.metadata.deletionTimestamp is not None
        if deleting and finalizer not in finalizers:
            return _Outcome("success", None)
        if finalizer and not deleting and finalizer not in finalizers:
            with_finalizer = await self._set_finalizers(obj, [*finalizers, finalizer])
            if with_finalizer is None:
                return _Outcome("success", None)
            obj = with_finalizer
        # The reconcile gets a copy of the status, since the object in the cache is shared. The
        # encoded form is compared later, to find out whether anything changed.
        encoded_before = msgspec.json.encode(obj.status)
        mutable: T = replace(
            obj, status=msgspec.json.decode(encoded_before, type=self._kind.status_type)
        )
        method = self.controller.finalize if deleting else self.controller.reconcile
        outcome = await self._run_user_code(method, mutable)
        if self._cancelled:
            # User code has caught the cancellation by `stop` and ended in another way. Its outcome
            # may be that of half the work: the next manager does it again.
            raise asyncio.CancelledError
        if deleting:
            ready = outcome.condition is not None and outcome.condition.status == "True"
            # With a delay, cleanup goes on: `Done(requeue_after_seconds=...)` keeps the finalizer,
            # although the type of finalize does not allow it.
            if ready and outcome.requeue_after_seconds is None:
                await self._set_finalizers(obj, [name for name in finalizers if name != finalizer])
                return outcome
        elif outcome.clear_status:
            mutable.status = self._kind.status_type()
        if outcome.condition is not None:
            # The watch event of this write must not enqueue the object again. It is recognized by
            # its revision: the resourceVersion as a number.
            with self._primary_source.own_write(obj.key) as own_revisions:
                written = await self._status_writer.write(
                    obj,
                    encoded_before,
                    mutable.status,
                    outcome.condition,
                    warning_event=outcome.warning_event,
                )
                if written is not None:
                    own_revisions.append(written.metadata.revision)
        return outcome

    async def _run_user_code(self, method: Callable[[T], Awaitable[object]], obj: T) -> _Outcome:
        """Run `reconcile` or `finalize`. Whatever it raises or returns becomes an outcome."""
        seconds, generation = self.controller.timeout_seconds, obj.metadata.generation
        self._started_at[obj.key] = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds) as deadline:
                returned = await method(obj)
        except TimeoutError as error:
            if not deadline.expired():
                return _outcome_from_error(error, generation)
            self._metrics.timeouts.inc()
            message = f"The reconcile took longer than {seconds:g} s and was stopped; it is retried"
            return _outcome_from_error(TimeoutError(message), generation)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            self._absorb_cancellation(error)
            return _outcome_from_error(error, generation)
        finally:
            del self._started_at[obj.key]
            _clear_cancellations()
        status_type = self._kind.status_type
        if not isinstance(obj.status, status_type):
            message = f"the reconcile set status to a {type(obj.status).__name__}, "
            message += f"not a {status_type.__name__}"
            obj.status = status_type()
            return _outcome_from_error(TypeError(message), generation)
        return _outcome_from_result(returned, generation)

    async def _set_finalizers(self, obj: T, finalizers: list[str]) -> T | None:
        """Write the list of finalizers; returns None if the object no longer exists."""
        # A merge patch replaces the whole list, so the patch names the version that it was made
        # from: another controller may have added its own finalizer since.
        metadata = {
            "resourceVersion": obj.metadata.resourceVersion,
            "finalizers": finalizers or None,
        }
        with self._primary_source.own_write(obj.key) as own_revisions:
            try:
                written = await self.client.patch(self._kind, obj.key, {"metadata": metadata})
            except NotFound:
                return None
            own_revisions.append(written.metadata.revision)
        return written


def _clear_cancellations() -> None:
    """Undo cancellations that user code left on its task, for example by a failed TaskGroup.

    The next `asyncio.timeout` would take them for the end of the engine.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
