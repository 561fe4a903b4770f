"""What an annotation can express of a CRD's schema; `schema` turns it into OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


def Doc(text: str, **constraints: Any) -> Meta:  # noqa: N802  # reads as an annotation
    """The description of a field, and msgspec's constraints.

    The constraints are ge, le, gt, lt, multiple_of, min_length, max_length and pattern.
    """
    return Meta(description=text, **constraints)


class Format(Struct, frozen=True):
    """An OpenAPI format: int32, int64, date-time, byte...; "" removes the derived one."""

    name: str


@dataclass(frozen=True, init=False)
class ListType:
    """How lists merge: ListType("atomic"), ListType("set"), ListType("map", "key", ...)."""

    type: str
    keys: tuple[str, ...]

    def __init__(self, type: Literal["atomic", "set", "map"], *keys: str) -> None:
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True)
class MapType:
    """How a map or a Struct merges: MapType("atomic") has one owner, "granular" one per field."""

    type: Literal["atomic", "granular"]


@dataclass(frozen=True, init=False)
class OneOf:
    """The values that the CRD of another operator allows; decoding accepts any.

    A newer version of the CRD may have further values, and an object with one of them must not
    become unreadable. An enum of your own is a `Literal`.
    """

    values: tuple[str | int, ...]

    def __init__(self, *values: str | int) -> None:
        object.__setattr__(self, "values", values)


class ValidationRule(Struct, frozen=True):
    """A CEL rule of a field, or of a Struct through its attribute `rules`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False

    def to_openapi(self) -> dict[str, Any]:
        """The item of x-kubernetes-validations."""
        keys = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in keys.items() if value}


@dataclass(frozen=True)
class SchemaOverride:
    """Raw OpenAPI keys that replace derived ones, for what no other annotation can express.

    A key with None removes the derived one. Unlike those of `Doc`, constraints here are checked by
    the API server alone, and not again when an object is decoded.
    """

    keys: tuple[tuple[str, Any], ...]

    def __hash__(self) -> int:
        # A value may be a list. `Annotated[...] | None` needs a hash.
        return hash(tuple(name for name, _ in self.keys))

    @classmethod
    def of(cls, **keys: Any) -> SchemaOverride:
        """SchemaOverride.of(default=0, title="x"); `x_kubernetes_...` is written with dashes."""
        return cls(
            tuple(
                (name.replace("_", "-") if name.startswith("x_") else name, value)
                for name, value in keys.items()
            )
        )


class Column(Struct, frozen=True):
    """A column of `kubectl get`; priority 1 shows it only with `-o wide`.

    Without a `type` or a `format`, those of the field at `path` are taken.
    """

    name: str
    path: str
    type: str = ""
    priority: int = 0
    description: str = ""
    format: str = ""


class Scale(Struct, frozen=True):
    """The scale subresource, which `kubectl scale` and a HorizontalPodAutoscaler use."""

    spec_replicas_path: str = ".spec.replicas"
    status_replicas_path: str = ".status.replicas"
    label_selector_path: str = ""


# Without a docstring, which would become the description of every field of this type.
class EmptyObject(Struct, frozen=True, gc=False):
    pass


# The form that controller-gen writes. It is the only use of anyOf that may contain types.
INT_OR_STRING_KEYS: Mapping[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

Int32 = Annotated[int, Format("int32")]
Int64 = Annotated[int, Format("int64")]
IntOrString = Annotated[int | str, SchemaOverride(tuple(INT_OR_STRING_KEYS.items()))]
Quantity = Annotated[IntOrString, SchemaOverride.of(pattern=QUANTITY_PATTERN)]
PreserveUnknownFields = Annotated[
    dict[str, Any], SchemaOverride.of(x_kubernetes_preserve_unknown_fields=True)
]
EmbeddedResource = Annotated[
    dict[str, Any],
    SchemaOverride.of(
        x_kubernetes_embedded_resource=True, x_kubernetes_preserve_unknown_fields=True
    ),
]
