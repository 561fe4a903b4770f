"""Compares two forms of an OpenAPI schema, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
# Place, message, and whether it breaks existing users.
SchemaChange = tuple[str, str, bool]
_RuleChange = tuple[str, bool]

_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_EXCLUSIVE_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
_WIDER_FORMATS = {("int32", "int64"), ("int32", None), ("int64", None), ("float", "double")}
_PERMISSIVE_KEYS = {"x-kubernetes-preserve-unknown-fields": "unknown fields", "nullable": "null"}
_MERGE_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


def schema_changes(
    old: Schema, new: Schema, place: str = "", *, read_only: bool = False
) -> Iterator[SchemaChange]:
    """Every change; with `read_only`, only a change that readers notice is breaking."""
    had, has = old.get("type"), new.get("type")
    if had != has:
        yield place, f"type {_format_change(had, has)}", True
        return
    if (formats := (old.get("format"), new.get("format"))) and formats[0] != formats[1]:
        yield place, f"format {_format_change(*formats)}", formats not in _WIDER_FORMATS
    for find_changes in _COMPARISONS:
        for message, is_breaking in find_changes(old, new):
            yield place, message, is_breaking and not read_only
    if old.get("description") != new.get("description"):
        yield place, "description changed", False
    yield from _property_changes(old, new, place, read_only=read_only)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        had, has = old.get(key), new.get(key)
        if isinstance(had, Mapping) and isinstance(has, Mapping):
            yield from schema_changes(had, has, f"{place}{suffix}", read_only=read_only)
        elif had != has and not new.get("x-kubernetes-preserve-unknown-fields"):
            yield place, f"{key} {_format_change(had, has)}", True


def _property_changes(
    old: Schema, new: Schema, parent: str, *, read_only: bool
) -> Iterator[SchemaChange]:
    before, after = old.get("properties", {}), new.get("properties", {})
    was_required, is_required = set(old.get("required", [])), set(new.get("required", []))
    for name in sorted(before.keys() | after.keys()):
        place = f"{parent}.{name}"
        below_status = read_only or place == ".status"
        # The API server fills in a default before it checks what is required.
        must_be_set = name in is_required and "default" not in after.get(name, {})
        if name not in after:
            yield place, "field removed", not new.get("x-kubernetes-preserve-unknown-fields")
        elif name not in before:
            message = "new required field" if must_be_set else "new field"
            yield place, message, must_be_set and not read_only
        else:
            yield from schema_changes(before[name], after[name], place, read_only=below_status)
            if (name in was_required) != (name in is_required):
                message = "now required" if name in is_required else "no longer required"
                yield place, message, must_be_set and not read_only


def _bound_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    for key in _LOWER_BOUNDS + _UPPER_BOUNDS:
        had, has = old.get(key), new.get(key)
        if had != has:
            tighter = has is not None and (
                had is None or (has > had if key in _LOWER_BOUNDS else has < had)
            )
            yield f"{key} {_format_change(had, has)}", tighter
    for key in _EXCLUSIVE_BOUNDS:
        had, has = bool(old.get(key)), bool(new.get(key))
        if had != has:
            yield f"{key} {_format_change(had, has)}", has
    had, has = old.get("multipleOf"), new.get("multipleOf")
    if had != has:
        # Every multiple of 4 is also a multiple of 2.
        wider = has is None or (had is not None and had % has == 0)
        yield f"multipleOf {_format_change(had, has)}", not wider


def _enum_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    had, has = old.get("enum"), new.get("enum")
    if had == has:
        return
    if has is None:
        yield "now allows any value", False
    elif had is None:
        yield f"now allows only {', '.join(map(str, has))}", True
    else:
        for value in (value for value in had if value not in has):
            yield f"value {value} no longer allowed", True
        for value in (value for value in has if value not in had):
            yield f"value {value} now allowed", False


def _pattern_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    had, has = old.get("pattern"), new.get("pattern")
    if had != has:
        # Whether one pattern allows more than another is not computed: every new one may break.
        yield f"pattern {_format_change(had, has)}", has is not None


def _default_changes(old: Schema, new: Schema) -> Iterator[_RuleChange]:
    had, has = old.get("default"), new.get("default")
    if had != has:
        # An object that leaves the field out now means something else.
        yield f"default {_format_change(had, has)}", True


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
    had, has = (
        {rule["rule"] for rule in schema.get("x-kubernetes-validations", [])}
        for schema in (old, new)
    )
    for rule in sorted(had - has):
        yield f"rule {rule} removed", False
    for rule in sorted(has - had):
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
