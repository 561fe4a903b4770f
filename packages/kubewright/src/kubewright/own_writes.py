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
        # The revisions of the events that are held back.
        self._held_back: dict[K, list[int]] = {}

    def hold_back(self, key: K, revision: int) -> bool:
        """Hold an event back if the object is being written; returns whether it is."""
        if key not in self._held_back:
            return False
        self._held_back[key].append(revision)
        return True

    @contextmanager
    def write(self, key: K, wake: Callable[[], None]) -> Iterator[list[int]]:
        """The context of one write. Append the revision that it created to the yielded list.

        At its end, `wake` is called if the revision of an event that was held back is not in the
        list: another client wrote it.
        """
        own_revisions: list[int] = []
        self._held_back[key] = []
        try:
            yield own_revisions
        finally:
            if any(held not in own_revisions for held in self._held_back.pop(key)):
                wake()
