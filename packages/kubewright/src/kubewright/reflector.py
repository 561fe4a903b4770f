"""Keeps one Store true: list, then watch from there, for ever. Never deaf, never gives up, always says what is wrong.

    list (consistent, paged) -> watch from its revision -> ended by the server: watch again from the last revision shown
                                                       -> silent for longer than a bookmark takes: the same
                                                       -> 410, in the stream or as an answer: list again
                                                       -> any other failure: the same watch again, with back-off

Deletions that a watch missed show in the next list as what is not there any more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .cache import Origin, Store
from .client import Client
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
from .kind import Object
from .log import Log
from .meta import Key
from .metrics import Metrics
from .responses import UndecodableObject, WatchEvent

T = TypeVar("T", bound=Object)

INITIAL_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 8.0
_MIN_NORMAL_WATCH_SECONDS = 1.0
# The server ends a watch after this time by itself, spread so that the watches of many managers do not return together.
MIN_WATCH_TIMEOUT_SECONDS, MAX_WATCH_TIMEOUT_SECONDS = 300, 600


class Reflector(Generic[T]):
    """One list-and-watch loop, for one kind in one namespace (or in all of them)."""

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
        self.kind, self.store, self.client, self.metrics = kind, store, client, metrics
        self.name = kind.definition.group_resource
        self.namespace = namespace
        self.log = log.bind(kind=self.name, **({"namespace": namespace} if namespace else {}))
        self.clock = clock
        self.synced = asyncio.Event()
        self._last_activity_at = self._watch_started_at = clock()
        self.problem = ""
        self.problem_changed: list[Callable[[], object]] = []
        """Called when `problem` has changed."""
        self.resource_version = ""
        self._backoff_seconds = INITIAL_BACKOFF_SECONDS

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self.resource_version:
                    await self.list()
                await self.watch()
                await self._on_watch_ended("ended")
            except Gone:
                self.log.info("the watch is too far behind for the API server, listing again")
                if not self.resource_version:
                    await self._backoff()
                self.resource_version = ""
                await self._on_watch_ended("gone")
            except TimedOut as error:
                if not self.resource_version:
                    await self.on_failure(error)
                    continue
                self.metrics.count_watch_restart(self.name, "silent")
                self.log.warning(
                    "the watch has gone silent, connecting again from where it was",
                    revision=self.resource_version,
                )
            except Exception as error:
                await self.on_failure(error)

    async def list(self) -> None:
        """Bring the store to one moment of the server, then say which."""
        self.metrics.count_list(self.name)
        seen: set[Key] = set()
        revision, backwards = "", False
        async for page in self.client.list_pages(self.kind, self.namespace):
            revision = revision or page.resource_version
            backwards = int(revision) < self.store.watched_revision(self.namespace)
            for item in page.items:
                seen.add(item.metadata.key)
                self._store_object(
                    item,
                    via=Origin.WATCH if self.synced.is_set() else Origin.INITIAL_LIST,
                    force=backwards,
                )
        self.store.finish_list(seen, int(revision), self.namespace, force=backwards)
        self.resource_version = revision
        self.mark_alive()
        if not self.synced.is_set():
            self.log.debug("the cache is filled", objects=len(seen))
        self.synced.set()

    async def watch(self) -> None:
        """Follow the changes since the last revision until the server ends the watch."""
        self._watch_started_at = self.clock()
        limit = random.randint(MIN_WATCH_TIMEOUT_SECONDS, MAX_WATCH_TIMEOUT_SECONDS)
        async for change in self.client.watch(
            self.kind,
            self.resource_version,
            self.namespace,
            timeout_seconds=limit,
            on_open=self.mark_alive,
        ):
            revision = self._validate_event(change)
            self.mark_alive()
            self._backoff_seconds = INITIAL_BACKOFF_SECONDS
            if change.object is not None:
                if change.type == "DELETED":
                    self.store.remove(change.object.metadata.key, revision)
                else:
                    self._store_object(change.object)
            self.resource_version = change.resource_version
            self.store.advance_revision(revision, self.namespace)

    def _validate_event(self, change: WatchEvent[T]) -> int:
        """The revision of a change that can be true: time goes forward, and nothing comes from a namespace that was not asked for."""
        revision = int(change.resource_version)
        if revision < int(self.resource_version):
            raise Undecodable(
                f"the watch went back in time, from revision {self.resource_version} to {revision}"
            )
        if (
            self.namespace
            and change.object is not None
            and change.object.metadata.namespace != self.namespace
        ):
            raise Undecodable(
                f"the watch showed an object of namespace {change.object.metadata.namespace[:63]}"
            )
        return revision

    def _store_object(
        self, item: T | UndecodableObject, *, via: Origin = Origin.WATCH, force: bool = False
    ) -> None:
        """Into the store, counted when it does not decode."""
        if isinstance(item, UndecodableObject):
            self.metrics.count_undecodable(self.name)
            self.log.error(
                "an object does not decode and is left out",
                object=str(item.metadata.key),
                why=item.message,
            )
        self.store.put(item, origin=via, force=force)

    def mark_alive(self) -> None:
        """Something came from the server."""
        self._last_activity_at = self.clock()
        if self.problem:
            self.log.info("the watch works again")
            self.set_problem("")

    def set_problem(self, problem: str) -> None:
        """Something else is wrong from now on, or nothing any more."""
        self.problem = problem
        for listener in self.problem_changed:
            listener()

    @property
    def age_seconds(self) -> float:
        """How long ago the watch last showed life."""
        return self.clock() - self._last_activity_at

    async def _on_watch_ended(self, reason: str) -> None:
        """A watch has ended in an orderly way: go on at once, unless it had only just begun; then something keeps ending it."""
        self.metrics.count_watch_restart(self.name, reason)
        if self.clock() - self._watch_started_at < _MIN_NORMAL_WATCH_SECONDS:
            await self._backoff()

    async def _backoff(self, at_least_seconds: float = 0.0) -> None:
        """Wait, a little longer each time until a watch shows life again."""
        await asyncio.sleep(max(at_least_seconds, self._backoff_seconds * random.uniform(0.8, 1.2)))
        self._backoff_seconds = min(self._backoff_seconds * 2, MAX_BACKOFF_SECONDS)

    async def on_failure(self, error: Exception) -> None:
        """Say what is wrong, once, and wait a little longer each time.

        A kind that is missing is listed again when it is back. So is one whose watch showed what cannot be, or whose revision the server
        cannot read: the same watch would only show the same again.
        """
        self.metrics.count_watch_restart(self.name, type(error).__name__)
        if isinstance(error, KindMissing | BadRequest | Undecodable | TooMuch):
            self.resource_version = ""
        words = self.describe_error(error)
        if words != self.problem:
            self.log.error(words, error=None if isinstance(error, ApiError) else error)
            self.set_problem(words)
        asked = error.retry_after if isinstance(error, ApiError) else None
        await self._backoff(asked or 0.0)

    def describe_error(self, error: Exception) -> str:
        """What the failure means and what to do about it."""
        match error:
            case KindMissing():
                return f"the kind {self.name} is not installed; waiting for its CRD: kubectl apply -k config/crd (or `make install`)"
            case Forbidden():
                return f"{error}. The generated role grants this right: kubectl apply -k config/rbac; trying again"
            case _:
                return f"watching {self.name} failed, trying again: {error}"
