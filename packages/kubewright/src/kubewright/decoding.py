"""Builds the decoder of a kind, also for constraints on an optional field.

msgspec accepts `Annotated[int, Doc("...", ge=1)] | None`, but not the form in which all other
fields are written, `Annotated[int | None, Doc("...", ge=1)]`. Its error names no field. So if a
decoder cannot be built, such annotations are replaced by the first form, and an error that remains
names the class and the field.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Any, Optional, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from .errors import SchemaError

_CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "pattern", "min_length", "max_length")


def build_decoder(struct: type[Struct]) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(struct)
    except TypeError:
        for part in _reachable_structs(struct, set()):
            _move_constraints(part)
    try:
        return msgspec.json.Decoder(struct)
    except TypeError as error:
        raise _locate(struct, error) from error


def _reachable_structs(hint: Any, seen: set[Any]) -> Iterator[type[Struct]]:
    """The Structs that occur in an annotation; inner ones first."""
    if isinstance(hint, type) and issubclass(hint, Struct) and hint not in seen:
        seen.add(hint)
        # The fields `spec` and `status` of a generic Resource have type variables.
        parts = [getattr(hint, name, None) for name in ("spec_type", "status_type")]
        for field in (*get_type_hints(hint, include_extras=True).values(), *parts):
            yield from _reachable_structs(field, seen)
        yield hint
    for argument in get_args(hint):
        yield from _reachable_structs(argument, seen)


def _move_constraints(struct: type[Struct]) -> None:
    """Rewrite the annotations of the class: constraints go to the member of `T | None`."""
    hints = get_type_hints(struct, include_extras=True)
    own = inspect.get_annotations(struct)
    for name in own:
        own[name] = _with_inner_constraints(hints[name]) or own[name]
    struct.__annotations__ = own


def _with_inner_constraints(hint: Any) -> Any:
    """`Annotated[Annotated[T, constraints] | None, rest]`; None if the hint has another form."""
    if get_origin(hint) is not Annotated:
        return None
    union, *markers = get_args(hint)
    members = [member for member in get_args(union) if member is not type(None)]
    if get_origin(union) not in (Union, types.UnionType) or len(members) != 1:
        return None
    member, outer = members[0], []
    for marker in markers:
        constraints = {
            name: value
            for name in _CONSTRAINTS
            if isinstance(marker, Meta) and (value := getattr(marker, name)) is not None
        }
        if constraints:
            member = Annotated[member, Meta(**constraints)]
            marker = Meta(
                description=marker.description, extra_json_schema=marker.extra_json_schema
            )
        outer.append(marker)
    return Annotated[Optional[member], *outer]  # noqa: UP045  # a value, not an annotation


def _locate(struct: type[Struct], error: TypeError) -> SchemaError:
    for part in _reachable_structs(struct, set()):
        for name, hint in get_type_hints(part, include_extras=True).items():
            try:
                msgspec.json.Decoder(hint)
            except TypeError as cause:
                return SchemaError(f"{part.__name__}.{name}", str(cause))
    return SchemaError(struct.__name__, str(error))
