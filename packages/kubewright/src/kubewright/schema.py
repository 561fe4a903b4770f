"""Python annotations to OpenAPI v3, in the structural form that a CRD needs.

    Annotated[Int32, Doc("vCPUs of each VM.", ge=1, le=4)]                bounds
    Annotated[str, Doc("Name.", min_length=1, pattern="^[a-z]+$")]        lengths and patterns
    Literal["RUNNING", "PENDING"], an Enum                                enum
    Annotated[list[Port], ListType("map", "name")]                        list types
    Annotated[int, ValidationRule("self >= oldSelf", "cannot shrink")]    CEL
    IntOrString, Any (preserve unknown fields), datetime, dict[str, T], Struct, T | None

`markers` has the annotations.

A field without a default is required. A default goes into the schema, so that the API server sets
it. An empty default ("", 0, False, None, [], {}) stays out: it means "absent", and would only
clutter the objects. A type without a structural form raises SchemaError.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from .errors import SchemaError
from .markers import Format, ListType, MapType, OneOf, SchemaOverride, ValidationRule

OpenApi = dict[str, Any]

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
    struct: type[Struct],
    location: str = "",
    parents: tuple[type, ...] = (),
    *,
    defaults: bool = True,
) -> OpenApi:
    """The schema of a Struct: one property per field, required if it has no default.

    `defaults=False` omits defaults. It is for a status, which the controller writes completely.
    `location` is for errors, and `parents` are the Structs that contain this one.
    """
    location = location or struct.__name__
    if struct in parents:
        raise SchemaError(
            location,
            f"{struct.__name__} contains itself, and a CRD cannot express recursion; "
            "use PreserveUnknownFields",
        )
    properties, required = {}, []
    for name, (hint, default) in struct_fields(struct).items():
        field_schema = annotation_schema(
            hint, f"{location}.{name}", (*parents, struct), defaults=defaults
        )
        if default is NODEFAULT:
            required.append(name)
        elif defaults and default not in ("", 0, False, None, [], {}):
            field_schema.setdefault("default", default)
        properties[name] = field_schema
    schema: OpenApi = (
        {"type": "object"}
        | docstring_description(struct)
        | ({"properties": properties} if properties else {})
    )
    if required:
        schema["required"] = sorted(required)
    apply_class_markers(schema, struct, location)
    return schema


def apply_class_markers(schema: OpenApi, struct: type[Struct], location: str) -> None:
    """Apply the markers in `rules` and `__schema__` of the class to its schema.

    `__schema__` is for generated classes, in which a field may be called "rules".
    """
    rules = () if "rules" in struct.__struct_fields__ else getattr(struct, "rules", ())
    for marker in (*rules, *getattr(struct, "__schema__", ())):
        _apply_marker(schema, marker, location)


# Reading annotations takes about 1 ms per class.
@lru_cache(maxsize=4096)
def struct_fields(struct: type[Struct]) -> dict[str, tuple[Any, Any]]:
    """Annotation and default of each field, by the field's name on the wire."""
    # The annotations of Resource[Spec, Status] are type variables.
    variables = {
        "SpecT": getattr(struct, "spec_type", None),
        "StatusT": getattr(struct, "status_type", None),
    }
    hints = {
        name: variables.get(hint.__name__, hint) if isinstance(hint, TypeVar) else hint
        for name, hint in get_type_hints(struct, include_extras=True).items()
    }
    return {
        field.encode_name: (
            hints[field.name],
            _json_default(field, f"{struct.__name__}.{field.encode_name}"),
        )
        for field in msgspec.structs.fields(struct)
    }


def docstring_description(struct: type) -> OpenApi:
    """The docstring of the class itself as a description; not an inherited one."""
    text = struct.__dict__.get("__doc__")
    return {"description": inspect.cleandoc(text)} if text else {}


def _json_default(info: msgspec.structs.FieldInfo, location: str) -> Any:
    """The default as JSON; NODEFAULT if the field is required."""
    if info.default is not NODEFAULT:
        return msgspec.to_builtins(info.default)
    if info.default_factory is NODEFAULT:
        return NODEFAULT
    try:
        return msgspec.to_builtins(info.default_factory())
    except (TypeError, ValueError) as error:
        raise SchemaError(location, f"the default cannot be encoded as JSON: {error}") from error


def annotation_schema(
    hint: Any, location: str, parents: tuple[type, ...] = (), *, defaults: bool = True
) -> OpenApi:
    """The schema of one annotation; the other arguments are those of `struct_schema`."""
    # The bare type first, then each marker applied to it from left to right.
    hint, markers = unwrap_annotation(hint, location)
    if any(
        isinstance(marker, SchemaOverride) and dict(marker.keys).get("x-kubernetes-int-or-string")
        for marker in markers
    ):
        schema: OpenApi = {}
    else:
        schema = _type_schema(hint, location, parents, defaults=defaults)
    for marker in markers:
        _apply_marker(schema, marker, location)
    return schema


