"""Where an installed CRD differs from the one that is generated; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BY = ("name", "jsonPath")
"""What tells the entries of a list apart."""
ADDED_BY_SERVER = ("conversion", "preserveUnknownFields")


def differences(generated: Mapping[str, Any], installed: Mapping[str, Any]) -> list[str]:
    """The paths below spec that are not the same; what the API server fills in by itself does not count."""
    theirs = {key: value for key, value in installed.items() if key not in ADDED_BY_SERVER}
    return list(between(generated, theirs, ""))


def between(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """The deepest paths at which two JSON values differ."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from one_of(ours, theirs, key, f"{path}.{key}" if path else str(key))
    elif named(ours) and named(theirs):
        yield from between(named(ours), named(theirs), path)
    elif ours != theirs:
        yield path


def one_of(ours: Mapping[str, Any], theirs: Mapping[str, Any], key: str, path: str) -> Iterator[str]:
    """The differences at one key."""
    if key not in theirs:
        yield f"{path} (missing there)"
    elif key not in ours:
        yield f"{path} (only there)"
    else:
        yield from between(ours[key], theirs[key], path)


def named(value: Any) -> dict[str, Any]:
    """A list of named things as a mapping, {} for what is none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, Mapping) for each in value):
        return {}
    key = next((key for key in BY if all(key in each for each in value)), "")
    return {str(each[key]): each for each in value} if key else {}
