"""Two forms of a CRD compared: what changed, and whether it breaks what people have.

What people have are manifests, which must still apply, stored objects, which must still be valid, and scripts, which must still find
what they read. Below `status` only readers count: we write it, so its rules bind only us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .schema_diff import schema_changes

Crd = Mapping[str, Any]


@dataclass(frozen=True)
class CrdChange:
    """One change of a CRD."""

    crd: str
    path: str
    message: str
    is_breaking: bool

    def __str__(self) -> str:
        return (
            f"{self.crd} {self.path}: {self.message}"
            if self.path
            else f"{self.crd}: {self.message}"
        )


def compare_crds(old: Sequence[Crd], new: Sequence[Crd]) -> list[CrdChange]:
    """Every change between two sets of CRDs."""
    before, after = ({crd["metadata"]["name"]: crd for crd in crds} for crds in (old, new))
    found = [CrdChange(name, "", "the kind is gone", True) for name in before.keys() - after.keys()]
    found += [CrdChange(name, "", "a new kind", False) for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        found += [
            CrdChange(name, *change)
            for change in _crd_changes(before[name]["spec"], after[name]["spec"])
        ]
    return sorted(found, key=lambda each: (each.crd, each.path, each.message))


def _crd_changes(old: Crd, new: Crd) -> Iterator[tuple[str, str, bool]]:
    """Place, words and verdict of each change of one CRD."""
    if old["scope"] != new["scope"]:
        yield (
            "scope",
            f"was {old['scope']}, is {new['scope']}: no stored object can be found any more",
            True,
        )
    yield from _name_changes(old["names"], new["names"])
    had, has = (crd.get("conversion", {}).get("strategy", "None") for crd in (old, new))
    if had != has:
        yield "conversion", f"was {had}, is {has}", has == "None"
    before, after = (
        {version["name"]: version for version in crd["versions"]} for crd in (old, new)
    )
    for name in before.keys() - after.keys():
        yield name, "the version is gone", True
    for name in after.keys() - before.keys():
        yield name, "a new version", False
    for name in sorted(before.keys() & after.keys()):
        for where, words, breaking in _version_changes(before[name], after[name]):
            yield f"{name}{where}", words, breaking


def _name_changes(old: Crd, new: Crd) -> Iterator[tuple[str, str, bool]]:
    """How the kind is called."""
    for key in ("kind", "listKind", "singular", "plural"):
        if old.get(key) != new.get(key):
            yield f"names.{key}", f"was {old.get(key)}, is {new.get(key)}", True
    for key in ("shortNames", "categories"):
        had, has = set(old.get(key, [])), set(new.get(key, []))
        for name in sorted(had - has):
            yield f"names.{key}", f'"{name}" is gone: `kubectl get {name}` fails now', True
        for name in sorted(has - had):
            yield f"names.{key}", f'"{name}" is new', False


def _version_changes(old: Crd, new: Crd) -> Iterator[tuple[str, str, bool]]:
    """What differs in one version; the place begins where the version's name ends."""
    if old["served"] != new["served"]:
        yield "", "is served now" if new["served"] else "is not served any more", not new["served"]
    if old["storage"] != new["storage"]:
        yield (
            "",
            "is stored now"
            if new["storage"]
            else "is not stored any more; stored objects stay in it until written again",
            False,
        )
    if not old.get("deprecated") and new.get("deprecated"):
        yield "", "is deprecated", False
    yield from _subresource_changes(old.get("subresources", {}), new.get("subresources", {}))
    yield from _column_changes(
        old.get("additionalPrinterColumns", []), new.get("additionalPrinterColumns", [])
    )
    yield from schema_changes(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"])


def _subresource_changes(old: Crd, new: Crd) -> Iterator[tuple[str, str, bool]]:
    """What is at a path of its own: status and scale."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f" subresource {name}", "is gone", True
        elif name not in old:
            # With a status subresource, what people write into status is ignored from then on.
            yield f" subresource {name}", "is new", name == "status"
        else:
            for key in sorted(old[name].keys() | new[name].keys()):
                if old[name].get(key) != new[name].get(key):
                    yield (
                        f" subresource {name}",
                        f"{key} was {old[name].get(key)}, is {new[name].get(key)}",
                        key in old[name],
                    )


def _column_changes(old: Sequence[Crd], new: Sequence[Crd]) -> Iterator[tuple[str, str, bool]]:
    """What `kubectl get` shows."""
    before, after = ({column["name"]: column for column in columns} for columns in (old, new))
    for name in before:
        if name not in after:
            yield f' column "{name}"', "is gone", True
        elif before[name]["jsonPath"] != after[name]["jsonPath"]:
            yield (
                f' column "{name}"',
                f"showed {before[name]['jsonPath']}, shows {after[name]['jsonPath']}",
                True,
            )
        elif bool(before[name].get("priority")) != bool(after[name].get("priority")):
            hidden = bool(after[name].get("priority"))
            yield (
                f' column "{name}"',
                "is shown by `-o wide` alone now" if hidden else "is always shown now",
                hidden,
            )
    for name in after:
        if name not in before:
            yield f' column "{name}"', "is new", False
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        yield " columns", "stand in another order", False