def unwrap_annotation(hint: Any, location: str) -> tuple[Any, list[Any]]:
    """Remove Annotated and `| None`; return the type and the markers, innermost first."""
    markers: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *inner_markers = get_args(hint)
            markers[:0] = inner_markers
            continue
        members = [arg for arg in get_args(hint) if arg is not type(None)]
        if get_origin(hint) in (Union, types.UnionType) and len(members) < len(get_args(hint)):
            if len(members) != 1 and set(members) != {int, str}:
                raise SchemaError(
                    location,
                    f"{hint} is a union of several types, but a field of a CRD has one type; "
                    "use IntOrString or PreserveUnknownFields",
                )
            hint = members[0] if len(members) == 1 else int | str
            continue
        return hint, markers


def _type_schema(
    hint: Any, location: str, parents: tuple[type, ...], *, defaults: bool = True
) -> OpenApi:
    if hint in _SIMPLE_TYPES:
        return dict(_SIMPLE_TYPES[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _enum_schema(args, location)
    if origin in (list, Sequence):
        return {
            "type": "array",
            "items": annotation_schema(args[0], f"{location}[]", parents, defaults=defaults),
        }
    if origin is dict and args[0] is str:
        return _map_schema(args[1], location, parents, defaults=defaults)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_schema([member.value for member in hint], location)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return struct_schema(hint, location, parents, defaults=defaults)
    if origin is dict:
        raise SchemaError(
            location,
            f"the keys of a map must be strings, not {getattr(args[0], '__name__', args[0])}",
        )
    raise SchemaError(
        location,
        f"{getattr(hint, '__name__', hint)} has no OpenAPI form; "
        "kubewright.schema lists the supported types",
    )


def _map_schema(value: Any, location: str, parents: tuple[type, ...], *, defaults: bool) -> OpenApi:
    # dict[str, Any] keeps all fields.
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "additionalProperties": annotation_schema(
            value, f"{location}{{}}", parents, defaults=defaults
        ),
    }


def _enum_schema(values: Sequence[Any], location: str) -> OpenApi:
    value_types = {type(value) for value in values}
    if len(value_types) != 1 or next(iter(value_types)) not in (str, int):
        raise SchemaError(
            location,
            "the values of an enum must all be strings or all be integers, "
            f"not {sorted(map(repr, values))}",
        )
    return {"type": _SIMPLE_TYPES[next(iter(value_types))]["type"], "enum": list(values)}


def _apply_marker(schema: OpenApi, marker: Any, location: str) -> None:
    match marker:
        case Meta():
            _apply_meta(schema, marker, location)
        case Format(name):
            _override(schema, "format", name or None)
        case ListType():
            _apply_list_type(schema, marker, location)
        case MapType():
            if schema.get("type") != "object":
                raise SchemaError(location, "MapType applies to maps and Structs only")
            schema["x-kubernetes-map-type"] = marker.type
        case OneOf(values):
            schema["enum"] = list(values)
        case ValidationRule():
            schema.setdefault("x-kubernetes-validations", []).append(marker.to_openapi())
        case SchemaOverride(keys):
            for name, value in keys:
                _override(schema, name, value)
        case _:
            raise SchemaError(location, f"the annotation {marker!r} is not supported")


def _override(schema: OpenApi, name: str, value: Any) -> None:
    schema[name] = value
    if value is None:
        del schema[name]


def _apply_meta(schema: OpenApi, meta: Meta, location: str) -> None:
    if meta.description:
        schema["description"] = inspect.cleandoc(meta.description)
    for attribute, (keyword, exclusive) in _BOUND_KEYWORDS.items():
        if (bound := getattr(meta, attribute)) is not None:
            schema[keyword] = bound
            if exclusive:
                schema[f"exclusive{keyword.capitalize()}"] = True
    for length, index in ((meta.min_length, 0), (meta.max_length, 1)):
        if length is not None:
            if schema.get("type") not in _LENGTH_KEYWORDS:
                raise SchemaError(
                    location,
                    f"a length limit does not apply to the type {schema.get('type', 'Any')}",
                )
            schema[_LENGTH_KEYWORDS[schema["type"]][index]] = length
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern
    if meta.multiple_of is not None:
        schema["multipleOf"] = meta.multiple_of
    schema.update(meta.extra_json_schema or {})


def _apply_list_type(schema: OpenApi, marker: ListType, location: str) -> None:
    # The same checks as in the API server, which would reject the CRD.
    if schema.get("type") != "array":
        raise SchemaError(location, "ListType applies to lists only")
    items = schema["items"]
    schema["x-kubernetes-list-type"] = marker.type
    if marker.type == "set" and items.get("type") in ("object", "array"):
        items.setdefault(
            "x-kubernetes-map-type" if items["type"] == "object" else "x-kubernetes-list-type",
            "atomic",
        )
    if marker.type != "map":
        return
    for key in marker.keys or ("",):
        item_field = items.get("properties", {}).get(key)
        required = key in items.get("required", [])
        if item_field is None or not (required or "default" in item_field):
            raise SchemaError(
                location,
                f'the list-map key "{key}" must be a field of the items, '
                "which is required or has a default",
            )
    schema["x-kubernetes-list-map-keys"] = list(marker.keys)
