"""Field-wise operations on objects with a schema: which fields there are, differ, merge or go.

The rules are those of sigs.k8s.io/structured-merge-diff, on which server-side apply is built: maps
merge by key, lists of type `map` and `set` by item, everything else is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...patch import Json
from .field_set import FieldSet, Path, field_element, format_path, item_element
from .schema_node import ANY, SchemaNode

_MISSING: Any = object()
_EMPTIED: Any = object()
"""What remains of a list or map after all of its items were removed; `drop_emptied` removes it."""


def fields_of(value: Any, node: SchemaNode, path: Path = ()) -> set[Path]:
    """Every leaf and every item of a list or map in the value."""
    paths: set[Path] = set()
    if isinstance(value, dict) and not node.is_atomic_map:
        for name, item in value.items():
            below = (*path, field_element(name))
            paths |= fields_of(item, node.value(name) or ANY, below)
            if item in (None, _EMPTIED) or item == {} or node.field(name) is None:
                paths.add(below)
    elif isinstance(value, list) and node.list_type != "atomic":
        elements = [item_element(node, item) for item in value]
        for element, item in zip(elements, value, strict=True):
            below = (*path, element)
            paths.add(below)
            # Duplicates are one field: it is not known which of them a manager means.
            if elements.count(element) == 1:
                paths |= fields_of(item, node.items, below)
    else:
        paths.add(path)
    return paths


@dataclass(frozen=True)
class Comparison:
    """The fields that differ between two objects."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)


def compare(old: Any, new: Any, node: SchemaNode) -> Comparison:
    result = Comparison()
    _compare(old, new, node, (), result)
    return result


def _compare(old: Any, new: Any, node: SchemaNode, path: Path, result: Comparison) -> None:
    if old is new or old == new:
        return
    children = _pair_children(old, new, node)
    if children is None:
        if old is _MISSING:
            result.added.add(path)
        elif new is _MISSING:
            result.removed.add(path)
        elif old != new:
            result.modified.add(path)
        return
    for element, child, old_item, new_item in children:
        _compare(old_item, new_item, child, (*path, element), result)
    if path and old is _MISSING:
        result.added.add(path)
    elif path and new is _MISSING:
        result.removed.add(path)


def _pair_children(
    old: Any, new: Any, node: SchemaNode
) -> Iterator[tuple[str, SchemaNode, Any, Any]] | None:
    """The fields or items of both values by element; None if the values are compared as leaves."""
    values = [value for value in (old, new) if value is not _MISSING and value is not _EMPTIED]
    if not any(values):
        # Two empty values are leaves, so that `{}` and null remain different.
        return None
    if all(isinstance(value, dict) for value in values) and not node.is_atomic_map:
        return _pair_fields(old, new, node)
    if all(isinstance(value, list) for value in values) and node.list_type != "atomic":
        return _pair_items(old, new, node)
    return None


def _pair_fields(
    old: Any, new: Any, node: SchemaNode
) -> Iterator[tuple[str, SchemaNode, Any, Any]]:
    old_fields = old if isinstance(old, dict) else {}
    new_fields = new if isinstance(new, dict) else {}
    for name in {**old_fields, **new_fields}:
        child = node.value(name) or ANY
        old_value, new_value = old_fields.get(name, _MISSING), new_fields.get(name, _MISSING)
        yield field_element(name), child, old_value, new_value


def _pair_items(old: Any, new: Any, node: SchemaNode) -> Iterator[tuple[str, SchemaNode, Any, Any]]:
    old_items = _items_by_element(old, node)
    new_items = _items_by_element(new, node)
    for element in {**old_items, **new_items}:
        before, after = old_items.get(element, []), new_items.get(element, [])
        if len(before) > 1 or len(after) > 1:
            # Duplicates are compared as a whole.
            yield element, _ATOMIC, before or _MISSING, after or _MISSING
        else:
            old_item, new_item = (items[0] if items else _MISSING for items in (before, after))
            yield element, node.items, old_item, new_item


_ATOMIC = SchemaNode({"type": "array", "items": {}})


def _items_by_element(items: Any, node: SchemaNode) -> dict[str, list[Any]]:
    by_element: dict[str, list[Any]] = {}
    for item in items if isinstance(items, list) else ():
        by_element.setdefault(item_element(node, item), []).append(item)
    return by_element


def merge(live: Any, config: Any, node: SchemaNode) -> Any:
    """The live value with the values of the configuration; nothing is removed."""
    if isinstance(live, dict) and isinstance(config, dict) and not node.is_atomic_map:
        merged = dict(live)
        for name, value in config.items():
            child = node.value(name) or ANY
            merged[name] = merge(live[name], value, child) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and node.list_type != "atomic":
        return _merge_items(live, config, node) if live or config else config
    return config


