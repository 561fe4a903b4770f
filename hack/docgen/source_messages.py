"""Finds the calls with a message among their arguments, in the syntax trees of the code.

A message is shown as it stands in the code, with `<name>` for a value that is filled in at run
time: `host "{host.name}" is in maintenance mode` becomes `host "<host name>" is in maintenance
mode`. A name of the same function or module that holds a text is followed, so that it does not
matter whether a text stands in the call or a line above it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from . import ROOT

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Assignment = ast.Assign | ast.AnnAssign | ast.NamedExpr
# Names that hold texts may refer to each other, in a loop even.
_MAX_DEPTH = 6
# Attributes that mean nothing without the name of their object.
_GENERIC_ATTRIBUTES = {"name", "names", "path", "message", "namespace", "reason", "key"}


@dataclass(frozen=True)
class Message:
    """A call with a message among its arguments."""

    module: str
    callee: str
    argument_texts: tuple[str, ...]
    """The positional arguments as texts."""


@dataclass(frozen=True)
class SourceModule:
    path: Path
    package: Path

    @cached_property
    def name(self) -> str:
        """The path in its package, such as kinds/hostinfo."""
        return self.path.relative_to(self.package).with_suffix("").as_posix()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of the lines."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return sorted(calls, key=lambda call: call.lineno)

    @cached_property
    def _runtime_module(self) -> object:
        source = next(folder for folder in self.path.parents if folder.name == "src")
        return import_module(".".join(self.path.relative_to(source).with_suffix("").parts))

    @cached_property
    def _global_names(self) -> set[str]:
        imports = [node for node in self.tree.body if isinstance(node, ast.ImportFrom)]
        imported = {alias.asname or alias.name for node in imports for alias in node.names}
        classes = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}
        return imported | classes | set(map(_assigned_name, self.tree.body))

    @cached_property
    def _functions(self) -> list[_Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, _Function)]

    @cached_property
    def _assignments(self) -> dict[_Function, list[_Assignment]]:
        """The assignments in each function, and in the functions inside of it."""
        return {
            function: [node for node in ast.walk(function) if isinstance(node, _Assignment)]
            for function in self._functions
        }

    def _assigned_value(self, name: str, at: ast.expr) -> ast.expr | None:
        """The last value of a name before a line, in the same function or in the module."""
        inside = [
            function
            for function in self._functions
            if function.lineno <= at.lineno <= (function.end_lineno or function.lineno)
        ]
        innermost = max(inside, key=lambda function: function.lineno, default=None)
        assignments: list[ast.AST] = [
            node
            for node in (self._assignments[innermost] if innermost else ())
            if node.lineno <= at.lineno and _assigned_name(node) == name
        ]
        if not assignments:
            assignments = [node for node in self.tree.body if _assigned_name(node) == name]
        if not assignments:
            return None
        last = max(assignments, key=lambda node: getattr(node, "lineno", 0))
        value = getattr(last, "value", None)
        return value if isinstance(value, ast.expr) else None

    def text_of(self, node: ast.expr | None, depth: int = 0) -> str:
        match node:
            case None:
                return ""
            case ast.Constant(value=str() as text):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self.text_of(part, depth) for part in parts)
            case ast.FormattedValue(value=value):
                return self.text_of(value, depth)
            case ast.BinOp(op=ast.Add(), left=left, right=right) if _is_text(node):
                return self.text_of(left, depth) + self.text_of(right, depth)
            case ast.Name(id=name) if (
                depth < _MAX_DEPTH
                and (assigned := self._assigned_value(name, node)) is not None
                and _is_text(assigned)
            ):
                return self.text_of(assigned, depth + 1)
            case ast.Name(id=name) if name in self._global_names and isinstance(
                constant := getattr(self._runtime_module, name, None), str | int
            ):
                return str(constant)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if (
                owner in self._global_names
                and isinstance(
                    constant := getattr(
                        getattr(self._runtime_module, owner, None), attribute, None
                    ),
                    str,
                )
            ):
                # A member of an enum.
                return str(constant)
            case ast.IfExp(body=body, orelse=other) if _is_text(body) or _is_text(other):
                return " or ".join(
                    filter(None, (self.text_of(body, depth), self.text_of(other, depth)))
                )
            case _:
                return f"<{_placeholder(node)}>"


def _placeholder(node: ast.expr) -> str:
    """A noun for a value that is filled in at run time."""
    match node:
        case ast.Name(id=name):
            return name.strip("_").replace("_", " ")
        case ast.Attribute(value=owner, attr=attribute):
            noun = attribute.strip("_").replace("_", " ")
            if attribute in _GENERIC_ATTRIBUTES and isinstance(owner, ast.Name | ast.Attribute):
                parent = _placeholder(owner)
                return noun if parent == "self" else f"{parent} {noun}"
            return noun
        case ast.Call(func=ast.Attribute(attr="join"), args=[items]):
            return _placeholder(items)
        case ast.Call(args=[argument], keywords=[]):
            return _placeholder(argument)
        case ast.Call(func=ast.Attribute(value=owner), args=[]):
            return _placeholder(owner)
        case ast.Call(func=function):
            return _placeholder(function)
        case (
            ast.GeneratorExp(generators=[generator, *_]) | ast.ListComp(generators=[generator, *_])
        ):
            return _placeholder(generator.iter)
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.Starred(value=value):
            return _placeholder(value)
        case ast.FormattedValue(value=value) | ast.BinOp(left=value) | ast.IfExp(body=value):
            return _placeholder(value)
        case ast.BoolOp(values=[value, *_]):
            return _placeholder(value)
        case _:
            return "value"


def _assigned_name(node: ast.AST) -> str:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
            | ast.NamedExpr(target=ast.Name(id=name))
        ):
            return name
        case _:
            return ""


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case _:
            return isinstance(node, ast.JoinedStr)


@cache
def load_modules(package: str) -> tuple[SourceModule, ...]:
    folder = ROOT / package
    return tuple(SourceModule(path, folder) for path in sorted(folder.rglob("*.py")))


def find_messages(package: str, callees: tuple[str, ...]) -> Iterator[Message]:
    """Every call of these names, in the order of files and lines."""
    for module in load_modules(package):
        for call in module.calls:
            if callee_name(call) in callees and call.args:
                texts = tuple(module.text_of(argument) for argument in call.args)
                yield Message(module.name, callee_name(call), texts)


def callee_name(call: ast.Call) -> str:
    """The last part of the name of the called function."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
