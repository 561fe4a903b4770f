"""Annotations -> OpenAPI v3, in the structural form that a CRD needs.

    Annotated[Int32, Doc("vCPUs of each VM.", ge=1, le=4)]                     bounds
    Annotated[str, Doc("Name.", min_length=1, pattern="^[a-z]+$")]             lengths and patterns
    Literal["RUNNING", "PENDING"], an Enum                                     enum
    Annotated[list[Port], ListType("map", "name")]                             list types
    Annotated[int, Rule("self >= oldSelf", "cannot shrink")]                   CEL
    IntOrString, Any (preserve unknown fields), datetime, dict[str, T], Struct, T | None

A field without a default is required. A default that is more than "empty" ("", 0, False, None, [], {}) goes into the
schema, so that the API server writes it; an empty one means "absent" and would only clutter people's objects.
What has no structural form raises SchemaError with the class and the field.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from .errors import SchemaError

OpenApi = dict[str, Any]


def Doc(text: str, **constraints: Any) -> Meta:  # noqa: N802  # reads as an annotation
    """A field's description, with msgspec's constraints beside it: ge, le, gt, lt, min_length, max_length, pattern."""
    return Meta(description=text, **constraints)


@dataclass(frozen=True)
class Format:
    """An OpenAPI format: int32, int64, date-time, byte..."""

    name: str


@dataclass(frozen=True, init=False)
class ListType:
    """How lists merge: ListType("atomic"), ListType("set"), ListType("map", "key", ...)."""

    kind: str
    keys: tuple[str, ...]

    def __init__(self, kind: Literal["atomic", "set", "map"], *keys: str) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True)
class ValidationRule:
    """A CEL rule that the API server checks; on a field, or on a Struct through its class attribute `rules`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""

    def to_openapi(self) -> OpenApi:
        """The entry of x-kubernetes-validations."""
        named = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
        }
        named |= {"reason": self.reason, "fieldPath": self.field_path}
        return {k: v for k, v in named.items() if v}


@dataclass(frozen=True)
class SchemaOverride:
    """Raw OpenAPI keys laid over what is derived; the way out for what has no annotation here."""

    keys: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, **keys: Any) -> SchemaOverride:
        """Schema.of(default=0, title="x"); an underscore in `x_kubernetes_...` stands for a dash."""
        return cls(
            tuple((k.replace("_", "-") if k.startswith("x_") else k, v) for k, v in keys.items())
        )


Int32 = Annotated[int, Format("int32")]
Int64 = Annotated[int, Format("int64")]
IntOrString = Annotated[int | str, SchemaOverride.of(x_kubernetes_int_or_string=True)]
PreserveUnknownFields = Annotated[
    dict[str, Any], SchemaOverride.of(x_kubernetes_preserve_unknown_fields=True)
]
EmbeddedResource = Annotated[
    dict[str, Any],
    SchemaOverride.of(
        x_kubernetes_embedded_resource=True, x_kubernetes_preserve_unknown_fields=True
    ),
]

_SIMPLE_TYPES: dict[Any, OpenApi] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
}
_BOUND_KEYWORDS = {
    "ge": ("minimum", False),
    "gt": ("minimum", True),
    "le": ("maximum", False),
    "lt": ("maximum", True),
}
_LENGTH_KEYWORDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def struct_schema(
    struct: type[Struct], where: str = "", inside: tuple[type, ...] = (), *, defaults: bool = True
) -> OpenApi:
    """The schema of a Struct: one property a field, required where there is no default.

    `defaults=False` leaves defaults out: a status is written by us and never completed by the server.
    """
    where = where or struct.__name__
    if struct in inside:
        raise SchemaError(
            where,
            f"{struct.__name__} contains itself; a CRD cannot express recursion, use PreserveUnknown",
        )
    hints = get_type_hints(struct, include_extras=True)
    properties, required = {}, []
    for info in msgspec.structs.fields(struct):
        spot = f"{where}.{info.encode_name}"
        shape = _annotation_schema(hints[info.name], spot, (*inside, struct), defaults=defaults)
        default = json_default(info, spot)
        if default is NODEFAULT:
            required.append(info.encode_name)
        elif defaults and default not in ("", 0, False, None, [], {}):
            shape.setdefault("default", default)
        properties[info.encode_name] = shape
    schema: OpenApi = (
        {"type": "object"}
        | docstring_description(struct)
        | ({"properties": properties} if properties else {})
    )
    if required:
        schema["required"] = sorted(required)
    rules = [rule.to_openapi() for rule in getattr(struct, "rules", ())]
    return schema | ({"x-kubernetes-validations": rules} if rules else {})


def docstring_description(struct: type) -> OpenApi:
    """The class's own docstring as a description; an inherited one would describe something else."""
    text = struct.__dict__.get("__doc__")
    return {"description": inspect.cleandoc(text)} if text else {}


def json_default(info: msgspec.structs.FieldInfo, where: str) -> Any:
    """The default as JSON, or NODEFAULT where the field is required."""
    if info.default is not NODEFAULT:
        return msgspec.to_builtins(info.default)
    if info.default_factory is NODEFAULT:
        return NODEFAULT
    try:
        return msgspec.to_builtins(info.default_factory())
    except (TypeError, ValueError) as error:
        raise SchemaError(where, f"its default does not encode: {error}") from error


