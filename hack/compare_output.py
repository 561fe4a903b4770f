"""Compares what two checkouts generate: is everything that users rely on equal?

    python -m hack.compare_output OLD_CHECKOUT NEW_CHECKOUT

Compares CRDs (without descriptions), every other manifest of config/, flags with their types,
variables and defaults, metrics with their types and labels, condition and Event reasons, and
the log lines and messages that existing scripts match. Prints one line per subject and exits
with 1 if one differs. Both checkouts must have current generated files (`make verify`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

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


def read_crds(root: Path) -> dict[str, Any]:
    """CRDs by file, without the descriptions at any depth."""
    return {
        path.name: _without_descriptions(yaml.safe_load(path.read_text()))
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
        str(path.relative_to(config)): list(yaml.safe_load_all(path.read_text()))
        for path in sorted(config.rglob("*.yaml"))
        if "crd/bases" not in str(path)
    }


def read_rbac(root: Path) -> dict[str, Any]:
    return {path: doc for path, doc in read_manifests(root).items() if "rbac" in path}


def read_flags(root: Path) -> dict[str, tuple[str, ...]]:
    """Type, environment variable and default by flag."""
    return {row[0]: tuple(row[1:4]) for row in _rows(root, "flags.md") if row[0].startswith("`-")}


def read_metrics(root: Path) -> dict[str, tuple[str, ...]]:
    """Type and labels by metric."""
    return {row[0]: tuple(row[1:3]) for row in _rows(root, "metrics.md") if "_" in row[0]}


def read_reasons(root: Path) -> dict[str, str]:
    """Reasons of conditions and Events, by the first column of their tables."""
    names = (row[0].strip("`") for row in _rows(root, "conditions.md"))
    return {name: "" for name in names if re.fullmatch(r"[A-Z][A-Za-z]+", name)}


def _rows(root: Path, page: str) -> list[list[str]]:
    lines = (root / "docs/reference" / page).read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split(" | ")] for line in lines if "|" in line]
    return [[c.strip("| ") for c in row] for row in cells if len(row) > 2]


def read_fixed_texts(root: Path) -> dict[str, str]:
    """The fixed texts that a string literal or an f-string of the sources has."""
    source = "\n".join(p.read_text() for p in sorted((root / "src").rglob("*.py")))
    patterns = {text: re.escape(text).replace("\x00", r"\{[^}]*\}") for text in FIXED_TEXTS}
    return {text: "" for text, pattern in patterns.items() if re.search(pattern, source)}


SUBJECTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "CRDs without descriptions": read_crds,
    "RBAC": read_rbac,
    "other manifests of config/": read_manifests,
    "flags (type, variable, default)": read_flags,
    "metrics (type, labels)": read_metrics,
    "reasons": read_reasons,
    "fixed log lines and messages": read_fixed_texts,
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
            print(f"          {state}: {key}")
    return equal


if __name__ == "__main__":
    sys.exit(0 if compare(Path(sys.argv[1]), Path(sys.argv[2])) else 1)
