"""What puts keys on a queue: the kind itself, other kinds through an index, an outside stream, a timer.

A key travels, never an event: whatever happened, the reconcile reads how things are now.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .cache import Cache, Index, IndexFunction, Store, Via
from .kind import Object
from .meta import Key
from .workqueue import LOW, NORMAL, WorkQueue

When = Callable[[Any, Any], bool]
"""Whether a change, given as (old, new), matters."""


class Stream:
    """Changes of things outside Kubernetes: whoever follows them publishes the name of what changed."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.listeners_to_all: list[Callable[[], None]] = []

    def publish(self, name: str) -> None:
        """Wake every object that depends on this name."""
        for listener in self.listeners:
            listener(name)

    def publish_all(self) -> None:
        """Wake every object, whatever it depends on: the outside world was loaded, was lost, or is back."""
        for listener in self.listeners_to_all:
            listener()


def created_or_deleted(old: Any, new: Any) -> bool:
    """A `when` for those who care only whether something exists."""
    return (old is None) != (new is None)


def any_change(old: Any, new: Any) -> bool:
    """The default `when`."""
    return True


def spec_changed(old: Any, new: Any) -> bool:
    """A `when` that looks past status updates: generation moves only with the spec (and with deletion)."""
    if old is None or new is None:
        return old is not new
    return bool(
        (old.metadata.uid, old.metadata.generation) != (new.metadata.uid, new.metadata.generation)
    )


def only_status_moved(old: Any, new: Any) -> bool:
    """Whether a change touched nothing that a user sets: by this alone it may be the echo of our own write."""
    if old is None or new is None:
        return False
    a, b = old.metadata, new.metadata
    return bool(
        a.uid == b.uid
        and a.generation == b.generation
        and a.labels == b.labels
        and a.annotations == b.annotations
    )


def name_of(obj: Object) -> str:
    """The default `of`: what another object is known by."""
    return obj.metadata.name


@dataclass(frozen=True)
class OnKind:
    """Changes of another kind wake the objects whose `by` has one of its `of` values."""

    kind: type[Object]
    by: IndexFunction
    of: IndexFunction = name_of
    when: When = any_change

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, the other kind's changes go to the queue."""
        index = f"wake-{len(own.indexes)}-on-{self.kind.definition.resource}"
        own.add_index(index, self.by)
        reader = Index(self.of)

        def hear(key: Key, old: Any, new: Any, via: Via) -> None:
            if via is Via.FIRST_LIST or not self.when(old, new):
                return
            for value in {*reader.values_of(old), *reader.values_of(new)}:
                wake(own.keys_by(index, value), queue)

        cache.store(self.kind).listeners.append(hear)


@dataclass(frozen=True)
class OnOwned:
    """Changes of objects that ours own wake the owner."""

    kind: type[Object]

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, changes of owned objects go to the queue as their owner's key."""

        def hear(key: Key, old: Any, new: Any, via: Via) -> None:
            if via is not Via.FIRST_LIST:
                wake(
                    {
                        owner
                        for obj in (old, new)
                        if obj is not None
                        for owner in self.owners(obj, own)
                    },
                    queue,
                )

        cache.store(self.kind).listeners.append(hear)

    def owners(self, obj: Object, own: Store[Any]) -> Iterable[Key]:
        """The keys of the objects of our kind that own this one."""
        for reference in obj.metadata.ownerReferences:
            if (
                reference.kind == own.kind.name
                and reference.apiVersion.rpartition("/")[0] == own.kind.group
            ):
                yield Key(obj.metadata.namespace if own.kind.namespaced else "", reference.name)


@dataclass(frozen=True)
class OnStream:
    """Names published by an outside stream wake the objects whose `by` has that name."""

    stream: Stream
    by: IndexFunction

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, what the stream publishes goes to the queue."""
        index = f"wake-{len(own.indexes)}-on-stream"
        own.add_index(index, self.by)
        self.stream.listeners.append(lambda name: wake(own.keys_by(index, name), queue))
        self.stream.listeners_to_all.append(lambda: wake(list(own.objects), queue, LOW))


@dataclass(frozen=True)
class OnTimer:
    """Every so often all objects, spread over a tenth of the period so that they do not come as one wave."""

    seconds: float
    priority: int = NORMAL

    async def run(self, own: Store[Any], queue: WorkQueue[Key]) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(self.seconds)
            for key in list(own.objects):
                queue.add_after(key, random.uniform(0, self.seconds / 10), self.priority)


class OnOwn:
    """The kind itself: the first list with low priority, so that a person's edit overtakes it.

    The echo of our own write wakes nobody. It may come before the answer to that write, when nobody can know yet whose it is; so
    while a write is under way, what looks like an echo is held back, and let through if it turns out to be somebody else's.
    """

    def __init__(self, when: When) -> None:
        self.when = when
        self.held: dict[Key, list[int]] = {}

    def attach(self, own: Store[Any], queue: WorkQueue[Key]) -> None:
        """From now on, the kind's own changes go to the queue."""
        self.queue = queue

        def hear(key: Key, old: Any, new: Any, via: Via) -> None:
            if key in self.held and only_status_moved(old, new):
                self.held[key].append(new.metadata.revision)
            elif (via is not Via.OWN_WRITE or not only_status_moved(old, new)) and self.when(
                old, new
            ):
                queue.add(key, LOW if via is Via.FIRST_LIST else NORMAL)

        own.listeners.append(hear)

    @contextmanager
    def writing(self, key: Key) -> Iterator[list[int]]:
        """Around a write: put the revision it made into the list, and only others' changes are let through."""
        ours: list[int] = []
        self.held[key] = []
        try:
            yield ours
        finally:
            if any(revision not in ours for revision in self.held.pop(key)):
                self.queue.add(key)


def wake(keys: Iterable[Key], queue: WorkQueue[Key], priority: int = NORMAL) -> None:
    """Put keys on the queue."""
    for key in keys:
        queue.add(key, priority)
