"""Combines our typed view of an object with stored JSON, so that fields that our class does not
declare survive a write.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

from msgspec import Struct

from .kind import Object
from .markers import ListType
from .patch import Json
from .schema import struct_fields, unwrap_annotation


def overlay(stored: Json, obj: Object) -> Json:
    """The stored object with every field that our class declares set, or removed, as in `obj`."""
    return _overlay_struct(stored, obj.encode_fields(), type(obj)) | {
        "apiVersion": obj.definition.api_version,
        "kind": obj.definition.name,
    }


def _overlay_struct(stored: Json, ours: Json, struct: type[Struct]) -> Json:
    result = dict(stored)
    for name, (hint, default) in struct_fields(struct).items():
        if name not in ours:
            # The encoder leaves out defaults. A default that was written explicitly stays.
            if name in stored and stored[name] != default:
                del result[name]
        else:
            result[name] = _overlay_value(stored.get(name), ours[name], hint)
    return result


def _overlay_value(stored: Any, ours: Any, hint: Any) -> Any:
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
    """The stored item that corresponds to ours: by the list-map keys, else by position."""
    if keys and isinstance(value, dict):
        matches = (
            item
            for item in stored
            if isinstance(item, dict) and all(item.get(k) == value.get(k) for k in keys)
        )
        return next(matches, None)
    return stored[index] if index < len(stored) else None
