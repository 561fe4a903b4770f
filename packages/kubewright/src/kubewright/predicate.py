"""Predicates: whether a change from an old object to a new one matters.

`old` is None for a creation and for every object that exists when the controller starts; `new` is
None for a deletion. A creation or deletion counts as a change of every field.

    predicate = any_of(generation_changed, labels_changed)
    self.watches(Pod, index_by=..., predicate=field_changed("status.phase"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from .errors import ConfigError
from .kind import Object
from .log import Log

Predicate = Callable[[Any, Any], bool]
"""Called with the old and the new object. Only decoded objects are passed."""


def any_change(old: Any, new: Any) -> bool:
    return True


def created_or_deleted(old: Any, new: Any) -> bool:
    """The object was created or deleted."""
    return (old is None) != (new is None)


def generation_changed(old: Any, new: Any) -> bool:
    """The spec changed, or deletion began; the generation ignores status updates."""
    return _changed(old, new, lambda obj: (obj.metadata.uid, obj.metadata.generation))


def labels_changed(old: Any, new: Any) -> bool:
    return _changed(old, new, lambda obj: obj.metadata.labels)


def annotations_changed(old: Any, new: Any) -> bool:
    return _changed(old, new, lambda obj: obj.metadata.annotations)


def _changed(old: Any, new: Any, read: Callable[[Any], object]) -> bool:
    if old is None or new is None:
        return old is not new
    return read(old) != read(new)


def field_changed(path: str) -> Predicate:
    """A field has another value: `field_changed("spec.replicas")`.

    The path may lead into a dict, such as `metadata.labels.app`. A field that the kind does not
    declare is an error when the controller is added.
    """
    return _FieldChanged(path)


def any_of(*predicates: Predicate) -> Predicate:
    return _Combination(any, predicates)


def all_of(*predicates: Predicate) -> Predicate:
    return _Combination(all, predicates)


def not_(predicate: Predicate) -> Predicate:
    return _Combination(lambda results: not any(results), (predicate,))


class _FieldChanged:
    def __init__(self, path: str) -> None:
        self._path, self._names = path, path.split(".")

    def __call__(self, old: Any, new: Any) -> bool:
        return _changed(old, new, self._read)

    def _read(self, obj: Any) -> object:
        for name in self._names:
            obj = obj.get(name) if isinstance(obj, dict) else getattr(obj, name, None)
        return obj

    def check(self, kind: type[Object]) -> None:
        declared: Any = kind
        for number, name in enumerate(self._names):
            if not (isinstance(declared, type) and issubclass(declared, msgspec.Struct)):
                # A dict or a list: its content is not declared.
                return
            fields = {field.name: field.type for field in msgspec.structs.fields(declared)}
            if name not in fields:
                parent = ".".join(self._names[:number]) or kind.__name__
                raise ConfigError(
                    f'field_changed("{self._path}"): {parent} has no field "{name}"; '
                    f"its fields: {', '.join(sorted(fields))}"
                )
            # The types of spec and status are parameters of Resource.
            declared = getattr(declared, f"{name}_type", None) or _strip_optional(fields[name])


def _strip_optional(declared: Any) -> Any:
    while get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    if get_origin(declared) in (Union, UnionType):
        options = [option for option in get_args(declared) if option is not type(None)]
        return _strip_optional(options[0]) if len(options) == 1 else None
    return declared


class _Combination:
    def __init__(
        self, combine: Callable[[Iterable[bool]], bool], predicates: tuple[Predicate, ...]
    ) -> None:
        self._combine, self.predicates = combine, predicates

    def __call__(self, old: Any, new: Any) -> bool:
        return self._combine(predicate(old, new) for predicate in self.predicates)


def check_predicate(predicate: Predicate, kind: type[Object]) -> None:
    """Raise ConfigError if a predicate names a field that objects of the kind cannot have."""
    if isinstance(predicate, _FieldChanged):
        predicate.check(kind)
    elif isinstance(predicate, _Combination):
        for part in predicate.predicates:
            check_predicate(part, kind)


def matters(predicate: Predicate, old: Any, new: Any) -> bool:
    """Call a predicate of a user. If it raises, the change counts: no change may be lost."""
    try:
        return predicate(old, new)
    except Exception as error:
        Log("predicate").error("a predicate failed, so the change counts", error=error)
        return True
