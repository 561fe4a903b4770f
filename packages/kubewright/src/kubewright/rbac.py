"""The rights that follow from what controllers declare: no more than they need, never a wildcard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .controller import Controller
from .kind import Kind
from .source import OnKind, OnOwned

Rule = dict[str, Any]
READ = ("list", "watch")


def manager_rules(controllers: Iterable[Controller[Any]]) -> list[Rule]:
    """The rules of the manager's ClusterRole: watch what is watched, patch statuses, write events, and what `needs` declares."""
    wanted: dict[tuple[str, str], set[str]] = {("", "events"): {"create", "patch"}}

    def grant(kind: Kind, verbs: Iterable[str], subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        wanted.setdefault((kind.group, resource), set()).update(verbs)

    for controller in controllers:
        own = controller.kind.definition
        grant(own, READ)
        grant(own, ("patch",), "status")
        if controller.finalizer:
            grant(own, ("patch",))
        for wake in controller.wakes:
            if isinstance(wake, OnKind | OnOwned):
                grant(wake.kind.definition, READ)
        for right in controller.rights:
            grant(right.kind.definition, right.verbs, right.subresource)
    return [rule([group], [resource], sorted(verbs)) for (group, resource), verbs in sorted(wanted.items())]


def rule(groups: list[str], resources: list[str], verbs: list[str]) -> Rule:
    """One policy rule."""
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


LEADER_RULES: list[Rule] = [
    rule(["coordination.k8s.io"], ["leases"], ["create", "get", "patch"]),
]
"""A Lease is created once and patched from then on; `create` cannot be limited to a name."""

REVIEW_RULES: list[Rule] = [
    rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
    rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
]

METRICS_READER_RULES: list[Rule] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def user_rules(kind: Kind, verbs: list[str], status_verbs: list[str]) -> list[Rule]:
    """What a person may do with a kind."""
    return [rule([kind.group], [kind.plural], verbs), rule([kind.group], [f"{kind.plural}/status"], status_verbs)]


USER_ROLES: dict[str, tuple[list[str], list[str]]] = {
    "admin": (["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"], ["get"]),
    "editor": (["create", "delete", "get", "list", "patch", "update", "watch"], ["get"]),
    "viewer": (["get", "list", "watch"], ["get"]),
}
