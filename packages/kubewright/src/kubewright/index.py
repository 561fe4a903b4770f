"""Which objects of a store have a value: what `by_index` and `watches` look up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .kind import Key
from .responses import UndecodableObject

IndexFunction = Callable[[Any], "str | Iterable[str] | None"]


class Index:
    """Keys by a value that a function reads from each object."""

    def __init__(self, index_function: IndexFunction) -> None:
        self._index_function = index_function
        # A single key is stored without a dictionary: most values have one, and a dictionary of one
        # key takes 230 bytes.
        self._keys_by_value: dict[str, Key | dict[Key, None]] = {}

    def __len__(self) -> int:
        """The number of values."""
        return len(self._keys_by_value)

    def keys_of(self, value: str) -> list[Key]:
        """The keys of the objects with this value."""
        keys = self._keys_by_value.get(value)
        if keys is None:
            return []
        return list(keys) if isinstance(keys, dict) else [keys]

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
            self._drop(value, key)
        for value in new:
            self._add(value, key)

    def _add(self, value: str, key: Key) -> None:
        keys = self._keys_by_value.get(value)
        if isinstance(keys, dict):
            keys[key] = None
        elif keys is None or keys == key:
            self._keys_by_value[value] = key
        else:
            self._keys_by_value[value] = {keys: None, key: None}

    def _drop(self, value: str, key: Key) -> None:
        keys = self._keys_by_value.get(value)
        if isinstance(keys, dict):
            keys.pop(key, None)
        if keys == key or keys == {}:
            del self._keys_by_value[value]
