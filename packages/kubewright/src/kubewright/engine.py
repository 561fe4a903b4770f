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
from .outcome import Outcome, outcome_of_error, outcome_of_return
from .responses import Undecoded
from .source import OnOwn, OnTimer
from .status import StatusWriter
from .workqueue import LOW, WorkQueue

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
        statuses: StatusWriter,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.controller, self.cache, self.client, self.statuses = (
            controller,
            cache,
            client,
            statuses,
        )
        self.kind: type[T] = controller.kind  # type: ignore[assignment]  # the class attribute cannot be generic
        self.about = controller.kind.definition
        self.metrics = metrics.controller(controller.name, controller.concurrency)
        self.log = log.bind(
            controller=controller.name,
            controllerGroup=self.about.group,
            controllerKind=self.about.name,
        )
        controller.log = self.log
        self.queue: WorkQueue[Key] = WorkQueue(metrics.queue(controller.name), open=False)
        self.store = cache.store(self.kind)
        self.tasks: set[asyncio.Task[None]] = set()
        self.replaced: set[Key | None] = set()
        self.stepping: dict[Key, float] = {}
        """Since when user code has been running, by key."""
        self.connect()

    def connect(self) -> None:
        """Connect everything that wakes our objects to the queue."""
        self.own = OnOwn(type(self.controller).when)
        self.own.attach(self.store, self.queue)
        for wake in self.controller.wakes:
            if not isinstance(wake, OnTimer):
                wake.attach(self.store, self.cache, self.queue)

    def start(self) -> None:
        """Start the workers and timers, and look at every object once; the caches are filled by now."""
        self.queue.open = True
        for key in self.store.objects:
            self.queue.add(key, LOW)
        for _ in range(self.controller.concurrency):
            self.spawn(self.work())
        timers = [wake for wake in self.controller.wakes if isinstance(wake, OnTimer)]
        if self.controller.resync_seconds:
            timers.append(OnTimer(self.controller.resync_seconds, LOW))
        self.spawn(self.patrol())
        for timer in timers:
            self.spawn(timer.run(self.store, self.queue))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that we hold on to until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stop(self, grace_seconds: float) -> None:
        """Take up nothing more, let what is in work end, and cancel what does not end in time."""
        self.queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self.queue.drained()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=GRACE_SECONDS)

    async def work(self) -> None:
        """Take up keys one after the other. A worker that was replaced leaves when its reconcile ends at last."""
        loop = asyncio.get_running_loop()
        key: Key | None = None
        while key not in self.replaced and (taken := await self.next_key()) is not None:
            key, priority = taken
            self.metrics.active(1)
            started = loop.time()
            try:
                await self.process(key, priority)
            finally:
                self.metrics.active(-1)
                self.metrics.took(loop.time() - started)
                self.queue.done(key)
        self.replaced.discard(key)

    async def next_key(self) -> tuple[Key, int] | None:
        """The next key; a cancellation that a reconcile has left behind for its worker comes out here, and is none of ours."""
        while True:
            try:
                # A reconcile that waits for nothing gives nobody a turn: not the watch that brings an edit, the lease, nor a probe.
                await asyncio.sleep(0)
                return await self.queue.get()
            except asyncio.CancelledError as error:
                self.go_on_after(error)

    async def patrol(self) -> None:
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
                for k, started in self.stepping.items()
                if started < oldest and k not in self.replaced
            ]:
                self.log.error(
                    "a reconcile does not stop although it was told to; another worker takes its place",
                    object=str(key),
                )
                self.replaced.add(key)
                self.spawn(self.work())

    async def process(self, key: Key, priority: int) -> None:
        """One key, from the cache to the queue again; nothing that goes wrong here leaves this key."""
        seen = self.store.objects.get(key)
        if seen is None:
            self.queue.forget(key)
            return
        try:
            outcome = await (
                self.statuses.refuse(seen, self.kind)
                if isinstance(seen, Undecoded)
                else self.handle(seen)
            )
        except (Exception, asyncio.CancelledError) as error:
            self.go_on_after(error)
            outcome = outcome_of_error(error, seen.metadata.generation)
        self.settle(key, priority, outcome)

    def go_on_after(self, error: BaseException) -> None:
        """A cancellation that is not the engine's own end came from inside the reconcile, and is that key's failure alone."""
        if isinstance(error, asyncio.CancelledError) and self.queue.closed:
            raise error
        forget_cancellations()

    def settle(self, key: Key, priority: int, outcome: Outcome) -> None:
        """Queue, metric and log line of an outcome."""
        self.metrics.count(outcome.result, terminal=outcome.terminal, unexpected=outcome.unexpected)
        if outcome.error is not None:
            self.explain(key, outcome, outcome.error)
        else:
            self.log.debug(
                "reconciled",
                object=str(key),
                reason=outcome.condition.reason if outcome.condition else "",
            )
        if outcome.backs_off:
            self.queue.add_backed_off(key, priority)
            return
        self.queue.forget(key)
        if outcome.again_after_seconds is not None:
            self.queue.add_after(key, outcome.again_after_seconds, priority)

    def explain(self, key: Key, outcome: Outcome, error: BaseException) -> None:
        """The log line of a failure; what will pass is no error."""
        log = self.controller.log_of(key)
        if outcome.result == "error":
            log.error("Reconciler error", error=error)
        else:
            log.debug("not now, again later", error=error, seconds=outcome.again_after_seconds)

    async def handle(self, seen: T) -> Outcome:
        """Finalizer first, then the reconcile, then the status."""
        finalizer = self.controller.finalizer
        ours = finalizer in seen.metadata.finalizers
        if seen.metadata.deletionTimestamp is not None:
            return await self.say_goodbye(seen) if ours else Outcome("success", None)
        if finalizer and not ours:
            held = await self.set_finalizers(seen, [*seen.metadata.finalizers, finalizer])
            if held is None:
                return Outcome("success", None)
            seen = held
        before = msgspec.json.encode(seen.status)
        obj: T = replace(seen, status=msgspec.json.decode(before, type=self.kind.status_type))
        given = obj.status
        outcome = await self.attempt(self.controller.reconcile, obj)
        if outcome.terminal and obj.status is given and msgspec.json.encode(given) == before:
            obj.status = self.kind.status_type()
        if outcome.condition is not None:
            await self.write_status(
                seen, before, obj.status, outcome.condition, warns=outcome.warns
            )
        return outcome

    async def write_status(
        self, seen: T, before: bytes, status: Any, condition: Condition, *, warns: bool
    ) -> None:
        """Send the status if it changed; its echo on the watch is then known to be ours."""
        with self.own.writing(seen.key) as ours:
            written = await self.statuses.write(
                seen, before, status, condition, self.metrics, warns=warns
            )
            if written is not None:
                ours.append(written.metadata.revision)

    async def attempt(self, step: Callable[[T], Awaitable[object]], obj: T) -> Outcome:
        """Run user code within its time; whatever it raises, hangs on or returns becomes an outcome of this key."""
        seconds, generation = self.controller.timeout_seconds, obj.metadata.generation
        self.stepping[obj.key] = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds) as limit:
                returned = await step(obj)
        except TimeoutError as error:
            if not limit.expired():
                return outcome_of_error(error, generation)
            self.metrics.timed_out()
            return outcome_of_error(
                TimeoutError(
                    f"the reconcile took longer than {seconds:g} s and was stopped; it is tried again"
                ),
                generation,
            )
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            self.go_on_after(error)
            return outcome_of_error(error, generation)
        finally:
            del self.stepping[obj.key]
            forget_cancellations()
        if not isinstance(obj.status, self.kind.status_type):
            wrong = TypeError(
                f"the reconcile set status to {type(obj.status).__name__}, not {self.kind.status_type.__name__}"
            )
            obj.status = self.kind.status_type()
            return outcome_of_error(wrong, generation)
        return outcome_of_return(returned, generation)

    async def say_goodbye(self, seen: T) -> Outcome:
        """Finalize an object that is being deleted, then let it go."""
        before = msgspec.json.encode(seen.status)
        obj: T = replace(seen, status=msgspec.json.decode(before, type=self.kind.status_type))
        outcome = await self.attempt(self.controller.finalize, obj)
        if outcome.result == "success":
            await self.set_finalizers(
                seen, [f for f in seen.metadata.finalizers if f != self.controller.finalizer]
            )
        elif outcome.condition is not None:
            await self.write_status(
                seen, before, obj.status, outcome.condition, warns=outcome.warns
            )
        return outcome

    async def set_finalizers(self, seen: T, finalizers: list[str]) -> T | None:
        """Write the list of finalizers, if nobody wrote since: a merge patch replaces it as a whole. None where the object is gone."""
        metadata = {
            "resourceVersion": seen.metadata.resourceVersion,
            "finalizers": finalizers or None,
        }
        with self.own.writing(seen.key) as ours:
            try:
                written = await self.client.patch(self.kind, seen.key, {"metadata": metadata})
            except KindMissing:
                raise
            except NotFound:
                return None
            ours.append(written.metadata.revision)
        return written


def forget_cancellations() -> None:
    """Take back what user code left on its worker, such as a TaskGroup that failed: the next timeout would take it for the engine's end."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