def _merge_items(live: list[Any], config: list[Any], node: SchemaNode) -> list[Any]:
    """Items of the configuration in its order; other live items keep their place before the next
    common item.
    """
    live_items = {item_element(node, item): item for item in live}
    config_items = {item_element(node, item): item for item in config}
    remaining_live, remaining_config = list(live_items), list(config_items)
    common = [element for element in remaining_config if element in live_items]
    merged: list[Any] = []
    done: set[str] = set()

    def take_config_item() -> None:
        element = remaining_config.pop(0)
        item, is_live = config_items[element], element in live_items
        merged.append(merge(live_items[element], item, node.items) if is_live else item)
        done.add(element)
        if common and common[0] == element:
            common.pop(0)

    while remaining_live or remaining_config:
        if remaining_live and remaining_config:
            element = remaining_live[0]
            if element == remaining_config[0]:
                remaining_live.pop(0)
                take_config_item()
                continue
            if element in config_items and common and common[0] != element:
                remaining_live.pop(0)
                continue
        if remaining_live:
            element = remaining_live[0]
            if element not in config_items:
                merged.append(live_items[remaining_live.pop(0)])
                continue
            if element in done:
                remaining_live.pop(0)
        if remaining_config:
            take_config_item()
    return merged


def remove_fields(value: Any, paths: FieldSet, node: SchemaNode) -> Any:
    """The value without these fields and items."""
    prefixes = {path[:depth] for path in paths for depth in range(1, len(path))}
    return _remove_fields(value, paths, prefixes, node, ())


def _remove_fields(
    value: Any, paths: FieldSet, prefixes: set[Path], node: SchemaNode, path: Path
) -> Any:
    if isinstance(value, dict):
        if node.is_atomic_map:
            return _EMPTIED
        kept: Json = {}
        for name, item in value.items():
            below = (*path, field_element(name))
            if below in paths:
                continue
            if below in prefixes:
                item = _remove_fields(item, paths, prefixes, node.value(name) or ANY, below)
            kept[name] = item
        return kept or _EMPTIED
    if isinstance(value, list):
        if node.list_type == "atomic":
            return _EMPTIED
        kept_items = []
        for item in value:
            below = (*path, item_element(node, item))
            if below in paths:
                continue
            if below in prefixes:
                item = _remove_fields(item, paths, prefixes, node.items, below)
            kept_items.append(item)
        return kept_items or _EMPTIED
    return value


def drop_emptied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: drop_emptied(item) for name, item in value.items() if item is not _EMPTIED}
    if isinstance(value, list):
        return [drop_emptied(item) for item in value if item is not _EMPTIED]
    return value


def find_type_error(value: Any, node: SchemaNode, path: str = "") -> str:
    """Why a value cannot be merged by its schema; "" if it can. Duplicates in lists are errors."""
    if value is None:
        return ""
    if isinstance(value, dict):
        if node.type not in ("", "object"):
            return _describe_type_error(value, node, path)
        for name, item in value.items():
            child = node.value(name)
            if child is None:
                return f"{path}.{name}: field not declared in schema"
            if error := find_type_error(item, child, f"{path}.{name}"):
                return error
        return ""
    if isinstance(value, list):
        if node.type not in ("", "array"):
            return _describe_type_error(value, node, path)
        return _find_item_error(value, node, path)
    expected: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": (int, float),
        "number": (int, float),
        "boolean": bool,
    }
    if node.type in expected:
        matches = isinstance(value, expected[node.type])
        if not matches or (isinstance(value, bool) and node.type != "boolean"):
            return _describe_type_error(value, node, path)
    elif node.type in ("object", "array"):
        return _describe_type_error(value, node, path)
    return ""


def _find_item_error(items: list[Any], node: SchemaNode, path: str) -> str:
    seen: set[str] = set()
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if node.list_type != "atomic":
            if node.list_type == "map" and not isinstance(item, dict):
                text = "associative list with keys may not have non-map elements"
                return f"{path}: element {index}: {text}"
            element = item_element(node, item)
            name = format_path((element,))
            if element in seen:
                return f"{path}: duplicate entries for key {name}"
            seen.add(element)
            place = f"{path}{name}"
        if error := find_type_error(item, node.items, place):
            return error
    return ""


def _describe_type_error(value: Any, node: SchemaNode, path: str) -> str:
    go_value = msgspec.json.encode(value).decode()
    match node.type:
        case "integer" | "number":
            go_types: dict[type, str] = {str: "string", bool: "bool"}
            name = go_types.get(type(value), "map[string]interface {}")
            text = f"expected numeric (int or float), got {name}"
        case "string":
            text = f"expected string, got &value.valueUnstructured{{Value:{go_value}}}"
        case "boolean":
            text = f"expected boolean, got &{{{go_value}}}"
        case "array":
            text = f"expected list, got &{{{go_value}}}"
        case _:
            text = f"expected map, got &{{{go_value}}}"
    return f"{path}: {text}"
