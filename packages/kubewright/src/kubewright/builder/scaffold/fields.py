"""Fields as `create api` takes them, `hostname:str` or `cpu:int!`, and the lines that they become."""

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
# A field of this name would hide the type from the fields below it.
_RESERVED_FIELD_NAMES = frozenset({"str", "int", "float", "bool", "list", "Annotated", "Doc"})


@dataclass(frozen=True)
class Field:
    """One field of a spec or a status."""

    name: str
    type: str
    required: bool = False
    doc: str = ""

    def render_spec_line(self) -> str:
        """Its line in a Spec."""
        default = "" if self.required else f" = {_TYPE_DEFAULTS[self.type]}"
        return f'    {self.name}: Annotated[{self.type}, Doc("{self.doc or f"What {self.name} means, and its unit."}")]{default}'

    def render_status_line(self) -> str:
        """Its line in a Status, where what is not known is absent."""
        return f'    {self.name}: Annotated[{self.type} | None, Doc("{self.doc or f"What {self.name} means, and its unit."}")] = None'

    @property
    def example(self) -> object:
        """A value for the sample."""
        return _TYPE_EXAMPLES[self.type]


SPEC_EXAMPLE = (Field("foo", "str", doc="An example: rename it, or remove it."),)
STATUS_EXAMPLE = (Field("echo", "str", doc="An example: spec.foo, seen."),)


def parse_field(text: str, *, status: bool = False) -> Field:
    """The field that `name:type` or `name:type!` means; "!" makes it required."""
    name, _, rest = text.partition(":")
    type_, required = rest.rstrip("!") or "str", rest.endswith("!")
    type_ = _TYPE_ALIASES.get(type_, type_)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        raise ConfigError(
            f'the field "{name}" has to be letters and digits, as in freeCPU, and no reserved word of Python'
        )
    if type_ not in _TYPE_DEFAULTS:
        raise ConfigError(
            f'the field "{text}" has to be like {name}:str; there are {", ".join(_TYPE_DEFAULTS)}, and any other in the file'
        )
    if name in _RESERVED_FIELD_NAMES:
        raise ConfigError(
            f'the field "{name}" cannot be called as a type is; take another name, as my{name.capitalize()}'
        )
    if status and hasattr(Status, name):
        raise ConfigError(f'every status has "{name}" already')
    if status and required:
        raise ConfigError(
            f'the status field "{text}" cannot be required: the API server would refuse what is not known yet'
        )
    return Field(name, type_, required)


def parse_fields(texts: tuple[str, ...], *, status: bool = False) -> tuple[Field, ...]:
    """All fields, none of them twice."""
    fields = tuple(parse_field(text, status=status) for text in texts)
    twice = {
        field.name for field in fields if [other.name for other in fields].count(field.name) > 1
    }
    if twice:
        raise ConfigError(f"the field {', '.join(sorted(twice))} is there twice")
    return fields
