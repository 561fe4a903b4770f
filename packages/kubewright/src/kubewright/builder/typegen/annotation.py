"""One OpenAPI schema as one Python annotation.

`kubewright.schema` derives a schema from a type. Every key of the original schema that differs from
the derived one becomes a marker, so that the annotation gives the original schema again.
Descriptions are the exception: they become docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import Any, Protocol

from ...markers import INT_OR_STRING_KEYS, QUANTITY_PATTERN
from .names import singularize
from .source import Expression, call, keyword, literal, quote, subscript, with_prefix, with_suffix

Schema = Mapping[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE, _LIST_MAP_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_MAP_TYPE = "x-kubernetes-map-type"
_VALIDATIONS = "x-kubernetes-validations"
_FLAGS = frozenset(
    [
        *("nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum", _PRESERVE),
        *("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
    ]
)
DOCUMENTATION_KEYS = frozenset({"description", "title", "example", "externalDocs"})
# These keys belong to a field, also if its type is a class that other fields use.
FIELD_KEYS = frozenset({"default", "nullable"})
_STRUCT_KEYS = frozenset({"type", "properties", "required"})
_RULE_ARGUMENTS = {
    "rule": "",
    "message": "message",
    "messageExpression": "message_expression",
    "reason": "reason",
    "fieldPath": "field_path",
    "optionalOldSelf": "optional_old_self",
}


_INVALID_IN_FIELD_NAMES = re.compile(r'[\\"\x00-\x1f]')


class Classes(Protocol):
    """The classes of the generated module."""

    def name_struct(self, schema: Schema, path: tuple[str, ...]) -> str:
        """The name of the class for a schema with properties."""

    def annotate_reference(self, reference: str) -> Annotation:
        """The annotation for a `$ref`."""


@dataclass(frozen=True)
class Annotation:
    """A type and its markers; `empty` is the value of an absent list or map."""

    type: Expression
    markers: tuple[Expression, ...] = ()
    is_nullable: bool = False
    empty: str = ""

    def to_expression(self, *, is_optional: bool = False) -> Expression:
        type_ = self.type
        if (is_optional or self.is_nullable) and type_ != "Any":
            type_ = with_suffix(type_, " | None")
        return subscript("Annotated", type_, *self.markers) if self.markers else type_


def annotate(schema: Schema, path: tuple[str, ...], classes: Classes) -> Annotation:
    """The annotation of a schema; `path` has the names of the fields that lead to it."""
    if reference := schema.get("$ref"):
        annotation = classes.annotate_reference(reference)
        markers = _build_markers({key: schema[key] for key in FIELD_KEYS & schema.keys()}, schema)
        return replace(annotation, markers=(*annotation.markers, *markers))
    schema = _normalize(schema)
    is_nullable = bool(schema.get("nullable"))
    if is_struct(schema):
        markers = _build_markers({key: schema[key] for key in FIELD_KEYS & schema.keys()}, schema)
        return Annotation(classes.name_struct(schema, path), markers, is_nullable)
    type_, derived, empty = _derive(schema, path, classes)
    differing = {
        key: schema.get(key)
        for key in derived.keys() | schema.keys()
        if derived.get(key) != schema.get(key)
    }
    # Where "absent" does not mean "empty", it must be possible to send an empty value.
    can_be_empty = is_nullable or bool(schema.get("default"))
    markers = _build_markers(differing, schema)
    return Annotation(type_, markers, is_nullable, "" if can_be_empty else empty)


def _normalize(schema: Schema) -> Schema:
    """The schema without descriptions, and without keys that mean the same as an absent one."""
    return {
        key: value
        for key, value in schema.items()
        if value is not None
        and key not in DOCUMENTATION_KEYS
        and not (value is False and key in _FLAGS)
    }


def is_struct(schema: Schema) -> bool:
    """Whether the schema becomes a class."""
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, Mapping)
        and bool(properties)
        and all(map(is_field_name, properties))
    )


def is_field_name(name: object) -> bool:
    """Whether msgspec allows the name on the wire."""
    return isinstance(name, str) and not _INVALID_IN_FIELD_NAMES.search(name)


def struct_markers(schema: Schema, required: Sequence[str]) -> tuple[Expression, ...]:
    """The markers of the class of a schema; `required` are its fields without a default."""
    schema = _normalize(schema)
    keys = {key: value for key, value in schema.items() if key not in _STRUCT_KEYS | FIELD_KEYS}
    original = schema.get("required") or []
    if set(original) != set(required):
        keys["required"] = sorted(original) or None
    return _build_markers(keys, schema)


def _derive(
    schema: Schema, path: tuple[str, ...], classes: Classes
) -> tuple[Expression, dict[str, Any], str]:
    """The type, the schema that `kubewright.schema` derives from it, and its empty value."""
    if schema.get("x-kubernetes-int-or-string"):
        keys = dict(INT_OR_STRING_KEYS)
        if schema.get("anyOf") != keys["anyOf"]:
            # The key itself stays, because a union needs it.
            return "int | str", {}, ""
        if schema.get("pattern") == QUANTITY_PATTERN:
            return "Quantity", keys | {"pattern": QUANTITY_PATTERN}, ""
        return "IntOrString", keys, ""
    match schema.get("type"):
        case "object":
            return _derive_map(schema, path, classes)
        case "array":
            items = schema.get("items")
            if not isinstance(items, Mapping):
                return subscript("list", "Any"), {"type": "array", "items": {_PRESERVE: True}}, "[]"
            item = annotate(items, _item_path(path), classes).to_expression()
            return subscript("list", item), {"type": "array", "items": items}, "[]"
        case "string":
            types = {"date-time": "datetime", "byte": "bytes"}
            if type_ := types.get(schema.get("format", "")):
                return type_, {"type": "string", "format": schema["format"]}, ""
            return "str", {"type": "string"}, ""
        case "integer":
            if schema.get("format") == "int32":
                return "Int32", {"type": "integer", "format": "int32"}, ""
            return "int", {"type": "integer", "format": "int64"}, ""
        case "number":
            return "float", {"type": "number"}, ""
        case "boolean":
            return "bool", {"type": "boolean"}, ""
    return "Any", {_PRESERVE: True}, ""


def _item_path(path: tuple[str, ...]) -> tuple[str, ...]:
    return (*path[:-1], singularize(path[-1])) if path else path


def _derive_map(
    schema: Schema, path: tuple[str, ...], classes: Classes
) -> tuple[Expression, dict[str, Any], str]:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        value = annotate(values, _item_path(path), classes).to_expression()
        if value != "Any":
            return (
                subscript("dict", "str", value),
                {"type": "object", "additionalProperties": values},
                "{}",
            )
    derived: dict[str, Any] = {"type": "object", _PRESERVE: True}
    if schema.get("x-kubernetes-embedded-resource") and schema.get(_PRESERVE):
        return "EmbeddedResource", derived | {"x-kubernetes-embedded-resource": True}, "{}"
    if schema.get(_PRESERVE) or values is not None or schema.get("properties"):
        return "PreserveUnknownFields", derived, "{}"
    return "EmptyObject", {"type": "object"}, ""


def _build_markers(keys: Mapping[str, Any], schema: Schema) -> tuple[Expression, ...]:
    """The markers that set these keys of the schema, and remove those that are None."""
    markers: list[Expression] = []
    other = dict(keys)
    if "format" in other and other["format"] != "":
        markers.append(call("Format", quote(other.pop("format") or "")))
    if _is_enum(other.get("enum"), schema):
        markers.append(call("OneOf", *map(literal, other.pop("enum"))))
    if _is_valid_list_type(other.get(_LIST_TYPE), schema):
        list_map_keys = other.pop(_LIST_MAP_KEYS, None) or []
        markers.append(call("ListType", quote(other.pop(_LIST_TYPE)), *map(quote, list_map_keys)))
    if other.get(_MAP_TYPE) in ("atomic", "granular") and schema.get("type") == "object":
        markers.append(call("MapType", quote(other.pop(_MAP_TYPE))))
    if _are_rules(other.get(_VALIDATIONS)):
        markers += map(_build_rule, other.pop(_VALIDATIONS))
    return (*markers, _build_override(other)) if other else tuple(markers)


def _is_enum(values: Any, schema: Schema) -> bool:
    value_type = {"string": str, "integer": int}.get(schema.get("type", ""))
    return bool(values) and all(type(value) is value_type for value in values)


def _are_rules(rules: Any) -> bool:
    return isinstance(rules, list) and all(
        isinstance(rule, Mapping) and rule.get("rule") and rule.keys() <= _RULE_ARGUMENTS.keys()
        for rule in rules
    )


def _is_valid_list_type(list_type: Any, schema: Schema) -> bool:
    """Whether `kubewright.schema` accepts the type, and derives nothing else from it."""
    items = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, Mapping):
        return False
    if list_type == "map":
        keys, fields = schema.get(_LIST_MAP_KEYS) or [], items.get("properties") or {}
        required = items.get("required") or []
        # The items of a built-in kind are a reference, of which Kubernetes has checked the keys.
        return bool(keys) and all(
            "$ref" in items or key in required or "default" in fields.get(key, {}) for key in keys
        )
    if _LIST_MAP_KEYS in schema:
        return False
    return list_type == "atomic" or (
        list_type == "set" and items.get("type") not in ("object", "array")
    )


def _build_rule(rule: Mapping[str, Any]) -> Expression:
    arguments = [
        keyword(name, literal(rule[key])) if name else literal(rule[key])
        for key, name in _RULE_ARGUMENTS.items()
        if rule.get(key)
    ]
    return call("ValidationRule", *arguments)


def _build_override(keys: Mapping[str, Any]) -> Expression:
    names = {key: key.replace("-", "_") if key.startswith("x-") else key for key in keys}
    items = [
        keyword(names[key], literal(value))
        if names[key].isidentifier() and not iskeyword(names[key])
        else with_prefix("**", literal({key: value}))
        for key, value in sorted(keys.items())
    ]
    return call("SchemaOverride.of", *items)
