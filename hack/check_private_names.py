"""Checks that a name which only its own module uses begins with an underscore.

    python -m hack.check_private_names

Reads functions, methods and constants of both packages. A name is private if no other
Python file of the repository mentions it, tests and tools included, and its own module uses it.
Names that a library calls, or that users of kubewright call, are mentioned nowhere else and used
nowhere in their module: they are not reported.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("src/vsphere_operators/", "packages/kubewright/src/kubewright/")

# Users of kubewright call or override these, or a library calls them by name; inside the repository
# only their module does.
OFFERED: frozenset[str] = frozenset(
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
        # a method of a class that is private as a whole
        "set_parent",
    }
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def find_unmarked(sources: dict[str, str]) -> Iterator[str]:
    """`file:line: name` of each private name without an underscore, in the given files."""
    mentions = {path: _count_names(text) for path, text in sources.items()}
    files_with = Counter(name for counts in mentions.values() for name in counts)
    texts = {
        node.value
        for text in sources.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for path, text in sources.items():
        if not path.startswith(PACKAGES) or path.endswith("__init__.py"):
            continue
        for name, line in _definitions(ast.parse(text)):
            alone = files_with[name] == 1 and mentions[path][name] > 1
            if alone and name not in texts and name not in OFFERED:
                yield f"{path}:{line}: {name}: only this module uses it: rename it to _{name}"


def _count_names(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.NAME)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, methods and constants by name; a decorated function may be called by its
    decorator (a command, a fixture), so only plain ones and properties count.
    """
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            yield from _function(node)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, _FUNCTIONS):
                    yield from _function(member)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = target.id if isinstance(target, ast.Name) else ""
                if name.isupper() and not name.startswith("_"):
                    yield name, target.lineno


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
    plain = all(ast.unparse(d) in ("property", "staticmethod") for d in node.decorator_list)
    if plain and not node.name.startswith("_"):
        yield node.name, node.lineno


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    paths = [path for path in listed.splitlines() if not path.startswith("tests/golden/")]
    unmarked = list(find_unmarked({path: (ROOT / path).read_text() for path in paths}))
    for line in unmarked:
        print(line)
    return 1 if unmarked else 0


if __name__ == "__main__":
    sys.exit(main())
