"""Keeps the watch events of our own writes from triggering another reconcile of the object.

Such an event may arrive before the response to the write, when nothing distinguishes it from a
write by another client. So while a write is in progress, events of the object are deferred. The
object is enqueued afterwards if one of them was not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
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

    @contextmanager
    def write(self, key: K, enqueue: Callable[[], None]) -> Iterator[list[int]]:
        """The context of one write. Append the revision that it created to the yielded list.

        At its end, `enqueue` is called if the revision of a deferred event is not in the list:
        another client wrote it.
        """
        own_revisions: list[int] = []
        deferred: list[int] = []
        writes = self._deferred.setdefault(key, [])
        writes.append(deferred)
        try:
            yield own_revisions
        finally:
            # By identity: the lists of two writes may be equal.
            writes[:] = (other for other in writes if other is not deferred)
            if not writes:
                del self._deferred[key]
            if any(revision not in own_revisions for revision in deferred):
                enqueue()
