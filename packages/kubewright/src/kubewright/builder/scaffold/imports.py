"""Import statements of generated modules, merged, sorted and wrapped as ruff does it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping

from .format import LINE_LENGTH

Imports = Mapping[str, Iterable[str]]
"""Names by the module that they are imported from."""


def merge_imports(*parts: Imports) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for part in parts:
        for module, names in part.items():
            merged.setdefault(module, set()).update(names)
    return {module: names for module, names in merged.items() if names}


def split_imports(source: str) -> tuple[dict[str, set[str]], str]:
    """The imports at the top of a module, and the text below them."""
    body = ast.parse(source).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    last = max((node.end_lineno or node.lineno for node in imports), default=0)
    merged = merge_imports(
        *(
            {f"{'.' * node.level}{node.module}": {alias.name for alias in node.names}}
            for node in imports
        )
    )
    return merged, "".join(source.splitlines(True)[last:]).lstrip("\n")


def format_imports(imports: Imports) -> str:
    """Three groups: the standard library, other packages, the project."""
    groups: list[list[str]] = [[], [], []]
    for module, names in sorted(imports.items()):
        is_standard = module.partition(".")[0] in sys.stdlib_module_names
        group = 2 if module.startswith(".") else 0 if is_standard else 1
        groups[group].append(_format_import(module, names))
    return "\n\n".join("\n".join(group) for group in groups if group)


def _format_import(module: str, names: Iterable[str]) -> str:
    # Classes first, then functions.
    ordered = sorted(names, key=lambda name: (name[0].islower(), name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= LINE_LENGTH:
        return line
    lines = "".join(f"    {name},\n" for name in ordered)
    return f"from {module} import (\n{lines})"
