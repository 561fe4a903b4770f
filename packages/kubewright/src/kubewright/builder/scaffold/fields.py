"""Fields as `create api` takes them, `hostname:str` or `cpu:int!`, and the lines they become."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from ...errors import ConfigError
from ...kind import Status

_TYPE_DEFAULTS = {"str": '""', "int": "0", "float": "0.0", "bool": "False", "list[str]": "[]"}
_TYPE_EXAMPLES = {"str": "example", "int": 1, "float": 1.5, "bool": True, "list[str]": ["example"]}
_TYPE_ALIASES = {
    "string": "str",
    "int32": "int",
    "int64": "int",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "strings": "list[str]",
}
# A field with the name of a type would hide the type from the fields below it.
_RESERVED_FIELD_NAMES = frozenset({"str", "int", "float", "bool", "list", "Annotated", "Doc"})


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    required: bool = False
    doc: str = ""

    def format_spec_line(self) -> str:
        default = "" if self.required else f" = {_TYPE_DEFAULTS[self.type]}"
        return f"    {self.name}: Annotated[{self.type}, {self._format_doc()}]{default}"

    def format_status_line(self) -> str:
        # Optional: a value that is not known yet is absent on the wire.
        return f"    {self.name}: Annotated[{self.type} | None, {self._format_doc()}] = None"

    def _format_doc(self) -> str:
        return f'Doc("{self.doc or f"What {self.name} means, and its unit."}")'

    @property
    def example(self) -> object:
        return _TYPE_EXAMPLES[self.type]


SPEC_EXAMPLE = (Field("foo", "str", doc="An example: rename it, or remove it."),)
STATUS_EXAMPLE = (Field("echo", "str", doc="An example: a copy of spec.foo."),)


def _parse_field(text: str, *, status: bool = False) -> Field:
    """The field of `name:type` or `name:type!`; "!" makes it required."""
    name, _, type_text = text.partition(":")
    type_, required = type_text.rstrip("!") or "str", type_text.endswith("!")
    type_ = _TYPE_ALIASES.get(type_, type_)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        raise ConfigError(
            f'invalid field name "{name}": must be letters and digits, such as freeCPU, '
            "and not a reserved word of Python"
        )
    if type_ not in _TYPE_DEFAULTS:
        raise ConfigError(
            f'invalid field "{text}": the type must be one of {", ".join(_TYPE_DEFAULTS)}, '
            f"such as {name}:str; add fields of other types in the file"
        )
    if name in _RESERVED_FIELD_NAMES:
        raise ConfigError(
            f'invalid field name "{name}": it is the name of a type; '
            f"choose another, such as my{name.capitalize()}"
        )
    if status and hasattr(Status, name):
        raise ConfigError(f'every status already has the field "{name}"')
    if status and required:
        raise ConfigError(
            f'the status field "{text}" cannot be required: '
            "the API server would reject a status in which the value is not known yet"
        )
    return Field(name, type_, required)


def parse_fields(texts: tuple[str, ...], *, status: bool = False) -> tuple[Field, ...]:
    fields = tuple(_parse_field(text, status=status) for text in texts)
    names = [field.name for field in fields]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"the field {', '.join(repeated)} is given twice")
    return fields
