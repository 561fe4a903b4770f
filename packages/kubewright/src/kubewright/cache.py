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
When does an object that we deleted disappear?  When the response arrives. The store remembers its
    uid, so an event or a list from before the deletion cannot bring it back. A uid is never used
    again, so this cannot hide a new object of the same name. An object that waits for its
    finalizers or its grace period stays, with its deletionTimestamp, as after any other write.
And an object that our own write moves out of a selection (`select`)?  It disappears too. It has the
    same uid when it comes back, so the store remembers the revision of that write, and ignores only
    versions that are not newer.
Which stores does our own write enter?  Each store of that resource with a selection that matches.
    A store with a selector for other fields than name and namespace waits for the watch.
What if the server goes back in time (etcd restored from a backup)?  Then a consistent list is older
    than the last event of the watch, which cannot happen otherwise. In this case every object is
    taken from the list, whatever its resourceVersion.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

from .definition import KindDefinition
from .errors import ConfigError
from .index import Index, IndexFunction
from .kind import Key, Object, ObjectMeta
from .log import Log
from .responses import UndecodableObject, decode_item
from .shared_parts import PartSharer

T = TypeVar("T", bound=Object)
Arguments = TypeVarTuple("Arguments")

# Bounds the memory of removals that no event of the watch ends, for example because the watch
# delivered the deletion before its response arrived.
_MAX_REMEMBERED_REMOVALS = 10_000


class Origin(enum.Enum):
    """Where a change in the cache came from."""

    INITIAL_LIST = enum.auto()
    WATCH = enum.auto()  # also a list after the first one, and our write through another class
    OWN_WRITE = enum.auto()
    RELEASED = enum.auto()  # nothing has changed: another replica has the object from now on


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


