"""A list of listeners that are called for each event.

    host_added: Signal[Host] = Signal(log)
    host_added.connect(tracker.on_host_added)
    host_added.emit(host)

`VCenter.__init__` connects the parts of one vCenter. build.py makes all other connections.
kubewright.cache has a similar class, but this package must not import kubewright.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from .log import Log

Args = TypeVarTuple("Args")


class Signal(Generic[*Args]):
    """Calls its listeners in the order in which they were connected."""

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
