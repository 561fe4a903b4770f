"""What puts keys on a queue: the kind itself, other kinds through an index, a stream of outside
changes, a timer.

Only keys are queued, never events: the reconcile reads the current state, whatever happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .cache import Cache, Index, IndexFunction, Origin, Signal, Store
from .kind import Key, KindDefinition, Object
from .responses import UndecodableObject
from .workqueue import LOW_PRIORITY, NORMAL_PRIORITY, WorkQueue

Predicate = Callable[[Any, Any], bool]
"""Whether a change from (old object) to (new object) matters. Only decoded objects are passed."""


class Stream:
    """Changes outside Kubernetes. The code that watches them calls `wake` with the changed name."""

    def __init__(self) -> None:
        self._name_woken: Signal[str] = Signal("name woken")
        self._all_woken: Signal[()] = Signal("all woken")

    def wake(self, name: str) -> None:
        """Wake every object that depends on this name."""
        self._name_woken.emit(name)

    def wake_all(self) -> None:
        """Wake every object, for example because the connection was lost or is back."""
        self._all_woken.emit()


def created_or_deleted(old: Any, new: Any) -> bool:
    """Predicate: the object was created or deleted."""
    return (old is None) != (new is None)


def any_change(old: Any, new: Any) -> bool:
    return True


def generation_changed(old: Any, new: Any) -> bool:
    """Predicate: the spec changed, or deletion began; the generation ignores status updates."""
    if old is None or new is None:
        return old is not new
    return bool(
        (old.metadata.uid, old.metadata.generation) != (new.metadata.uid, new.metadata.generation)
    )


def _has_same_desired_state(old: Any, new: Any) -> bool:
    # Not the finalizers: the engine writes them too, and its own writes must not wake the object.
    if old is None or new is None:
        return False
    a, b = old.metadata, new.metadata
    return bool(
        a.uid == b.uid
        and a.generation == b.generation
        and a.labels == b.labels
        and a.annotations == b.annotations
    )


def _drop_undecodable(obj: Any) -> Any:
    return None if isinstance(obj, UndecodableObject) else obj


def object_name(obj: Object) -> str:
    """The value by which other objects refer to this one, unless `wake_on` gets another."""
    return obj.metadata.name


@dataclass(frozen=True)
class KindSource:
    """A change of another kind wakes the objects that share an index value with it.

    `index_by` reads the values of our object, `lookup_by` those of the other one. For example, a
    Pod wakes the objects that name it: `index_by` reads their spec.name, `lookup_by` its name.

    Values of the old object count too, because an object may refer to a name that is now gone.
    """

    kind: type[Object]
    index_by: IndexFunction
    lookup_by: IndexFunction = object_name
    predicate: Predicate = any_change

    def attach(self, primary_store: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        index = f"wake-{len(primary_store.indexes)}-on-{self.kind.definition.group_resource}"
        primary_store.add_index(index, self.index_by)
        lookup = Index(self.lookup_by)

        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            # The engine enqueues every object of its own kind at the start anyway.
            if origin is Origin.INITIAL_LIST:
                return
            # An object that cannot be decoded has no index values, as one that does not exist.
            old, new = _drop_undecodable(old), _drop_undecodable(new)
            if (old is None and new is None) or not self.predicate(old, new):
                return
            for value in {*lookup.read_values(old), *lookup.read_values(new)}:
                for key_to_wake in primary_store.keys_by_index(index, value):
                    queue.add(key_to_wake)

        cache.store(self.kind).changed.connect(on_change)


@dataclass(frozen=True)
class OwnedKindSource:
    """Changes of objects that our objects own wake the owner."""

    kind: type[Object]

    def attach(self, primary_store: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        owner_kind = primary_store.kind

        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            if origin is Origin.INITIAL_LIST:
                return
            for owner in {*_owner_keys(old, owner_kind), *_owner_keys(new, owner_kind)}:
                queue.add(owner)

        cache.store(self.kind).changed.connect(on_change)


def _owner_keys(obj: Object | None, owner_kind: KindDefinition) -> Iterable[Key]:
    if obj is None:
        return
    for reference in obj.metadata.ownerReferences:
        group = reference.apiVersion.rpartition("/")[0]
        if reference.kind == owner_kind.name and group == owner_kind.group:
            yield Key(obj.metadata.namespace if owner_kind.namespaced else "", reference.name)


@dataclass(frozen=True)
class StreamSource:
    """`Stream.wake` enqueues the objects with its name in their `index_by`."""

    stream: Stream
    index_by: IndexFunction

    def attach(self, primary_store: Store[Any], cache: Cache, queue: WorkQueue[Key]) -> None:
        index = f"wake-{len(primary_store.indexes)}-on-stream"
        primary_store.add_index(index, self.index_by)

        def on_name(name: str) -> None:
            for key in primary_store.keys_by_index(index, name):
                queue.add(key)

        def on_all() -> None:
            # Low priority: an edit by a user must not wait behind all objects.
            for key in list(primary_store.objects):
                queue.add(key, LOW_PRIORITY)

        self.stream._name_woken.connect(on_name)
        self.stream._all_woken.connect(on_all)


@dataclass(frozen=True)
class TimerSource:
    seconds: float
    priority: int = NORMAL_PRIORITY

    async def run(self, primary_store: Store[Any], queue: WorkQueue[Key]) -> None:
        while True:
            await asyncio.sleep(self.seconds)
            for key in list(primary_store.objects):
                # Spread over a tenth of the period, so that there is no burst of calls.
                queue.add_after(key, random.uniform(0, self.seconds / 10), self.priority)


class PrimaryKindSource:
    """Changes of the controller's own kind.

    The watch event of our own write must not wake the object again. That event may arrive before
    the response to the write, when nothing distinguishes it from a write by another client. So
    while a write is in progress, events without a new desired state are held back, and the object
    is woken afterwards if one of them was not ours.
    """

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate
        # The revisions of the events that are held back, for each object that is being written.
        self._held_back_revisions: dict[Key, list[int]] = {}

    def attach(self, primary_store: Store[Any], queue: WorkQueue[Key]) -> None:
        self._queue = queue

        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            if key in self._held_back_revisions and _has_same_desired_state(old, new):
                self._held_back_revisions[key].append(new.metadata.revision)
            elif (
                origin is not Origin.OWN_WRITE or not _has_same_desired_state(old, new)
            ) and self._matters(old, new):
                # Low priority for the first list, so that an edit by a user overtakes it.
                queue.add(key, LOW_PRIORITY if origin is Origin.INITIAL_LIST else NORMAL_PRIORITY)

        primary_store.changed.connect(on_change)

    def _matters(self, old: Any, new: Any) -> bool:
        # The engine reports in the status that an object cannot be decoded, so it must be woken.
        is_undecodable = isinstance(old, UndecodableObject) or isinstance(new, UndecodableObject)
        return is_undecodable or self._predicate(old, new)

    @contextmanager
    def own_write(self, key: Key) -> Iterator[list[int]]:
        """The context of one write. Append the revision that it created to the yielded list.

        At its end, an event that was held back enqueues the object if its revision is not in the
        list: another client wrote it.
        """
        own_revisions: list[int] = []
        self._held_back_revisions[key] = []
        try:
            yield own_revisions
        finally:
            if any(held not in own_revisions for held in self._held_back_revisions.pop(key)):
                self._queue.add(key)
