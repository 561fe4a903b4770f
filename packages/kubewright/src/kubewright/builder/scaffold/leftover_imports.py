"""Finds imports of modules that a command removes, in files that it does not change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from ..changeset import ChangeSet, read_text

_SKIPPED_FOLDERS = frozenset({"build", "dist", "node_modules", "venv", "__pycache__"})
_SOURCE_FOLDER = "src"


def find_leftover_imports(change: ChangeSet) -> list[str]:
    """Where other files import a removed module: `tests/test_b.py line 3 imports a.kinds.b`."""
    removed = {_module_of(path) for path in change.removed if path.endswith(".py")}
    places = []
    for file in sorted(change.root.rglob("*.py")):
        path = file.relative_to(change.root)
        is_skipped = any(part in _SKIPPED_FOLDERS or part.startswith(".") for part in path.parts)
        if is_skipped or path.as_posix() in change.removed:
            continue
        text = change.files.get(path.as_posix())
        try:
            tree = ast.parse(read_text(file) if text is None else text)
        except SyntaxError:
            continue
        places += [
            f"{path.as_posix()} line {line} imports {module}"
            for line, module in _list_imports(tree, _module_of(path.as_posix()))
            if module in removed
        ]
    return places


def _module_of(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == _SOURCE_FOLDER else parts)


def _list_imports(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """Line and name of each module that may be imported: of `from a import b`, a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # In __init__.py, the module is the package itself.
            parts = module.removesuffix("__init__").rstrip(".").split(".")
            levels = node.level - module.endswith("__init__")
            base = parts[: len(parts) - levels] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, source
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
