"""Fields as `create api` takes them, and the lines that they become.

    NAME:TYPE             hostname:str, env:map[str], ports:list[Port]; empty if it is not set
    NAME:TYPE!            required
    NAME:TYPE?            None if it is not set, which is not the same as empty
    NAME:TYPE=DEFAULT     replicas:int32=3
    ... TEXT              "replicas:int32=3 Number of Pods.": its description

Object types are given apart, as `Port=name:str!,port:int32!`.
"""

from __future__ import annotations

import ast
import graphlib
import keyword
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ...kind import Status
from .field_types import FORMS, IMPORTED_TYPES, FieldType, parse_type
from .format import LINE_LENGTH

# A field with the name of a type would hide the type from the fields below it.
_RESERVED_FIELD_NAMES = frozenset({"str", "int", "float", "bool", "list", "dict", "datetime"})
_FIELD_PATTERN = re.compile(
    r"(?P<name>[^:\s]*)(?::(?P<type>[^\s!?=]*)(?P<mark>[!?]|=\S*)?(?:\s+(?P<text>\S.*))?)?",
    re.DOTALL,
)
_INDENT = "    "


@dataclass(frozen=True)
class Field:
    name: str
    type: FieldType
    required: bool = False
    nullable: bool = False
    default: str = ""
    """In Python; the empty value of the type if this is empty."""
    text: str = ""

    def build_example(self, object_examples: Mapping[str, Any]) -> Any:
        """The default, or else a value for the sample as `FieldType.build_example` chooses it."""
        if self.default:
            return ast.literal_eval(self.default)
        return self.type.build_example(object_examples)

    def format_spec_line(self) -> str:
        if self.required:
            return self._format_line(self.type.code)
        if self.default:
            return self._format_line(self.type.code, self.default)
        if self.nullable or not self.type.empty:
            return self._format_line(f"{self.type.code} | None", "None")
        return self._format_line(self.type.code, self.type.empty)

    def format_status_line(self) -> str:
        # Optional: a value that is not known yet is absent on the wire.
        return self._format_line(f"{self.type.code} | None", "None")

    def _format_line(self, type_code: str, default: str = "") -> str:
        end = f" = {default}" if default else ""
        if not self.text:
            return f"{_INDENT}{self.name}: {type_code}{end}"
        line = f'{_INDENT}{self.name}: Annotated[{type_code}, Doc("{self.text}")]{end}'
        if len(line) <= LINE_LENGTH:
            return line
        line = f'{_INDENT * 2}{type_code}, Doc("{self.text}")'
        if len(line) > LINE_LENGTH:
            parts = textwrap.wrap(
                self.text, LINE_LENGTH - len(_INDENT * 3) - 3, drop_whitespace=False
            )
            lines = "".join(f'{_INDENT * 3}"{part}"\n' for part in parts)
            line = f"{_INDENT * 2}{type_code},\n{_INDENT * 2}Doc(\n{lines}{_INDENT * 2}),"
        return f"{_INDENT}{self.name}: Annotated[\n{line}\n{_INDENT}]{end}"


@dataclass(frozen=True)
class ObjectType:
    """A class of its own for objects inside a spec or a status."""

    name: str
    fields: tuple[Field, ...]

    def format_class(self) -> str:
        lines = [field.format_spec_line() for field in self.fields]
        return "\n".join([f"class {self.name}(Spec):", *lines]) + "\n\n\n"


@dataclass(frozen=True)
class Fields:
    """All fields of a kind, and the object types that they use, inner ones first."""

    spec: tuple[Field, ...] = ()
    status: tuple[Field, ...] = ()
    types: tuple[ObjectType, ...] = ()

    @property
    def all(self) -> tuple[Field, ...]:
        return (
            *self.spec,
            *self.status,
            *(field for type_ in self.types for field in type_.fields),
        )

    @property
    def imports(self) -> dict[str, set[str]]:
        """What the annotations need."""
        types = {part.name for field in self.all for part in field.type.walk()}
        imports: dict[str, set[str]] = {"kubewright": set()}
        for module, name in (IMPORTED_TYPES[name] for name in types & IMPORTED_TYPES.keys()):
            imports.setdefault(module, set()).add(name)
        if any(field.text for field in self.all):
            imports.setdefault("typing", set()).add("Annotated")
            imports["kubewright"].add("Doc")
        return imports

    def build_spec_example(self) -> dict[str, Any]:
        examples: dict[str, Any] = {}
        for type_ in self.types:
            examples[type_.name] = {
                field.name: field.build_example(examples) for field in type_.fields
            }
        return {field.name: field.build_example(examples) for field in self.spec}


