"""Deletes: preconditions, finalizers, propagation, grace periods and collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from ...patch import Json
from .failure import conflict, method_not_allowed, not_found
from .managed_fields import format_time
from .object_store import ObjectStore
from .resource_path import ResourcePath
from .selectors import parse_selectors
from .served_kind import KindRegistry, ServedKind

_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_POLICY_FINALIZERS = {"Foreground": _FOREGROUND, "Orphan": _ORPHAN}
_POD_GRACE_SECONDS = 30
# The response to the delete of other kinds is a Status.
_RETURNED_KINDS = frozenset(
    (
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
    )
)
_PRECONDITIONS = (
    ("uid", "UID", "deleted and then recreated"),
    ("resourceVersion", "ResourceVersion", "modified"),
)


class ObjectDeleter:
    """Removes objects, or marks them while they have finalizers."""

    def __init__(
        self, store: ObjectStore, kinds: KindRegistry, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._kinds, self._clock = store, kinds, clock

    def delete(self, path: ResourcePath, options: Json, *, dry_run: bool = False) -> Json:
        kind, old = self._kinds.find(path), self._store.objects.get(path.key)
        if old is None:
            raise not_found(kind.group_resource, path.name)
        _check_preconditions(kind, old["metadata"], options.get("preconditions") or {})
        finalizers = self._finalizers(old, options)
        grace_seconds = _grace_seconds(kind, old, options)
        is_namespace = (kind.group, kind.plural) == ("", "namespaces")
        is_removed = not finalizers and not grace_seconds and not is_namespace
        if is_removed and not _is_graceful(kind):
            if not dry_run:
                self._store.store("DELETED", path.key, old)
            return old if kind.plural in _RETURNED_KINDS else _success(kind, old)
        metadata = dict(old["metadata"])
        is_repeated = "deletionTimestamp" in metadata
        if not is_repeated or grace_seconds < metadata.get("deletionGracePeriodSeconds", 0):
            ends_at = self._clock() + timedelta(seconds=grace_seconds)
            metadata["deletionTimestamp"] = format_time(ends_at)
            if not is_namespace:
                metadata["deletionGracePeriodSeconds"] = grace_seconds
            if not is_repeated and metadata.get("generation"):
                metadata["generation"] += 1
        if finalizers:
            metadata["finalizers"] = finalizers
        marked = old | {"metadata": metadata}
        if is_removed:
            return marked if dry_run else self._store.store("DELETED", path.key, marked)
        if is_namespace:
            marked["status"] = {**old.get("status", {}), "phase": "Terminating"}
        if marked == old or dry_run:
            return marked
        return self._store.store("MODIFIED", path.key, marked)

    def _finalizers(self, obj: Json, options: Json) -> list[str]:
        """The finalizers of the object, with the one that the propagation policy asks for."""
        policy = options.get("propagationPolicy")
        finalizers = list(obj["metadata"].get("finalizers", ()))
        if policy:
            finalizers = [name for name in finalizers if name not in _POLICY_FINALIZERS.values()]
        if policy in _POLICY_FINALIZERS:
            finalizers.append(_POLICY_FINALIZERS[policy])
        return finalizers

    def delete_collection(
        self, path: ResourcePath, query: Mapping[str, str], options: Json, *, dry_run: bool
    ) -> Json:
        kind = self._kinds.find(path)
        if kind.namespaced and not path.namespace:
            raise method_not_allowed()
        matches = parse_selectors(
            kind, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        items = [obj for obj in self._store.list_collection(path.collection) if matches(obj)]
        for obj in items:
            self.delete(path.item(obj["metadata"]["name"]), options, dry_run=dry_run)
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(self._store.revision)},
            "items": items,
        }


def is_deletion_complete(obj: Json) -> bool:
    """Whether nothing keeps an object any more that was marked for deletion."""
    metadata = obj["metadata"]
    is_kept = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1":
        is_kept = is_kept or obj.get("spec", {}).get("finalizers")
    return bool(metadata.get("deletionTimestamp")) and not is_kept


def _check_preconditions(kind: ServedKind, metadata: Json, preconditions: Json) -> None:
    for name, field, reason in _PRECONDITIONS:
        expected = preconditions.get(name, metadata[name])
        if expected != metadata[name]:
            text = (
                f"the {field} in the precondition ({expected}) does not match the {field} in "
                f"record ({metadata[name]}). The object might have been {reason}"
            )
            raise conflict(kind.group_kind, metadata["name"], text)


def _is_graceful(kind: ServedKind) -> bool:
    return (kind.group, kind.plural) == ("", "pods")


def _grace_seconds(kind: ServedKind, obj: Json, options: Json) -> int:
    """Only Pods that may run on a node end gracefully: the kubelet removes them."""
    if not _is_graceful(kind):
        return 0
    is_over = obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if is_over or not obj.get("spec", {}).get("nodeName"):
        return 0
    default = obj["spec"].get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS)
    return int(options.get("gracePeriodSeconds", default))


def _success(kind: ServedKind, obj: Json) -> Json:
    metadata = obj["metadata"]
    details = {"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
