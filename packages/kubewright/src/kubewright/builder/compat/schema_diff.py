"""Compares two forms of an OpenAPI schema, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
# Path, message, and whether it breaks existing users.
SchemaChange = tuple[str, str, bool]
_RuleChange = tuple[str, bool]

_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_EXCLUSIVE_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
_WIDER_FORMATS = {("int32", "int64"), ("int32", None), ("int64", None), ("float", "double")}
_PERMISSIVE_KEYS = {"x-kubernetes-preserve-unknown-fields": "unknown fields", "nullable": "null"}
_MERGE_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


def schema_changes(
    old: Schema, new: Schema, path: str = "", *, read_only: bool = False
) -> Iterator[SchemaChange]:
    """Every change; with `read_only`, only a change that readers notice is breaking."""
    old_value, new_value = old.get("type"), new.get("type")
    if old_value != new_value:
        yield path, f"type {_format_change(old_value, new_value)}", True
        return
    if (formats := (old.get("format"), new.get("format"))) and formats[0] != formats[1]:
        yield path, f"format {_format_change(*formats)}", formats not in _WIDER_FORMATS
    for find_changes in _COMPARISONS:
        for message, is_breaking in find_changes(old, new):
            yield path, message, is_breaking and not read_only
    if old.get("description") != new.get("description"):
        yield path, "description changed", False
    yield from _property_changes(old, new, path, read_only=read_only)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        old_value, new_value = old.get(key), new.get(key)
        if isinstance(old_value, Mapping) and isinstance(new_value, Mapping):
            yield from schema_changes(old_value, new_value, f"{path}{suffix}", read_only=read_only)
        elif old_value != new_value and not new.get("x-kubernetes-preserve-unknown-fields"):
            yield path, f"{key} {_format_change(old_value, new_value)}", True


def _property_changes(
    old: Schema, new: Schema, parent: str, *, read_only: bool
) -> Iterator[SchemaChange]:
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    was_required, is_required = set(old.get("required", [])), set(new.get("required", []))
    for name in sorted(old_fields.keys() | new_fields.keys()):
        path = f"{parent}.{name}"
        below_status = read_only or path == ".status"
        # The API server fills in a default before it checks what is required.
        must_be_set = name in is_required and "default" not in new_fields.get(name, {})
        if name not in new_fields:
            yield path, "field removed", not new.get("x-kubernetes-preserve-unknown-fields")
        elif name not in old_fields:
            message = "new required field" if must_be_set else "new field"
            yield path, message, must_be_set and not read_only
        else:
            yield from schema_changes(
                old_fields[name], new_fields[name], path, read_only=below_status
            )
            if (name in was_required) != (name in is_required):
                message = "now required" if name in is_required else "no longer required"
                yield path, message, must_be_set and not read_only


def _bound_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    for key in _LOWER_BOUNDS + _UPPER_BOUNDS:
        old_value, new_value = old.get(key), new.get(key)
        if old_value != new_value:
            tighter = new_value is not None and (
                old_value is None
                or (new_value > old_value if key in _LOWER_BOUNDS else new_value < old_value)
            )
            yield f"{key} {_format_change(old_value, new_value)}", tighter
    for key in _EXCLUSIVE_BOUNDS:
        old_value, new_value = bool(old.get(key)), bool(new.get(key))
        if old_value != new_value:
            yield f"{key} {_format_change(old_value, new_value)}", new_value
    old_value, new_value = old.get("multipleOf"), new.get("multipleOf")
    if old_value != new_value:
        # Every multiple of 4 is also a multiple of 2.
        wider = new_value is None or (old_value is not None and old_value % new_value == 0)
        yield f"multipleOf {_format_change(old_value, new_value)}", not wider


def _enum_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    old_value, new_value = old.get("enum"), new.get("enum")
    if old_value == new_value:
        return
    if new_value is None:
        yield "now allows any value", False
    elif old_value is None:
        yield f"now allows only {', '.join(map(str, new_value))}", True
    else:
        for value in (value for value in old_value if value not in new_value):
            yield f"value {value} no longer allowed", True
        for value in (value for value in new_value if value not in old_value):
            yield f"value {value} now allowed", False


def _pattern_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    old_value, new_value = old.get("pattern"), new.get("pattern")
    if old_value != new_value:
        # Whether one pattern allows more than another is not computed: every new one may break.
        yield f"pattern {_format_change(old_value, new_value)}", new_value is not None


def _default_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    old_value, new_value = old.get("default"), new.get("default")
    if old_value != new_value:
        # An object that leaves the field out now means something else.
        yield f"default {_format_change(old_value, new_value)}", True


def _permissive_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    for key, subject in _PERMISSIVE_KEYS.items():
        allowed = bool(new.get(key))
        if bool(old.get(key)) != allowed:
            yield f"{subject} {'now' if allowed else 'no longer'} allowed", not allowed


def _merge_key_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    for key in _MERGE_KEYS:
        if old.get(key) != new.get(key):
            # Server-side apply would merge existing objects in another way.
            yield f"{key} {_format_change(old.get(key), new.get(key))}", True


def _rule_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    old_rules, new_rules = (
        {rule["rule"] for rule in schema.get("x-kubernetes-validations", [])}
        for schema in (old, new)
    )
    for rule in sorted(old_rules - new_rules):
        yield f"rule {rule} removed", False
    for rule in sorted(new_rules - old_rules):
        yield f"rule {rule} added", True


def _format_change(old: Any, new: Any) -> str:
    texts = ["unset" if value is None else str(value) for value in (old, new)]
    return f"changed from {texts[0]} to {texts[1]}"


_COMPARISONS: tuple[Callable[[Schema, Schema], Iterator[_RuleChange]], ...] = (
    _bound_changes,
    _enum_changes,
    _pattern_changes,
    _default_changes,
    _permissive_changes,
    _merge_key_changes,
    _rule_changes,
)
