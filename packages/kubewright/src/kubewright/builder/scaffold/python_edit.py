"""Edits Python files of the user: adds or removes a statement, an import, an argument of @kind.

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


def remove_import(text: str, module: str, name: str, path: str) -> str:
    """The file without this name in `from module import ...`; the reverse of `add_import`."""
    tree = _parse_python(text, path)
    local = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level]
    for node in local:
        if f"{'.' * node.level}{node.module}" != module or name not in _imported_names(node):
            continue
        others = [alias for alias in node.names if alias.name != name]
        if others:
            node.names = others
            return _replace_lines(text, node.lineno - 1, _last_line(node), [ast.unparse(node)])
        first = node.lineno - 1
        # The blank line above separated the relative imports, of which this was the last one.
        if len(local) == 1 and first and not text.splitlines()[first - 1].strip():
            first -= 1
        return _replace_lines(text, first, _last_line(node), [])
    return text


def _imported_names(node: ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names if alias.asname is None]


def remove_added(text: str, function: str, class_name: str, path: str) -> str:
    """The file without `manager.add(Class(...))` in a function; the reverse of `add_statement`."""
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for statement in node.body:
                if _adds_instance(statement, class_name):
                    indent = " " * statement.col_offset
                    remaining = [] if len(node.body) > 1 else [f"{indent}pass"]
                    first, last = statement.lineno - 1, _last_line(statement)
                    text = _replace_lines(text, first, last, remaining)
                    break
    if lines := [
        node.lineno
        for node in ast.walk(_parse_python(text, path))
        if isinstance(node, ast.Name) and node.id == class_name
    ]:
        raise ConfigError(
            f"{path} line {lines[0]} uses {class_name} in another way than as an argument of "
            f"`add` in {function}(): remove it there first; nothing was written"
        )
    return text


def _adds_instance(statement: ast.stmt, class_name: str) -> bool:
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="add"), args=[ast.Call(func=ast.Name(id=name))])
        ):
            return name == class_name
    return False


def remove_kind_argument(text: str, class_name: str, name: str, path: str) -> str:
    """The file without `name=...` in the declaration of a kind."""
    call = _find_kind_call(text, class_name, path)
    for argument in call.keywords:
        if argument.arg == name:
            source, (begin, end) = text.encode(), _byte_range(text, argument)
            before, after = source[:begin].rstrip().removesuffix(b","), source[end:]
            if b"\n" not in source[len(before) : begin]:
                return (before + after).decode()
            after = after.lstrip().removeprefix(b",")
            # Without a comma at the end, ruff joins the lines if they fit into one.
            is_last = after.lstrip().startswith(b")")
            return (before + (after.lstrip() if is_last else b"," + after)).decode()
    return text


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


def read_docstring(text: str, class_name: str, path: str) -> str:
    """The docstring of a class as it is in the file; empty if it has none."""
    first = _find_class(text, class_name, path).body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return str(first.value.value)
    return ""


def _find_class(text: str, class_name: str, path: str) -> ast.ClassDef:
    for node in _parse_python(text, path).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return node
    raise ConfigError(f"{path} has no class {class_name}")


def _find_kind_call(text: str, class_name: str, path: str) -> ast.Call:
    """The call of `@kind` or `@version_of` above a class."""
    for call in _find_class(text, class_name, path).decorator_list:
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in (_KIND_DECORATOR, _VERSION_DECORATOR)
        ):
            return call
    raise ConfigError(f"{path}: class {class_name} has no @{_KIND_DECORATOR}(...)")


def _byte_range(text: str, node: ast.keyword) -> tuple[int, int]:
    # Columns of the syntax tree count bytes of UTF-8, not characters.
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line.encode()))
    last, end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + end


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
    return _replace_lines(text, index, index, new)


def _replace_lines(text: str, first: int, last: int, new: Sequence[str]) -> str:
    """The text with new lines instead of those from index `first` up to `last`."""
    lines = text.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines[:first], *(f"{line}\n" for line in new), *lines[last:]])
