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

from .cache import Cache, Index, IndexFunction, Origin, Store
from .kind import Object
from .meta import Key
from .workqueue import LOW_PRIORITY, NORMAL_PRIORITY, WorkQueue

Predicate = Callable[[Any, Any], bool]
"""Whether a change, given as (old, new), matters."""


class Stream:
    """Changes of things outside Kubernetes: whoever follows them publishes the name of what changed."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self._broadcast_listeners: list[Callable[[], None]] = []

    def publish(self, name: str) -> None:
        """Wake every object that depends on this name."""
        for listener in self.listeners:
            listener(name)

    def publish_all(self) -> None:
        """Wake every object, whatever it depends on: the outside world was loaded, was lost, or is back."""
        for listener in self._broadcast_listeners:
            listener()


def created_or_deleted(old: Any, new: Any) -> bool:
    """A `when` for those who care only whether something exists."""
    return (old is None) != (new is None)


def any_change(old: Any, new: Any) -> bool:
    """The default `when`."""
    return True


def generation_changed(old: Any, new: Any) -> bool:
    """A `when` that looks past status updates: generation moves only with the spec (and with deletion)."""
    if old is None or new is None:
        return old is not new
    return bool(
        (old.metadata.uid, old.metadata.generation) != (new.metadata.uid, new.metadata.generation)
    )


def _is_status_only_change(old: Any, new: Any) -> bool:
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


def object_name(obj: Object) -> str:
    """The default `of`: what another object is known by."""
    return obj.metadata.name


@dataclass(frozen=True)
class KindSource:
    """Changes of another kind wake the objects whose `by` has one of its `of` values."""

    kind: type[Object]
    index_by: IndexFunction
    lookup_by: IndexFunction = object_name
    predicate: Predicate = any_change

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, the other kind's changes go to the queue."""
        index = f"wake-{len(own.indexes)}-on-{self.kind.definition.group_resource}"
        own.add_index(index, self.index_by)
        reader = Index(self.lookup_by)

        def hear(key: Key, old: Any, new: Any, via: Origin) -> None:
            if via is Origin.INITIAL_LIST or not self.predicate(old, new):
                return
            for value in {*reader.read_values(old), *reader.read_values(new)}:
                _enqueue(own.index_keys(index, value), queue)

        cache.store(self.kind).listeners.append(hear)


@dataclass(frozen=True)
class OwnedKindSource:
    """Changes of objects that ours own wake the owner."""

    kind: type[Object]

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, changes of owned objects go to the queue as their owner's key."""

        def hear(key: Key, old: Any, new: Any, via: Origin) -> None:
            if via is not Origin.INITIAL_LIST:
                _enqueue(
                    {
                        owner
                        for obj in (old, new)
                        if obj is not None
                        for owner in self._owner_keys(obj, own)
                    },
                    queue,
                )

        cache.store(self.kind).listeners.append(hear)

    def _owner_keys(self, obj: Object, own: Store[Any]) -> Iterable[Key]:
        """The keys of the objects of our kind that own this one."""
        for reference in obj.metadata.ownerReferences:
            if (
                reference.kind == own.kind.name
                and reference.apiVersion.rpartition("/")[0] == own.kind.group
            ):
                yield Key(obj.metadata.namespace if own.kind.namespaced else "", reference.name)


@dataclass(frozen=True)
class StreamSource:
    """Names published by an outside stream wake the objects whose `by` has that name."""

    stream: Stream
    index_by: IndexFunction

    def attach(self, own: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        """From now on, what the stream publishes goes to the queue."""
        index = f"wake-{len(own.indexes)}-on-stream"
        own.add_index(index, self.index_by)
        self.stream.listeners.append(lambda name: _enqueue(own.index_keys(index, name), queue))
        self.stream._broadcast_listeners.append(
            lambda: _enqueue(list(own.objects), queue, LOW_PRIORITY)
        )


@dataclass(frozen=True)
class TimerSource:
    """Every so often all objects, spread over a tenth of the period so that they do not come as one wave."""

    seconds: float
    priority: int = NORMAL_PRIORITY

    async def run(self, own: Store[Any], queue: WorkQueue[Key]) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(self.seconds)
            for key in list(own.objects):
                queue.add_after(key, random.uniform(0, self.seconds / 10), self.priority)


class PrimaryKindSource:
    """The kind itself: the first list with low priority, so that a person's edit overtakes it.

    The echo of our own write wakes nobody. It may come before the answer to that write, when nobody can know yet whose it is; so
    while a write is under way, what looks like an echo is held back, and let through if it turns out to be somebody else's.
    """

    def __init__(self, when: Predicate) -> None:
        self.predicate = when
        self._held_revisions: dict[Key, list[int]] = {}

    def attach(self, own: Store[Any], queue: WorkQueue[Key]) -> None:
        """From now on, the kind's own changes go to the queue."""
        self.queue = queue

        def hear(key: Key, old: Any, new: Any, via: Origin) -> None:
            if key in self._held_revisions and _is_status_only_change(old, new):
                self._held_revisions[key].append(new.metadata.revision)
            elif (
                via is not Origin.OWN_WRITE or not _is_status_only_change(old, new)
            ) and self.predicate(old, new):
                queue.add(key, LOW_PRIORITY if via is Origin.INITIAL_LIST else NORMAL_PRIORITY)

        own.listeners.append(hear)

    @contextmanager
    def own_write(self, key: Key) -> Iterator[list[int]]:
        """Around a write: put the revision it made into the list, and only others' changes are let through."""
        ours: list[int] = []
        self._held_revisions[key] = []
        try:
            yield ours
        finally:
            if any(revision not in ours for revision in self._held_revisions.pop(key)):
                self.queue.add(key)


def _enqueue(keys: Iterable[Key], queue: WorkQueue[Key], priority: int = NORMAL_PRIORITY) -> None:
    """Put keys on the queue."""
    for key in keys:
        queue.add(key, priority)
