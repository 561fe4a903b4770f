"""Keeps one Store current: list, then watch from there, until cancelled. A failure is logged, shown
in /readyz and retried.

    list (consistent, streamed or in pages) -> watch from its revision
        ended by the server                         -> watch again from the last revision
        silent for longer than a bookmark interval  -> watch again from the last revision
        two watches in a row without a line         -> list again, and report it in /readyz
        410 Gone                                    -> list again
        the server is older than the watch          -> list again
        kind missing, malformed or too large        -> list again, with back-off
        any other failure                           -> watch again, with back-off

Deletions that a watch missed are found by the next list. A revision is a resourceVersion; in
`metadata.revision` and in the Store it is an integer.

How are the objects listed? In pages, or (`use_watch_list`) as the first events of the watch, which
    a bookmark with an annotation ends. If the server rejects that, or does not send the bookmark,
    the objects are listed in pages from then on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .cache import Origin, Signal, Store
from .errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    KindMissing,
    ResponseTooLarge,
    TimedOut,
    TooManyRequests,
    TransportError,
    Undecodable,
)
from .kind import Key, Object, ObjectMeta
from .log import Log
from .metrics import Metrics
from .reader import WATCH_IDLE_TIMEOUT_SECONDS, Reader
from .responses import UndecodableObject, WatchEvent
from .watch_health import WatchHealth, describe_silence
from .watch_scope import WatchScope

T = TypeVar("T", bound=Object)

_INITIAL_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 8.0
_MIN_WATCH_SECONDS = 1.0
# Behind a proxy that buffers responses, and from a server that ignores the parameters, the end of
# the initial events never arrives.
_INITIAL_EVENT_TIMEOUT_SECONDS = 10.0
# An object that etcd could not read was deleted: the watch cannot deliver the event.
_STORE_READ_ERROR = "StoreReadError"
# How much earlier than requested a watch may end, by the rounding of two clocks.
_CLOCK_TOLERANCE_SECONDS = 1.0


class _NoWatchList(Exception):
    """The server does not send the objects as events of the watch."""


class Reflector(Generic[T]):
    """The list-and-watch loop of one kind in one namespace, or in all of them."""

    def __init__(
        self,
        kind: type[T],
        store: Store[T],
        client: Reader,
        metrics: Metrics,
        log: Log,
        *,
        namespace: str = "",
        use_watch_list: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind, self.store, self._client, self._metrics = kind, store, client, metrics
        self.name = store.name
        self.namespace, self.scope = namespace, WatchScope()
        self._log = log.bind(kind=self.name, **({"namespace": namespace} if namespace else {}))
        self._clock = clock
        self._use_watch_list, self._use_pages_once = use_watch_list, False
        self.synced = asyncio.Event()
        self._health = WatchHealth(WATCH_IDLE_TIMEOUT_SECONDS, clock)
        self._watch_started_at = clock()
        self._watch_accepted = False
        self.problem = ""
        self.problem_changed: Signal[()] = Signal(f"problem of {self.name} changed")
        self.resource_version = ""
        self._backoff_seconds = _INITIAL_BACKOFF_SECONDS

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if self._health.silent_watches and self.resource_version:
                    await self._check_server_revision()
                if not self.resource_version and not self._is_watch_list_usable():
                    await self.list_all()
                await self._watch()
            except _NoWatchList as error:
                self._use_watch_list = False
                self._log.debug("the server does not stream lists, using pages", why=str(error))
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

    async def _check_server_revision(self) -> None:
        """List again if the server is older than the watch: etcd was restored from a backup.

        A watch from a revision that the server does not have yet is accepted, and silent until the
        server has it.
        """
        async for page in self._client.list_pages(self.kind, self.namespace, limit=1):
            if int(page.resource_version) < int(self.resource_version):
                self._log.warning(
                    "the server went back in time, listing again; was etcd restored?",
                    revision=self.resource_version,
                    server=page.resource_version,
                )
                self.resource_version = ""
            return

    def _is_watch_list_usable(self) -> bool:
        return self._use_watch_list and not self._use_pages_once

    async def list_all(self) -> None:
        """Fill the store with a list in pages."""
        self._metrics.lists.labels(self.name).inc()
        listed: set[Key] = set()
        revision, server_restored = "", False
        async for page in self._client.list_pages(
            self.kind, self.namespace, shard_selector=self.scope.selector
        ):
            revision = revision or page.resource_version
            # An older revision than before: etcd was restored from a backup, see cache.py.
            server_restored = int(revision) < self.store.watched_revision(self.namespace)
            for item in page.items:
                if self.scope.covers(item.metadata):
                    listed.add(item.metadata.key)
                    self._store_object(item, origin=self._list_origin(), force=server_restored)
        self._use_pages_once = False
        self._on_list_complete(listed, revision, server_restored=server_restored)

    def _list_origin(self) -> Origin:
        return Origin.WATCH if self.synced.is_set() else Origin.INITIAL_LIST

    def _on_list_complete(
        self, listed: set[Key], revision: str, *, server_restored: bool = False
    ) -> None:
        self.store.finish_list(
            listed, int(revision), self.namespace, force=server_restored, covers=self.scope.covers
        )
        self.resource_version = revision
        self._health.mark_listed()
        self._on_accepted()
        if not self.synced.is_set():
            self._log.debug("the cache is in sync", objects=len(listed))
        self.synced.set()

    async def _watch(self) -> None:
        requested_at = self._watch_started_at = self._clock()
        self._watch_accepted, received_nothing = False, True
        # The keys of the initial events, until all of them were received.
        listed: set[Key] | None = None if self.resource_version else set()
        reason, timeout = "ended", self._health.choose_timeout(allow_short=listed is None)
        if listed is not None:
            self._metrics.lists.labels(self.name).inc()
        try:
            async with asyncio.timeout(None) as initial_timeout:
                if listed is not None:
                    initial_timeout.reschedule(self._initial_event_deadline())
                async for event in self._client.watch(
                    self.kind,
                    self.resource_version,
                    self.namespace,
                    timeout_seconds=timeout,
                    idle_timeout_seconds=self._health.idle_timeout_seconds,
                    shard_selector=self.scope.selector,
                    send_initial_events=listed is not None,
                    on_open=self._on_watch_open,
                ):
                    received_nothing = False
                    if listed is None:
                        self._apply_event(event)
                    elif self._apply_initial_event(event, listed):
                        listed = None
                        initial_timeout.reschedule(None)
                        # What follows counts as a watch of its own.
                        received_nothing, self._watch_started_at = True, self._clock()
                    else:
                        initial_timeout.reschedule(self._initial_event_deadline())
            if self._clock() - requested_at >= timeout - _CLOCK_TOLERANCE_SECONDS:
                received_nothing = False
                self._mark_alive()
        except TimeoutError:
            received_nothing = False
            raise _NoWatchList("the end of the initial events was not received") from None
        except Invalid as error:
            received_nothing = False
            if listed is None:
                raise
            raise _NoWatchList(str(error)) from error
        except TimedOut:
            reason = "silent"
            if not self.is_silent:
                self._log.warning(
                    "the watch is silent, reconnecting from the last revision",
                    revision=self.resource_version,
                )
        except (ApiError, Undecodable, ResponseTooLarge, asyncio.CancelledError):
            # It received a line, such as 410 Gone, or was rejected, or the manager stops.
            received_nothing = False
            raise
        finally:
            # A proxy may hold back the headers too. A watch that was rejected is not silent.
            if received_nothing and (self._watch_accepted or reason == "silent"):
                self._on_silent_watch()
        await self._on_attempt_ended(reason)

    def _initial_event_deadline(self) -> float:
        return asyncio.get_running_loop().time() + _INITIAL_EVENT_TIMEOUT_SECONDS

    def _apply_initial_event(self, event: WatchEvent[T], listed: set[Key]) -> bool:
        """Apply an event of the initial state; returns whether it was the last one.

        Their revisions are not in order. Changes in between are events too.
        """
        if event.ends_initial_events:
            if int(event.resource_version) < self.store.watched_revision(self.namespace):
                # The first page of a list shows it before an object is compared.
                self._use_pages_once = True
                raise Undecodable("the server went back in time; listing in pages")
            self._on_list_complete(listed, event.resource_version)
            self._mark_alive()
            return True
        if event.object is not None and self.scope.covers(event.object.metadata):
            self._check_namespace(event.object.metadata)
            metadata = event.object.metadata
            if event.type == "DELETED":
                listed.discard(metadata.key)
                self.store.remove(metadata.key, metadata.revision, metadata.uid)
            else:
                listed.add(metadata.key)
                self._store_object(event.object, origin=self._list_origin())
        return False

    def _apply_event(self, event: WatchEvent[T]) -> None:
        revision = self._validate_event(event)
        self._mark_alive()
        self._backoff_seconds = _INITIAL_BACKOFF_SECONDS
        if event.object is not None and self.scope.is_news(event.object.metadata, revision):
            if event.type == "DELETED":
                metadata = event.object.metadata
                self.store.remove(metadata.key, revision, metadata.uid)
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
        if event.object is not None:
            self._check_namespace(event.object.metadata)
        return revision

    def _check_namespace(self, metadata: ObjectMeta) -> None:
        if self.namespace and metadata.namespace != self.namespace:
            raise Undecodable(
                f"the watch delivered an object of namespace {metadata.namespace[:63]}"
            )

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
        self._health.mark_alive()
        if self.problem:
            self._clear_problem()

    def _on_watch_open(self) -> None:
        self._watch_accepted = True
        self._on_accepted()

    def _on_accepted(self) -> None:
        """The server answered: this ends every problem except silence."""
        if self.is_silent:
            self._set_problem(describe_silence(self.name))
        elif self.problem:
            self._clear_problem()

    def _on_silent_watch(self) -> None:
        was_broken = self.is_silent
        if self._health.count_silent_watch(self._clock() - self._watch_started_at):
            self.resource_version = ""
            if not was_broken:
                self._log.error(describe_silence(self.name))
                self._set_problem(describe_silence(self.name))

    def _clear_problem(self) -> None:
        self._log.info("the watch works again")
        self._set_problem("")

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.problem_changed.emit()

    @property
    def is_silent(self) -> bool:
        """Whether the watches receive nothing, so that only lists find changes."""
        return self._health.is_broken

    @property
    def is_listed(self) -> bool:
        return self.synced.is_set()

    @property
    def age_seconds(self) -> float:
        """Seconds since the watch was last seen to work, or since the list before it."""
        return self._health.age_seconds

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
        if not self.resource_version and not isinstance(error, TooManyRequests | TransportError):
            # A list in pages may succeed where the stream does not.
            self._use_pages_once = True
        if isinstance(error, KindMissing | BadRequest | Undecodable | ResponseTooLarge) or (
            isinstance(error, ApiError) and error.reason == _STORE_READ_ERROR
        ):
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
        resource = self.kind.definition.group_resource
        match error:
            case KindMissing():
                fix = (
                    "To install it, run: kubectl apply --server-side -k config/crd "
                    "(or `make install`), or `kubewright run --install` for an operator in one file"
                )
                if self.kind.definition.external:
                    fix = "Install the operator or the CRD that provides it"
                return f"the kind {resource} is not installed; waiting for its CRD. {fix}"
            case Forbidden():
                return (
                    f"{error}. The generated role grants this permission: "
                    "kubectl apply --server-side -k config/rbac; retrying"
                )
            case _:
                return f"watching {self.name} failed, retrying: {error}"
