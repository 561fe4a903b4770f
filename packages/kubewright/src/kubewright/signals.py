"""A list of listeners that are called for each event.

self.started_leading: Signal[()] = Signal("started leading")
manager.started_leading.connect(listener)
self.started_leading.emit()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from .log import Log

Arguments = TypeVarTuple("Arguments")


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
