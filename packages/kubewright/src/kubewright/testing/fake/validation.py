"""Validation of custom resources by their schema, with the causes that the API server reports."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ...patch import Json
from .failure import field_cause
from .formats import matches_format
from .schema_node import MISSING, SchemaNode, find_old_item

_JSON_TYPES: list[tuple[type, str]] = [
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
]
_NUMBER_LIMITS = {"minimum", "maximum", "multipleOf"}
# With one of these causes the rules in CEL are not evaluated.
BLOCKING_REASONS = frozenset(
    (
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    )
)


def validate(value: Any, node: SchemaNode, path: str = "", old: Any = MISSING) -> list[Json]:
    """The causes; a part that did not change since `old` is not validated again."""
    if old is not MISSING and value == old:
        return []
    return [*_validate(value, node, path, old)]


def _validate(value: Any, node: SchemaNode, path: str, old: Any) -> Iterator[Json]:
    raw = node.raw
    if value is None and raw.get("nullable"):
        return
    problem = _find_type_problem(value, node)
    if problem:
        expected, actual = problem
        text = f'{_name(path)} must be of type {expected}: "{actual}"'
        yield _invalid(path, actual, text, "FieldValueTypeInvalid")
        if (expected, actual) == ("integer", "number") and raw.keys() & _NUMBER_LIMITS:
            text = f"Checked value must be of type integer (default format) in {path}"
            yield _invalid("", "", text)
        return
    yield from _validate_combinations(value, node, path, old)
    match value:
        case str():
            yield from _validate_string(value, raw, path)
        case bool():
            pass
        case int() | float():
            yield from _validate_number(value, raw, path)
        case list():
            yield from _validate_list(value, node, path, old)
    if "enum" in raw and not any(
        value == allowed and type(value) is type(allowed) for allowed in raw["enum"]
    ):
        allowed = ", ".join(
            f'"{item}"' if isinstance(item, str) else f'"{_to_json(item)}"' for item in raw["enum"]
        )
        message = f"Unsupported value: {_format(value)}: supported values: {allowed}"
        yield field_cause("FieldValueNotSupported", path, message)
    if isinstance(value, dict):
        yield from _validate_object(value, node, path, old)


def _find_type_problem(value: Any, node: SchemaNode) -> tuple[str, str] | None:
    actual = _json_type(value)
    if node.is_int_or_string:
        return None if actual in ("integer", "string") else ("integer,string", actual)
    expected = node.type
    if not expected or actual == expected or (expected, actual) == ("number", "integer"):
        return None
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return expected, actual


def _json_type(value: Any) -> str:
    return next((name for type, name in _JSON_TYPES if isinstance(value, type)), "null")


def _validate_string(value: str, raw: Json, path: str) -> Iterator[Json]:
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        text = f"Too long: may not be more than {raw['maxLength']} bytes"
        yield field_cause("FieldValueTooLong", path, text)
    elif "minLength" in raw and len(value) < raw["minLength"]:
        text = f"{_name(path)} should be at least {raw['minLength']} chars long"
        yield _invalid(path, value, text)
    elif "pattern" in raw and not re.search(raw["pattern"], value):
        yield _invalid(path, value, f"{_name(path)} should match '{raw['pattern']}'")
    if "format" in raw and not matches_format(raw["format"], value):
        text = f'{_name(path)} must be of type {raw["format"]}: "{value}"'
        yield _invalid(path, value, text, "FieldValueTypeInvalid")


def _validate_number(value: float, raw: Json, path: str) -> Iterator[Json]:
    limits: list[tuple[str, str, Callable[[float, float], bool], str, str]] = [
        ("maximum", "exclusiveMaximum", lambda a, b: a > b, "less than", "less than or equal to"),
        (
            "minimum",
            "exclusiveMinimum",
            lambda a, b: a < b,
            "greater than",
            "greater than or equal to",
        ),
    ]
    factor = raw.get("multipleOf")
    if factor and not math.isclose(value / factor, round(value / factor), abs_tol=1e-9):
        text = f"{_name(path)} should be a multiple of {_format(factor)}"
        yield _invalid(path, value, text)
    for limit, exclusive, is_beyond, text, inclusive_text in limits:
        if limit not in raw:
            continue
        excludes = raw.get(exclusive, False)
        if is_beyond(value, raw[limit]) or (excludes and value == raw[limit]):
            relation = text if excludes else inclusive_text
            yield _invalid(path, value, f"{_name(path)} should be {relation} {_format(raw[limit])}")


def _validate_list(value: list[Any], node: SchemaNode, path: str, old: Any) -> Iterator[Json]:
    raw = node.raw
    for index, item in enumerate(value):
        if "items" in raw:
            before = find_old_item(node, item, old)
            yield from validate(item, node.items, f"{path}[{index}]", before)
    if "minItems" in raw and len(value) < raw["minItems"]:
        text = f"{_name(path)} should have at least {raw['minItems']} items"
        yield _invalid(path, len(value), text)
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        yield _too_many(path, len(value), raw["maxItems"])


def _validate_object(value: Json, node: SchemaNode, path: str, old: Any) -> Iterator[Json]:
    raw = node.raw
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        yield _too_many(path, len(value), raw["maxProperties"])
    if "minProperties" in raw and len(value) < raw["minProperties"]:
        text = f"{_name(path)} should have at least {raw['minProperties']} properties"
        yield _invalid(path, len(value), text)
    for name in raw.get("required", ()):
        if name not in value:
            yield field_cause("FieldValueRequired", _join(path, name), "Required value")
    for name, item in value.items():
        child = node.value(name)
        # ObjectMeta has rules of its own.
        if child is not None and name != "metadata":
            before = old.get(name, MISSING) if isinstance(old, dict) else MISSING
            yield from validate(item, child, _join(path, name), before)


def _validate_combinations(value: Any, node: SchemaNode, path: str, old: Any) -> Iterator[Json]:
    raw = node.raw

    def causes_of(alternative: Json) -> list[Json]:
        return validate(value, SchemaNode(alternative), path)

    if "anyOf" in raw and not node.is_int_or_string:
        results = [causes_of(alternative) for alternative in raw["anyOf"]]
        if all(results):
            text = f"{_name(path)} must validate at least one schema (anyOf)"
            yield _invalid(path, "", text)
            yield from min(results, key=len)
    if "oneOf" in raw:
        results = [causes_of(alternative) for alternative in raw["oneOf"]]
        count = sum(not causes for causes in results)
        if count != 1:
            result = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            text = f"{_name(path)} must validate one and only one schema (oneOf). {result}"
            yield _invalid(path, "", text)
            if count == 0:
                yield from min(results, key=len)
    if "allOf" in raw and not node.is_int_or_string:
        results = [causes_of(alternative) for alternative in raw["allOf"]]
        if any(results):
            invalid = "None validated" if all(results) else ""
            text = f"{_name(path)} must validate all the schemas (allOf)"
            yield _invalid(path, "", f"{text}. {invalid}" if invalid else text)
            for causes in results:
                yield from causes
    if "not" in raw and not causes_of(raw["not"]):
        yield _invalid(path, "", f"{_name(path)} must not validate the schema (not)")


def validate_list_types(value: Any, node: SchemaNode, path: str = "") -> Iterator[Json]:
    """Duplicates in lists of type `set` and `map`."""
    if isinstance(value, dict):
        for name, item in value.items():
            child = node.value(name)
            if child is not None and not (path == "" and name == "metadata"):
                yield from validate_list_types(item, child, _join(path, name))
    elif isinstance(value, list):
        seen: list[Any] = []
        for index, item in enumerate(value):
            identity = item
            if node.list_type == "map" and isinstance(item, dict):
                identity = {key: item[key] for key in node.list_map_keys if key in item}
            if node.list_type != "atomic" and identity in seen:
                text = f"Duplicate value: {_format(identity)}"
                yield field_cause("FieldValueDuplicate", f"{path}[{index}]", text)
            seen.append(identity)
            yield from validate_list_types(item, node.items, f"{path}[{index}]")


def _name(path: str) -> str:
    # The part of the request: all values that are validated here are in its body.
    return f"{path} in body"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _invalid(path: str, value: Any, text: str, reason: str = "FieldValueInvalid") -> Json:
    return field_cause(reason, path or "<nil>", f"Invalid value: {_format(value)}: {text}")


def _too_many(path: str, count: int, limit: int) -> Json:
    text = f"Too many: {count}: must have at most {limit} item" + ("s" if limit != 1 else "")
    return field_cause("FieldValueTooMany", path, text)


def _format(value: Any) -> str:
    """As Go prints a value in an error of a field."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _to_json(value)


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
