"""Laying our typed view of an object over the stored JSON, so that fields we do not know survive a replace."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from .kind import Object, drop_nulls
from .schema import ListType, json_default, unwrap_annotation

Json = dict[str, Any]


def overlay(stored: Json, obj: Object) -> Json:
    """The stored object with every field that our class knows set (or removed) as in `obj`, and the rest kept."""
    return _overlay_struct(stored, drop_nulls(msgspec.to_builtins(obj)), type(obj)) | {
        "apiVersion": obj.definition.api_version,
        "kind": obj.definition.name,
    }


def _overlay_struct(stored: Json, ours: Json, struct: type[Struct]) -> Json:
    """One struct over one JSON object: known fields are ours, also when that means gone."""
    result = dict(stored)
    for name, (hint, default) in struct_fields(struct).items():
        if name not in ours:
            # We leave out what is a default; where somebody wrote it explicitly, it stays so.
            if name in stored and stored[name] != default:
                del result[name]
        else:
            result[name] = _overlay_value(stored.get(name), ours[name], hint)
    return result


@lru_cache(maxsize=1024)
def struct_fields(struct: type[Struct]) -> dict[str, tuple[Any, Any]]:
    """The fields of a class by their names on the wire: annotation and default. Reading annotations takes 1 ms: done once."""
    hints = get_type_hints(struct, include_extras=True)
    return {
        info.encode_name: (
            _resolve_type_variable(hints[info.name], struct),
            json_default(info, info.encode_name),
        )
        for info in msgspec.structs.fields(struct)
    }


def _resolve_type_variable(hint: Any, struct: type[Struct]) -> Any:
    """The annotation with the type variables of `Resource[Spec, Status]` filled in."""
    return {
        "SpecT": getattr(struct, "spec_type", None),
        "StatusT": getattr(struct, "status_type", None),
    }.get(getattr(hint, "__name__", ""), hint)


def _overlay_value(stored: Any, ours: Any, hint: Any) -> Any:
    """One value over another, going down where both are structs or lists of structs."""
    bare, markers = unwrap_annotation(hint, "overlay")
    if isinstance(bare, type) and issubclass(bare, Struct) and isinstance(stored, dict):
        return _overlay_struct(stored, ours, bare)
    if get_origin(bare) is dict and isinstance(stored, dict):
        return {
            key: _overlay_value(stored.get(key), value, get_args(bare)[1])
            for key, value in ours.items()
        }
    if get_origin(bare) is list and isinstance(stored, list):
        item = get_args(bare)[0]
        keys = next((m.keys for m in markers if isinstance(m, ListType)), ())
        return [
            _overlay_value(_find_stored_item(stored, value, index, keys), value, item)
            for index, value in enumerate(ours)
        ]
    return ours


def _find_stored_item(stored: list[Any], value: Any, index: int, keys: tuple[str, ...]) -> Any:
    """The stored item that is the same as ours: by the list-map keys, else by position."""
    if keys and isinstance(value, dict):
        same = (
            item
            for item in stored
            if isinstance(item, dict) and all(item.get(k) == value.get(k) for k in keys)
        )
        return next(same, None)
    return stored[index] if index < len(stored) else None
