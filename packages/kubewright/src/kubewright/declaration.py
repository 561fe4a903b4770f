"""Checks what a controller declares when it is added to a manager: a mistake is found at the start,
not in a reconcile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .controller import Controller
from .errors import ConfigError
from .kind import Object
from .predicate import check_predicate
from .source import StreamSource


def check_controller(controller: Controller[Any], others: Iterable[Controller[Any]]) -> None:
    """Raise ConfigError if the controller cannot run, or not next to the others."""
    class_name, kind = type(controller).__name__, controller.kind
    if not controller.overrides("reconcile"):
        raise ConfigError(f"{class_name} has no reconcile: write async def reconcile(self, obj)")
    for method, argument in (
        ("reconcile", "obj"),
        ("finalize", "obj"),
        ("reconcile_deleted", "key"),
    ):
        _check_signature(getattr(controller, method), f"{class_name}.{method}", argument)
    if controller.writes_status and "status" not in kind.__struct_fields__:
        raise ConfigError(f"{class_name} has writes_status, but {kind.__name__} has no status")
    if controller.max_concurrent_reconciles < 1:
        raise ConfigError(f"max_concurrent_reconciles of {class_name} must be at least 1")
    check_predicate(controller.get_predicate(), kind)
    _check_child_kinds(controller)
    for source in controller.sources:
        if not isinstance(source, StreamSource):
            check_predicate(source.predicate, source.kind)
    for other in others:
        _check_pair(controller, other)


def _check_signature(method: Callable[..., object], name: str, argument: str) -> None:
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        function = name.rpartition(".")[2]
        raise ConfigError(
            f"{name} must take one argument: async def {function}(self, {argument})"
        ) from None


def _check_child_kinds(controller: Controller[Any]) -> None:
    """Raise ConfigError if `owns` has two classes of one resource: each would prune the other's
    children.
    """
    class_by_resource: dict[str, type[Object]] = {}
    for kind in controller.child_kinds:
        other = class_by_resource.setdefault(kind.definition.group_resource, kind)
        if other is not kind:
            names = f"{other.__module__}.{other.__name__} and {kind.__module__}.{kind.__name__}"
            raise ConfigError(
                f"{type(controller).__name__} owns {names}, which are one resource "
                f"({kind.definition.group_resource}): use one class for all its children"
            )


def _check_pair(controller: Controller[Any], other: Controller[Any]) -> None:
    if controller.name == other.name:
        raise ConfigError(
            f'there are two controllers with the name "{controller.name}" '
            f"({type(other).__name__} and {type(controller).__name__}): set `name` on one of them"
        )
    resource = controller.kind.definition.group_resource
    if (
        resource == other.kind.definition.group_resource
        and controller.finalizer
        and controller.finalizer == other.finalizer
    ):
        raise ConfigError(
            f"the controllers {other.name} and {controller.name} of {resource} have the same "
            f"finalizer {controller.finalizer}: the first that is done would remove it for both. "
            "Set another `finalizer` on one of them"
        )
    if (
        resource == other.kind.definition.group_resource
        and controller.writes_status
        and other.writes_status
        and controller.ready_condition
        and controller.ready_condition == other.ready_condition
    ):
        raise ConfigError(
            f"the controllers {other.name} and {controller.name} of {resource} both write the "
            f'condition {controller.ready_condition}: set `ready_condition` on one of them, or "" '
            "for no condition"
        )
