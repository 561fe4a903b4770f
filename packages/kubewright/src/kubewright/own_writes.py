"""Keeps the watch events of our own writes from triggering another reconcile of the object.

Such an event may arrive before the response to the write, when nothing distinguishes it from a
write by another client. So while a write is in progress, events of the object are deferred. The
object is enqueued afterwards if one of them was not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class OwnWrites(Generic[K]):
    """The objects that are being written, by a key of any type."""

    def __init__(self) -> None:
        # For each write in progress, the revisions of the events that are deferred. Two owners
        # may apply a child of the same name at the same time.
        self._deferred: dict[K, list[list[int]]] = {}

    def defer(self, key: K, revision: int) -> bool:
        """Defer an event if the object is being written; returns whether it is."""
        writes = self._deferred.get(key, ())
        for deferred in writes:
            deferred.append(revision)
        return bool(writes)

    def write(self, key: K, enqueue: Callable[[], None]) -> AbstractContextManager[list[int]]:
        """The context of one write. Append the revision that it created to its list.

        At its end, `enqueue` is called if the revision of a deferred event is not in the list:
        another client wrote it.
        """
        return _Write(self._deferred, key, enqueue)


# Not a generator: as a context, that takes longer, and every status needs one.
class _Write(Generic[K]):
    def __init__(
        self, writes_by_key: dict[K, list[list[int]]], key: K, enqueue: Callable[[], None]
    ) -> None:
        self._writes_by_key, self._key, self._enqueue = writes_by_key, key, enqueue
        self._own_revisions, self._deferred = list[int](), list[int]()

    def __enter__(self) -> list[int]:
        self._writes_by_key.setdefault(self._key, []).append(self._deferred)
        return self._own_revisions

    def __exit__(self, *error: object) -> None:
        writes = self._writes_by_key[self._key]
        # By identity: the lists of two writes may be equal.
        writes[:] = [other for other in writes if other is not self._deferred]
        if not writes:
            del self._writes_by_key[self._key]
        if any(revision not in self._own_revisions for revision in self._deferred):
            self._enqueue()
