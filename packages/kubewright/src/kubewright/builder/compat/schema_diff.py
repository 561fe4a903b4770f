"""Compares two forms of an OpenAPI schema, field by field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import rules
from .rules import Change, Rule

Schema = Mapping[str, Any]
_KeywordChange = tuple[str, Rule | None]

_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_RESTRICTIVE_FLAGS = (
    *("exclusiveMinimum", "exclusiveMaximum", "uniqueItems"),
    "x-kubernetes-embedded-resource",
)
_WIDER_FORMATS = {("int32", "int64"), ("int32", None), ("int64", None), ("float", "double")}
_MERGE_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_DOCUMENTATION_KEYS = ("description", "title", "example", "externalDocs")
_COMPARED_KEYS = frozenset(
    [
        *("type", "format", "properties", "required", "items", "additionalProperties"),
        *("enum", "pattern", "default", "nullable", "multipleOf", "not", "allOf", "anyOf", "oneOf"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
        *_LOWER_BOUNDS,
        *_UPPER_BOUNDS,
        *_RESTRICTIVE_FLAGS,
        *_MERGE_KEYS,
        *_DOCUMENTATION_KEYS,
    ]
)
# Only the operator writes the status, so a stricter schema there binds the operator alone.
_RULES_FOR_READERS = frozenset(
    [
        *(rules.FIELD_REMOVED, rules.TYPE_CHANGED, rules.UNKNOWN, rules.DESCRIPTION_CHANGED),
        *(rules.ENUM_VALUE_ADDED, rules.NULL_ALLOWED, rules.PATTERN_REMOVED),
    ]
)


def schema_changes(
    old: Schema, new: Schema, path: str = "", *, read_only: bool = False
) -> Iterator[Change]:
    """Every change; with `read_only`, only a change that readers notice is breaking."""
    old_type, new_type = old.get("type"), new.get("type")
    if old_type != new_type:
        yield Change(path, f"type {_format_change(old_type, new_type)}", rules.TYPE_CHANGED)
        return
    for find_changes in _COMPARISONS:
        for message, rule in find_changes(old, new):
            yield Change(
                path, message, None if read_only and rule not in _RULES_FOR_READERS else rule
            )
    yield from _property_changes(old, new, path, read_only=read_only)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        old_value, new_value = old.get(key), new.get(key)
        if isinstance(old_value, Mapping) and isinstance(new_value, Mapping):
            yield from schema_changes(old_value, new_value, f"{path}{suffix}", read_only=read_only)
        elif old_value != new_value and not new.get("x-kubernetes-preserve-unknown-fields"):
            yield Change(path, f"{key} {_format_change(old_value, new_value)}", rules.TYPE_CHANGED)


def _property_changes(
    old: Schema, new: Schema, parent: str, *, read_only: bool
) -> Iterator[Change]:
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    was_required, is_required = set(old.get("required", [])), set(new.get("required", []))
    for name in sorted(old_fields.keys() | new_fields.keys()):
        path = f"{parent}.{name}"
        # The API server fills in a default before it checks what is required.
        has_default = "default" in new_fields.get(name, {})
        required_rule = rules.REQUIRED_WITH_DEFAULT if has_default else rules.NEWLY_REQUIRED
        if name not in new_fields:
            keeps_unknown = new.get("x-kubernetes-preserve-unknown-fields")
            yield Change(path, "field removed", None if keeps_unknown else rules.FIELD_REMOVED)
        elif name not in old_fields:
            must_be_set = name in is_required and not has_default
            message = "new required field" if must_be_set else "new field"
            breaks_writers = must_be_set and not read_only
            yield Change(path, message, rules.NEWLY_REQUIRED if breaks_writers else None)
        else:
            below_status = read_only or path == ".status"
            yield from schema_changes(
                old_fields[name], new_fields[name], path, read_only=below_status
            )
            if name in is_required - was_required:
                yield Change(path, "now required", None if read_only else required_rule)
            elif name in was_required - is_required:
                yield Change(path, "no longer required")


def _format_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    formats = old.get("format"), new.get("format")
    if formats[0] != formats[1]:
        rule = None if formats in _WIDER_FORMATS else rules.TYPE_CHANGED
        yield f"format {_format_change(*formats)}", rule


def _bound_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    for key in _LOWER_BOUNDS + _UPPER_BOUNDS:
        old_value, new_value = old.get(key), new.get(key)
        if old_value != new_value:
            is_tighter = new_value is not None and (
                old_value is None
                or (new_value > old_value if key in _LOWER_BOUNDS else new_value < old_value)
            )
            yield f"{key} {_format_change(old_value, new_value)}", _tighter_if(is_tighter)
    for key in _RESTRICTIVE_FLAGS:
        old_value, new_value = bool(old.get(key)), bool(new.get(key))
        if old_value != new_value:
            yield f"{key} {_format_change(old_value, new_value)}", _tighter_if(new_value)
    old_value, new_value = old.get("multipleOf"), new.get("multipleOf")
    if old_value != new_value:
        # Every multiple of 4 is also a multiple of 2.
        is_wider = new_value is None or (old_value is not None and old_value % new_value == 0)
        yield f"multipleOf {_format_change(old_value, new_value)}", _tighter_if(not is_wider)


def _enum_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    old_value, new_value = old.get("enum"), new.get("enum")
    if old_value == new_value:
        return
    if new_value is None:
        yield "now allows any value", rules.ENUM_VALUE_ADDED
    elif old_value is None:
        yield f"now allows only {', '.join(map(_quote_empty, new_value))}", rules.TIGHTER
    else:
        for value in (value for value in old_value if value not in new_value):
            yield f"value {_quote_empty(value)} no longer allowed", rules.TIGHTER
        for value in (value for value in new_value if value not in old_value):
            yield f"value {_quote_empty(value)} now allowed", rules.ENUM_VALUE_ADDED


def _pattern_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    old_value, new_value = old.get("pattern"), new.get("pattern")
    if old_value != new_value:
        rule = rules.MAYBE_TIGHTER
        if new_value is None:
            rule = rules.PATTERN_REMOVED
        elif old_value is None:
            rule = rules.TIGHTER
        yield f"pattern {_format_change(old_value, new_value)}", rule


def _default_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    old_value, new_value = old.get("default"), new.get("default")
    if old_value != new_value:
        yield f"default {_format_change(old_value, new_value)}", rules.DEFAULT_CHANGED


def _permissive_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    for key, subject, added, removed in (
        ("x-kubernetes-preserve-unknown-fields", "unknown fields", None, rules.PRUNED),
        ("nullable", "null", rules.NULL_ALLOWED, rules.TIGHTER),
    ):
        is_allowed = bool(new.get(key))
        if bool(old.get(key)) != is_allowed:
            message = f"{subject} {'now' if is_allowed else 'no longer'} allowed"
            yield message, added if is_allowed else removed


def _merge_key_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    for key in _MERGE_KEYS:
        if old.get(key) != new.get(key):
            yield f"{key} {_format_change(old.get(key), new.get(key))}", rules.MERGE_CHANGED


def _cel_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    # With optionalOldSelf a transition rule is also evaluated for new objects.
    old_rules, new_rules = (
        {
            (rule["rule"], bool(rule.get("optionalOldSelf")))
            for rule in schema.get("x-kubernetes-validations", [])
        }
        for schema in (old, new)
    )
    for text, _ in sorted(old_rules - new_rules):
        yield f"rule {text} removed", None
    for text, _ in sorted(new_rules - old_rules):
        yield f"rule {text} added", rules.MAYBE_TIGHTER


def _combination_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    """Changes of `not`, allOf, anyOf and oneOf; a member that changed is another member."""
    for key in ("not", "allOf", "anyOf", "oneOf"):
        old_members, new_members = _members(old.get(key)), _members(new.get(key))
        if old_members == new_members:
            continue
        removed, added = old_members - new_members, new_members - old_members
        if not new_members:
            yield f"{key} removed", None
        elif not old_members:
            yield f"{key} added", rules.TIGHTER
        else:
            # A value must match every member of allOf, at least one of anyOf, and exactly one of
            # oneOf: there, a new member rejects values that match an old one, too.
            may_reject = {"allOf": bool(added), "anyOf": bool(removed)}.get(key, True)
            yield f"{key} changed", rules.MAYBE_TIGHTER if may_reject else None


def _members(value: Any) -> set[str]:
    schemas = value if isinstance(value, list) else [] if value is None else [value]
    return {json.dumps(_without_documentation(schema), sort_keys=True) for schema in schemas}


def _without_documentation(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_documentation(member) for member in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        # The keys of `properties` are names of fields: one may be called "description".
        key: {name: _without_documentation(field) for name, field in value.items()}
        if key == "properties"
        else _without_documentation(value)
        for key, value in schema.items()
        if key not in _DOCUMENTATION_KEYS
    }


def _documentation_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    for key in _DOCUMENTATION_KEYS:
        if old.get(key) != new.get(key):
            yield f"{key} changed", rules.DESCRIPTION_CHANGED if key == "description" else None


def _other_changes(old: Schema, new: Schema) -> Iterator[_KeywordChange]:
    for key in sorted((old.keys() | new.keys()) - _COMPARED_KEYS):
        if old.get(key) != new.get(key):
            yield f"{key} {_format_change(old.get(key), new.get(key))}", rules.UNKNOWN


def _tighter_if(condition: bool) -> Rule | None:
    return rules.TIGHTER if condition else None


def _quote_empty(value: Any) -> str:
    return str(value) or '""'


def _format_change(old: Any, new: Any) -> str:
    texts = ["unset" if value is None else _quote_empty(value) for value in (old, new)]
    return f"changed from {texts[0]} to {texts[1]}"


_COMPARISONS: tuple[Callable[[Schema, Schema], Iterator[_KeywordChange]], ...] = (
    _format_changes,
    _bound_changes,
    _enum_changes,
    _pattern_changes,
    _default_changes,
    _permissive_changes,
    _merge_key_changes,
    _cel_changes,
    _combination_changes,
    _documentation_changes,
    _other_changes,
)
