"""Writes the module of a group and version: its imports, then a class for each type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from .docstrings import format_docstring
from .model import ClassModel, FieldModel, ModuleModel
from .names import field_names
from .source import (
    LINE_LENGTH,
    Expression,
    Group,
    call,
    format_flat,
    format_lines,
    keyword,
    quote,
    with_prefix,
    with_suffix,
)

_STANDARD_LIBRARY = {"Annotated": "typing", "Any": "typing", "datetime": "datetime"}
# The names that generated code uses, with the modules of kubewright that define them.
_DEFINING_MODULES = {
    **dict.fromkeys(
        ("Object", "ObjectMeta", "OwnerReference", "Resource", "kind"), "kubewright.kind"
    ),
    "Condition": "kubewright.condition",
    **dict.fromkeys(
        [
            *("Column", "EmbeddedResource", "EmptyObject", "Format", "Int32", "IntOrString"),
            *("ListType", "MapType", "OneOf", "PreserveUnknownFields", "Quantity", "Scale"),
            *("SchemaOverride", "ValidationRule"),
        ],
        "kubewright.markers",
    ),
    **dict.fromkeys(("MicroTimeObject", "SecretObject"), "kubewright.builtin"),
}
# A class of a generated module must not hide what the module imports.
RESERVED_CLASS_NAMES = frozenset({*_STANDARD_LIBRARY, *_DEFINING_MODULES, "Struct"})
# The decorator is outside of the body of a class, so a field may be called "kind".
_RESERVED_FIELD_NAMES = (RESERVED_CLASS_NAMES | {"msgspec"}) - {"kind"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_INDENT = 4


def render_module(module: ModuleModel, *, is_internal: bool = False) -> str:
    """The source of a module; an internal one is a part of the package kubewright."""
    class_names = {model.name for model in module.classes}
    reserved = _RESERVED_FIELD_NAMES.union(class_names, *module.imports.values())
    classes = [
        line for model in module.classes for line in ("", "", *_format_class(model, reserved))
    ]
    used = {*_used_names(module), *module.exported} - class_names
    if any("msgspec." in line for line in classes):
        used.add("msgspec")
    blocks = [
        ["from __future__ import annotations"],
        _format_imports(_STANDARD_LIBRARY, used),
        ["import msgspec"] if "msgspec" in used else [],
    ]
    if is_internal:
        # In the order of isort: installed packages, this package, modules of this folder.
        blocks.append(_format_imports(_DEFINING_MODULES, used))
        names = {name: source for source, names in module.imports.items() for name in names}
        blocks.append(_format_imports(names, names))
    else:
        blocks[-1] += _format_imports(dict.fromkeys(_DEFINING_MODULES, "kubewright"), used)
    if module.exported:
        exported = tuple(quote(name) for name in sorted(module.exported))
        blocks.append(format_lines(Group("__all__ = [", exported, "]")))
    head = [module.header, *format_docstring(module.doc, 0)]
    head += [line for block in blocks if block for line in ("", *block)]
    return "\n".join([*head, *classes]) + "\n"


def _format_imports(sources: Mapping[str, str], used: Iterable[str]) -> list[str]:
    """The import statements for the names that are used."""
    imports: dict[str, list[str]] = {}
    for name in sorted(set(used) & sources.keys(), key=lambda name: (name[0].islower(), name)):
        imports.setdefault(sources[name], []).append(name)
    lines: list[str] = []
    for source, names in sorted(imports.items()):
        line = f"from {source} import {', '.join(names)}"
        split = Group(f"from {source} import (", tuple(names), ")")
        lines += [line] if len(line) <= LINE_LENGTH else format_lines(split, is_split=True)
    return lines


def _format_class(model: ClassModel, reserved: frozenset[str]) -> Iterator[str]:
    if model.decorator is not None:
        yield from format_lines(with_prefix("@", model.decorator))
    yield from format_lines(Group(f"class {model.name}(", model.bases, "):"))
    names = field_names(
        [field.wire_name for field in model.fields], reserved, is_object=bool(model.decorator)
    )
    parts = [
        format_docstring(model.doc, _INDENT),
        [line for item in model.attributes.items() for line in _format_attribute(*item)],
        [line for field in model.fields for line in _format_field(field, names[field.wire_name])],
    ]
    body = [line for part in parts if part for line in ("", *part)]
    yield from body[1:] or ["    pass"]


def _format_attribute(name: str, values: tuple[Expression, ...]) -> list[str]:
    comma = "," if len(values) == 1 else ""
    line = format_flat(Group(f"    {name} = (", values, f"{comma})"))
    if len(line) <= LINE_LENGTH:
        return [line]
    return format_lines(Group(f"{name} = (", values, ")"), _INDENT, is_split=True)


def _format_field(field: FieldModel, name: str) -> Iterator[str]:
    default = _rename(field) if name != field.wire_name else field.default
    yield from _format_assignment(name, field.annotation, default)
    yield from format_docstring(field.doc, _INDENT)


def _format_assignment(name: str, annotation: Expression, value: Expression) -> list[str]:
    target = with_prefix(f"{name}: ", annotation)
    if value == "":
        return format_lines(target, _INDENT)
    start, end = f"{format_flat(target)} = ", format_flat(value)
    if _INDENT + len(start) + len(end) <= LINE_LENGTH:
        return [" " * _INDENT + start + end]
    if isinstance(target, Group):
        return format_lines(with_suffix(target, f" = {end}"), _INDENT)
    if isinstance(value, str):
        value = Group("(", (value,), ")", is_subscript=True)
    if _INDENT + len(start) < LINE_LENGTH:
        return format_lines(with_prefix(start, value), _INDENT)
    # Only the parentheses around a very long type make it fit.
    target = Group(f"{name}: (", (annotation,), f") = {end}", is_subscript=True)
    return format_lines(target, _INDENT, is_split=True)


def _rename(field: FieldModel) -> Expression:
    """The default of a field that has another name on the wire."""
    arguments: list[Expression] = []
    match field.default:
        case "[]" | "{}":
            arguments = [keyword("default_factory", "list" if field.default == "[]" else "dict")]
        case Group():
            arguments = list(field.default.items)
        case str() if field.default:
            arguments = [keyword("default", field.default)]
    return call("msgspec.field", *arguments, keyword("name", quote(field.wire_name)))


def _used_names(module: ModuleModel) -> Iterator[str]:
    for model in module.classes:
        expressions = [*model.bases, model.decorator or ""]
        expressions += [value for values in model.attributes.values() for value in values]
        expressions += [
            part for field in model.fields for part in (field.annotation, field.default)
        ]
        for expression in expressions:
            yield from _names_in(expression)


def _names_in(expression: Expression) -> Iterator[str]:
    if isinstance(expression, Group):
        yield from _names_in(expression.opening)
        for item in expression.items:
            yield from _names_in(item)
    else:
        # What follows a quotation mark is text.
        yield from _IDENTIFIER.findall(re.split("[\"']", expression, maxsplit=1)[0])
