"""Edits Python files of the user: adds a statement, an import, or an argument of @kind.

The syntax tree gives the position. The edit itself only inserts or replaces text there, so
comments and formatting of everything else stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...errors import ConfigError

_KIND_DECORATOR, _VERSION_DECORATOR = "kind", "version_of"


def _parse_python(text: str, path: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(
            f"{path} line {error.lineno} is not valid Python: {error.msg}; nothing was written"
        ) from None


def add_import(text: str, module: str, name: str, path: str) -> str:
    """The file with `from module import name`, sorted among its relative imports."""
    tree = _parse_python(text, path)
    line = f"from {module} import {name}"
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    local = [node for node in imports if isinstance(node, ast.ImportFrom) and node.level]
    if any(ast.unparse(node) == line for node in local):
        return text
    before = [node for node in local if ast.unparse(node) < line]
    if before:
        return _insert_lines(text, max(map(_last_line, before)), [line])
    if local:
        return _insert_lines(text, min(node.lineno for node in local) - 1, [line])
    index = 0
    if imports or ast.get_docstring(tree):
        index = _last_line(imports[-1] if imports else tree.body[0])
    return _insert_lines(text, index, ["", line])


def add_statement(text: str, function: str, statement: str, path: str) -> str:
    """The file with a statement at the end of a function; `{0}` is its first parameter."""
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.FunctionDef) and node.name == function and node.args.args:
            line = " " * node.body[0].col_offset + statement.format(node.args.args[0].arg)
            last = node.body[-1]
            index = last.lineno - 1 if isinstance(last, ast.Return) else _last_line(last)
            return _insert_lines(text, index, [line])
    raise ConfigError(
        f"{path} has no function {function}(manager, settings) to add the controller to; "
        f"add it by hand: {statement.format('manager')}"
    )


def set_kind_argument(text: str, class_name: str, name: str, value: str, path: str) -> str:
    """The file with `name=value` in the declaration of a kind."""
    call = _find_kind_call(text, class_name, path)
    for argument in call.keywords:
        if argument.arg == name:
            return _replace_expression(text, argument.value, value)
    last = max((*call.args, *(argument.value for argument in call.keywords)), key=_end_position)
    return _replace_expression(text, last, f", {name}={value}", insert_after=True)


def is_kind_argument_false(text: str, class_name: str, name: str, path: str) -> bool:
    """Whether an argument of a kind is False, explicitly or by default."""
    call = _find_kind_call(text, class_name, path)
    for argument in call.keywords:
        if argument.arg == name:
            return isinstance(argument.value, ast.Constant) and argument.value.value is False
    # @version_of has storage=False by default, @kind storage=True.
    return name == "storage" and getattr(call.func, "id", "") == _VERSION_DECORATOR


def _find_kind_call(text: str, class_name: str, path: str) -> ast.Call:
    """The call of `@kind` or `@version_of` above a class."""
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for call in node.decorator_list:
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id in (_KIND_DECORATOR, _VERSION_DECORATOR)
                ):
                    return call
            raise ConfigError(f"{path}: class {class_name} has no @{_KIND_DECORATOR}(...)")
    raise ConfigError(f"{path} has no class {class_name}")


def _end_position(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _replace_expression(text: str, node: ast.expr, new: str, *, insert_after: bool = False) -> str:
    # Columns of the syntax tree count bytes of UTF-8, not characters.
    lines = [line.encode() for line in text.splitlines(True)]
    last, end = _end_position(node)
    first, begin = (last, end) if insert_after else (node.lineno, node.col_offset)
    before, after = lines[first - 1][:begin], lines[last - 1][end:]
    return b"".join([*lines[: first - 1], before, new.encode(), after, *lines[last:]]).decode()


def _last_line(node: ast.stmt) -> int:
    # Line numbers start at 1, so this is also the index of the line after the statement.
    return node.end_lineno or node.lineno


def _insert_lines(text: str, index: int, new: Sequence[str]) -> str:
    lines = text.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines[:index], *(f"{line}\n" for line in new), *lines[index:]])