def _annotation_schema(
    hint: Any, where: str, inside: tuple[type, ...], *, defaults: bool = True
) -> OpenApi:
    """The schema of one annotation: the bare type first, then each marker laid over it, left to right."""
    hint, markers = unwrap_annotation(hint, where)
    if any(
        isinstance(m, SchemaOverride) and dict(m.keys).get("x-kubernetes-int-or-string")
        for m in markers
    ):
        schema: OpenApi = {}
    else:
        schema = _type_schema(hint, where, inside, defaults=defaults)
    for marker in markers:
        _apply_marker(schema, marker, where)
    return schema


def unwrap_annotation(hint: Any, where: str) -> tuple[Any, list[Any]]:
    """The annotation without Annotated and without `| None`, and the markers found on the way (innermost first)."""
    markers: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *found = get_args(hint)
            markers[:0] = found
            continue
        rest = [a for a in get_args(hint) if a is not type(None)]
        if get_origin(hint) in (Union, types.UnionType) and len(rest) < len(get_args(hint)):
            if len(rest) != 1 and set(rest) != {int, str}:
                raise SchemaError(
                    where,
                    f"{hint} is a union of several types; a CRD field has one (or IntOrString, or PreserveUnknown)",
                )
            hint = rest[0] if len(rest) == 1 else int | str
            continue
        return hint, markers


def _type_schema(
    hint: Any, where: str, inside: tuple[type, ...], *, defaults: bool = True
) -> OpenApi:
    """The schema of a type without markers."""
    if hint in _SIMPLE_TYPES:
        return dict(_SIMPLE_TYPES[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _enum_schema(args, where)
    if origin in (list, Sequence):
        return {
            "type": "array",
            "items": _annotation_schema(args[0], f"{where}[]", inside, defaults=defaults),
        }
    if origin is dict and args[0] is str:
        return _map_schema(args[1], where, inside, defaults=defaults)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_schema([member.value for member in hint], where)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return struct_schema(hint, where, inside, defaults=defaults)
    if origin is dict:
        raise SchemaError(
            where,
            f"the keys of a map are strings in JSON, not {getattr(args[0], '__name__', args[0])}",
        )
    raise SchemaError(
        where,
        f"{getattr(hint, '__name__', hint)} has no OpenAPI form; see kubewright.schema for what has",
    )


def _map_schema(value: Any, where: str, inside: tuple[type, ...], *, defaults: bool) -> OpenApi:
    """A map from strings; dict[str, Any] keeps whatever it is given."""
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "additionalProperties": _annotation_schema(
            value, f"{where}{{}}", inside, defaults=defaults
        ),
    }


def _enum_schema(values: Sequence[Any], where: str) -> OpenApi:
    """An enum, whose members all have one JSON type."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or next(iter(kinds)) not in (str, int):
        raise SchemaError(
            where,
            f"an enum's values must all be strings or all be integers, not {sorted(map(repr, values))}",
        )
    return {"type": _SIMPLE_TYPES[next(iter(kinds))]["type"], "enum": list(values)}


def _apply_marker(schema: OpenApi, marker: Any, where: str) -> None:
    """Add what one marker says to the schema."""
    match marker:
        case Meta():
            _apply_meta(schema, marker, where)
        case Format(name):
            schema["format"] = name
        case ListType():
            _apply_list_type(schema, marker, where)
        case ValidationRule():
            schema.setdefault("x-kubernetes-validations", []).append(marker.to_openapi())
        case SchemaOverride(keys):
            if any(k == "x-kubernetes-preserve-unknown-fields" for k, _ in keys):
                schema.pop("additionalProperties", None)
            schema.update(dict(keys))
        case _:
            raise SchemaError(where, f"the annotation {marker!r} means nothing here")


def _apply_meta(schema: OpenApi, meta: Meta, where: str) -> None:
    """Msgspec's own constraints in OpenAPI's words."""
    if meta.description:
        schema["description"] = inspect.cleandoc(meta.description)
    for ours, (theirs, exclusive) in _BOUND_KEYWORDS.items():
        if (bound := getattr(meta, ours)) is not None:
            schema[theirs] = bound
            if exclusive:
                schema[f"exclusive{theirs.capitalize()}"] = True
    for length, index in ((meta.min_length, 0), (meta.max_length, 1)):
        if length is not None:
            if schema.get("type") not in _LENGTH_KEYWORDS:
                raise SchemaError(
                    where,
                    f"a length limit on a {schema.get('type', 'value without a type')} means nothing",
                )
            schema[_LENGTH_KEYWORDS[schema["type"]][index]] = length
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern
    if meta.multiple_of is not None:
        schema["multipleOf"] = meta.multiple_of
    schema.update(meta.extra_json_schema or {})


def _apply_list_type(schema: OpenApi, marker: ListType, where: str) -> None:
    """x-kubernetes-list-type, refused where the API server would refuse it."""
    if schema.get("type") != "array":
        raise SchemaError(where, "ListType belongs on a list")
    items = schema["items"]
    schema["x-kubernetes-list-type"] = marker.kind
    if marker.kind == "set" and items.get("type") in ("object", "array"):
        items.setdefault(
            "x-kubernetes-map-type" if items["type"] == "object" else "x-kubernetes-list-type",
            "atomic",
        )
    if marker.kind != "map":
        return
    for key in marker.keys or ("",):
        part = items.get("properties", {}).get(key)
        if part is None or (key not in items.get("required", []) and "default" not in part):
            raise SchemaError(
                where,
                f'the list-map key "{key}" must be a field of the items, and required or with a default',
            )
    schema["x-kubernetes-list-map-keys"] = list(marker.keys)