class Store(Generic[T]):
    """The objects of one kind, or those that `select` selects, with indexes and a signal."""

    def __init__(self, definition: KindDefinition, log: Log, name: str = "") -> None:
        """`name` distinguishes the stores of one resource in metrics and messages."""
        self.definition = definition
        self.name = name or definition.group_resource
        self._log = log
        self.objects: dict[Key, T | UndecodableObject] = {}
        self.indexes: dict[str, Index] = {}
        self.changed: Signal[Key, Any, Any, Origin] = Signal(f"{self.name} changed")
        """Emitted with the key, the old object (None for a creation), the new object (None for a
        deletion) and the origin."""
        # How far each watch has come: one watch for all namespaces (""), or one per namespace if
        # the manager is limited to some.
        self._watched_revisions: dict[str, int] = {}
        # By uid, what our own writes removed: versions up to this revision are ignored.
        self._removed_revisions: dict[str, float] = {}
        self.accepts: Callable[[ObjectMeta], bool] | None = None
        """Whether the watch delivers an object; None if it delivers all objects."""
        self._parts = PartSharer()

    def add_index(self, name: str, index_function: IndexFunction) -> None:
        """Index the objects by the values that the function reads from them."""
        if self.objects:
            # The index would not contain the objects that are already here.
            raise ConfigError(
                f"index {name} of {self.name} was added after the cache had started; "
                "add it before manager.run()"
            )
        if name in self.indexes:
            raise ConfigError(f"{self.name} already has an index {name}; choose another name")
        self.indexes[name] = Index(index_function)

    def keys_by_index(self, index: str, value: str) -> list[Key]:
        return self.indexes[index].keys_of(value)

    def put(
        self, obj: T | UndecodableObject, *, origin: Origin = Origin.WATCH, force: bool = False
    ) -> None:
        """Store an object from the watch or from a list, if it is newer than the one we have.

        `force` stores it anyway, after the server went back in time.
        """
        key = obj.metadata.key
        old = self.objects.get(key)
        if not force and (
            (old is not None and obj.metadata.revision <= old.metadata.revision)
            or (self._removed_revisions and self._was_removed(obj.metadata))
        ):
            return
        if not isinstance(obj, UndecodableObject):
            obj = self._parts.share(obj)
        self._apply_change(key, old, obj, origin)

    def remove(self, key: Key, revision: int, uid: str = "") -> None:
        """Remove an object that the watch reports as deleted, unless a newer one is stored."""
        if self.definition.selection is None:
            # Its last event. In a selection, an earlier one may report that it was not selected.
            self._removed_revisions.pop(uid, None)
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

    def apply_own_write(self, obj: T, origin: Origin = Origin.OWN_WRITE) -> None:
        """Store the response to one of our own writes, so that the next read sees it."""
        old = self.objects.get(obj.metadata.key)
        if self._is_newer(obj.metadata, old):
            self._apply_change(obj.metadata.key, old, self._parts.share(obj), origin)

    def _remove_unselected(self, metadata: ObjectMeta, origin: Origin) -> None:
        """Remove an object that our own write has moved out of the selection."""
        old = self.objects.get(metadata.key)
        if old is not None and self._is_newer(metadata, old):
            self._remember_removal(metadata.uid, metadata.revision)
            self._apply_change(metadata.key, old, None, origin)

    def apply_own_delete(self, key: Key, uid: str) -> None:
        """Remove an object that the server has removed in response to our request."""
        if not self._is_watched(key.namespace):
            return
        self._remember_removal(uid, math.inf)
        old = self.objects.get(key)
        if old is not None and old.metadata.uid == uid:
            self._apply_change(key, old, None, Origin.OWN_WRITE)

    def _is_newer(self, metadata: ObjectMeta, old: T | UndecodableObject | None) -> bool:
        """Whether the response to an own write is newer than what is known."""
        # Without a watch of its namespace, the object's deletion would never be noticed.
        return (
            self._is_watched(metadata.namespace)
            and (self.accepts is None or self.accepts(metadata))
            and metadata.revision > self.watched_revision(metadata.namespace)
            and (old is None or metadata.revision > old.metadata.revision)
            and not self._was_removed(metadata)
        )

    def _is_watched(self, namespace: str) -> bool:
        return "" in self._watched_revisions or namespace in self._watched_revisions

    def _was_removed(self, metadata: ObjectMeta) -> bool:
        return metadata.revision <= self._removed_revisions.get(metadata.uid, -1)

    def _remember_removal(self, uid: str, revision: float) -> None:
        self._removed_revisions[uid] = revision
        if len(self._removed_revisions) > _MAX_REMEMBERED_REMOVALS:
            del self._removed_revisions[next(iter(self._removed_revisions))]

    def finish_list(
        self,
        listed: set[Key],
        revision: int,
        namespace: str,
        *,
        force: bool,
        covers: Callable[[ObjectMeta], bool] | None = None,
    ) -> None:
        """Remove the objects that a complete list does not contain, unless they are newer.

        With `covers`, the list was one of the objects for which it returns True.
        """
        missing = [
            key
            for key, obj in self.objects.items()
            if key not in listed
            and (not namespace or key.namespace == namespace)
            and (covers is None or covers(obj.metadata))
        ]
        for key in missing:
            old = self.objects[key]
            if force or old.metadata.revision <= revision:
                self._apply_change(key, old, None, Origin.WATCH)
        if force:
            self._watched_revisions[namespace] = revision
            # The backup may have the objects that we deleted.
            self._removed_revisions.clear()
        self.advance_revision(revision, namespace)

    def release(self, covers: Callable[[ObjectMeta], bool]) -> None:
        """Drop the objects that the watch does not deliver any more."""
        for key, obj in list(self.objects.items()):
            if covers(obj.metadata):
                self._apply_change(key, obj, None, Origin.RELEASED)

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
                "an index function failed",
                error=error,
                index=name,
                kind=self.name,
            )
            return ()


