"""Which references have a key: a name, a uuid, a host."""

from __future__ import annotations

from collections.abc import Iterator, Set

_NO_REFS: frozenset[str] = frozenset()


class Index:
    """References by key; the empty key is none."""

    def __init__(self) -> None:
        self.refs: dict[str, set[str] | str] = {}
        """One reference stands for itself: most names and uuids have one, and thousands of sets would be in the garbage collector's way."""
        self.generation = 0
        """Grows with each key that comes or goes."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.refs)

    def get(self, key: str) -> Set[str]:
        """Those with this key."""
        held = self.refs.get(key, _NO_REFS)
        return frozenset((held,)) if isinstance(held, str) else held

    def move(self, ref: str, before: str, after: str) -> None:
        """Another key for a reference."""
        self.drop(before, ref)
        self.add(after, ref)

    def add(self, key: str, ref: str) -> None:
        """One more with this key."""
        held = self.refs.get(key)
        if isinstance(held, set):
            held.add(ref)
        elif held is not None:
            self.refs[key] = {held, ref}
        elif key:
            self.refs[key] = ref
            self.generation += 1

    def drop(self, key: str, ref: str) -> None:
        """One less; a key with none is forgotten."""
        held = self.refs.get(key)
        if isinstance(held, set):
            held.discard(ref)
        if held == ref or held == set():
            del self.refs[key]
            self.generation += 1
