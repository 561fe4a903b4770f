"""Changing a person's Python: a line into the list of controllers, an import, an attribute of a class.

The syntax tree says where; only whole lines are added, so all that is there stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..errors import ConfigError


def parsed(text: str, path: str) -> ast.Module:
    """The syntax tree of a file."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{path} line {error.lineno} is no Python: {error.msg}. Mend it first; nothing was written.") from None


def with_import(text: str, module: str, name: str, path: str) -> str:
    """The file with `from module import name`, beside the imports from the same place."""
    tree = parsed(text, path)
    line = f"from {module} import {name}"
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    local = [node for node in imports if isinstance(node, ast.ImportFrom) and node.level]
    if any(ast.unparse(node) == line for node in local):
        return text
    after = max((node for node in local if ast.unparse(node) < line), key=end, default=None)
    if after is not None:
        return inserted(text, end(after), [line])
    if local:
        return inserted(text, min(node.lineno for node in local) - 1, [line])
    place = end(imports[-1]) if imports else end(tree.body[0]) if ast.get_docstring(tree) else 0
    return inserted(text, place, ["", line])


def with_statement(text: str, function: str, statement: str, path: str) -> str:
    """The file with a statement at the end of a function; `{0}` in it stands for the function's first parameter."""
    for node in parsed(text, path).body:
        if isinstance(node, ast.FunctionDef) and node.name == function and node.args.args:
            line = statement.format(node.args.args[0].arg)
            return inserted(text, end(node.body[-1]), [" " * node.body[0].col_offset + line])
    raise ConfigError(
        f"{path} has no function {function}(manager, settings) to add the controller to; add it by hand: {statement.format('manager')}"
    )


def with_attribute(text: str, class_name: str, line: str, path: str) -> str:
    """The file with a line at the beginning of a class, below its docstring."""
    found = class_in(text, class_name, path)
    first = found.body[0]
    documented = ast.get_docstring(found) is not None
    place = end(first) if documented else first.lineno - 1
    added = ["", " " * first.col_offset + line] if documented else [" " * first.col_offset + line, ""]
    return inserted(text, place, added)


def with_argument(text: str, class_name: str, decorator: str, argument: str, path: str) -> str:
    """The file with one more argument in the call of a class's decorator."""
    found = class_in(text, class_name, path)
    for call in found.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
            last = max(
                (*call.args, *(word.value for word in call.keywords)), key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0)
            )
            lines = text.splitlines(True)
            row, column = (last.end_lineno or 1) - 1, last.end_col_offset or 0
            # Columns of the syntax tree count bytes.
            line = lines[row].encode()
            lines[row] = (line[:column] + f", {argument}".encode() + line[column:]).decode()
            return "".join(lines)
    raise ConfigError(f"{path}: class {class_name} has no @{decorator}(...)")


def class_in(text: str, class_name: str, path: str) -> ast.ClassDef:
    """A class of the file."""
    for node in parsed(text, path).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return node
    raise ConfigError(f"{path} has no class {class_name}")


def end(node: ast.stmt) -> int:
    """The last line of a statement, which is also the index of the line behind it."""
    return node.end_lineno or node.lineno


def inserted(text: str, index: int, lines: Sequence[str]) -> str:
    """The text with lines at an index."""
    kept = text.splitlines(True)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    return "".join([*kept[:index], *(f"{line}\n" for line in lines), *kept[index:]])