class Cache:
    """The stores of all watched kinds. Controllers read it inside a reconcile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.stores: dict[type[Object], Store[Any]] = {}
        # Several classes may be views of one resource, each with its own store.
        self._stores_by_resource: dict[tuple[str, str], list[Store[Any]]] = {}
        self._sealed = False

    def store(self, kind: type[T]) -> Store[T]:
        """The store of a kind, for its indexes and its signal.

        Before the manager runs, it is created at the first call. That declares no watch: a
        controller has to declare the kind too.
        """
        if kind not in self.stores:
            if self._sealed:
                raise ConfigError(_describe_undeclared(kind))
            definition = kind.definition
            store: Store[T] = Store(definition, self._log, self._unique_name(definition))
            self.stores[kind] = store
            self._stores_by_resource.setdefault(_resource_of(definition), []).append(store)
        return cast("Store[T]", self.stores[kind])

    def seal(self, watched_kinds: Collection[type[Object]]) -> None:
        """Allow no more kinds. Raises ConfigError if a store has no watch: it would stay empty."""
        self._sealed = True
        for kind in self.stores:
            if kind not in watched_kinds:
                raise ConfigError(_describe_undeclared(kind))

    def _unique_name(self, definition: KindDefinition) -> str:
        selection = f"[{definition.selection}]" if definition.selection else ""
        name = first_name = f"{definition.group_resource}{selection}"
        names = {store.name for store in self.stores.values()}
        # Two classes for one resource, or two transforms that have the same name.
        number = 1
        while name in names:
            number += 1
            name = f"{first_name} ({number})"
        return name

    def get(self, kind: type[T], key: Key) -> T | None:
        """The object, or None if it does not exist or cannot be decoded.

        Its own controller reports an object that cannot be decoded.
        """
        obj = self._watched_store(kind).objects.get(key)
        return None if isinstance(obj, UndecodableObject) else obj

    def all(self, kind: type[T], namespace: str = "") -> list[T]:
        # A list first: a reconcile may run in a thread, while the watch changes the store.
        objects = list(self._watched_store(kind).objects.values())
        return [
            obj
            for obj in objects
            if not isinstance(obj, UndecodableObject)
            and (not namespace or obj.metadata.namespace == namespace)
        ]

    def by_index(self, kind: type[T], index: str, value: str) -> list[T]:
        """The objects of the kind that have this value in the index."""
        store = self._watched_store(kind)
        objects = (store.objects.get(key) for key in store.keys_by_index(index, value))
        return [
            obj for obj in objects if obj is not None and not isinstance(obj, UndecodableObject)
        ]

    def apply_own_write(self, obj: Object, raw: bytes) -> None:
        """Store the response to one of our own writes; `obj` is `raw` decoded."""
        metadata = obj.metadata
        for store in self._stores_by_resource.get(_resource_of(obj.definition), ()):
            definition, selection = store.definition, store.definition.selection
            if obj.definition.metadata_only and not definition.metadata_only:
                continue
            is_selected = selection is None or selection.matches(
                metadata.labels, name=metadata.name, namespace=metadata.namespace
            )
            is_same_class = definition is obj.definition
            # Another controller than the one that wrote may have this store: its objects have to
            # be enqueued as by the watch.
            origin = Origin.OWN_WRITE if is_same_class else Origin.WATCH
            if is_selected is False:
                store._remove_unselected(metadata, origin)
            elif is_selected:
                has_transform = selection is not None and selection.transform is not None
                stored: Object | UndecodableObject = obj
                if has_transform or not is_same_class:
                    stored = decode_item(definition.type, raw)
                # The watch reports an object that cannot be decoded.
                if not isinstance(stored, UndecodableObject):
                    store.apply_own_write(stored, origin)

    def apply_own_delete(self, definition: KindDefinition, key: Key, uid: str) -> None:
        """Remove the object that we deleted from all stores of its resource."""
        for store in self._stores_by_resource.get(_resource_of(definition), ()):
            store.apply_own_delete(key, uid)

    def _watched_store(self, kind: type[T]) -> Store[T]:
        if kind not in self.stores:
            # An empty result would mean "there is no such object".
            raise ConfigError(_describe_undeclared(kind))
        return cast("Store[T]", self.stores[kind])


def _describe_undeclared(kind: type[Object]) -> str:
    name = kind.__name__
    return (
        f"{name} is not watched, so the cache has no {name}; declare it with "
        f"watches({name}, ...) or reads({name}) in a controller, or use the client"
    )


def _resource_of(definition: KindDefinition) -> tuple[str, str]:
    return definition.api_version, definition.plural
