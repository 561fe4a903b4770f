"""What the API server itself sets in objects of some built-in kinds."""

from __future__ import annotations

from ...patch import Json
from .served_kind import ServedKind

_STATUSES: dict[tuple[str, str], Json] = {
    ("", "namespaces"): {"phase": "Active"},
    ("", "persistentvolumeclaims"): {"phase": "Pending"},
    ("", "persistentvolumes"): {"phase": "Pending"},
}
_NAME_LABEL = "kubernetes.io/metadata.name"
_RBAC_GROUP = "rbac.authorization.k8s.io"
_QUALITY_RESOURCES = ("cpu", "memory")


def complete_new_object(kind: ServedKind, obj: Json) -> Json:
    """The object with its first status; that of the request is ignored."""
    key = (kind.group, kind.plural)
    if kind.has_status:
        obj = {name: value for name, value in obj.items() if name != "status"}
    if key in _STATUSES:
        obj["status"] = _STATUSES[key]
    if key == ("apiextensions.k8s.io", "customresourcedefinitions"):
        obj["status"] = _established_status(obj["spec"])
    if key == ("", "pods"):
        obj["status"] = {"phase": "Pending", "qosClass": _quality_of_service(obj)}
    if key == ("", "namespaces"):
        # The namespace controller removes it after it has emptied the namespace.
        obj["spec"] = {**obj.get("spec", {}), "finalizers": ["kubernetes"]}
    return obj


def _established_status(spec: Json) -> Json:
    """The status of a CRD with a kind that is served: here that is at once."""
    storage = [version["name"] for version in spec["versions"] if version["storage"]]
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
    ]
    return {"acceptedNames": spec["names"], "storedVersions": storage, "conditions": conditions}


def set_namespace_label(kind: ServedKind, obj: Json) -> None:
    """Set the label of a namespace with its own name, by which selectors can find it."""
    if (kind.group, kind.plural) == ("", "namespaces"):
        name = obj["metadata"]["name"]
        obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), _NAME_LABEL: name}


def set_role_group(kind: ServedKind, obj: Json) -> None:
    """Set the API group of the role that a binding refers to: there is only one."""
    role = obj.get("roleRef")
    if kind.group == _RBAC_GROUP and role and not role.get("apiGroup"):
        obj["roleRef"] = {"apiGroup": _RBAC_GROUP, **role}


def keep_namespace_finalizers(kind: ServedKind, new: Json, old: Json) -> Json:
    """A namespace as a client may change it: only its subresource finalize changes these."""
    if (kind.group, kind.plural) != ("", "namespaces"):
        return new
    finalizers = old.get("spec", {}).get("finalizers", [])
    return new | {"spec": {**new.get("spec", {}), "finalizers": finalizers}}


def _quality_of_service(pod: Json) -> str:
    spec = pod.get("spec", {})
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    resources = [container.get("resources", {}) for container in containers]
    if not any(r.get(part) for r in resources for part in ("requests", "limits")):
        return "BestEffort"
    is_guaranteed = all(
        name in r.get("limits", {})
        and r.get("requests", {}).get(name, r["limits"][name]) == r["limits"][name]
        for r in resources
        for name in _QUALITY_RESOURCES
    )
    return "Guaranteed" if is_guaranteed else "Burstable"
