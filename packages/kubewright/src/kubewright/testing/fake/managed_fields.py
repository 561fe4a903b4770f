"""The owners of fields: `metadata.managedFields`, updated by each write as the API server does.

An update takes the fields that it changed from their former managers. An apply owns exactly the
fields of its configuration: another manager's field is a conflict unless the values are equal, and
a field that the manager no longer applies is removed unless another manager owns it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from ...patch import Json
from .field_set import (
    Path,
    decode_fields,
    encode_fields,
    format_path,
    is_below,
    with_named_fields,
)
from .schema_node import SchemaNode
from .structured_merge import Comparison, compare, drop_emptied, fields_of, merge, remove_fields

_BEFORE_FIRST_APPLY = "before-first-apply"
_NEVER_OWNED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    }
)


class Manager(NamedTuple):
    """What identifies an entry of managedFields; one that applies keeps it in a new version."""

    name: str
    operation: str
    api_version: str
    subresource: str

    def describe(self) -> str:
        text = json.dumps(self.name)
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


@dataclass(frozen=True)
class _Ownership:
    fields: frozenset[Path]
    api_version: str
    time: str | None


_Owners = dict[Manager, _Ownership]


class ApplyConflict(Exception):
    """Other managers own fields that this apply would change."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        self.causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {manager.describe()}",
                "field": format_path(path),
            }
            for manager, path in conflicts
        ]
        super().__init__(_describe_conflicts(conflicts))


def _describe_conflicts(conflicts: list[tuple[Manager, Path]]) -> str:
    if len(conflicts) == 1:
        [(manager, path)] = conflicts
        return (
            f"Apply failed with 1 conflict: conflict with {manager.describe()}: {format_path(path)}"
        )
    lines: list[str] = []
    for manager in sorted({manager for manager, _ in conflicts}):
        lines.append(f"conflicts with {manager.describe()}:")
        lines += [f"- {format_path(path)}" for owner, path in conflicts if owner == manager]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


@dataclass(frozen=True)
class FieldManager:
    """The write that is in progress: its manager, and the schema of the object."""

    manager_name: str
    api_version: str
    subresource: str
    node: SchemaNode
    reset_fields: tuple[Path, ...]
    """Fields that this endpoint ignores, such as the status of a kind with that subresource."""
    clock: Callable[[], datetime]

    def _manager(self, operation: str, name: str = "") -> Manager:
        version = "" if operation == "Apply" else self.api_version
        return Manager(name or self.manager_name, operation, version, self.subresource)

    def _now(self) -> str:
        return format_time(self.clock())

    def update(self, live: Json, new: Json) -> list[Json]:
        """The managedFields after a write that is not an apply; `live` is {} for a create."""
        requested = new["metadata"].get("managedFields")
        owners = _decode(live.get("metadata", {}).get("managedFields", []))
        if requested is not None and not self.subresource:
            if requested in ([], [{}]):
                return []
            owners = _decode(requested) or owners
        if live and not owners:
            # An object without managers, as one from before server-side apply, stays so.
            return []
        owners = self._record_update(owners, self._manager("Update"), live, new)
        return _encode(owners)

    def _record_update(self, owners: _Owners, manager: Manager, live: Json, new: Json) -> _Owners:
        difference = self._compare(live, new)
        changed = difference.modified | difference.added
        owners = {
            other: replace(owned, fields=owned.fields - changed - difference.removed)
            for other, owned in owners.items()
        }
        taken = frozenset(changed - _NEVER_OWNED)
        if taken:
            previous = owners[manager].fields if manager in owners else frozenset()
            owners[manager] = _Ownership(previous | taken, self.api_version, self._now())
        return _without_empty(owners)

    def _compare(self, live: Json, new: Json) -> Comparison:
        difference = compare(_without_managers(live), _without_managers(new), self.node)
        return Comparison(
            self._without_reset(difference.added),
            self._without_reset(difference.modified),
            self._without_reset(difference.removed),
        )

    def _without_reset(self, paths: set[Path]) -> set[Path]:
        return {path for path in paths if not is_below(path, self.reset_fields)}

    def apply(self, live: Json, config: Json, *, force: bool) -> tuple[Json, list[Json]]:
        """The merged object and its managedFields; raises ApplyConflict."""
        manager = self._manager("Apply")
        owners = _decode(live.get("metadata", {}).get("managedFields", []))
        live = _without_managers(live)
        if live.get("metadata", {}).get("uid") and not owners:
            before = self._manager("Update", _BEFORE_FIRST_APPLY)
            owners = self._record_update({}, before, {}, live)
        last = owners.get(manager)
        applied = frozenset(self._without_reset(fields_of(config, self.node)))
        owners[manager] = _Ownership(applied, self.api_version, last.time if last else None)
        merged = merge(live, config, self.node)
        if last is not None and last.fields:
            merged = self._prune(merged, owners, last.fields)
        difference = self._compare(live, merged)
        changed = difference.modified | difference.added
        conflicts = [
            (other, path)
            for other in sorted(owners)
            if other != manager
            for path in sorted(owners[other].fields & changed)
        ]
        if conflicts and not force:
            raise ApplyConflict(conflicts)
        for other, owned in owners.items():
            if other != manager:
                fields = owned.fields - changed - difference.removed
                owners[other] = replace(owned, fields=fields)
        own = owners[manager].fields - _NEVER_OWNED
        # The time moves only with a change of the object.
        time = owners[manager].time if merged == live else self._now()
        owners[manager] = _Ownership(own, self.api_version, time)
        return drop_emptied(merged), _encode(_without_empty(owners))

    def _prune(self, merged: Json, owners: _Owners, last: frozenset[Path]) -> Json:
        """Remove what the manager applied last time, not this time, and no other manager owns."""
        node = self.node
        last_fields = with_named_fields(last, node)
        pruned = remove_fields(merged, last_fields, node)
        merged_fields = with_named_fields(fields_of(merged, node), node)
        owned = with_named_fields({p for o in owners.values() for p in o.fields}, node)
        kept = with_named_fields(fields_of(pruned, node), node) | owned
        pruned = remove_fields(merged, merged_fields - kept, node)
        pruned_fields = with_named_fields(fields_of(pruned, node), node)
        # Only fields of this manager: others may have no owner at all.
        removed = (merged_fields - pruned_fields) & last_fields
        result: Json = remove_fields(merged, removed, node)
        return result


def format_time(time: datetime) -> str:
    """As metav1.Time on the wire."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _without_managers(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return obj | {"metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _without_empty(owners: _Owners) -> _Owners:
    return {manager: owned for manager, owned in owners.items() if owned.fields}


def _decode(entries: list[Json]) -> _Owners:
    return {
        Manager(
            entry["manager"],
            entry["operation"],
            "" if entry["operation"] == "Apply" else entry["apiVersion"],
            entry.get("subresource", ""),
        ): _Ownership(
            frozenset(decode_fields(entry["fieldsV1"])), entry["apiVersion"], entry.get("time")
        )
        for entry in entries
    }


def _encode(owners: _Owners) -> list[Json]:
    entries: list[dict[str, Any]] = [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": owned.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode_fields(owned.fields),
            **({"time": owned.time} if owned.time else {}),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, owned in owners.items()
    ]
    return sorted(entries, key=lambda entry: (entry["operation"], entry.get("time", "")))
