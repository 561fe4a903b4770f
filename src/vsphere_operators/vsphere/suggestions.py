"""Names near to one that does not exist, for whoever mistyped it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from .index import Index

_MAX_NEIGHBOURS = 10
_MAX_SUGGESTIONS = 3


class Suggestions:
    """Near names out of an index.

    difflib alone takes 55 ms for 1,000 names that differ by a number. So it sees only neighbours: those that begin alike, by the sorted
    names, and those that end alike, by the names sorted from behind. Both are sorted again only after names have come or gone.
    """

    def __init__(self, index: Index) -> None:
        self.index, self._seen_generation = index, -1
        self._by_prefix: list[tuple[str, str]] = []
        self._by_suffix: list[tuple[str, str]] = []

    def suggest(self, name: str) -> list[str]:
        """Up to three names, the nearest first; before all others those that are longer or shorter by the end, such as a domain."""
        if self._seen_generation != self.index.generation:
            self._seen_generation = self.index.generation
            self._by_prefix, self._by_suffix = _sort_by_prefix_and_suffix(self.index)
        return _closest_names(name, self._by_prefix, self._by_suffix)


def suggest_names(name: str, names: Iterable[str]) -> list[str]:
    """The same out of names that are looked through once."""
    return _closest_names(name, *_sort_by_prefix_and_suffix(names))


def _sort_by_prefix_and_suffix(
    names: Iterable[str],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Names sorted from before and from behind, each with what they are compared by."""
    forwards = sorted((name.casefold(), name) for name in names)
    return forwards, sorted((key[::-1], name) for key, name in forwards)


def _closest_names(
    name: str, forwards: Sequence[tuple[str, str]], backwards: Sequence[tuple[str, str]]
) -> list[str]:
    """Up to three of the neighbours on either side."""
    plain = name.casefold()
    by_key = dict(_find_neighbours(forwards, plain))
    by_key |= {key[::-1]: shown for key, shown in _find_neighbours(backwards, plain[::-1])}
    alike = [key for key in by_key if key.startswith(plain) or plain.startswith(key)]
    found = dict.fromkeys(
        [*sorted(alike, key=len), *get_close_matches(plain, by_key, _MAX_SUGGESTIONS)]
    )
    return [by_key[key] for key in found][:_MAX_SUGGESTIONS] if plain else []


def _find_neighbours(ordered: Sequence[tuple[str, str]], key: str) -> Sequence[tuple[str, str]]:
    """Those around the place where the key would stand."""
    place = bisect(ordered, (key, ""))
    return ordered[max(0, place - _MAX_NEIGHBOURS) : place + _MAX_NEIGHBOURS]
