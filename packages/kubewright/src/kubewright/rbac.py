"""The rights that follow from what controllers declare: no more than they need, never a wildcard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from .builtin import Event
from .controller import Controller, Permission
from .kind import KindDefinition
from .source import KindSource, OwnedKindSource

PolicyRule = dict[str, Any]
_READ_VERBS = ("list", "watch")
EVENT_PERMISSION = Permission(Event, ("create", "patch"))


class DeclaresPermissions(Protocol):
    """Whatever says which rights it needs beyond those that follow from what it is: a webhook, for one."""

    permissions: list[Permission]


def manager_rules(
    controllers: Iterable[Controller[Any]], others: Iterable[DeclaresPermissions] = ()
) -> list[PolicyRule]:
    """The rules of the manager's ClusterRole."""
    return build_rules(manager_permissions(controllers, others))


def manager_permissions(
    controllers: Iterable[Controller[Any]], others: Iterable[DeclaresPermissions] = ()
) -> list[Permission]:
    """What a manager needs: watch what is watched, patch statuses, write events, and what `needs` declares."""
    own = (right for controller in controllers for right in controller_permissions(controller))
    return [EVENT_PERMISSION, *own, *(right for other in others for right in other.permissions)]


def controller_permissions(controller: Controller[Any]) -> list[Permission]:
    """What a controller does because of what it declares."""
    own = controller.kind
    woken = [
        Permission(wake.kind, _READ_VERBS)
        for wake in controller.sources
        if isinstance(wake, KindSource | OwnedKindSource)
    ]
    finalizing = [Permission(own, ("patch",))] if controller.finalizer else []
    return [
        Permission(own, _READ_VERBS),
        Permission(own, ("patch",), "status"),
        *finalizing,
        *woken,
        *controller.permissions,
    ]


def build_rules(rights: Iterable[Permission]) -> list[PolicyRule]:
    """One rule for each resource and set of names, in the order of their names."""
    wanted: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for right in rights:
        kind = right.kind.definition
        resource = f"{kind.plural}/{right.subresource}" if right.subresource else kind.plural
        wanted.setdefault(
            (kind.group, resource, tuple(sorted(right.resource_names))), set()
        ).update(right.verbs)
    return [
        build_rule([group], [resource], sorted(verbs), names)
        for (group, resource, names), verbs in sorted(wanted.items())
    ]


def build_rule(
    groups: list[str], resources: list[str], verbs: list[str], names: tuple[str, ...] = ()
) -> PolicyRule:
    """One policy rule."""
    limited = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": groups, "resources": resources} | limited | {"verbs": verbs}


LEADER_RULES: list[PolicyRule] = [
    build_rule(["coordination.k8s.io"], ["leases"], ["create", "get", "patch"]),
]
"""A Lease is created once and patched from then on; `create` cannot be limited to a name."""

REVIEW_RULES: list[PolicyRule] = [
    build_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
    build_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
]

METRICS_READER_RULES: list[PolicyRule] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


class UserRole(NamedTuple):
    """The verbs of a role for people, on the objects and on their scale."""

    verbs: list[str]
    scale_verbs: list[str]


def user_rules(kind: KindDefinition, who: UserRole) -> list[PolicyRule]:
    """What a person may do with a kind; to scale it is a right of its own, which Kubernetes' own roles have for Deployments too."""
    subresources = {"status": ["get"]} | ({"scale": who.scale_verbs} if kind.scale else {})
    return [
        build_rule([kind.group], [kind.plural], who.verbs),
        *(
            build_rule([kind.group], [f"{kind.plural}/{name}"], verbs)
            for name, verbs in subresources.items()
        ),
    ]


_WRITE_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
USER_ROLES = {
    "admin": UserRole(sorted([*_WRITE_VERBS, "deletecollection"]), ["get", "patch", "update"]),
    "editor": UserRole(_WRITE_VERBS, ["get", "patch", "update"]),
    "viewer": UserRole(["get", "list", "watch"], ["get"]),
}
