"""Changing a person's Python: a line into the list of controllers, an import, an attribute of a class.

The syntax tree says where; only whole lines are added, so all that is there stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...errors import ConfigError

KIND_DECORATOR, VERSION_DECORATOR = "kind", "version_of"


def _parse_python(text: str, path: str) -> ast.Module:
    """The syntax tree of a file."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(
            f"{path} line {error.lineno} is no Python: {error.msg}. Mend it first; nothing was written."
        ) from None


def add_import(text: str, module: str, name: str, path: str) -> str:
    """The file with `from module import name`, beside the imports from the same place."""
    tree = _parse_python(text, path)
    line = f"from {module} import {name}"
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    local = [node for node in imports if isinstance(node, ast.ImportFrom) and node.level]
    if any(ast.unparse(node) == line for node in local):
        return text
    after = max((node for node in local if ast.unparse(node) < line), key=_last_line, default=None)
    if after is not None:
        return _insert_lines(text, _last_line(after), [line])
    if local:
        return _insert_lines(text, min(node.lineno for node in local) - 1, [line])
    place = (
        _last_line(imports[-1])
        if imports
        else _last_line(tree.body[0])
        if ast.get_docstring(tree)
        else 0
    )
    return _insert_lines(text, place, ["", line])


def add_statement(text: str, function: str, statement: str, path: str) -> str:
    """The file with a statement at the end of a function; `{0}` in it stands for the function's first parameter."""
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.FunctionDef) and node.name == function and node.args.args:
            line = " " * node.body[0].col_offset + statement.format(node.args.args[0].arg)
            last = node.body[-1]
            return _insert_lines(
                text, last.lineno - 1 if isinstance(last, ast.Return) else _last_line(last), [line]
            )
    raise ConfigError(
        f"{path} has no function {function}(manager, settings) to add the controller to; add it by hand: {statement.format('manager')}"
    )


def set_kind_argument(text: str, class_name: str, name: str, value: str, path: str) -> str:
    """The file with `name=value` in the declaration of a kind, in the place of what it had for the name."""
    call = _find_kind_call(text, class_name, path)
    given = [word.value for word in call.keywords if word.arg == name]
    last = max((*call.args, *(word.value for word in call.keywords)), key=_end_position)
    return (
        _replace_expression(text, given[0], value)
        if given
        else _replace_expression(text, last, f", {name}={value}", insert_after=True)
    )


def is_kind_argument_false(text: str, class_name: str, name: str, path: str) -> bool:
    """Whether the declaration of a kind has `name=False`; another version is not stored unless it says so."""
    call = _find_kind_call(text, class_name, path)
    given = [word.value for word in call.keywords if word.arg == name]
    if not given:
        return name == "storage" and getattr(call.func, "id", "") == VERSION_DECORATOR
    return isinstance(given[0], ast.Constant) and given[0].value is False


def _find_kind_call(text: str, class_name: str, path: str) -> ast.Call:
    """The call of `@kind` or `@version_of` above a class."""
    for call in _find_class(text, class_name, path).decorator_list:
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in (KIND_DECORATOR, VERSION_DECORATOR)
        ):
            return call
    raise ConfigError(f"{path}: class {class_name} has no @{KIND_DECORATOR}(...)")


def _end_position(node: ast.expr) -> tuple[int, int]:
    """Where an expression ends."""
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _replace_expression(text: str, node: ast.expr, new: str, *, insert_after: bool = False) -> str:
    """The text with something new in the place of an expression, or right behind it."""
    lines = [
        line.encode() for line in text.splitlines(True)
    ]  # columns of the syntax tree count bytes
    last, until = _end_position(node)
    first, begin = (last, until) if insert_after else (node.lineno, node.col_offset)
    before, after = lines[first - 1][:begin], lines[last - 1][until:]
    return b"".join([*lines[: first - 1], before, new.encode(), after, *lines[last:]]).decode()


def _find_class(text: str, class_name: str, path: str) -> ast.ClassDef:
    """A class of the file."""
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return node
    raise ConfigError(f"{path} has no class {class_name}")


def _last_line(node: ast.stmt) -> int:
    """The last line of a statement, which is also the index of the line behind it."""
    return node.end_lineno or node.lineno


def _insert_lines(text: str, index: int, lines: Sequence[str]) -> str:
    """The text with lines at an index."""
    kept = text.splitlines(True)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    return "".join([*kept[:index], *(f"{line}\n" for line in lines), *kept[index:]])
