"""Checks that a name which only its own module uses begins with an underscore.

    python -m hack.check_private_names

Reads functions, classes, type aliases, constants and other assignments at module level, and the
methods of classes, in both packages.

A name at module level is public if another file of the repository imports it, reads it as an
attribute of the module, or has it in a text such as "package.module:name"; if the package's
`__all__` or a code block of the documentation has it; or if it is a type in the signature of a
public name, since callers of that name get or pass its values. A method is public if another file
has an attribute or a method of that name: which class an attribute belongs to is not known.
A name that its own module does not use either is not reported: a library or a user calls it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "src/vsphere_operators/",
    "packages/kubewright/src/kubewright/",
    "packages/kubewright/src/kubewright_http/",
)

_SOURCE_FOLDERS = ("packages/kubewright/src/", "packages/kubewright/", "src/", "tests/", "testenv/")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# A library calls these by name, in a class that inherits from its own.
_CALLED_BY_LIBRARIES: frozenset[str] = frozenset(
    {
        # asyncio.Protocol, in the webhook server
        "connection_made",
        "data_received",
        "eof_received",
        "pause_writing",
        "resume_writing",
        "connection_lost",
        # yaml.SafeLoader
        "compose_node",
        "construct_mapping",
    }
)
_NAMED_BASES = ("Webhook", "Conversion", "Controller", "Settings")


@dataclass
class _File:
    """What one Python file defines and mentions."""

    path: str
    module: str
    tree: ast.Module
    # Names that are read in this file, without imports.
    reads: Counter[str] = field(default_factory=Counter)
    attributes: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    # (module, name) of each import from a module, and of each attribute of an imported module.
    uses: set[tuple[str, str]] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


def find_unmarked(sources: dict[str, str], documents: str = "") -> Iterator[str]:
    """`file:line: name` of each private name without an underscore, in the given files.

    documents is the text of other files that may offer names: pages, templates, settings.
    """
    files = [_read_file(path, text) for path, text in sources.items()]
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in files:
        for use in file.uses:
            users[use].add(file.path)
    for file in files:
        if file.path.startswith(PACKAGES) and not file.path.endswith("__init__.py"):
            others = [other for other in files if other.path != file.path]
            yield from _unmarked_of(file, others, users, documents)


def _unmarked_of(
    file: _File, others: list[_File], users: dict[tuple[str, str], set[str]], documents: str
) -> Iterator[str]:
    texts = set().union(*(other.texts for other in others), file.texts)
    definitions = dict(_definitions(file.tree))

    def is_offered(name: str) -> bool:
        if users[file.module, name] - {file.path} or f"{file.module}:{name}" in documents:
            return True
        qualified = {f"{file.module}.{name}", f"{file.module}:{name}"}
        patched = any(name in other.texts and file.module in other.modules for other in others)
        documented = re.search(rf"from {re.escape(file.module)} import [^\n]*\b{name}\b", documents)
        return bool(qualified & texts or patched or documented)

    public = {
        name for name, node in definitions.items() if _is_registered(node) or is_offered(name)
    }
    public |= _signature_types(definitions, public)
    for name, node in definitions.items():
        used_here = file.reads[name] > 0
        if used_here and name not in public and not name.startswith("_"):
            yield _format(file, node, name)
    attributes = set().union(*(other.attributes | other.methods for other in others))
    for name, node in _methods(file.tree):
        used_here = name in file.attributes
        if used_here and name not in attributes and name not in texts | _CALLED_BY_LIBRARIES:
            yield _format(file, node, name)


def _format(file: _File, node: ast.stmt, name: str) -> str:
    return f"{file.path}:{node.lineno}: {name}: only this module uses it: rename it to _{name}"


def _read_file(path: str, text: str) -> _File:
    file = _File(path, _module_of(path), ast.parse(text))
    aliases: dict[str, str] = {}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom):
            source = _resolve(file, node)
            file.modules.add(source)
            for alias in node.names:
                file.uses.add((source, alias.name))
                aliases[alias.asname or alias.name] = f"{source}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.Name):
            file.reads[node.id] += isinstance(node.ctx, ast.Load)
        elif isinstance(node, ast.Attribute):
            file.attributes.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            file.methods |= {member.name for member in node.body if isinstance(member, _FUNCTIONS)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            file.texts.add(node.value)
    file.modules |= set(aliases.values())
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute):
            base = ast.unparse(node.value)
            if base in aliases:
                file.uses.add((aliases[base], node.attr))
    return file


def _module_of(path: str) -> str:
    for folder in _SOURCE_FOLDERS:
        path = path.removeprefix(folder)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _resolve(file: _File, node: ast.ImportFrom) -> str:
    """The absolute name of the module of `from x import y`."""
    if not node.level:
        return node.module or ""
    parts = file.module.split(".")
    package = parts if file.path.endswith("__init__.py") else parts[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                for name in names:
                    if isinstance(name, ast.Name):
                        yield name.id, node


def _methods(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Public methods and properties of the classes that are public themselves."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        for member in node.body:
            if not isinstance(member, _FUNCTIONS) or _is_registered(member):
                continue
            if not member.name.startswith("_"):
                yield member.name, member


_PLAIN_DECORATORS = re.compile(
    r"(?:dataclass|dataclasses\.dataclass|property|cached_property|staticmethod|classmethod|cache|"
    r"lru_cache|functools\.\w+|contextmanager|asynccontextmanager|contextlib\.\w+|total_ordering|"
    r"override|final|overload)\b"
)


def _is_registered(node: ast.stmt) -> bool:
    """A decorator other than those of the standard library registers what it decorates (a command,
    a kind), which is a use by another module. hack.docgen reads enums of reasons and settings,
    and users see the names of webhooks and controllers in log lines.
    """
    if isinstance(node, ast.ClassDef):
        bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
        if node.name == "Reason" or any(base.endswith(_NAMED_BASES) for base in bases):
            return True
    elif not isinstance(node, _FUNCTIONS):
        return False
    return not all(_PLAIN_DECORATORS.match(ast.unparse(d)) for d in node.decorator_list)


def _signature_types(definitions: dict[str, ast.stmt], public: set[str]) -> set[str]:
    """Types in the signatures of public names, and in those of these types, and so on."""
    reachable: set[str] = set()
    pending = list(public)
    while pending:
        names = _annotation_names(definitions[pending.pop()])
        new = {n for n in names if n in definitions} - reachable - public
        reachable |= new
        pending += new
    return reachable


def _annotation_names(node: ast.stmt) -> set[str]:
    """Names in the annotations of a definition, in bases of a class and in a type alias."""
    expressions: list[ast.expr | None] = []
    if isinstance(node, ast.Assign | ast.AnnAssign):
        # Only an alias of types: the value of a constant is not part of its signature.
        value = node.value
        is_alias = isinstance(value, ast.BinOp | ast.Subscript | ast.Name)
        expressions += [value if is_alias else None]
        expressions += [node.annotation] if isinstance(node, ast.AnnAssign) else []
    elif isinstance(node, ast.ClassDef):
        expressions += node.bases
        for member in node.body:
            if isinstance(member, ast.AnnAssign):
                expressions.append(member.annotation)
            elif isinstance(member, _FUNCTIONS) and _is_public_member(member.name):
                expressions += _signature(member)
    elif isinstance(node, _FUNCTIONS):
        expressions += _signature(node)
    return {
        name.id
        for expression in expressions
        if expression is not None
        for name in ast.walk(expression)
        if isinstance(name, ast.Name)
    }


def _is_public_member(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr | None]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
    return [node.returns, *(argument.annotation for argument in every)]


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    sources = [p for p in listed if p.endswith(".py") and not p.startswith("tests/golden/")]
    documents = [p for p in listed if p.endswith((".md", ".tmpl", ".toml"))]
    unmarked = list(
        find_unmarked(
            {path: (ROOT / path).read_text() for path in sources},
            "\n".join((ROOT / path).read_text() for path in documents),
        )
    )
    for line in unmarked:
        print(line)
    return 1 if unmarked else 0


if __name__ == "__main__":
    sys.exit(main())
