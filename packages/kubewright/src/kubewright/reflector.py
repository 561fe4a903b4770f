"""Keeps one Store current: list, then watch from there, until cancelled. A failure is logged, shown
in /readyz and retried.

    list (consistent, paged) -> watch from its revision
        ended by the server                         -> watch again from the last revision
        silent for longer than a bookmark interval  -> watch again from the last revision
        two watches in a row without a line         -> list again, and report it in /readyz
        410 Gone                                    -> list again
        kind missing, malformed or too large        -> list again, with back-off
        any other failure                           -> watch again, with back-off

Deletions that a watch missed are found by the next list. A revision is a resourceVersion; in
`metadata.revision` and in the Store it is an integer.

What shows that a watch works? A line, or an end at the time that the request asked for. A proxy
    that buffers responses accepts every watch and delivers nothing, so an accepted watch proves
    nothing.
Is a silent watch a broken one? Not always: kube-apiserver sends a bookmark every minute only if its
    resourceVersion has advanced, which for a quiet kind needs the progress notifications of etcd.
    So a short watch follows a silent one. If not even its end arrives, the watches are broken.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .cache import Origin, Signal, Store
from .client import WATCH_IDLE_TIMEOUT_SECONDS, Client
from .errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    KindMissing,
    TimedOut,
    TooMuch,
    Undecodable,
)
from .kind import Key, Object
from .log import Log
from .metrics import Metrics
from .responses import UndecodableObject, WatchEvent

T = TypeVar("T", bound=Object)

_INITIAL_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 8.0
_MIN_WATCH_SECONDS = 1.0
# The server ends a watch after this time. Random, so that many watches do not return together.
_MIN_WATCH_TIMEOUT_SECONDS, _MAX_WATCH_TIMEOUT_SECONDS = 300, 600
# A single silent watch may be a connection that broke. A second one on a new connection is not.
_MAX_SILENT_WATCHES = 2
# After a silent watch, this many watches are short: their end shows that they work. A load balancer
# may have ended the silent one because it was idle, so they are shorter than it was.
_SHORT_WATCHES = 20
_MIN_SHORT_WATCH_SECONDS, _MAX_SHORT_WATCH_SECONDS = 5, 30
_SHORT_WATCH_FRACTION = 0.75
# How much earlier than requested a watch may end, by the rounding of two clocks.
_CLOCK_TOLERANCE_SECONDS = 1.0


class Reflector(Generic[T]):
    """The list-and-watch loop of one kind in one namespace, or in all of them."""

    def __init__(
        self,
        kind: type[T],
        store: Store[T],
        client: Client,
        metrics: Metrics,
        log: Log,
        *,
        namespace: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind, self.store, self._client, self._metrics = kind, store, client, metrics
        self.name = kind.definition.group_resource
        self.namespace = namespace
        self._log = log.bind(kind=self.name, **({"namespace": namespace} if namespace else {}))
        self._clock = clock
        self.synced = asyncio.Event()
        self._idle_timeout_seconds = WATCH_IDLE_TIMEOUT_SECONDS
        self._last_alive_at = self._last_list_at = self._watch_started_at = clock()
        self._watch_accepted = False
        self._silent_watches = 0
        self._short_watch_seconds = self._short_watches_left = 0
        self.is_silent = False
        """Whether the watches receive nothing, so that only lists find changes."""
        self.problem = ""
        self.problem_changed: Signal[()] = Signal(f"problem of {self.name} changed")
        self.resource_version = ""
        self._backoff_seconds = _INITIAL_BACKOFF_SECONDS

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch()
            except Gone:
                was_listing = not self.resource_version
                self._log.info(
                    "the continue token of the list expired, listing again"
                    if was_listing
                    else "the resourceVersion of the watch is too old, listing again"
                )
                self.resource_version = ""
                await self._on_attempt_ended("gone", always_pause=was_listing)
            except Exception as error:
                await self._on_failure(error)

    async def _list(self) -> None:
        self._metrics.lists.labels(self.name).inc()
        listed: set[Key] = set()
        revision, server_restored = "", False
        async for page in self._client.list_pages(self.kind, self.namespace):
            revision = revision or page.resource_version
            # An older revision than before: etcd was restored from a backup, see cache.py.
            server_restored = int(revision) < self.store.watched_revision(self.namespace)
            for item in page.items:
                listed.add(item.metadata.key)
                self._store_object(
                    item,
                    origin=Origin.WATCH if self.synced.is_set() else Origin.INITIAL_LIST,
                    force=server_restored,
                )
        self.store.finish_list(listed, int(revision), self.namespace, force=server_restored)
        self.resource_version = revision
        self._last_list_at = self._clock()
        if not self.is_silent:
            self._last_alive_at = self._last_list_at
        self._on_accepted()
        if not self.synced.is_set():
            self._log.debug("the cache is in sync", objects=len(listed))
        self.synced.set()

    async def _watch(self) -> None:
        self._watch_started_at = self._clock()
        self._watch_accepted, received_nothing = False, True
        reason, timeout = "ended", self._choose_watch_timeout()
        try:
            async for event in self._client.watch(
                self.kind,
                self.resource_version,
                self.namespace,
                timeout_seconds=timeout,
                idle_timeout_seconds=self._idle_timeout_seconds,
                on_open=self._on_watch_open,
            ):
                received_nothing = False
                self._apply_event(event)
            if self._clock() - self._watch_started_at >= timeout - _CLOCK_TOLERANCE_SECONDS:
                received_nothing = False
                self._mark_alive()
        except TimedOut:
            reason = "silent"
            if not self.is_silent:
                self._log.warning(
                    "the watch is silent, reconnecting from the last revision",
                    revision=self.resource_version,
                )
        except (ApiError, Undecodable, TooMuch, asyncio.CancelledError):
            # It received a line, such as 410 Gone, or was rejected, or the manager stops.
            received_nothing = False
            raise
        finally:
            # A proxy may hold back the headers too. A watch that was rejected is not silent.
            if received_nothing and (self._watch_accepted or reason == "silent"):
                self._on_silent_watch()
        await self._on_attempt_ended(reason)

    def _choose_watch_timeout(self) -> int:
        if self._short_watches_left:
            self._short_watches_left -= 1
            return self._short_watch_seconds
        return random.randint(_MIN_WATCH_TIMEOUT_SECONDS, _MAX_WATCH_TIMEOUT_SECONDS)

    def _apply_event(self, event: WatchEvent[T]) -> None:
        revision = self._validate_event(event)
        self._mark_alive()
        self._backoff_seconds = _INITIAL_BACKOFF_SECONDS
        if event.object is not None:
            if event.type == "DELETED":
                self.store.remove(event.object.metadata.key, revision)
            else:
                self._store_object(event.object)
        self.resource_version = event.resource_version
        self.store.advance_revision(revision, self.namespace)

    def _validate_event(self, event: WatchEvent[T]) -> int:
        """The revision of the event. A proxy that mixes up connections must not fill the cache."""
        revision = int(event.resource_version)
        if revision < int(self.resource_version):
            raise Undecodable(
                f"the watch went back in time, from revision {self.resource_version} to {revision}"
            )
        obj = event.object
        if self.namespace and obj is not None and obj.metadata.namespace != self.namespace:
            raise Undecodable(
                f"the watch delivered an object of namespace {obj.metadata.namespace[:63]}"
            )
        return revision

    def _store_object(
        self, item: T | UndecodableObject, *, origin: Origin = Origin.WATCH, force: bool = False
    ) -> None:
        if isinstance(item, UndecodableObject):
            self._metrics.undecodable.labels(self.name).inc()
            self._log.error(
                "an object cannot be decoded; its controller reports it in the status",
                object=str(item.metadata.key),
                why=item.message,
            )
        self.store.put(item, origin=origin, force=force)

    def _mark_alive(self) -> None:
        self._last_alive_at = self._clock()
        self._silent_watches, self.is_silent = 0, False
        if self.problem:
            self._clear_problem()

    def _on_watch_open(self) -> None:
        self._watch_accepted = True
        self._on_accepted()

    def _on_accepted(self) -> None:
        """The server answered: this ends every problem except silence."""
        if self.is_silent:
            self._set_problem(self._describe_silence())
        elif self.problem:
            self._clear_problem()

    def _on_silent_watch(self) -> None:
        """Count a watch that was accepted and delivered nothing, and decide what follows."""
        now = self._clock()
        self._silent_watches += 1
        seconds = int((now - self._watch_started_at) * _SHORT_WATCH_FRACTION)
        self._short_watch_seconds = max(
            _MIN_SHORT_WATCH_SECONDS, min(seconds, _MAX_SHORT_WATCH_SECONDS)
        )
        self._short_watches_left = _SHORT_WATCHES
        quiet_seconds = now - max(self._last_alive_at, self._last_list_at)
        # The second condition bounds how often watches that end at once lead to a list.
        if self._silent_watches < _MAX_SILENT_WATCHES or quiet_seconds < self._idle_timeout_seconds:
            return
        self.resource_version = ""
        if not self.is_silent:
            self.is_silent = True
            self._log.error(self._describe_silence())
            self._set_problem(self._describe_silence())

    def _describe_silence(self) -> str:
        return (
            f"the watches of {self.name} are accepted, but receive nothing, not even their end; "
            "listing instead. A proxy in front of the API server probably buffers responses: "
            "disable that for it (nginx: proxy_buffering off)"
        )

    def _clear_problem(self) -> None:
        self._log.info("the watch works again")
        self._set_problem("")

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.problem_changed.emit()

    @property
    def age_seconds(self) -> float:
        """Seconds since the watch was last seen to work, or since the list before it."""
        return self._clock() - self._last_alive_at

    async def _on_attempt_ended(self, reason: str, *, always_pause: bool = False) -> None:
        """Pause once before the next list or watch if this one was a list or ended at once."""
        self._metrics.watch_restarts.labels(self.name, reason).inc()
        if always_pause or self._clock() - self._watch_started_at < _MIN_WATCH_SECONDS:
            # Something keeps ending the watch; without a pause this would be a busy loop.
            await self._backoff()

    async def _backoff(self, at_least_seconds: float = 0.0) -> None:
        await asyncio.sleep(max(at_least_seconds, self._backoff_seconds * random.uniform(0.8, 1.2)))
        self._backoff_seconds = min(self._backoff_seconds * 2, MAX_BACKOFF_SECONDS)

    async def _on_failure(self, error: Exception) -> None:
        self._metrics.watch_restarts.labels(self.name, type(error).__name__).inc()
        if isinstance(error, KindMissing | BadRequest | Undecodable | TooMuch):
            # The same watch would fail in the same way: list again. A kind that was missing may
            # have other objects when its CRD is back.
            self.resource_version = ""
        problem = self.describe_problem(error)
        if problem != self.problem:
            self._log.error(problem, error=None if isinstance(error, ApiError) else error)
            self._set_problem(problem)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        await self._backoff(retry_after or 0.0)

    def describe_problem(self, error: Exception) -> str:
        """What failed and what to do; a subclass may know another fix."""
        match error:
            case KindMissing():
                return (
                    f"the kind {self.name} is not installed; waiting for its CRD. To install it, "
                    "run: kubectl apply -k config/crd (or `make install`)"
                )
            case Forbidden():
                return (
                    f"{error}. The generated role grants this permission: "
                    "kubectl apply -k config/rbac; retrying"
                )
            case _:
                return f"watching {self.name} failed, retrying: {error}"
