"""Whether a stored object has the content that a controller wants it to have.

The API server adds defaults, and other clients add fields of their own, so a stored object is never
equal to what was sent. `compare` reads only what the desired object sets: an item of a list-map is
found by its keys, and a quantity may have another form. The digest has the whole value of a list
without keys and of an atomic map: server-side apply replaces it as a whole.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from .errors import SchemaError
from .kind import Object
from .markers import QUANTITY_PATTERN, ListType, MapType, SchemaOverride
from .patch import Json
from .quantity import parse_quantity
from .schema import struct_fields, unwrap_annotation

# Maps with the same entries have the same digest, in whatever order they were written.
_ENCODER = msgspec.json.Encoder(order="deterministic")
_QUANTITY_MARKER = SchemaOverride.of(pattern=QUANTITY_PATTERN)
_ATOMIC_MAP = MapType("atomic")


def digest(value: Any) -> str:
    """32 characters that identify a JSON value."""
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=16).hexdigest()


class Comparison(Struct, frozen=True):
    """What a live object has at the places that a desired object sets."""

    live_digest: str
    """Identifies the live values at these places. Equal digests of two versions of the live object
    mean that no value of ours changed between them."""
    differences: tuple[str, ...]
    """The paths at which the live object lacks the desired value."""


def compare(desired: Json, live: Json, kind: type[Object]) -> Comparison:
    """Compare two objects of the kind, both as plain JSON."""
    differences: list[_Path] = []
    projection = _project(desired, live, _Hint(struct=kind), (), differences)
    return Comparison(digest(projection), tuple(map(_format_path, differences)))


class _Hint(Struct, frozen=True):
    """Cached form of an annotation: parsing it each time makes a comparison ten times slower."""

    struct: type[Struct] | None = None
    values: _Hint | None = None
    """Of the values of a map, or of the items of a list."""
    list_type: ListType | None = None
    is_atomic_map: bool = False
    is_quantity: bool = False

    def field(self, name: str) -> _Hint:
        if self.struct is not None:
            return _field_hints(self.struct).get(name, _UNTYPED)
        return self.values or _UNTYPED


_UNTYPED = _Hint()
_Path = tuple[Any, ...]
"""Pairs of the path of the parent, and the last step: the name of a field, the index of an item, or
an item of a list-map with its keys. Most paths are never formatted."""


@lru_cache(maxsize=4096)
def _field_hints(struct: type[Struct]) -> dict[str, _Hint]:
    return {name: _read_hint(hint) for name, (hint, _) in struct_fields(struct).items()}


def _read_hint(annotation: Any) -> _Hint:
    try:
        bare, markers = unwrap_annotation(annotation, "")
    except SchemaError:
        # A union that a CRD cannot have: compare it without a type.
        return _UNTYPED
    values = {dict: get_args(bare)[1:], list: get_args(bare)}.get(get_origin(bare), ())
    return _Hint(
        struct=bare if isinstance(bare, type) and issubclass(bare, Struct) else None,
        values=_read_hint(values[0]) if values else None,
        list_type=next((marker for marker in markers if isinstance(marker, ListType)), None),
        is_atomic_map=_ATOMIC_MAP in (*markers, *getattr(bare, "__schema__", ())),
        is_quantity=_QUANTITY_MARKER in markers,
    )


def _project(desired: Any, live: Any, hint: _Hint, path: _Path, differences: list[_Path]) -> Any:
    """The live value, without the fields that `desired` does not set."""
    if isinstance(desired, dict) and isinstance(live, dict):
        projection = {
            name: _project(value, live.get(name), hint.field(name), (path, name), differences)
            for name, value in desired.items()
        }
        return live if hint.is_atomic_map else projection
    if isinstance(desired, list) and isinstance(live, list):
        return _project_list(desired, live, hint, path, differences)
    if not _is_equal(desired, live, is_quantity=hint.is_quantity):
        differences.append(path)
    return live


def _project_list(
    desired: list[Any], live: list[Any], hint: _Hint, path: _Path, differences: list[_Path]
) -> Any:
    items = hint.values or _UNTYPED
    match hint.list_type:
        case ListType(type="map", keys=keys):
            return [
                _project(
                    item, _find_item(live, item, keys), items, (path, (item, keys)), differences
                )
                for item in desired
            ]
        case ListType(type="set"):
            differences += ((path, [item]) for item in desired if item not in live)
            return [item for item in desired if item in live]
    if len(desired) != len(live):
        differences.append(path)
        return live
    for index, (item, live_item) in enumerate(zip(desired, live, strict=True)):
        _project(item, live_item, items, (path, index), differences)
    return live


def _find_item(live: list[Any], item: Any, keys: tuple[str, ...]) -> Any:
    # A key that is not set has a default, such as the protocol of a port, and matches any value.
    return next(
        (
            candidate
            for candidate in live
            if isinstance(candidate, dict)
            and all(candidate.get(key) == item[key] for key in keys if key in item)
        ),
        None,
    )


def _format_path(path: _Path) -> str:
    """As in a conflict of server-side apply: `.spec.containers[name="web"].image`."""
    if not path:
        return ""
    parent, step = path
    match step:
        case str() if re.fullmatch("[A-Za-z0-9_]+", step):
            text = f".{step}"
        case (dict() as item, tuple() as keys):
            values = (f"{key}={_to_json(item[key])}" for key in keys if key in item)
            text = f"[{','.join(values)}]"
        case [item]:
            text = f"[{_to_json(item)}]"
        case _:
            text = f"[{_to_json(step)}]"
    return _format_path(parent) + text


def _to_json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _is_equal(desired: Any, live: Any, *, is_quantity: bool) -> bool:
    # In Python, True equals 1.
    if desired == live and isinstance(desired, bool) == isinstance(live, bool):
        return True
    if not is_quantity:
        return False
    quantity = parse_quantity(desired)
    return quantity is not None and quantity == parse_quantity(live)
