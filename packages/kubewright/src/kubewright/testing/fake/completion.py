"""What happens to an object while it is decoded: unknown fields go, and defaults are set."""

from __future__ import annotations

import copy
from typing import Any

from ...patch import Json
from .schema_node import ANY, PRESERVE_UNKNOWN, SchemaNode


def prune(value: Any, node: SchemaNode | None) -> Any:
    """The value without fields that the schema does not declare.

    Nulls go as well, unless the schema has a default, or allows null.
    """
    if isinstance(value, dict):
        kept: Json = {}
        for name, item in value.items():
            child = _declared_child(node, name)
            if child is None and not (node is not None and node.preserves_unknown):
                continue
            if item is None and child is not None and _drops_null(child):
                continue
            kept[name] = item if child is None else prune(item, child)
        return kept
    if isinstance(value, list) and node is not None:
        if node.preserves_unknown and "items" not in node.raw:
            return value
        return [prune(item, node.items) for item in value]
    return value


def drop_empty(value: Any, node: SchemaNode) -> Any:
    """The value of a built-in kind without empty lists and maps: its Go types omit them."""
    if isinstance(value, dict):
        kept = {name: drop_empty(item, node.value(name) or ANY) for name, item in value.items()}
        return {
            name: item
            for name, item in kept.items()
            # An empty list of managers is a request to remove them.
            if item or name == "managedFields" or not _is_omitted_if_empty(node.value(name))
        }
    if isinstance(value, list):
        return [drop_empty(item, node.items) for item in value]
    return value


def _is_omitted_if_empty(node: SchemaNode | None) -> bool:
    return node is not None and (node.type == "array" or "additionalProperties" in node.raw)


def _declared_child(node: SchemaNode | None, name: str) -> SchemaNode | None:
    if node is None:
        return None
    child = node.field(name)
    if child is None and isinstance(node.raw.get("additionalProperties"), dict):
        return node.value(name)
    return child


def _drops_null(node: SchemaNode) -> bool:
    return not (node.raw.get("nullable") or "default" in node.raw or node.raw.get(PRESERVE_UNKNOWN))


def set_defaults(value: Any, node: SchemaNode) -> None:
    """Set the declared defaults of missing fields in place."""
    if isinstance(value, dict):
        for name in node.raw.get("properties", ()):
            field = node.field(name)
            if field is not None and "default" in field.raw and _is_missing(value, name, field):
                value[name] = copy.deepcopy(field.raw["default"])
        for name, item in value.items():
            child = _declared_child(node, name)
            if child is not None:
                set_defaults(item, child)
    elif isinstance(value, list) and "items" in node.raw:
        for item in value:
            set_defaults(item, node.items)


def _is_missing(value: Json, name: str, node: SchemaNode) -> bool:
    return name not in value or (value[name] is None and not node.raw.get("nullable"))
