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
    """One change of a CRD."""

    crd: str
    path: str
    message: str
    is_breaking: bool

    def __str__(self) -> str:
        return f"{self.crd} {self.path}".rstrip() + f": {self.message}"


def compare_crds(old: Sequence[Crd], new: Sequence[Crd]) -> list[CrdChange]:
    """Every change between two sets of CRDs."""
    before, after = ({crd["metadata"]["name"]: crd for crd in crds} for crds in (old, new))
    changes = [CrdChange(name, "", "kind removed", True) for name in before.keys() - after.keys()]
    changes += [CrdChange(name, "", "new kind", False) for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        changes += [
            CrdChange(name, *change)
            for change in _crd_changes(before[name]["spec"], after[name]["spec"])
        ]
    return sorted(changes, key=lambda change: (change.crd, change.path, change.message))


def _crd_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    if old["scope"] != new["scope"]:
        message = f"changed from {old['scope']} to {new['scope']}: stored objects cannot be found"
        yield "scope", message, True
    yield from _name_changes(old["names"], new["names"])
    had, has = (crd.get("conversion", {}).get("strategy", "None") for crd in (old, new))
    if had != has:
        yield "conversion", f"changed from {had} to {has}", has == "None"
    before, after = (
        {version["name"]: version for version in crd["versions"]} for crd in (old, new)
    )
    for name in before.keys() - after.keys():
        yield name, "version removed", True
    for name in after.keys() - before.keys():
        yield name, "new version", False
    for name in sorted(before.keys() & after.keys()):
        for place, message, is_breaking in _version_changes(before[name], after[name]):
            yield f"{name}{place}", message, is_breaking


def _name_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    for key in ("kind", "listKind", "singular", "plural"):
        if old.get(key) != new.get(key):
            yield f"names.{key}", f"changed from {old.get(key)} to {new.get(key)}", True
    for key in ("shortNames", "categories"):
        had, has = set(old.get(key, [])), set(new.get(key, []))
        for name in sorted(had - has):
            yield f"names.{key}", f'"{name}" removed: `kubectl get {name}` fails now', True
        for name in sorted(has - had):
            yield f"names.{key}", f'"{name}" added', False


def _version_changes(old: Crd, new: Crd) -> Iterator[SchemaChange]:
    """Changes of one version; each place is appended to the version's name."""
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
        place = f" subresource {name}"
        if name not in new:
            yield place, "removed", True
        elif name not in old:
            # With a status subresource, the API server ignores `status` in other requests.
            yield place, "added", name == "status"
        else:
            for key in sorted(old[name].keys() | new[name].keys()):
                had, has = old[name].get(key), new[name].get(key)
                if had != has:
                    yield place, f"{key} changed from {had} to {has}", key in old[name]


def _column_changes(old: Sequence[Crd], new: Sequence[Crd]) -> Iterator[SchemaChange]:
    """Changes of what `kubectl get` shows."""
    before, after = ({column["name"]: column for column in columns} for columns in (old, new))
    for name in before:
        place = f' column "{name}"'
        if name not in after:
            yield place, "removed", True
        elif (had := before[name]["jsonPath"]) != (has := after[name]["jsonPath"]):
            yield place, f"shows {has} instead of {had}", True
        elif bool(before[name].get("priority")) != bool(after[name].get("priority")):
            # kubectl shows columns with a priority above 0 only with `-o wide`.
            hidden = bool(after[name].get("priority"))
            message = "now shown only with `-o wide`" if hidden else "now always shown"
            yield place, message, hidden
    for name in after:
        if name not in before:
            yield f' column "{name}"', "added", False
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        yield " columns", "order changed", False
