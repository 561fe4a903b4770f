"""What listeners of the inventory are called with, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, TypeVarTuple

from msgspec import Struct

from .log import Log
from .model import Entity, Task

ObjectT_co = TypeVar("ObjectT_co", bound=Entity | Task, covariant=True)
Args = TypeVarTuple("Args")


class Change(Struct, Generic[ObjectT_co], frozen=True):
    """One object before and after a change. None means that it did not or does not exist."""

    old: ObjectT_co | None
    new: ObjectT_co | None
    # Another object changed on which the status of this one depends. If this one did not change
    # itself, `old` is `new`.
    related_object_changed: bool = False
    # A difference that a reload found. What happened, and whether more than once, is not known: an
    # object that is missing after a reload need not be deleted.
    reloaded: bool = False


class Signal(Generic[*Args]):
    """Calls its listeners in the order in which they were connected.

    kubewright.cache has a similar class, but this package must not import kubewright.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log = log
        self._listeners: list[Callable[[*Args], object]] = []

    def connect(self, listener: Callable[[*Args], object]) -> None:
        self._listeners.append(listener)

    def emit(self, *args: *Args) -> None:
        """Call all listeners. The error of one is logged; without a log it is raised."""
        for listener in self._listeners:
            try:
                listener(*args)
            except Exception as error:
                # An error in our own code must not count as a fault of vCenter: the session would
                # log in again and reload everything. Nor may it hide the change from the others.
                if self._log is None:
                    raise
                self._log.error("a listener failed; the others were notified", error=error)
