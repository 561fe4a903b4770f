"""Keeps the watch events of our own writes from waking the object that was reconciled.

Such an event may arrive before the response to the write, when nothing distinguishes it from a
write by another client. So while a write is in progress, events of the object are held back. The
object is woken afterwards if one of them was not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class OwnWrites(Generic[K]):
    """The objects that are being written, by a key of any type."""

    def __init__(self) -> None:
        # For each write in progress, the revisions of the events that are held back. Two owners
        # may apply a child of the same name at the same time.
        self._held_back: dict[K, list[list[int]]] = {}

    def hold_back(self, key: K, revision: int) -> bool:
        """Hold an event back if the object is being written; returns whether it is."""
        writes = self._held_back.get(key, ())
        for held_back in writes:
            held_back.append(revision)
        return bool(writes)

    @contextmanager
    def write(self, key: K, wake: Callable[[], None]) -> Iterator[list[int]]:
        """The context of one write. Append the revision that it created to the yielded list.

        At its end, `wake` is called if the revision of an event that was held back is not in the
        list: another client wrote it.
        """
        own_revisions: list[int] = []
        held_back: list[int] = []
        writes = self._held_back.setdefault(key, [])
        writes.append(held_back)
        try:
            yield own_revisions
        finally:
            # By identity: the lists of two writes may be equal.
            writes[:] = (other for other in writes if other is not held_back)
            if not writes:
                del self._held_back[key]
            if any(revision not in own_revisions for revision in held_back):
                wake()
