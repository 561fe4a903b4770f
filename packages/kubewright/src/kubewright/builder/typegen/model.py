"""A module to be generated: its classes and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .source import Expression


@dataclass(frozen=True)
class FieldModel:
    """One field; an empty `default` means that the field is required."""

    wire_name: str
    annotation: Expression
    default: Expression = ""
    doc: str = ""


@dataclass(frozen=True)
class ClassModel:
    """A Struct, or a kind if it has a decorator; `attributes` are tuples of the class itself."""

    name: str
    bases: tuple[Expression, ...]
    fields: tuple[FieldModel, ...] = ()
    doc: str = ""
    attributes: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    decorator: Expression | None = None


@dataclass(frozen=True)
class ModuleModel:
    """A module; `imports` has the names that it takes from other generated modules."""

    header: str
    doc: str
    classes: tuple[ClassModel, ...]
    imports: Mapping[str, frozenset[str]] = field(default_factory=dict)
    exported: tuple[str, ...] = ()
