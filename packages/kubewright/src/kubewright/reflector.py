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

from .cache import Store, Via
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
from .responses import Change, Undecoded

T = TypeVar("T", bound=Object)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
SHORTEST_HONEST_WATCH_SECONDS = 1.0
# The server ends a watch after this time by itself, spread so that the watches of many managers do not return together.
SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS = 300, 600


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
        self.name = kind.definition.resource
        self.namespace = namespace
        self.log = log.bind(kind=self.name, **({"namespace": namespace} if namespace else {}))
        self.clock = clock
        self.synced = asyncio.Event()
        self.alive_at = self.began_at = clock()
        self.problem = ""
        self.turned: list[Callable[[], object]] = []
        """Called when `problem` has changed."""
        self.revision = ""
        self.pause = FIRST_PAUSE_SECONDS

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self.revision:
                    await self.list()
                await self.watch()
                await self.again("ended")
            except Gone:
                self.log.info("the watch is too far behind for the API server, listing again")
                if not self.revision:
                    await self.breathe()
                self.revision = ""
                await self.again("gone")
            except TimedOut as error:
                if not self.revision:
                    await self.after(error)
                    continue
                self.metrics.watch_restarted(self.name, "silent")
                self.log.warning(
                    "the watch has gone silent, connecting again from where it was",
                    revision=self.revision,
                )
            except Exception as error:
                await self.after(error)

    async def list(self) -> None:
        """Bring the store to one moment of the server, then say which."""
        self.metrics.listed(self.name)
        seen: set[Key] = set()
        revision, backwards = "", False
        async for page in self.client.pages(self.kind, self.namespace):
            revision = revision or page.revision
            backwards = int(revision) < self.store.shown(self.namespace)
            for item in page.items:
                seen.add(item.metadata.key)
                self.take(
                    item, via=Via.WATCH if self.synced.is_set() else Via.FIRST_LIST, force=backwards
                )
        self.store.settle(seen, int(revision), self.namespace, force=backwards)
        self.revision = revision
        self.lives()
        if not self.synced.is_set():
            self.log.debug("the cache is filled", objects=len(seen))
        self.synced.set()

    async def watch(self) -> None:
        """Follow the changes since the last revision until the server ends the watch."""
        self.began_at = self.clock()
        limit = random.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS)
        async for change in self.client.watch(
            self.kind, self.revision, self.namespace, timeout_seconds=limit, opened=self.lives
        ):
            revision = self.checked(change)
            self.lives()
            self.pause = FIRST_PAUSE_SECONDS
            if change.object is not None:
                if change.type == "DELETED":
                    self.store.remove(change.object.metadata.key, revision)
                else:
                    self.take(change.object)
            self.revision = change.revision
            self.store.saw(revision, self.namespace)

    def checked(self, change: Change[T]) -> int:
        """The revision of a change that can be true: time goes forward, and nothing comes from a namespace that was not asked for."""
        revision = int(change.revision)
        if revision < int(self.revision):
            raise Undecodable(
                f"the watch went back in time, from revision {self.revision} to {revision}"
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

    def take(self, item: T | Undecoded, *, via: Via = Via.WATCH, force: bool = False) -> None:
        """Into the store, counted when it does not decode."""
        if isinstance(item, Undecoded):
            self.metrics.undecodable(self.name)
            self.log.error(
                "an object does not decode and is left out",
                object=str(item.metadata.key),
                why=item.why,
            )
        self.store.put(item, via=via, force=force)

    def lives(self) -> None:
        """Something came from the server."""
        self.alive_at = self.clock()
        if self.problem:
            self.log.info("the watch works again")
            self.turn("")

    def turn(self, problem: str) -> None:
        """Something else is wrong from now on, or nothing any more."""
        self.problem = problem
        for listener in self.turned:
            listener()

    @property
    def age_seconds(self) -> float:
        """How long ago the watch last showed life."""
        return self.clock() - self.alive_at

    async def again(self, reason: str) -> None:
        """A watch has ended in an orderly way: go on at once, unless it had only just begun; then something keeps ending it."""
        self.metrics.watch_restarted(self.name, reason)
        if self.clock() - self.began_at < SHORTEST_HONEST_WATCH_SECONDS:
            await self.breathe()

    async def breathe(self, at_least_seconds: float = 0.0) -> None:
        """Wait, a little longer each time until a watch shows life again."""
        await asyncio.sleep(max(at_least_seconds, self.pause * random.uniform(0.8, 1.2)))
        self.pause = min(self.pause * 2, LONGEST_PAUSE_SECONDS)

    async def after(self, error: Exception) -> None:
        """Say what is wrong, once, and wait a little longer each time.

        A kind that is missing is listed again when it is back. So is one whose watch showed what cannot be, or whose revision the server
        cannot read: the same watch would only show the same again.
        """
        self.metrics.watch_restarted(self.name, type(error).__name__)
        if isinstance(error, KindMissing | BadRequest | Undecodable | TooMuch):
            self.revision = ""
        words = self.words_for(error)
        if words != self.problem:
            self.log.error(words, error=None if isinstance(error, ApiError) else error)
            self.turn(words)
        asked = error.retry_after if isinstance(error, ApiError) else None
        await self.breathe(asked or 0.0)

    def words_for(self, error: Exception) -> str:
        """What the failure means and what to do about it."""
        match error:
            case KindMissing():
                return f"the kind {self.name} is not installed; waiting for its CRD: kubectl apply -k config/crd (or `make install`)"
            case Forbidden():
                return f"{error}. The generated role grants this right: kubectl apply -k config/rbac; trying again"
            case _:
                return f"watching {self.name} failed, trying again: {error}"
