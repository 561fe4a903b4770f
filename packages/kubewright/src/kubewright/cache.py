"""Objects in memory, kept current by watches. The cache always answers from memory and never
waits. To read from the API server, use the client.

Questions and answers:

Which of two versions is newer?  The one with the greater resourceVersion. An older or equal one is
    ignored, whether it comes from the watch or from the response to one of our own writes. So our
    own write is visible immediately, and its event on the watch changes nothing.
Can the response to a write bring back an object that was deleted in the meantime?  No. It is stored
    only if it is newer than everything that the watch has delivered. For every older revision
    the watch has already delivered the result.
Can a list that began before our write remove the object of that write?  No. A list removes only
    objects that are not newer than the list.
What if the server goes back in time (etcd restored from a backup)?  Then a consistent list is older
    than the last event of the watch, which cannot happen otherwise. In this case every object is
    taken from the list, whatever its resourceVersion.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

from .errors import ConfigError
from .kind import Key, KindDefinition, Object
from .log import Log
from .responses import UndecodableObject

T = TypeVar("T", bound=Object)
Arguments = TypeVarTuple("Arguments")
IndexFunction = Callable[[Any], "str | Iterable[str] | None"]


class Origin(enum.Enum):
    """Where a change in the cache came from."""

    INITIAL_LIST = enum.auto()
    WATCH = enum.auto()  # also a list after the first one
    OWN_WRITE = enum.auto()


class Signal(Generic[*Arguments]):
    """Calls its listeners in the order in which they were connected.

    `Signal[Key, int]` is emitted with a Key and an int; `Signal[()]` is emitted without arguments.
    """

    def __init__(self, name: str) -> None:
        """`name` is what the log calls it when a listener fails."""
        self._name = name
        self._listeners: list[Callable[[*Arguments], object]] = []

    def connect(self, listener: Callable[[*Arguments], object]) -> None:
        self._listeners.append(listener)

    def emit(self, *arguments: *Arguments) -> None:
        """Call every listener. One that raises is logged, and the others are still called."""
        for listener in self._listeners:
            try:
                listener(*arguments)
            except Exception as error:
                # A bug in one controller must not cut the others off from their events.
                Log("signal").error("a listener failed", error=error, signal=self._name)


class Index:
    """Keys by a value that a function reads from each object."""

    def __init__(self, index_function: IndexFunction) -> None:
        self._index_function = index_function
        self.keys_by_value: dict[str, dict[Key, None]] = {}

    def read_values(self, obj: Any) -> tuple[str, ...]:
        """The index values of an object; none for one that cannot be decoded."""
        if obj is None or isinstance(obj, UndecodableObject):
            return ()
        values = self._index_function(obj)
        return () if not values else (values,) if isinstance(values, str) else tuple(values)

    def update(self, key: Key, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """Move the key from its old values to its new ones."""
        if old == new:
            return
        for value in old:
            keys = self.keys_by_value.get(value, {})
            keys.pop(key, None)
            if not keys:
                self.keys_by_value.pop(value, None)
        for value in new:
            self.keys_by_value.setdefault(value, {})[key] = None


class Store(Generic[T]):
    """All objects of one kind, with indexes and a signal for every change."""

    def __init__(self, kind: KindDefinition, log: Log) -> None:
        self.kind = kind
        self._log = log
        self.objects: dict[Key, T | UndecodableObject] = {}
        self.indexes: dict[str, Index] = {}
        self.changed: Signal[Key, Any, Any, Origin] = Signal(f"{kind.group_resource} changed")
        """Emitted with the key, the old object (None for a creation), the new object (None for a
        deletion) and the origin."""
        # How far each watch has come: one watch for all namespaces (""), or one per namespace if
        # the manager is limited to some.
        self._watched_revisions: dict[str, int] = {}

    def add_index(self, name: str, index_function: IndexFunction) -> None:
        """Index the objects by the values that the function reads from them."""
        if self.objects:
            # The index would not contain the objects that are already here.
            raise ConfigError(
                f"index {name} of {self.kind.group_resource} was added after the cache had "
                "started; add it before manager.run()"
            )
        if name in self.indexes:
            raise ConfigError(
                f"{self.kind.group_resource} already has an index {name}; choose another name"
            )
        self.indexes[name] = Index(index_function)

    def keys_by_index(self, index: str, value: str) -> list[Key]:
        return list(self.indexes[index].keys_by_value.get(value, ()))

    def put(
        self, obj: T | UndecodableObject, *, origin: Origin = Origin.WATCH, force: bool = False
    ) -> None:
        """Store an object from the watch or from a list, if it is newer than the one we have.

        `force` stores it anyway, after the server went back in time.
        """
        key = obj.metadata.key
        old = self.objects.get(key)
        if old is not None and not force and obj.metadata.revision <= old.metadata.revision:
            return
        self._apply_change(key, old, obj, origin)

    def remove(self, key: Key, revision: int) -> None:
        """Remove an object, unless a newer one of that name is stored."""
        old = self.objects.get(key)
        if old is not None and old.metadata.revision <= revision:
            self._apply_change(key, old, None, Origin.WATCH)

    def advance_revision(self, revision: int, namespace: str = "") -> None:
        """The watch (of this namespace) has delivered everything up to this revision."""
        self._watched_revisions[namespace] = max(
            self._watched_revisions.get(namespace, 0), revision
        )

    def watched_revision(self, namespace: str) -> int:
        """How far the watch that covers this namespace has come."""
        return self._watched_revisions.get("", 0) or self._watched_revisions.get(namespace, 0)

    def apply_own_write(self, obj: T) -> None:
        """Store the response to one of our own writes, so that the next read sees it."""
        old = self.objects.get(obj.metadata.key)
        revision, namespace = obj.metadata.revision, obj.metadata.namespace
        if "" not in self._watched_revisions and namespace not in self._watched_revisions:
            # No watch covers this namespace, so the object's deletion would never be noticed.
            return
        if revision > self.watched_revision(namespace) and (
            old is None or revision > old.metadata.revision
        ):
            self._apply_change(obj.metadata.key, old, obj, Origin.OWN_WRITE)

    def finish_list(self, listed: set[Key], revision: int, namespace: str, *, force: bool) -> None:
        """Remove the objects that a complete list does not contain, unless they are newer."""
        missing = [
            key
            for key in self.objects
            if key not in listed and (not namespace or key.namespace == namespace)
        ]
        for key in missing:
            old = self.objects[key]
            if force or old.metadata.revision <= revision:
                self._apply_change(key, old, None, Origin.WATCH)
        if force:
            self._watched_revisions[namespace] = revision
        self.advance_revision(revision, namespace)

    def _apply_change(
        self,
        key: Key,
        old: T | UndecodableObject | None,
        new: T | UndecodableObject | None,
        origin: Origin,
    ) -> None:
        if new is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = new
        for name, index in self.indexes.items():
            index.update(
                key,
                self._read_index_values(name, index, old),
                self._read_index_values(name, index, new),
            )
        self.changed.emit(key, old, new, origin)

    def _read_index_values(
        self, name: str, index: Index, obj: T | UndecodableObject | None
    ) -> tuple[str, ...]:
        try:
            return index.read_values(obj)
        except Exception as error:
            # An object that an index function does not expect must not stop the watch.
            self._log.error(
                "an index function failed", error=error, index=name, kind=self.kind.group_resource
            )
            return ()


class Cache:
    """The stores of all watched kinds. Controllers read it inside a reconcile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.stores: dict[type[Object], Store[Any]] = {}

    def store(self, kind: type[T]) -> Store[T]:
        """The store of a kind, created at the first call."""
        if kind not in self.stores:
            self.stores[kind] = Store(kind.definition, self._log)
        return cast("Store[T]", self.stores[kind])

    def get(self, kind: type[T], key: Key) -> T | None:
        """The object, or None if it does not exist or cannot be decoded.

        Its own controller reports an object that cannot be decoded.
        """
        obj = self._watched_store(kind).objects.get(key)
        return None if isinstance(obj, UndecodableObject) else obj

    def all(self, kind: type[T], namespace: str = "") -> list[T]:
        objects = self._watched_store(kind).objects.values()
        return [
            obj
            for obj in objects
            if not isinstance(obj, UndecodableObject)
            and (not namespace or obj.metadata.namespace == namespace)
        ]

    def by_index(self, kind: type[T], index: str, value: str) -> list[T]:
        """The objects of the kind that have this value in the index."""
        store = self._watched_store(kind)
        objects = (store.objects[key] for key in store.keys_by_index(index, value))
        return [obj for obj in objects if not isinstance(obj, UndecodableObject)]

    def apply_own_write(self, obj: Object) -> None:
        """Store the response to one of our own writes, if its kind is watched."""
        if type(obj) in self.stores:
            self.stores[type(obj)].apply_own_write(obj)

    def _watched_store(self, kind: type[T]) -> Store[T]:
        if kind not in self.stores:
            # An empty result would mean "there is no such object".
            name = kind.__name__
            raise ConfigError(
                f"{name} is not watched, so the cache has no {name}; declare it with "
                f"wake_on({name}, ...) or reads({name}), or use the client"
            )
        return cast("Store[T]", self.stores[kind])
