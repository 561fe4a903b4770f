"""Two forms of an OpenAPI schema compared, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
SchemaChange = tuple[str, str, bool]

_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_EXCLUSIVE_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
_WIDER_FORMATS = {("int32", "int64"), ("int32", None), ("int64", None), ("float", "double")}
_PERMISSIVE_KEYS = {
    "x-kubernetes-preserve-unknown-fields": "unknown fields are kept",
    "nullable": "null is allowed",
}
_MERGE_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


def schema_changes(
    old: Schema, new: Schema, where: str = "", *, read_only: bool = False
) -> Iterator[SchemaChange]:
    """Place, words and verdict of each change; with `read_only` only what a reader sees breaks."""
    yield from _type_changes(old, new, where)
    if old.get("type") != new.get("type"):
        return
    for rules in _COMPARISONS:
        for words, breaking in rules(old, new):
            yield where, words, breaking and not read_only
    if old.get("description") != new.get("description"):
        yield where, "another description", False
    yield from _property_changes(old, new, where, read_only=read_only)
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from schema_changes(old[key], new[key], f"{where}{suffix}", read_only=read_only)
        elif old.get(key) != new.get(key) and not new.get("x-kubernetes-preserve-unknown-fields"):
            yield (
                where,
                f"{key} was {_format_value(old.get(key))}, is {_format_value(new.get(key))}",
                True,
            )


def _type_changes(old: Schema, new: Schema, where: str) -> Iterator[SchemaChange]:
    """Another type, or another format of the same."""
    had, has = old.get("type"), new.get("type")
    if had != has:
        yield where, f"the type was {had or 'any'}, is {has or 'any'}", True
    elif old.get("format") != new.get("format"):
        pair = (old.get("format"), new.get("format"))
        yield (
            where,
            f"the format was {pair[0] or 'any'}, is {pair[1] or 'any'}",
            pair not in _WIDER_FORMATS,
        )


def _property_changes(
    old: Schema, new: Schema, where: str, *, read_only: bool
) -> Iterator[SchemaChange]:
    """Fields gone, new and changed."""
    before, after = old.get("properties", {}), new.get("properties", {})
    needed, needs = set(old.get("required", [])), set(new.get("required", []))
    for name in sorted(before.keys() | after.keys()):
        spot = f"{where}.{name}"
        below_status = read_only or spot == ".status"
        if name not in after:
            yield spot, "the field is gone", not new.get("x-kubernetes-preserve-unknown-fields")
        elif name not in before:
            needed_now = name in needs and "default" not in after[name]
            yield (
                spot,
                "a new required field" if needed_now else "a new field",
                needed_now and not read_only,
            )
        else:
            yield from schema_changes(before[name], after[name], spot, read_only=below_status)
            if (name in needed) != (name in needs):
                # Where there is a default, the API server fills it in before it asks what is required.
                refuses = name in needs and "default" not in after[name] and not read_only
                yield (
                    spot,
                    "is required now" if name in needs else "is not required any more",
                    refuses,
                )


def _bound_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """Bounds and lengths."""
    for key in _LOWER_BOUNDS + _UPPER_BOUNDS:
        had, has = old.get(key), new.get(key)
        if had != has:
            tighter = has is not None and (
                had is None or (has > had if key in _LOWER_BOUNDS else has < had)
            )
            yield f"{key} was {_format_value(had)}, is {_format_value(has)}", tighter
    for key in _EXCLUSIVE_BOUNDS:
        if bool(old.get(key)) != bool(new.get(key)):
            yield f"{key} was {bool(old.get(key))}, is {bool(new.get(key))}", bool(new.get(key))
    had, has = old.get("multipleOf"), new.get("multipleOf")
    if had != has:
        # Every multiple of 4 is one of 2.
        wider = has is None or (had is not None and had % has == 0)
        yield f"multipleOf was {_format_value(had)}, is {_format_value(has)}", not wider


def _enum_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """Allowed values."""
    had, has = old.get("enum"), new.get("enum")
    if had == has:
        return
    if has is None:
        yield "any value is allowed now", False
    elif had is None:
        yield f"only {', '.join(map(str, has))} are allowed now", True
    else:
        for value in (each for each in had if each not in has):
            yield f"the value {value} is not allowed any more", True
        for value in (each for each in has if each not in had):
            yield f"the value {value} is allowed now", False


def _pattern_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """Patterns; whether one is wider than another nobody can say, so each new one breaks."""
    had, has = old.get("pattern"), new.get("pattern")
    if had != has:
        yield f"the pattern was {_format_value(had)}, is {_format_value(has)}", has is not None


def _default_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """Defaults: a field that nobody set means something else now."""
    if old.get("default") != new.get("default"):
        yield (
            f"the default was {_format_value(old.get('default'))}, is {_format_value(new.get('default'))}",
            True,
        )


def _permissive_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """What else may be there."""
    for key, words in _PERMISSIVE_KEYS.items():
        if bool(old.get(key)) != bool(new.get(key)):
            yield f"{words} now" if new.get(key) else f"{words} no more", not new.get(key)


def _merge_key_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """How lists and maps merge: server-side apply treats stored objects otherwise now."""
    for key in _MERGE_KEYS:
        if old.get(key) != new.get(key):
            yield f"{key} was {_format_value(old.get(key))}, is {_format_value(new.get(key))}", True


def _rule_changes(old: Schema, new: Schema) -> Iterator[tuple[str, bool]]:
    """CEL rules, by their expression."""
    had, has = (
        {rule["rule"] for rule in schema.get("x-kubernetes-validations", [])}
        for schema in (old, new)
    )
    for rule in sorted(had - has):
        yield f"the rule {rule} is gone", False
    for rule in sorted(has - had):
        yield f"the rule {rule} is new", True


def _format_value(value: Any) -> str:
    """A value in a sentence."""
    return "not there" if value is None else str(value)


_COMPARISONS: tuple[Callable[[Schema, Schema], Iterator[tuple[str, bool]]], ...] = (
    _bound_changes,
    _enum_changes,
    _pattern_changes,
    _default_changes,
    _permissive_changes,
    _merge_key_changes,
    _rule_changes,
)
