"""Sets of fields, as `metadata.managedFields` stores them for each manager.

A path is a tuple of elements in the form of the wire: `f:spec`, `k:{"name":"http"}`, `v:"tag"`.
With a plain set of paths, union, intersection and difference are those of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import msgspec

from ...patch import Json
from .schema_node import SchemaNode

Path = tuple[str, ...]
FieldSet = Set[Path]
_ENCODER = msgspec.json.Encoder(order="sorted")


def field_element(name: str) -> str:
    return f"f:{name}"


def item_element(node: SchemaNode, item: Any) -> str:
    """The element that identifies an item of a list of type `set` or `map`."""
    if node.list_type == "set":
        return "v:" + _ENCODER.encode(item).decode()
    keys: Json = {}
    for key in node.list_map_keys:
        field = node.items.field(key)
        default = field.raw.get("default") if field is not None else None
        value = item.get(key, default)
        if value is not None:
            keys[key] = value
    return "k:" + _ENCODER.encode(keys).decode()


def encode_fields(paths: Iterable[Path]) -> Json:
    """The set as FieldsV1. A member that has members below it is marked with a dot."""
    root: Json = {}
    members = sorted(paths)
    for path in members:
        place = root
        for element in path:
            place = place.setdefault(element, {})
    for path in members:
        place = root
        for element in path:
            place = place[element]
        if place:
            place["."] = {}
    return root


def decode_fields(fields: Json, prefix: Path = ()) -> set[Path]:
    paths: set[Path] = set()
    for element, below in fields.items():
        if element == ".":
            paths.add(prefix)
            continue
        path = (*prefix, element)
        if below:
            paths |= decode_fields(below, path)
        else:
            paths.add(path)
    return paths


def format_path(path: Path) -> str:
    """The path as in messages of the API server: .spec.ports[name="http"].number"""
    return "".join(_format_element(element) for element in path)


def _format_element(element: str) -> str:
    type, content = element[0], element[2:]
    if type == "f":
        return f".{content}"
    if type == "v":
        return f"[={content}]"
    keys = msgspec.json.decode(content)
    return "[" + ",".join(f"{key}={_ENCODER.encode(keys[key]).decode()}" for key in keys) + "]"


def is_below(path: Path, prefixes: Iterable[Path]) -> bool:
    """Whether the path is one of the prefixes or below one."""
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


def with_named_fields(paths: FieldSet, node: SchemaNode) -> set[Path]:
    """The set with every declared field that is above a member; keys of maps are not added."""
    result = set(paths)
    for path in paths:
        place: SchemaNode | None = node
        for depth, element in enumerate(path[:-1]):
            if place is None:
                break
            if element.startswith("f:"):
                name = element[2:]
                if place.field(name) is not None:
                    result.add(path[: depth + 1])
                place = place.value(name)
            else:
                place = place.items
    return result
