"""Where an installed CRD differs from the one that is generated; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LIST_ITEM_KEYS = ("name", "jsonPath")
"""What tells the entries of a list apart."""
_SERVER_DEFAULTED_FIELDS = ("conversion", "preserveUnknownFields")


def diff_specs(generated: Mapping[str, Any], installed: Mapping[str, Any]) -> list[str]:
    """The paths below spec that are not the same; what the API server fills in by itself does not count."""
    theirs = {key: value for key, value in installed.items() if key not in _SERVER_DEFAULTED_FIELDS}
    return list(_diff_values(generated, theirs, ""))


def _diff_values(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """The deepest paths at which two JSON values differ."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from _diff_key(ours, theirs, key, f"{path}.{key}" if path else str(key))
    elif _index_by_name(ours) and _index_by_name(theirs):
        yield from _diff_values(_index_by_name(ours), _index_by_name(theirs), path)
    elif ours != theirs:
        yield path


def _diff_key(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], key: str, path: str
) -> Iterator[str]:
    """The differences at one key."""
    if key not in theirs:
        yield f"{path} (missing there)"
    elif key not in ours:
        yield f"{path} (only there)"
    else:
        yield from _diff_values(ours[key], theirs[key], path)


def _index_by_name(value: Any) -> dict[str, Any]:
    """A list of named things as a mapping, {} for what is none."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(each, Mapping) for each in value)
    ):
        return {}
    key = next((key for key in _LIST_ITEM_KEYS if all(key in each for each in value)), "")
    return {str(each[key]): each for each in value} if key else {}