EXAMPLE = Fields(spec=(Field("foo", FieldType("str")),), status=(Field("echo", FieldType("str")),))


def parse_fields(spec: Sequence[str], status: Sequence[str], types: Sequence[str]) -> Fields:
    object_types = tuple(map(_parse_object_type, types))
    fields = Fields(
        _parse_all(spec),
        tuple(_check_status_field(field) for field in _parse_all(status)),
        _sort_types(object_types),
    )
    declared = {type_.name for type_ in object_types}
    used = {part.name for field in fields.all for part in field.type.walk() if part.is_object}
    if unknown := sorted(used - declared):
        raise ConfigError(
            f'the type "{unknown[0]}" is not declared: add it with its fields, such as '
            f'--type "{unknown[0]}=name:str,port:int32". '
            f"The other types are {FORMS.removesuffix(', or an object type')}"
        )
    if unused := sorted(declared - used):
        raise ConfigError(
            f'no field has the type "{unused[0]}" of --type: use it, such as '
            f"--spec items:list[{unused[0]}], or omit it"
        )
    if hidden := sorted({field.name for field in fields.all} & declared):
        raise ConfigError(f'"{hidden[0]}" is a field and a type: rename the field')
    return fields


def _parse_all(texts: Sequence[str]) -> tuple[Field, ...]:
    fields = tuple(map(_parse_field, texts))
    names = [field.name for field in fields]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"the field {', '.join(repeated)} is given twice")
    return fields


def _parse_field(text: str) -> Field:
    match = _FIELD_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f'invalid field "{text}": must be NAME:TYPE, NAME:TYPE! (required), NAME:TYPE? (can be '
            "None) or NAME:TYPE=DEFAULT, and may be followed by a space and its description"
        )
    name, mark = match["name"], match["mark"] or ""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        raise ConfigError(
            f'invalid field name "{name}": must be letters and digits, such as freeCPU, '
            "and not a reserved word of Python"
        )
    if name in _RESERVED_FIELD_NAMES:
        raise ConfigError(
            f'invalid field name "{name}": it is the name of a type; '
            f"choose another, such as my{name.capitalize()}"
        )
    type_ = parse_type(match["type"] or "str", text)
    default = ""
    if mark.startswith("="):
        try:
            default = type_.parse_default(mark[1:])
        except ValueError as error:
            raise ConfigError(f'invalid default of the field "{text}": {error}') from None
    return Field(name, type_, mark == "!", mark == "?", default, _parse_text(match["text"]))


def _parse_text(text: str | None) -> str:
    """The description, for a string literal with double quotes."""
    return " ".join((text or "").split()).replace("\\", "\\\\").replace('"', '\\"')


def _check_status_field(field: Field) -> Field:
    if hasattr(Status, field.name):
        raise ConfigError(f'every status already has the field "{field.name}"')
    if field.required or field.default:
        raise ConfigError(
            f'the status field "{field.name}" cannot be required or have a default: '
            "its value may not be known yet"
        )
    return field


def _parse_object_type(text: str) -> ObjectType:
    name, _, fields = text.partition("=")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or not fields:
        raise ConfigError(
            f'invalid type "{text}": must be a name that begins with a capital, and fields: '
            '--type "Port=name:str,port:int32"'
        )
    # A comma inside brackets separates the values of an enum, one in a text is followed by a space.
    parts = re.split(r",(?=[A-Za-z][A-Za-z0-9]*:)", fields)
    return ObjectType(name, _parse_all(parts))


def _sort_types(types: Sequence[ObjectType]) -> tuple[ObjectType, ...]:
    by_name = {type_.name: type_ for type_ in types}
    if len(by_name) < len(types):
        raise ConfigError("a --type is given twice")
    uses = {
        type_.name: [
            part.name
            for field in type_.fields
            for part in field.type.walk()
            if part.name in by_name
        ]
        for type_ in types
    }
    try:
        return tuple(by_name[name] for name in graphlib.TopologicalSorter(uses).static_order())
    except graphlib.CycleError as error:
        raise ConfigError(
            f"the types {', '.join(error.args[1])} contain each other, and a CRD cannot express "
            "recursion: use any"
        ) from None
