"""Types of fields as `create api` takes them: `int32`, `list[str]`, `map[Port]`, `enum[A,B]`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError

FORMS = (
    "str, int, int32, int64, float, bool, datetime, int-or-string, any, enum[A,B], list[TYPE], "
    "map[TYPE], or an object type"
)
_ALIASES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "strings": "list[str]",
    "object": "any",
}


@dataclass(frozen=True)
class _Scalar:
    code: str
    empty: str
    """The default that means "absent"; None has to stand for it if this is empty."""
    example: Any


_SCALARS = {
    "str": _Scalar("str", '""', "example"),
    "int": _Scalar("int", "0", 1),
    "int32": _Scalar("Int32", "0", 1),
    "int64": _Scalar("Int64", "0", 1),
    "float": _Scalar("float", "0.0", 1.5),
    "bool": _Scalar("bool", "False", True),
    "datetime": _Scalar("datetime", "", "2026-01-31T12:00:00Z"),
    "int-or-string": _Scalar("IntOrString", "", 1),
    "any": _Scalar("PreserveUnknownFields", "{}", {"example": 1}),
}
# The types that a module has to import, and from where.
IMPORTED_TYPES = {
    "datetime": ("datetime", "datetime"),
    "enum": ("typing", "Literal"),
    "int32": ("kubewright", "Int32"),
    "int64": ("kubewright", "Int64"),
    "int-or-string": ("kubewright", "IntOrString"),
    "any": ("kubewright", "PreserveUnknownFields"),
}
_COLLECTIONS = {"list": "list[{}]", "map": "dict[str, {}]"}
_ENUM_VALUE = r"[A-Za-z0-9][A-Za-z0-9_./-]*"


@dataclass(frozen=True)
class FieldType:
    """`name` is a scalar type, list, map, enum, or the name of an object type."""

    name: str
    items: FieldType | None = None
    values: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The annotation in Python."""
        if self.items is not None:
            return _COLLECTIONS[self.name].format(self.items.code)
        if self.name == "enum":
            values = ", ".join(f'"{value}"' for value in self.values)
            return f"Literal[{values}]"
        return _SCALARS[self.name].code if self.name in _SCALARS else self.name

    @property
    def empty(self) -> str:
        if self.items is not None:
            return "[]" if self.name == "list" else "{}"
        return _SCALARS[self.name].empty if self.name in _SCALARS else ""

    @property
    def is_object(self) -> bool:
        return self.items is None and self.name != "enum" and self.name not in _SCALARS

    @property
    def can_be_column(self) -> bool:
        return self.name == "enum" or (self.name in _SCALARS and self.name != "any")

    def walk(self) -> Iterator[FieldType]:
        yield self
        if self.items is not None:
            yield from self.items.walk()

    def build_example(self, object_examples: Mapping[str, Any]) -> Any:
        """A value for the sample; `object_examples` has one for each object type."""
        if self.items is not None:
            item = self.items.build_example(object_examples)
            return [item] if self.name == "list" else {"example": item}
        if self.name == "enum":
            return self.values[0]
        return _SCALARS[self.name].example if self.name in _SCALARS else object_examples[self.name]

    def parse_default(self, text: str) -> str:
        """The default in Python; raises ValueError if the type has no such value."""
        match self.name:
            case "str":
                return f'"{text}"' if re.fullmatch(r"[^\"\\]*", text) else repr(text)
            case "enum":
                if text not in self.values:
                    raise ValueError(f"must be one of {', '.join(self.values)}")
                return f'"{text}"'
            case "bool":
                if text not in ("true", "false"):
                    raise ValueError("must be true or false")
                return text.capitalize()
            case "int" | "int32" | "int64":
                return str(_parse_int(text, 32 if self.name == "int32" else 64))
            case "float":
                if not math.isfinite(float(text)):
                    raise ValueError("must be a number that JSON can express")
                return repr(float(text))
            case "int-or-string":
                if re.fullmatch(r"-?\d+", text):
                    return str(_parse_int(text, 32))
                return f'"{text}"' if re.fullmatch(r"[^\"\\]*", text) else repr(text)
        raise ValueError("this type has no default on the command line; set it in the file")


def _parse_int(text: str, bits: int) -> int:
    number, limit = int(text), 2 ** (bits - 1)
    if not -limit <= number < limit:
        raise ValueError(f"must be from {-limit} to {limit - 1}")
    return number


def parse_type(text: str, field: str) -> FieldType:
    """The type of this text; `field` is for error messages."""
    text = _ALIASES.get(text, text)
    match = re.fullmatch(r"(list|map|enum)\[(.*)\]", text)
    if match is None:
        if text in _SCALARS or re.fullmatch(r"[A-Z][A-Za-z0-9]*", text):
            return FieldType(text)
        raise ConfigError(
            f'invalid field "{field}": the type must be one of {FORMS} that --type declares, '
            'such as --type "Port=name:str,port:int32"'
        )
    name, inner = match.groups()
    if name != "enum":
        return FieldType(name, parse_type(inner, field))
    values = tuple(inner.split(","))
    if not all(re.fullmatch(_ENUM_VALUE, value) for value in values):
        raise ConfigError(
            f'invalid field "{field}": the values of an enum must be letters, digits, '
            '".", "/", "_" and "-", separated by commas: enum[Fast,Slow]'
        )
    if len(set(values)) < len(values):
        raise ConfigError(f'invalid field "{field}": a value of the enum is given twice')
    return FieldType("enum", values=values)
