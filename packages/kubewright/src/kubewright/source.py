"""What puts keys on a queue: the kind itself, other kinds through an index, a function or owner
references, and a stream of outside changes.

Only keys are queued, never events: the reconcile reads the current state, whatever happened.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from .cache import Cache, Origin, Signal, Store
from .index import Index
from .kind import Key, Object
from .own_writes import OwnWrites
from .ownership import read_owner_key
from .predicate import Predicate, any_change, matters
from .responses import UndecodableObject
from .slices import call_in_slices
from .workqueue import LOW_PRIORITY, NORMAL_PRIORITY

# Objects that need another system must not wait for a large one.
_STREAM_SYNC_SECONDS = 10.0
Enqueue = Callable[[Key, int], None]
"""Puts a key on the queue, with a priority."""
ReferenceFunction = Callable[[Any], "str | Key | Iterable[str | Key] | None"]
"""The values by which an object refers to others, or by which others refer to it."""
MapFunction = Callable[[Any], "Key | Iterable[Key] | None"]
ChildId = tuple[type[Object], Key]


class Stream:
    """Changes outside Kubernetes. The code that watches them calls `notify` with the name."""

    def __init__(self, synced: asyncio.Event | None = None) -> None:
        """The workers of a controller that watches it start when `synced` is set, or after
        10 s. Until the other system has been read, all reconciles would be for nothing.
        """
        self.synced = synced
        self._name_notified: Signal[str, int] = Signal("name notified")
        self._all_notified: Signal[()] = Signal("all notified")

    def notify(self, name: str, *, low_priority: bool = False) -> None:
        """Reconcile every object that depends on this name.

        `low_priority` is for frequent changes that are not urgent, such as new load figures.
        """
        self._name_notified.emit(name, LOW_PRIORITY if low_priority else NORMAL_PRIORITY)

    def notify_all(self) -> None:
        """Reconcile every object, for example because the connection was lost or is back."""
        self._all_notified.emit()


def _has_same_desired_state(old: Any, new: Any) -> bool:
    # Not the finalizers: the engine writes them too, and its own writes must enqueue nothing.
    if old is None or new is None:
        return False
    a, b = old.metadata, new.metadata
    return bool(
        a.uid == b.uid
        and a.generation == b.generation
        and a.labels == b.labels
        and a.annotations == b.annotations
        and a.deletionTimestamp == b.deletionTimestamp
        # Kinds without a spec, such as ConfigMap, have no generation.
        and (a.generation or replace(old, metadata=b) == new)
    )


def _is_being_deleted(obj: Any) -> bool:
    return obj is not None and obj.metadata.deletionTimestamp is not None


def _drop_undecodable(obj: Any) -> Any:
    return None if isinstance(obj, UndecodableObject) else obj


def object_name(obj: Object) -> str:
    """The value by which other objects refer to this one, unless `watches` gets another."""
    return obj.metadata.name


def _read_values(read: ReferenceFunction, obj: Any, *, by_namespace: bool = False) -> Iterable[str]:
    values = read(obj)
    namespace = f"{obj.metadata.namespace}/" if by_namespace else ""
    return [
        str(value) if isinstance(value, Key) else namespace + value
        for value in ((values,) if isinstance(values, str | Key) else values or ())
        if value
    ]


class _OtherKindSource(ABC):
    """Changes of another kind enqueue objects of ours."""

    kind: type[Object]
    predicate: Predicate

    def attach(self, primary_store: Store[Any], cache: Cache, enqueue: Enqueue) -> None:
        find_keys = self._prepare(primary_store)

        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            # The engine enqueues every object of its own kind at the start anyway.
            if origin in (Origin.INITIAL_LIST, Origin.RELEASED) or self._is_deferred(key, new):
                return
            # For a predicate, an object that cannot be decoded counts as one that does not exist.
            decoded = _drop_undecodable(old), _drop_undecodable(new)
            if decoded != (None, None) and not matters(self.predicate, *decoded):
                return
            # The old object counts too: it may refer to an object that the new one does not.
            for other_key in {
                key for obj in (old, new) if obj is not None for key in find_keys(obj)
            }:
                enqueue(other_key, NORMAL_PRIORITY)

        cache.store(self.kind).changed.connect(on_change)

    def _is_deferred(self, key: Key, new: Any) -> bool:
        return False

    @abstractmethod
    def _prepare(self, primary_store: Store[Any]) -> Callable[[Any], Iterable[Key]]:
        """The function that finds the keys to enqueue for an object of the other kind, which may be
        an UndecodableObject.
        """


@dataclass(frozen=True)
class IndexedKindSource(_OtherKindSource):
    """A change of another kind enqueues the objects that share an index value with it.

    `index_by` reads the values of our object, `lookup_by` those of the other one. For example, a
    Pod enqueues the objects that name it: `index_by` reads their spec.name, `lookup_by` its name.
    """

    kind: type[Object]
    index_by: ReferenceFunction
    lookup_by: ReferenceFunction = object_name
    predicate: Predicate = any_change
    any_namespace: bool = False

    def _prepare(self, primary_store: Store[Any]) -> Callable[[Any], Iterable[Key]]:
        both_namespaced = primary_store.definition.namespaced and self.kind.definition.namespaced
        by_namespace = both_namespaced and not self.any_namespace

        index = f"watches-{len(primary_store.indexes)}-{self.kind.definition.group_resource}"
        primary_store.add_index(
            index, partial(_read_values, self.index_by, by_namespace=by_namespace)
        )
        lookup = Index(partial(_read_values, self.lookup_by, by_namespace=by_namespace))
        return lambda obj: (
            key
            for value in lookup.read_values(obj)
            for key in primary_store.keys_by_index(index, value)
        )


@dataclass(frozen=True)
class MappedKindSource(_OtherKindSource):
    """A change of another kind enqueues the objects that a function returns for it."""

    kind: type[Object]
    map_func: MapFunction
    predicate: Predicate = any_change

    def _prepare(self, primary_store: Store[Any]) -> Callable[[Any], Iterable[Key]]:
        def find_keys(obj: Any) -> Iterable[Key]:
            keys = None if isinstance(obj, UndecodableObject) else self.map_func(obj)
            return (keys,) if isinstance(keys, Key) else keys or ()

        return find_keys


@dataclass(frozen=True)
class OwnedKindSource(_OtherKindSource):
    """Changes of objects that our objects own enqueue the owner."""

    kind: type[Object]
    controller: str = ""
    """The name of the controller, in the label of its children in other namespaces."""
    any_owner: bool = False
    """Also the owners that are not the controller of the object."""
    predicate: Predicate = any_change
    own_writes: OwnWrites[ChildId] = field(default_factory=OwnWrites)

    def _is_deferred(self, key: Key, new: Any) -> bool:
        # The reconcile that applies a child gets the response to it.
        return new is not None and self.own_writes.defer((self.kind, key), new.metadata.revision)

    def _prepare(self, primary_store: Store[Any]) -> Callable[[Any], Iterable[Key]]:
        owner = primary_store.definition

        def find_keys(obj: Object | UndecodableObject) -> Iterator[Key]:
            metadata = obj.metadata
            for reference in metadata.ownerReferences:
                group = reference.apiVersion.rpartition("/")[0]
                is_ours = reference.kind == owner.name and group == owner.group
                if is_ours and (self.any_owner or reference.controller):
                    yield Key(metadata.namespace if owner.namespaced else "", reference.name)
                if reference.controller and not self.any_owner:
                    # The API server allows one controller only.
                    break
            if self.controller and (key := read_owner_key(metadata, self.controller)):
                yield key

        return find_keys


@dataclass(frozen=True)
class StreamSource:
    """`Stream.notify` enqueues the objects with its name in their `index_by`."""

    stream: Stream
    index_by: ReferenceFunction

    def attach(self, primary_store: Store[Any], cache: Cache, enqueue: Enqueue) -> None:
        index = f"watches-{len(primary_store.indexes)}-stream"
        primary_store.add_index(index, partial(_read_values, self.index_by))

        def on_name(name: str, priority: int) -> None:
            for key in primary_store.keys_by_index(index, name):
                enqueue(key, priority)

        def on_all() -> None:
            # Low priority: an edit by a user must not wait behind all objects.
            call_in_slices(
                lambda key: enqueue(key, LOW_PRIORITY),
                list(primary_store.objects),
            )

        self.stream._name_notified.connect(on_name)
        self.stream._all_notified.connect(on_all)


class PrimaryKindSource:
    """Changes of the controller's own kind.

    While a write of the object is in progress, events without a new desired state are deferred.

    A write by another controller of this process is not ours, although its response enters the
    cache in the same way.
    """

    def __init__(self, predicate: Predicate, store: Store[Any], enqueue: Enqueue) -> None:
        self._predicate, self._store, self._enqueue = predicate, store, enqueue
        self._own_writes: OwnWrites[Key] = OwnWrites()
        store.changed.connect(self._on_change)

    def become_writer(self) -> None:
        """The writes of the current task, and of tasks that it starts, are those of this
        controller.
        """
        _writer.set(self)

    def _on_change(self, key: Key, old: Any, new: Any, origin: Origin) -> None:
        if origin is Origin.RELEASED:
            return
        if _has_same_desired_state(old, new):
            is_ours = origin is Origin.OWN_WRITE and _writer.get() in (None, self)
            if self._own_writes.defer(key, new.metadata.revision) or is_ours:
                return
        if self._matters(old, new):
            # Low priority for the first list, so that an edit by a user overtakes it.
            is_first_list = origin is Origin.INITIAL_LIST
            self._enqueue(key, LOW_PRIORITY if is_first_list else NORMAL_PRIORITY)

    def _matters(self, old: Any, new: Any) -> bool:
        # The engine reports that an object cannot be decoded, so it must be enqueued.
        is_undecodable = isinstance(old, UndecodableObject) or isinstance(new, UndecodableObject)
        # A predicate of the spec must not hide the deletion from the finalizer.
        was_deleted = _is_being_deleted(new) and not _is_being_deleted(old)
        return is_undecodable or was_deleted or matters(self._predicate, old, new)

    def keys_without_change(self) -> Iterator[Key]:
        """The objects to reconcile although nothing changed: at the start, and periodically."""
        # A list first: the iterator is read in slices, and meanwhile the store changes. Not of the
        # items: a tuple for each of 100,000 objects takes 0.1 s, mostly of the garbage collector.
        objects, keys = self._store.objects, list(self._store.objects)
        return (
            key
            for key in keys
            if (obj := objects.get(key)) is not None and self._matters(None, obj)
        )

    def own_write(self, key: Key) -> AbstractContextManager[list[int]]:
        """The context of one write. Append the revision that it created to the list."""
        return self._own_writes.write(key, partial(self._enqueue, key, NORMAL_PRIORITY))


_writer: ContextVar[PrimaryKindSource | None] = ContextVar("writer", default=None)


async def wait_for_streams(sources: Iterable[object]) -> None:
    """Wait until the systems behind the streams have been read, for 10 s at most."""
    streams = (source.stream for source in sources if isinstance(source, StreamSource))
    with suppress(TimeoutError):
        async with asyncio.timeout(_STREAM_SYNC_SECONDS):
            for event in filter(None, (stream.synced for stream in streams)):
                await event.wait()
