"""A part of a kind with a store of its own: `select(Pod, label_selector="app=web")`.

    WebPod = select(Pod, label_selector="app=web")
    NodePod = select(Pod, field_selector="spec.nodeName=node-1", metadata_only=True)

The result is a subclass of the kind and works wherever a kind does: `self.watches(WebPod, ...)`,
`self.owns`, `self.reads`, `cache.get(WebPod, key)`, `client.list(WebPod)`. A controller of it has
`kind = WebPod` in the class body. Equal selections are the same class, and so share a store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn, Self, TypeVar, cast

import msgspec

from .errors import ConfigError
from .kind import Object
from .selectors import Selection, parse_field_selector, parse_label_selector

_T = TypeVar("_T", bound=Object)


def select(
    kind: type[_T],
    *,
    label_selector: str = "",
    field_selector: str = "",
    namespaces: Sequence[str] = (),
    transform: Callable[[_T], _T] | None = None,
    metadata_only: bool = False,
) -> type[_T]:
    """The objects of the kind that match both selectors, in these namespaces (all if empty).

    `transform` returns the object to store, without the fields that are not needed; metadata must
    stay as it is, except for labels and annotations. With `metadata_only` the API server sends
    metadata alone, and reading another field raises.
    """
    if kind.definition.selection is not None:
        raise ConfigError(
            f"{kind.__name__} is a selection already; select from the kind itself, with all "
            "selectors in one call"
        )
    if isinstance(namespaces, str):
        raise ConfigError(f'namespaces is "{namespaces}"; it must be a sequence, such as ("a",)')
    if "" in namespaces:
        raise ConfigError("namespaces has an empty name; leave namespaces out to select all")
    if namespaces and not kind.definition.namespaced:
        raise ConfigError(f"{kind.__name__} is cluster-scoped, so it has no namespaces to select")
    selection = Selection(
        labels=parse_label_selector(label_selector),
        fields=parse_field_selector(field_selector),
        namespaces=tuple(sorted(set(namespaces))),
        transform=transform,
        metadata_only=metadata_only,
    )
    if selection == Selection():
        raise ConfigError(
            f"select({kind.__name__}) has no selector, namespace, transform or metadata_only; "
            f"use {kind.__name__} itself"
        )
    return cast("type[_T]", _selected_class(kind, selection))


def declared_kind(kind: type[Object]) -> type[Object]:
    """The class that `@kind` declared: the kind itself, or what it was selected from."""
    return kind if kind.definition.selection is None else kind.__mro__[1]


@cache
def _selected_class(kind: type[Object], selection: Selection) -> type[Object]:
    name = f"{kind.__name__}[{selection}]"
    cls = cast(
        "type[Object]",
        _metadata_only_class(kind, name)
        if selection.metadata_only
        else msgspec.defstruct(name, (), bases=(kind,), module=kind.__module__),
    )
    cls.__doc__ = kind.__doc__
    cls.definition = replace(
        kind.definition,
        type=cls,
        selection=selection,
        metadata_only=selection.metadata_only or kind.definition.metadata_only,
    )
    return cls


def _metadata_only_class(kind: type[Object], name: str) -> type[msgspec.Struct]:
    """A subclass without the kind's fields: they are neither decoded nor encoded."""
    absent = _AbsentField(name)
    return msgspec.defstruct(
        name,
        [
            # The response to a write may have the field: under another name it is not decoded.
            (field.name, Any, msgspec.field(default=absent, name=f"{field.name} (absent)"))
            for field in msgspec.structs.fields(kind)
            if field.name != "metadata"
        ],
        bases=(kind,),
        module=kind.__module__,
        namespace={"__repr__": lambda self: f"{name}({self.metadata!r})"},
        kw_only=True,
        omit_defaults=True,
    )


class _AbsentField:
    """The value of each field of a metadata-only object, except metadata: every use raises."""

    def __init__(self, class_name: str) -> None:
        self._class_name = class_name

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _fail(self, *_: object) -> NoReturn:
        raise AttributeError(
            f"{self._class_name} has metadata alone, because it was selected with "
            "metadata_only=True"
        )

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = __contains__ = _fail
