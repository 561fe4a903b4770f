"""Label and field selectors of list, watch and delete collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ConfigError
from ...patch import Json
from ...selectors import parse_field_selector, parse_label_selector
from .failure import bad_request
from .served_kind import ServedKind

Predicate = Callable[[Json], bool]
_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_EVENT_FIELDS = tuple(
    f"involvedObject.{name}"
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_BUILTIN_FIELDS = {
    "events": (*_EVENT_FIELDS, "reason", "reportingComponent", "source", "type"),
    "jobs": ("status.successful",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "replicasets": ("status.replicas",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
}


def parse_selectors(kind: ServedKind, label_selector: str, field_selector: str) -> Predicate:
    try:
        labels = parse_label_selector(label_selector)
        fields = parse_field_selector(field_selector)
    except ConfigError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    for requirement in fields.requirements:
        _check_field(kind, requirement.field)
    return lambda obj: (
        labels.matches(_labels(obj))
        and all(
            (_field_value(obj, requirement.field) == requirement.value)
            == (requirement.operator == "=")
            for requirement in fields.requirements
        )
    )


def _labels(obj: Json) -> dict[str, str]:
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _check_field(kind: ServedKind, field: str) -> None:
    if not kind.is_declared or field in _supported_fields(kind):
        return
    if kind.is_custom or kind.plural in _BUILTIN_FIELDS:
        raise bad_request(f"field label not supported: {field}")
    fields = ", ".join(f'"{name}"' for name in _COMMON_FIELDS)
    raise bad_request(f'"{field}" is not a known field selector: only {fields}')


def _supported_fields(kind: ServedKind) -> tuple[str, ...]:
    if kind.is_custom:
        return (*_COMMON_FIELDS, *(path.lstrip(".") for path in kind.selectable_fields))
    return (*_COMMON_FIELDS, *_BUILTIN_FIELDS.get(kind.plural, ()))


def _field_value(obj: Json, field: str) -> str:
    value: Any = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict):
        # `source` of an Event is an object with a component.
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
