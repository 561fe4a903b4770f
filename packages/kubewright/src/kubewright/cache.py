"""Objects in memory, kept true by watches. A cache ALWAYS answers from memory and never waits; the client asks the server.

Questions and answers:

Which of two versions is newer?  The one with the greater resourceVersion. An older or equal one is ignored, whether it
    comes from the watch or from the answer to one of our own writes. So a write of ours is visible at once, and its echo
    on the watch wakes nobody.
May an answer to a write bring an object back that was deleted meanwhile?  No: it is taken in only if it is newer than
    everything the watch has shown. What the watch has passed, the watch has told.
May a list that began before a write of ours remove the object of that write?  No: a list removes only what is not newer
    than itself.
And when the server itself goes back in time (etcd restored from a backup)?  Then a consistent list is older than what the
    watch has shown, which cannot happen otherwise: everything is taken as it stands in the list.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from .errors import ConfigError
from .kind import KindDefinition, Object
from .log import Log
from .meta import Key
from .responses import UndecodableObject

T = TypeVar("T", bound=Object)
IndexFunction = Callable[[Any], "str | Iterable[str] | None"]
Listener = Callable[["Key", Any, Any, "Origin"], None]
"""Called with (key, old object, new object, how it came); None where there is no object."""


class Origin(enum.Enum):
    """How a change came to us."""

    INITIAL_LIST = enum.auto()
    WATCH = enum.auto()
    OWN_WRITE = enum.auto()


class Index:
    """Keys by a value that a function reads from each object."""

    def __init__(self, read: IndexFunction) -> None:
        self._index_function = read
        self.keys_by_value: dict[str, dict[Key, None]] = {}

    def read_values(self, obj: Any) -> tuple[str, ...]:
        """The index values of an object; one that cannot be read has none."""
        if obj is None or isinstance(obj, UndecodableObject):
            return ()
        found = self._index_function(obj)
        return () if not found else (found,) if isinstance(found, str) else tuple(found)

    def update(self, key: Key, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """The key leaves its old values and enters its new ones."""
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
    """All objects of one kind, with indexes, and listeners that hear of every change."""

    def __init__(self, kind: KindDefinition, log: Log) -> None:
        self.kind = kind
        self.log = log
        self.objects: dict[Key, T | UndecodableObject] = {}
        self.indexes: dict[str, Index] = {}
        self.listeners: list[Listener] = []
        self._watched_revisions: dict[str, int] = {}
        """How far each watch has come: one of all namespaces (""), or one of each where the manager is confined to some."""

    def add_index(self, name: str, read: IndexFunction) -> None:
        """Keep keys by what `read` finds in each object. Before the first object: an index made later would be empty."""
        if self.objects:
            raise ConfigError(
                f"index {name} of {self.kind.group_resource} was added after the cache had started; add it before manager.run()"
            )
        if name in self.indexes:
            raise ConfigError(
                f"{self.kind.group_resource} has an index {name} already; choose another name"
            )
        self.indexes[name] = Index(read)

    def index_keys(self, index: str, value: str) -> list[Key]:
        """The keys of the objects that have this value."""
        return list(self.indexes[index].keys_by_value.get(value, ()))

    def put(
        self, obj: T | UndecodableObject, *, origin: Origin = Origin.WATCH, force: bool = False
    ) -> None:
        """Take in an object that the watch or a list has shown, if it is news."""
        key = obj.metadata.key
        old = self.objects.get(key)
        if old is not None and not force and obj.metadata.revision <= old.metadata.revision:
            return
        self.apply_change(key, old, obj, origin)

    def remove(self, key: Key, revision: int) -> None:
        """Take out an object, unless a newer one of that name is known."""
        old = self.objects.get(key)
        if old is not None and old.metadata.revision <= revision:
            self.apply_change(key, old, None, Origin.WATCH)

    def advance_revision(self, revision: int, namespace: str = "") -> None:
        """The watch (of this namespace) has shown everything up to here."""
        self._watched_revisions[namespace] = max(
            self._watched_revisions.get(namespace, 0), revision
        )

    def watched_revision(self, namespace: str) -> int:
        """How far the watch that covers this namespace has come."""
        return self._watched_revisions.get("", 0) or self._watched_revisions.get(namespace, 0)

    def apply_own_write(self, obj: T) -> None:
        """Take in the answer to a write of ours, so that the next read sees it; where no watch looks, nobody would take it out again."""
        old = self.objects.get(obj.metadata.key)
        revision, namespace = obj.metadata.revision, obj.metadata.namespace
        if "" not in self._watched_revisions and namespace not in self._watched_revisions:
            return
        if revision > self.watched_revision(namespace) and (
            old is None or revision > old.metadata.revision
        ):
            self.apply_change(obj.metadata.key, old, obj, Origin.OWN_WRITE)

    def finish_list(self, seen: set[Key], revision: int, namespace: str, *, force: bool) -> None:
        """End a list: what it did not show is gone, unless it is newer than the list."""
        for key in [
            k for k in self.objects if k not in seen and (not namespace or k.namespace == namespace)
        ]:
            old = self.objects[key]
            if force or old.metadata.revision <= revision:
                self.apply_change(key, old, None, Origin.WATCH)
        if force:
            self._watched_revisions[namespace] = revision
        self.advance_revision(revision, namespace)

    def apply_change(
        self,
        key: Key,
        old: T | UndecodableObject | None,
        new: T | UndecodableObject | None,
        via: Origin,
    ) -> None:
        """The one place where an object changes; a listener or an index function that fails is logged and hurts nobody else."""
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
        for listener in self.listeners:
            try:
                listener(key, old, new, via)
            except Exception as error:
                self.log.error(
                    "a listener failed", error=error, kind=self.kind.group_resource, object=str(key)
                )

    def _read_index_values(
        self, name: str, index: Index, obj: T | UndecodableObject | None
    ) -> tuple[str, ...]:
        """The index values, none where the function fails: an odd object may not stop the watch."""
        try:
            return index.read_values(obj)
        except Exception as error:
            self.log.error(
                "an index function failed", error=error, index=name, kind=self.kind.group_resource
            )
            return ()


class Cache:
    """Every kind that somebody watches. Handed to controllers, which read it inside a reconcile."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.stores: dict[type[Object], Store[Any]] = {}

    def store(self, kind: type[T]) -> Store[T]:
        """The store of a kind, made on first use: asking for it declares that the kind is watched."""
        if kind not in self.stores:
            self.stores[kind] = Store(kind.definition, self.log)
        return cast("Store[T]", self.stores[kind])

    def get(self, kind: type[T], key: Key) -> T | None:
        """The object, or None; one that does not decode is None here (its controller tells about it)."""
        found = self._watched_store(kind).objects.get(key)
        return None if isinstance(found, UndecodableObject) else found

    def all(self, kind: type[T], namespace: str = "") -> list[T]:
        """All objects of the kind (in the namespace)."""
        objects = self._watched_store(kind).objects.values()
        return [
            o
            for o in objects
            if not isinstance(o, UndecodableObject)
            and (not namespace or o.metadata.namespace == namespace)
        ]

    def by_index(self, kind: type[T], index: str, value: str) -> list[T]:
        """The objects of the kind whose index has that value."""
        store = self._watched_store(kind)
        found = (store.objects[key] for key in store.index_keys(index, value))
        return [o for o in found if not isinstance(o, UndecodableObject)]

    def apply_own_write(self, obj: Object) -> None:
        """Take in the answer to a write of ours, where its kind is watched."""
        if type(obj) in self.stores:
            self.stores[type(obj)].apply_own_write(obj)

    def _watched_store(self, kind: type[T]) -> Store[T]:
        """The store of a kind that is watched; another one would be empty for ever, which reads like "there is none"."""
        if kind not in self.stores:
            name = kind.__name__
            raise ConfigError(
                f"{name} is not watched, so the cache knows none; declare it with wake_on({name}, ...) or ask the client"
            )
        return cast("Store[T]", self.stores[kind])
