"""Checks what a controller declares when it is added to a manager: a mistake is found at the start,
not in a reconcile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .controller import Controller
from .errors import ConfigError
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
    check_predicate(type(controller).predicate, kind)
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


def _check_pair(controller: Controller[Any], other: Controller[Any]) -> None:
    if controller.name == other.name:
        raise ConfigError(
            f'there are two controllers with the name "{controller.name}" '
            f"({type(other).__name__} and {type(controller).__name__}): set `name` on one of them"
        )
    resource = controller.kind.definition.group_resource
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
