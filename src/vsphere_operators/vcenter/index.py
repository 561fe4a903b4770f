"""Which references have a key: a name, a uuid, a host."""

from __future__ import annotations

from collections.abc import Iterator, Set

NONE: frozenset[str] = frozenset()


class Index:
    """References by key; the empty key is none."""

    def __init__(self) -> None:
        self.refs: dict[str, set[str]] = {}
        self.generation = 0
        """Grows with each key that comes or goes."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.refs)

    def of(self, key: str) -> Set[str]:
        """Those with this key."""
        return self.refs.get(key, NONE)

    def move(self, ref: str, before: str, after: str) -> None:
        """Another key for a reference."""
        self.drop(before, ref)
        self.add(after, ref)

    def add(self, key: str, ref: str) -> None:
        """One more with this key."""
        if not key:
            return
        if key not in self.refs:
            self.refs[key] = set()
            self.generation += 1
        self.refs[key].add(ref)

    def drop(self, key: str, ref: str) -> None:
        """One less; a key with none is forgotten."""
        if (held := self.refs.get(key)) is None:
            return
        held.discard(ref)
        if not held:
            del self.refs[key]
            self.generation += 1
