"""Error messages for a name that no object has, with suggestions, or that several have.

Names are compared exactly; there are no wildcards.

What does a search for similar names cost?  Users choose the name, and every reconcile of an object
    with a wrong name searches, on the event loop that also renews the lease. So the work has a
    fixed bound, whatever the name: a name that is too long is not searched for, at most 20 others
    are compared, and of each only a few characters. The bound is on work, not on time: with a
    deadline the same name would have other suggestions on a busy machine, and so another status.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import islice, takewhile

from .faults import Ambiguous, NotFound
from .index import Index

# The longest name that an object can have: vCenter allows 80 characters, of which it stores %, /
# and \ as three each, and the name of a host is a DNS name of up to 253 characters.
MAX_NAME_LENGTH = 255
_MAX_QUOTED_LENGTH = 100
_MAX_PATH_LENGTH = 500
_MAX_NEIGHBORS = 5
_MAX_SUGGESTIONS = 3
# More than the VMs of a vCenter (45,000 registered ones in vSphere 8). Sorting so many names takes
# about 50 ms, once after names were added or removed.
_MAX_SEARCHED_NAMES = 50_000
# difflib compares n characters in up to n**3 steps: 130 ms for 199 of them, 0.03 ms for these.
_MAX_COMPARED_LENGTH = 12
_MIN_SIMILARITY = 0.6


def quote(name: str) -> str:
    """The name for a message: in quotation marks, and shortened if it is long."""
    if len(name) <= _MAX_QUOTED_LENGTH:
        return f'"{name}"'
    return f'"{name[:_MAX_QUOTED_LENGTH]}..." ({len(name)} characters)'


def shorten_path(path: str) -> str:
    return path if len(path) <= _MAX_PATH_LENGTH else f"{path[:_MAX_PATH_LENGTH]}..."


def not_found_error(vcenter: str, label: str, name: str, suggestions: Suggestions) -> NotFound:
    similar = ", ".join(f'"{candidate}"' for candidate in suggestions._suggest(name))
    return NotFound(
        f'vCenter "{vcenter}" has no {label} named {quote(name)}. '
        f"{f'Did you mean {similar}? ' if similar else ''}"
        "Check the spelling (names are case-sensitive), or grant the vCenter account System.Read "
        f"on the {label}. The status is updated as soon as vCenter has the {label}."
    )


def ambiguous_error(vcenter: str, label: str, name: str, paths: Sequence[str]) -> Ambiguous:
    return Ambiguous(
        f'vCenter "{vcenter}" has {len(paths)} {label}s named {quote(name)}: '
        f"{', '.join(paths)}. It must be unique; rename all but one in vCenter."
    )


class Suggestions:
    """Similar names out of an index."""

    def __init__(self, index: Index) -> None:
        self._index, self._seen_change_count = index, -1
        self._names = _SortedNames(())

    def _suggest(self, name: str) -> list[str]:
        """Up to three names, the most similar first."""
        if len(name) > MAX_NAME_LENGTH:
            return []
        # Sorted again only after names were added or removed.
        if self._seen_change_count != self._index.change_count:
            self._seen_change_count = self._index.change_count
            self._names = _SortedNames(self._index)
        return self._names._find_similar(name)


def suggest_names(name: str, names: Iterable[str]) -> list[str]:
    """Up to three similar names out of a list that is searched once."""
    return [] if len(name) > MAX_NAME_LENGTH else _SortedNames(names)._find_similar(name)


class _SortedNames:
    """Finds the names with a similar beginning or a similar end: only these are compared."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names_by_key = {
            name.casefold(): name
            for name in islice(names, _MAX_SEARCHED_NAMES)
            if len(name) <= MAX_NAME_LENGTH
        }
        # Plain strings, not pairs with the name: Python sorts these four times as fast.
        self._by_prefix = sorted(self._names_by_key)
        self._by_suffix = sorted(key[::-1] for key in self._names_by_key)

    def _find_similar(self, name: str) -> list[str]:
        """Up to three names, the most similar first."""
        requested = name.casefold()
        if not requested:
            return []
        candidates = dict.fromkeys(_find_neighbors(self._by_prefix, requested))
        candidates |= dict.fromkeys(
            key[::-1] for key in _find_neighbors(self._by_suffix, requested[::-1])
        )
        # Names that differ only by a longer end, such as a domain, come first.
        extended = [
            key for key in candidates if key.startswith(requested) or requested.startswith(key)
        ]
        rated = [(_rate_similarity(requested, key), key) for key in candidates]
        similar = nlargest(_MAX_SUGGESTIONS, (pair for pair in rated if pair[0] >= _MIN_SIMILARITY))
        ranked = dict.fromkeys([*sorted(extended, key=len), *(key for _, key in similar)])
        return [self._names_by_key[key] for key in islice(ranked, _MAX_SUGGESTIONS)]


def _find_neighbors(ordered: Sequence[str], key: str) -> Sequence[str]:
    position = bisect(ordered, key)
    return ordered[max(0, position - _MAX_NEIGHBORS) : position + _MAX_NEIGHBORS]


def _rate_similarity(first: str, second: str) -> float:
    """The share of characters that both names have in common, in the same order: 0 to 1.

    difflib compares only the characters between the common beginning and the common end, and of
    long ones only the first: a name that differs in more characters is not a typing error.
    """
    start = _count_common(first, second)
    end = _count_common(first[start:][::-1], second[start:][::-1])
    first_middle = first[start : min(len(first) - end, start + _MAX_COMPARED_LENGTH)]
    second_middle = second[start : min(len(second) - end, start + _MAX_COMPARED_LENGTH)]
    total, common = len(first) + len(second), start + end
    # Without difflib, if even equal characters would not suffice.
    if 2 * (common + min(len(first_middle), len(second_middle))) < _MIN_SIMILARITY * total:
        return 0.0
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, first_middle, second_middle)
    return 2 * (common + sum(block.size for block in matcher.get_matching_blocks())) / total


def _count_common(first: str, second: str) -> int:
    """The number of characters with which both begin."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
