"""The values of a chart, and what a project adds to the chart of its operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STRING: Json = {"type": "string"}
NAME: Json = {"type": "string", "minLength": 1}
BOOLEAN: Json = {"type": "boolean"}
OBJECT: Json = {"type": "object"}
OBJECTS: Json = {"type": "array", "items": OBJECT}
STRINGS: Json = {"type": "array", "items": STRING}
STRING_MAP: Json = {"type": "object", "additionalProperties": STRING}
PORTS: Json = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}


@dataclass(frozen=True)
class Value:
    """It becomes a line of values.yaml, a property of values.schema.json and a row of README.md."""

    path: str
    """The keys that lead to it, separated by dots."""
    default: Any
    description: str
    schema: Json
    example: Any
    """A valid value other than the default. Tests check that it changes the output."""
    example_context: Mapping[str, Any] = field(default_factory=dict)
    """Other values, by path, without which the example is invalid or has no effect."""


@dataclass(frozen=True)
class Check:
    """A combination of values that the schema cannot reject."""

    condition: str
    """An expression of Helm that is true for wrong values."""
    message: str
    """What is wrong, and what to set instead."""


@dataclass(frozen=True)
class EgressRule:
    """Connections of the manager that the NetworkPolicy allows; it gets values of its own."""

    name: str
    ports: tuple[int, ...]
    description: str
    protocols: tuple[str, ...] = ("TCP",)


@dataclass(frozen=True)
class ChartExtension:
    """What a project adds to its chart; [tool.kubewright] `chart` names it.

    `args`, `volumes` and `volume_mounts` are templates of Helm for items of the lists in the
    Deployment, so each item begins with "- ".
    """

    values: tuple[Value, ...] = ()
    checks: tuple[Check, ...] = ()
    egress: tuple[EgressRule, ...] = ()
    args: str = ""
    volumes: str = ""
    volume_mounts: str = ""
    templates: Mapping[str, str] = field(default_factory=dict)
    """More files below templates/, by name. `NAME.metadata` is the helper for their metadata."""
    notes: str = ""
    """A part of NOTES.txt, which Helm prints after the installation."""
    removal_notes: str = ""
    """The end of NOTES.txt: what to do before `helm uninstall`."""
    preparation: str = ""
    """Commands for README.md that create what `helm install` needs in the namespace."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of Chart.yaml, in addition to the generated ones."""
