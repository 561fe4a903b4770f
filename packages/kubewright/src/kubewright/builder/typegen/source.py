"""Python expressions, printed as ruff formats them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

LINE_LENGTH = 100
_INDENT = 4
_INFINITE = (float("inf"), float("-inf"))


@dataclass(frozen=True)
class Group:
    """Items in brackets: on one line if they fit, otherwise one per line."""

    opening: str
    items: tuple[Expression, ...]
    closing: str
    is_subscript: bool = False


Expression = str | Group


def subscript(name: str, *items: Expression) -> Group:
    return Group(f"{name}[", items, "]", is_subscript=True)


def call(name: str, *items: Expression) -> Group:
    return Group(f"{name}(", items, ")")


def keyword(name: str, value: Expression) -> Expression:
    return with_prefix(f"{name}=", value)


def with_prefix(prefix: str, expression: Expression) -> Expression:
    if isinstance(expression, str):
        return prefix + expression
    return replace(expression, opening=prefix + expression.opening)


def with_suffix(expression: Expression, suffix: str) -> Expression:
    if isinstance(expression, str):
        return expression + suffix
    return replace(expression, closing=expression.closing + suffix)


def literal(value: Any) -> Expression:
    """A JSON value as Python."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping):
        items = (with_prefix(f"{quote(str(key))}: ", literal(item)) for key, item in value.items())
        return Group("{", tuple(items), "}")
    if isinstance(value, list):
        return Group("[", tuple(map(literal, value)), "]")
    # YAML has infinite numbers, Python has no literal for them.
    return repr(value) if value == value and value not in _INFINITE else f'float("{value}")'


def quote(text: str) -> str:
    """A string in double quotes, unless that needs more escapes."""
    quoted = repr(text)[1:-1]
    # repr() escapes the single quotes only if it has chosen them.
    if repr(text)[0] == "'":
        quoted = quoted.replace("\\'", "'")
    if text.count('"') > text.count("'"):
        return "'" + quoted.replace("'", "\\'") + "'"
    return '"' + quoted.replace('"', '\\"') + '"'


def format_flat(expression: Expression) -> str:
    if isinstance(expression, str):
        return expression
    items = ", ".join(map(format_flat, expression.items))
    return f"{expression.opening}{items}{expression.closing}"


def format_lines(
    expression: Expression, indent: int = 0, end: str = "", *, is_split: bool = False
) -> list[str]:
    """The lines of an expression; `is_split` has one item per line also if all would fit."""
    line = " " * indent + format_flat(expression) + end
    if isinstance(expression, str) or not expression.items:
        return [line]
    if len(line) <= LINE_LENGTH and not is_split:
        return [line]
    # After a comma, the only item of a subscript would be a tuple.
    comma = "" if expression.is_subscript and len(expression.items) == 1 else ","
    return [
        " " * indent + expression.opening,
        *_format_items(expression.items, indent + _INDENT, comma),
        " " * indent + expression.closing + end,
    ]


def _format_items(items: Iterable[Expression], indent: int, end: str) -> Iterable[str]:
    for item in items:
        yield from format_lines(item, indent, end)
