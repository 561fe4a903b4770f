"""Compares two forms of a CRD: what changed, and whether the change breaks existing users.

Existing manifests must still apply, stored objects must still be valid, and scripts must still find
the fields they read. Below `status` only readers count: the operator writes it, so a stricter rule
there binds only the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .schema_diff import SchemaChange, schema_changes

Crd = Mapping[str, Any]


@dataclass(frozen=True)
class CrdChange:
    crd: str
    path: str
    message: str
    is_breaking: bool

    def __str__(self) -> str:
        return f"{self.crd} {self.path}".rstrip() + f": {self.message}"


def compare_crds(old: Sequence[Crd], new: Sequence[Crd]) -> list[CrdChange]:
    """Every change between two sets of CRDs."""
    old_crds, new_crds = ({crd["metadata"]["name"]: crd for crd in crds} for crds in (old, new))
    changes = [CrdChange(name, "", "kind removed", True) for name in old_crds.keys() - new_crds]
    changes += [CrdChange(name, "", "new kind", False) for name in new_crds.keys() - old_crds]
    for name in old_crds.keys() & new_crds:
        changes += [
            CrdChange(name, *change)
            for change in _crd_changes(old_crds[name]["spec"], new_crds[name]["spec"])
        ]
    return sorted(changes, key=lambda change: (change.crd, change.path, change.message))


def _crd_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    if old["scope"] != new["scope"]:
        message = f"changed from {old['scope']} to {new['scope']}: stored objects cannot be found"
        yield "scope", message, True
    yield from _name_changes(old["names"], new["names"])
    strategies = [crd.get("conversion", {}).get("strategy", "None") for crd in (old, new)]
    if strategies[0] != strategies[1]:
        yield "conversion", "changed from {} to {}".format(*strategies), strategies[1] == "None"
    old_versions, new_versions = (
        {version["name"]: version for version in crd["versions"]} for crd in (old, new)
    )
    for name in old_versions.keys() - new_versions:
        yield name, "version removed", True
    for name in new_versions.keys() - old_versions:
        yield name, "new version", False
    for name in sorted(old_versions.keys() & new_versions):
        for path, message, is_breaking in _version_changes(old_versions[name], new_versions[name]):
            yield f"{name}{path}", message, is_breaking


def _name_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    for key in ("kind", "listKind", "singular", "plural"):
        if old.get(key) != new.get(key):
            yield f"names.{key}", f"changed from {old.get(key)} to {new.get(key)}", True
    for key in ("shortNames", "categories"):
        old_names, new_names = set(old.get(key, [])), set(new.get(key, []))
        for name in sorted(old_names - new_names):
            yield f"names.{key}", f'"{name}" removed: `kubectl get {name}` fails now', True
        for name in sorted(new_names - old_names):
            yield f"names.{key}", f'"{name}" added', False


def _version_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    """Changes of one version; each path is appended to the version's name."""
    if old["served"] != new["served"]:
        yield "", "now served" if new["served"] else "no longer served", not new["served"]
    if old["storage"] != new["storage"]:
        message = "no longer stored; stored objects keep this version until they are written again"
        yield "", "now stored" if new["storage"] else message, False
    if not old.get("deprecated") and new.get("deprecated"):
        yield "", "deprecated", False
    yield from _subresource_changes(old.get("subresources", {}), new.get("subresources", {}))
    yield from _column_changes(
        old.get("additionalPrinterColumns", []), new.get("additionalPrinterColumns", [])
    )
    yield from schema_changes(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"])


def _subresource_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    for name in sorted(old.keys() | new.keys()):
        path = f" subresource {name}"
        if name not in new:
            yield path, "removed", True
        elif name not in old:
            # With a status subresource, the API server ignores `status` in other requests.
            yield path, "added", name == "status"
        else:
            for key in sorted(old[name].keys() | new[name].keys()):
                old_value, new_value = old[name].get(key), new[name].get(key)
                if old_value != new_value:
                    message = f"{key} changed from {old_value} to {new_value}"
                    yield path, message, key in old[name]


def _column_changes(old: Sequence[Crd], new: Sequence[Crd]) -> Iterator[SchemaChange]:
    """Changes of what `kubectl get` shows."""
    old_columns, new_columns = ({item["name"]: item for item in items} for items in (old, new))
    for name, old_column in old_columns.items():
        path, new_column = f' column "{name}"', new_columns.get(name)
        if new_column is None:
            yield path, "removed", True
        elif old_column["jsonPath"] != new_column["jsonPath"]:
            yield path, f"shows {new_column['jsonPath']} instead of {old_column['jsonPath']}", True
        elif bool(old_column.get("priority")) != (hidden := bool(new_column.get("priority"))):
            # kubectl shows columns with a priority above 0 only with `-o wide`.
            message = "now shown only with `-o wide`" if hidden else "now always shown"
            yield path, message, hidden
    for name in new_columns:
        if name not in old_columns:
            yield f' column "{name}"', "added", False
    kept = [name for name in old_columns if name in new_columns]
    if kept != [name for name in new_columns if name in old_columns]:
        yield " columns", "order changed", False
