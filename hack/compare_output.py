"""Compares what two checkouts generate: is everything that users rely on equal?

    python -m hack.compare_output OLD_CHECKOUT NEW_CHECKOUT

Compares CRDs (without descriptions), every other manifest of config/, flags and variables with
their types and defaults, metrics with their types and labels, the reasons of conditions, Events
and `status.refused` with their values by kind, and the log lines and messages that existing
scripts match. Prints one line per subject and exits with 1 if one differs.

Manifests and reference pages are generated from the code, so both checkouts first run their own
generators with `--check`: a change of the code that the files do not show fails.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_PLACEHOLDER = "\x00"
# Existing scripts match these; `\x00` stands for what a placeholder fills in.
FIXED_TEXTS = (
    "successfully reconciled VmGroup",
    "None available",
    'received reconcile request for "\x00" (namespace: "\x00")',
    "VmGroup folder does not exist, creating folder",
    'creating clone "\x00" from template "\x00"',
    "too few replicas, creating \x00 replica(s)",
    "too many replicas, deleting \x00",
    'deleting virtual machine "\x00"',
    "replica count in sync, checking power state",
    'vm "\x00" powered off, attempting to power on...',
    "VmGroup marked for deletion",
    'deleting group folder "\x00" (path: "\x00")',
)
# Reasons that no generated table lists in one of the versions: they are read from the code.
_REASONS_IN_CODE = {
    "Progressing": ("Working", "Paused", "Idle"),
    "Degraded": ("TooFewReady", "InError", "NotInError"),
    "VmGroup": ("Progressing", "FolderNameTaken", "VCenterError"),
}
_REASON = re.compile(r"`([A-Z][A-Za-z]+)`")
# The heading of this section has another verb in older versions.
_REFUSED_SECTION = "status.refused"
_VALUE_COLUMNS = ("Ready", "status", "type", "on", "object")


class _Row(NamedTuple):
    section: str
    cells: dict[str, str]

    @property
    def name(self) -> str:
        return next(iter(self.cells.values()))


def read_crds(root: Path) -> dict[str, Any]:
    """CRDs by file, without the descriptions at any depth."""
    return {
        path.name: _without_descriptions(_read_documents(path)[0])
        for path in sorted((root / "config/crd/bases").glob("*.yaml"))
    }


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        # A field may be called `description`: then its value is a schema, not a text.
        kept = {k: v for k, v in value.items() if k != "description" or not isinstance(v, str)}
        return {k: _without_descriptions(v) for k, v in kept.items()}
    if isinstance(value, list):
        return [_without_descriptions(item) for item in value]
    return value


def read_manifests(root: Path) -> dict[str, Any]:
    """Every other manifest of config/ by path."""
    config = root / "config"
    return {
        str(path.relative_to(config)): _read_documents(path)
        for path in sorted(config.rglob("*.yaml"))
        if "crd/bases" not in str(path)
    }


def _read_documents(path: Path) -> list[Any]:
    return list(yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def read_rbac(root: Path) -> dict[str, Any]:
    return {path: doc for path, doc in read_manifests(root).items() if "rbac" in path}


def read_flags(root: Path) -> dict[str, tuple[str, ...]]:
    """Type, environment variable and default by flag; a variable without a flag has none."""
    return {
        row.name: tuple(row.cells.get(column, "") for column in ("type", "environment", "default"))
        for row in _rows(root, "flags.md")
        if re.match(r"`(?:-|[A-Z_]+`)", row.name)
    }


def read_metrics(root: Path) -> dict[str, tuple[str, ...]]:
    """Type and labels by metric."""
    return {
        row.name: tuple(row.cells.get(column, "") for column in ("type", "labels"))
        for row in _rows(root, "metrics.md")
        if "_" in row.name
    }


def read_reasons(root: Path) -> dict[str, tuple[str, ...]]:
    """The value of the condition, or type and object of the Event, by `section: reason`."""
    reasons: dict[str, tuple[str, ...]] = {}
    for row in _rows(root, "conditions.md"):
        match = _REASON.fullmatch(row.name)
        if match and "reason" in row.cells:
            values = tuple(row.cells[column] for column in _VALUE_COLUMNS if column in row.cells)
            reasons[f"{row.section}: {match[1]}"] = values
        elif match and "type" in row.cells:
            # The table of conditions: kinds, and the reasons in the text.
            reasons[f"{match[1]}: condition"] = (row.cells["kinds"],)
            texts = (text for column, text in row.cells.items() if column.startswith("True"))
            for text in texts:
                reasons |= {f"{match[1]}: {reason}": () for reason in _REASON.findall(text)}
    for line in (root / "docs/reference/conditions.md").read_text().splitlines():
        # One sentence lists them, in the order in which they are checked.
        if line.startswith("A node is counted under the first of these"):
            for number, reason in enumerate(_REASON.findall(line), 1):
                reasons[f"{_REFUSED_SECTION}: {reason}"] = (f"number {number}",)
    literals = _count_literals(root)
    for section, names in _REASONS_IN_CODE.items():
        for name in names:
            key = f"{section}: {name}"
            reasons.pop(key, None)
            if literals[name]:
                reasons[key] = ("in the code",)
    return reasons


def _rows(root: Path, page: str) -> Iterator[_Row]:
    """Rows of all tables of a page with the heading above them, and their cells by column."""
    section = ""
    columns: list[str] = []
    for line in (root / "docs/reference" / page).read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if not columns:
            columns = cells
        elif set(cells) != {"---"}:
            yield _Row(section, dict(zip(columns, cells, strict=True)))


def read_fixed_texts(root: Path) -> dict[str, int]:
    """How many string literals of the sources are the whole of a fixed text."""
    literals = _count_literals(root)
    return {text: literals[text] for text in FIXED_TEXTS if literals[text]}


def _count_literals(root: Path) -> Counter[str]:
    """String literals of the application, without docstrings."""
    return Counter(
        literal
        for path in sorted((root / "src").rglob("*.py"))
        for literal in _literals(path.read_text())
    )


# Two subjects are read from the literals, and most files of two checkouts are equal.
@functools.cache
def _literals(source: str) -> tuple[str, ...]:
    return tuple(_find_literals(ast.parse(source)))


def _find_literals(tree: ast.Module) -> Iterator[str]:
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else _PLACEHOLDER
                for part in node.values
            )
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(id(node.value))
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield str(node.value)


SUBJECTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "CRDs without descriptions": read_crds,
    "RBAC": read_rbac,
    "other manifests of config/": read_manifests,
    "flags and variables (type, variable, default)": read_flags,
    "metrics (type, labels)": read_metrics,
    "reasons by kind (value, type, object)": read_reasons,
    "fixed log lines and messages (number of uses)": read_fixed_texts,
}


def compare(old: Path, new: Path) -> bool:
    equal = True
    for subject, read in SUBJECTS.items():
        before, after = read(old), read(new)
        differing = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        equal = equal and not differing
        print(f"{'equal ' if not differing else 'DIFFER'}  {subject}: {len(after)} in the new one")
        for key in differing:
            state = "missing" if key not in after else "added" if key not in before else "changed"
            values = f": {before[key]} -> {after[key]}" if state == "changed" else ""
            print(f"          {state}: {key}{values if len(values) < 200 else ''}")
    return equal


def is_current(root: Path) -> bool:
    """Whether the generated files of a checkout are what its code generates."""
    docgen = "hack.docgen" if (root / "hack/docgen").is_dir() else "docgen"
    root = root.resolve()
    paths = (root / "src", root / "packages/kubewright/src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in paths)}
    current = True
    for arguments in ([docgen, "--check"], ["kubewright", "manifests", "--check"]):
        command = [sys.executable, "-m", *arguments]
        result = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            current = False
            print(f"STALE   {root}: {' '.join(arguments)}\n{result.stdout}{result.stderr}")
    return current


def main(arguments: list[str]) -> int:
    old, new = Path(arguments[0]), Path(arguments[1])
    current = [is_current(old), is_current(new)]
    if all(current):
        print("equal   generated files and the code that generates them, in both")
    return 0 if compare(old, new) and all(current) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
