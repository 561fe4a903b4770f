"""What the code says to people: reasons and words, read from its syntax trees.

    for each in said("src/vsphere_operators", {"Terminal": Words(0, 1)}): ...   # every call of Terminal, with its reason and its words

A text is shown as it stands in the code. What is filled in when it is said is shown in braces: `host "{host.name}" is in
maintenance mode`. A name of the same function or module that holds a text is followed, so that it does not matter whether a
sentence stands in the call or a line above it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from . import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef
Assignment = ast.Assign | ast.AnnAssign | ast.NamedExpr
MAX_DEPTH = 6


@dataclass(frozen=True)
class CallSignature:
    """Which arguments of a call have the reason and the words: a position, or the name of a keyword."""

    reason_argument: int | str
    message_argument: int | str
    fix_argument: int | str | None = None


@dataclass(frozen=True)
class ReasonMessage:
    """One call that says something."""

    module: str
    """The module, as people know it: kinds/hostinfo."""
    callee: str
    reason: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class SourceModule:
    """One file of source."""

    path: Path
    package: Path
    """The folder that names are relative to."""

    @property
    def name(self) -> str:
        """The path below its package."""
        return self.path.relative_to(self.package).with_suffix("").as_posix()

    @cached_property
    def tree(self) -> ast.Module:
        """What stands in it."""
        return ast.parse(self.path.read_text())

    @cached_property
    def runtime_module(self) -> object:
        """The module as it runs, for the names that it has from others."""
        source = next(each for each in self.path.parents if each.name == "src")
        return import_module(".".join(self.path.relative_to(source).with_suffix("").parts))

    @cached_property
    def global_names(self) -> set[str]:
        """The names that it has from other modules, or sets itself."""
        imports = [each for each in self.tree.body if isinstance(each, ast.ImportFrom)]
        return {alias.asname or alias.name for each in imports for alias in each.names} | set(
            map(assigned_name, self.tree.body)
        )

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in order."""
        return sorted(
            (each for each in ast.walk(self.tree) if isinstance(each, ast.Call)),
            key=lambda each: each.lineno,
        )

    @cached_property
    def functions(self) -> list[Function]:
        """Every function, the outer before the inner."""
        return [each for each in ast.walk(self.tree) if isinstance(each, Function)]

    def enclosing_function(self, node: ast.expr) -> Function | None:
        """The innermost function that a node is in."""
        inside = [
            each
            for each in self.functions
            if each.lineno <= node.lineno <= (each.end_lineno or each.lineno)
        ]
        return max(inside, key=lambda each: each.lineno, default=None)

    def assigned_value(self, name: str, at: ast.expr) -> ast.expr | None:
        """What a name was last set to before a place, in the same function or at the top of the module."""
        function = self.enclosing_function(at)
        inner = (
            []
            if function is None
            else [each for each in assignments(function) if each.lineno <= at.lineno]
        )
        outer: list[ast.stmt | Assignment] = [
            each for each in self.tree.body if assigned_name(each) == name
        ]
        found = [each for each in inner if assigned_name(each) == name] or outer
        value = getattr(found[-1], "value", None) if found else None
        return value if isinstance(value, ast.expr) else None

    def text_of(self, node: ast.expr | None, depth: int = 0) -> str:
        """A text as it stands in the code, with braces for what is filled in."""
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self.text_of(each, depth) for each in parts)
            case ast.FormattedValue(value=value):
                return self.text_of(value, depth)
            case ast.BinOp(op=ast.Add(), left=left, right=right) if is_text(node):
                return self.text_of(left, depth) + self.text_of(right, depth)
            case ast.Name(id=name) if (
                depth < MAX_DEPTH
                and (set_to := self.assigned_value(name, node)) is not None
                and is_text(set_to)
            ):
                return self.text_of(set_to, depth + 1)
            case ast.Name(id=name) if name in self.global_names and isinstance(
                known := getattr(self.runtime_module, name), str | int
            ):
                return str(known)
            case ast.IfExp(body=body, orelse=other) if is_text(body) or is_text(other):
                return " or ".join(
                    filter(None, (self.text_of(body, depth), self.text_of(other, depth)))
                )
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return self.text_of(inner, depth)
            case ast.Attribute(value=ast.Name(id="Reason"), attr=member):
                return str(self.runtime_module.Reason[member])  # type: ignore[attr-defined]
            case ast.Name() | ast.Attribute():
                return f"{{{ast.unparse(node).removeprefix('self.')}}}"
            case None:
                return ""
            case _:
                return "{...}"


def assignments(function: Function) -> list[Assignment]:
    """Everything in a function that sets a name, in order."""
    found = [each for each in ast.walk(function) if isinstance(each, Assignment)]
    return sorted(found, key=lambda each: each.lineno)


def assigned_name(node: ast.AST) -> str:
    """The one name that a node sets, "" for none or several."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
            | ast.NamedExpr(target=ast.Name(id=name))
        ):
            return name
        case _:
            return ""


def is_text(node: ast.expr) -> bool:
    """Whether a node is a text that can be shown."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.BinOp(left=left, right=right):
            return is_text(left) or is_text(right)
        case _:
            return isinstance(node, ast.JoinedStr)


@cache
def load_modules(package: str) -> tuple[SourceModule, ...]:
    """The files of a package, in order; each is parsed once, however often it is asked."""
    folder = ROOT / package
    return tuple(SourceModule(path, folder) for path in sorted(folder.rglob("*.py")))


def find_messages(package: str, forms: Mapping[str, CallSignature]) -> Iterator[ReasonMessage]:
    """Every call of these names that gives a reason, in the order of files and lines."""
    for module in load_modules(package):
        for call in (each for each in module.calls if callee_name(each) in forms):
            form = forms[callee_name(call)]
            reason = get_argument(call, form.reason_argument)
            if reason is not None:
                texts = [
                    module.text_of(get_argument(call, each))
                    for each in (form.message_argument, form.fix_argument)
                ]
                yield ReasonMessage(
                    module.name, callee_name(call), module.text_of(reason), texts[0], texts[1]
                )


def callee_name(call: ast.Call) -> str:
    """The last part of what is called."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def get_argument(call: ast.Call, which: int | str | None) -> ast.expr | None:
    """One argument of a call, None where it is not given."""
    if isinstance(which, int):
        return (
            call.args[which]
            if which < len(call.args) and not isinstance(call.args[which], ast.Starred)
            else None
        )
    return (
        next((each.value for each in call.keywords if each.arg == which), None) if which else None
    )
