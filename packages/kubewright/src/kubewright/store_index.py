"""Keys by a value that a function reads from each object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .kind import Key
from .responses import UndecodableObject

IndexFunction = Callable[[Any], "str | Iterable[str] | None"]


class Index:
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
