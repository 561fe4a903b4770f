"""Compares two forms of a CRD: what changed, and whether the change breaks existing users.

Existing manifests must still apply, stored objects must still be valid, and scripts must still find
the fields they read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import rules
from .rules import Change
from .schema_diff import schema_changes

Crd = Mapping[str, Any]


@dataclass(frozen=True)
class CrdChange:
    """A change of the CRD of this name."""

    crd: str
    change: Change

    def is_breaking(self, policies: Collection[str] = ()) -> bool:
        return self.change.is_breaking(policies)

    def __str__(self) -> str:
        return f"{self.crd} {self.change.path}".rstrip() + f": {self.change.message}"


def compare_crds(old: Sequence[Crd], new: Sequence[Crd]) -> list[CrdChange]:
    """Every change between two sets of CRDs."""
    old_crds, new_crds = ({crd["metadata"]["name"]: crd for crd in crds} for crds in (old, new))
    changes = [
        *(
            CrdChange(name, Change("", "kind removed", rules.KIND_REMOVED))
            for name in old_crds.keys() - new_crds
        ),
        *(CrdChange(name, Change("", "new kind")) for name in new_crds.keys() - old_crds),
    ]
    for name in old_crds.keys() & new_crds:
        changes += [CrdChange(name, item) for item in _crd_changes(old_crds[name], new_crds[name])]
    return sorted(changes, key=lambda item: (item.crd, item.change.path, item.change.message))


def _crd_changes(old_crd: Crd, new_crd: Crd) -> Iterator[Change]:
    old, new = old_crd["spec"], new_crd["spec"]
    if old["scope"] != new["scope"]:
        message = f"changed from {old['scope']} to {new['scope']}"
        yield Change("scope", message, rules.IMMUTABLE)
    yield from _name_changes(old["names"], new["names"])
    strategies = [crd.get("conversion", {}).get("strategy", "None") for crd in (old, new)]
    if strategies[0] != strategies[1]:
        rule = rules.CONVERSION_REMOVED if strategies[1] == "None" else None
        yield Change("conversion", "changed from {} to {}".format(*strategies), rule)
    if old.get("preserveUnknownFields") and not new.get("preserveUnknownFields"):
        yield Change("preserveUnknownFields", "unknown fields no longer allowed", rules.PRUNED)
    old_versions, new_versions = (
        {version["name"]: version for version in crd["versions"]} for crd in (old, new)
    )
    for name in old_versions.keys() - new_versions:
        # A CRD from a file has no status; its storage version certainly has objects.
        stored = old_crd.get("status", {}).get("storedVersions", ())
        is_stored = name in stored or old_versions[name]["storage"]
        rule = rules.STORED_VERSION_REMOVED if is_stored else rules.VERSION_REMOVED
        yield Change(name, "version removed", rule)
    for name in new_versions.keys() - old_versions:
        yield Change(name, "new version")
    for name in sorted(old_versions.keys() & new_versions):
        for change in _version_changes(old_versions[name], new_versions[name]):
            yield change._replace(path=f"{name}{change.path}")


def _name_changes(old: Crd, new: Crd) -> Iterator[Change]:
    old, new = _with_default_names(old), _with_default_names(new)
    for key in ("kind", "listKind", "singular", "plural"):
        if old.get(key) != new.get(key):
            message = f"changed from {old.get(key)} to {new.get(key)}"
            is_immutable = key in ("kind", "plural")
            rule = rules.IMMUTABLE if is_immutable else rules.NAME_REMOVED
            yield Change(f"names.{key}", message, rule)
    for key in ("shortNames", "categories"):
        old_names, new_names = set(old.get(key, [])), set(new.get(key, []))
        for name in sorted(old_names - new_names):
            message = f'"{name}" removed: `kubectl get {name}` fails now'
            yield Change(f"names.{key}", message, rules.NAME_REMOVED)
        for name in sorted(new_names - old_names):
            yield Change(f"names.{key}", f'"{name}" added')


def _with_default_names(names: Crd) -> Crd:
    """The names with those that the API server fills in."""
    kind = names.get("kind", "")
    return {"singular": kind.lower(), "listKind": f"{kind}List"} | dict(names)


def _version_changes(old: Crd, new: Crd) -> Iterator[Change]:
    """Changes of one version; each path is appended to the version's name."""
    if old["served"] != new["served"]:
        if new["served"]:
            yield Change("", "now served")
        else:
            yield Change("", "no longer served", rules.VERSION_NOT_SERVED)
    if old["storage"] != new["storage"]:
        message = "no longer stored; stored objects keep this version until they are written again"
        yield Change("", "now stored" if new["storage"] else message)
    if not old.get("deprecated") and new.get("deprecated"):
        yield Change("", "deprecated")
    yield from _subresource_changes(old.get("subresources", {}), new.get("subresources", {}))
    yield from _column_changes(
        old.get("additionalPrinterColumns", []), new.get("additionalPrinterColumns", [])
    )
    yield from _selectable_field_changes(
        old.get("selectableFields", []), new.get("selectableFields", [])
    )
    yield from schema_changes(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"])


def _subresource_changes(old: Crd, new: Crd) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        path = f" subresource {name}"
        if name not in new:
            yield Change(path, "removed", rules.SUBRESOURCE_REMOVED)
        elif name not in old:
            yield Change(path, "added", rules.STATUS_ADDED if name == "status" else None)
        else:
            for key in sorted(old[name].keys() | new[name].keys()):
                old_value, new_value = old[name].get(key), new[name].get(key)
                if old_value != new_value:
                    message = f"{key} changed from {old_value} to {new_value}"
                    yield Change(path, message, rules.SCALE_CHANGED if key in old[name] else None)


def _column_changes(old: Sequence[Crd], new: Sequence[Crd]) -> Iterator[Change]:
    """Changes of what `kubectl get` shows."""
    old_columns, new_columns = ({item["name"]: item for item in items} for items in (old, new))
    for name, old_column in old_columns.items():
        path, new_column = f' column "{name}"', new_columns.get(name)
        if new_column is None:
            yield Change(path, "removed", rules.COLUMN_CHANGED)
        elif old_column["jsonPath"] != new_column["jsonPath"]:
            message = f"shows {new_column['jsonPath']} instead of {old_column['jsonPath']}"
            yield Change(path, message, rules.COLUMN_CHANGED)
        elif bool(old_column.get("priority")) != (hidden := bool(new_column.get("priority"))):
            # kubectl shows columns with a priority above 0 only with `-o wide`.
            message = "now shown only with `-o wide`" if hidden else "now always shown"
            yield Change(path, message, rules.COLUMN_CHANGED if hidden else None)
    for name in new_columns:
        if name not in old_columns:
            yield Change(f' column "{name}"', "added")
    kept = [name for name in old_columns if name in new_columns]
    if kept != [name for name in new_columns if name in old_columns]:
        yield Change(" columns", "order changed")


def _selectable_field_changes(old: Sequence[Crd], new: Sequence[Crd]) -> Iterator[Change]:
    old_paths, new_paths = ({item["jsonPath"] for item in items} for items in (old, new))
    for path in sorted(old_paths - new_paths):
        yield Change(f" selectable field {path}", "removed", rules.SELECTABLE_FIELD_REMOVED)
    for path in sorted(new_paths - old_paths):
        yield Change(f" selectable field {path}", "added")
