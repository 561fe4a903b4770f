"""Error messages for a name that no object has, with suggestions, or that several have.

Names are compared exactly; there are no wildcards.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from .faults import Ambiguous, NotFound
from .index import Index

_MAX_QUOTED_LENGTH = 100
_MAX_NEIGHBORS = 10
_MAX_SUGGESTIONS = 3

# Pairs of sort key and name.
_SortedNames = Sequence[tuple[str, str]]


def not_found_error(vcenter: str, label: str, name: str, suggestions: Suggestions) -> NotFound:
    similar = ", ".join(f'"{candidate}"' for candidate in suggestions._suggest(name))
    return NotFound(
        f'vCenter "{vcenter}" has no {label} named "{name[:_MAX_QUOTED_LENGTH]}". '
        f"{f'Did you mean {similar}? ' if similar else ''}"
        "Check the spelling (names are case-sensitive), or grant the vCenter account System.Read "
        f"on the {label}. The status is updated as soon as vCenter has the {label}."
    )


def ambiguous_error(vcenter: str, label: str, name: str, paths: Sequence[str]) -> Ambiguous:
    return Ambiguous(
        f'vCenter "{vcenter}" has {len(paths)} {label}s named "{name[:_MAX_QUOTED_LENGTH]}": '
        f"{', '.join(paths)}. It must be unique; rename all but one in vCenter."
    )


class Suggestions:
    """Similar names out of an index.

    difflib alone takes 55 ms for 1,000 names that differ by a number. So it is given only the
    names with a similar beginning or a similar end, which two sorted lists find quickly.
    """

    def __init__(self, index: Index) -> None:
        self._index, self._seen_change_count = index, -1
        self._by_prefix: _SortedNames = []
        self._by_suffix: _SortedNames = []

    def _suggest(self, name: str) -> list[str]:
        """Up to three names, the most similar first."""
        # Sorted again only after names were added or removed.
        if self._seen_change_count != self._index.change_count:
            self._seen_change_count = self._index.change_count
            self._by_prefix, self._by_suffix = _sort_by_prefix_and_suffix(self._index)
        return _closest_names(name, self._by_prefix, self._by_suffix)


def suggest_names(name: str, names: Iterable[str]) -> list[str]:
    """Up to three similar names out of a list that is searched once."""
    return _closest_names(name, *_sort_by_prefix_and_suffix(names))


def _sort_by_prefix_and_suffix(names: Iterable[str]) -> tuple[_SortedNames, _SortedNames]:
    by_prefix = sorted((name.casefold(), name) for name in names)
    return by_prefix, sorted((key[::-1], name) for key, name in by_prefix)


def _closest_names(name: str, by_prefix: _SortedNames, by_suffix: _SortedNames) -> list[str]:
    requested = name.casefold()
    candidates = dict(_find_neighbors(by_prefix, requested))
    candidates |= {
        key[::-1]: candidate for key, candidate in _find_neighbors(by_suffix, requested[::-1])
    }
    # Names that differ only by a longer end, such as a domain, come first.
    extended = [key for key in candidates if key.startswith(requested) or requested.startswith(key)]
    ranked = dict.fromkeys(
        [*sorted(extended, key=len), *get_close_matches(requested, candidates, _MAX_SUGGESTIONS)]
    )
    return [candidates[key] for key in ranked][:_MAX_SUGGESTIONS] if requested else []


def _find_neighbors(ordered: _SortedNames, key: str) -> _SortedNames:
    position = bisect(ordered, (key, ""))
    return ordered[max(0, position - _MAX_NEIGHBORS) : position + _MAX_NEIGHBORS]
