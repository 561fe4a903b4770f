"""Leaf by leaf: what differs between two JSON objects, where, and how to put it back. Lists are leaves: they change as a whole."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import Struct

from ..overlay import Json, struct_fields
from ..schema import unwrap_annotation

ABSENT: Final = None
"""Nothing there. Kubernetes drops null from objects, so it cannot mean anything else."""


class Difference(NamedTuple):
    """At this path, one value in the first object, another one in the second."""

    path: list[str]
    first: Any
    second: Any


def find_differences(first: Json, second: Json, path: tuple[str, ...] = ()) -> list[Difference]:
    """Every leaf that is not the same in both."""
    found: list[Difference] = []
    for name in {**first, **second}:
        one, other = first.get(name, ABSENT), second.get(name, ABSENT)
        inner = one if isinstance(one, dict) else {} if one is ABSENT else None
        outer = other if isinstance(other, dict) else {} if other is ABSENT else None
        if (inner and outer is not None) or (outer and inner is not None):
            found += find_differences(inner, outer, (*path, name))
        elif one != other:
            found.append(Difference([*path, name], one, other))
    return found


def get_at_path(obj: Json, path: list[str]) -> Any:
    """The value at this path, ABSENT where there is none."""
    value: Any = obj
    for name in path:
        if not isinstance(value, dict):
            return ABSENT
        value = value.get(name, ABSENT)
    return value


def set_at_path(obj: Json, path: list[str], value: Any) -> Json:
    """A copy of the object with this value at this path; ABSENT takes it out. Where something else is in the way, nothing changes."""
    name, *rest = path
    if not rest:
        return {k: v for k, v in obj.items() if k != name} | (
            {} if value is ABSENT else {name: value}
        )
    inner = obj.get(name, {})
    return obj | {name: set_at_path(inner, rest, value)} if isinstance(inner, dict) else obj


def select_unknown_fields(obj: Json, struct: type[Struct]) -> Json:
    """What the class does not know; inside of lists it knows everything, since those change as a whole."""
    known = struct_fields(struct)
    left: Json = {}
    for name, value in obj.items():
        if name not in known:
            left[name] = value
        elif isinstance(value, dict):
            bare, _ = unwrap_annotation(known[name][0], name)
            inner = (
                select_unknown_fields(value, bare)
                if isinstance(bare, type) and issubclass(bare, Struct)
                else {}
            )
            left |= {name: inner} if inner else {}
    return left
