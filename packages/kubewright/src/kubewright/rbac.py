"""The rights that follow from what controllers declare: no more than they need, never a wildcard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from .builtin import Event
from .controller import Controller, Right
from .kind import Kind
from .source import OnKind, OnOwned

Rule = dict[str, Any]
READ = ("list", "watch")
EVENTS = Right(Event, ("create", "patch"))


class Declaring(Protocol):
    """Whatever says which rights it needs beyond those that follow from what it is: a webhook, for one."""

    rights: list[Right]


def manager_rules(
    controllers: Iterable[Controller[Any]], others: Iterable[Declaring] = ()
) -> list[Rule]:
    """The rules of the manager's ClusterRole."""
    return rules_of(manager_rights(controllers, others))


def manager_rights(
    controllers: Iterable[Controller[Any]], others: Iterable[Declaring] = ()
) -> list[Right]:
    """What a manager needs: watch what is watched, patch statuses, write events, and what `needs` declares."""
    own = (right for controller in controllers for right in rights_of(controller))
    return [EVENTS, *own, *(right for other in others for right in other.rights)]


def rights_of(controller: Controller[Any]) -> list[Right]:
    """What a controller does because of what it declares."""
    own = controller.kind
    woken = [
        Right(wake.kind, READ) for wake in controller.wakes if isinstance(wake, OnKind | OnOwned)
    ]
    finalizing = [Right(own, ("patch",))] if controller.finalizer else []
    return [
        Right(own, READ),
        Right(own, ("patch",), "status"),
        *finalizing,
        *woken,
        *controller.rights,
    ]


def rules_of(rights: Iterable[Right]) -> list[Rule]:
    """One rule for each resource and set of names, in the order of their names."""
    wanted: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for right in rights:
        kind = right.kind.definition
        resource = f"{kind.plural}/{right.subresource}" if right.subresource else kind.plural
        wanted.setdefault((kind.group, resource, tuple(sorted(right.names))), set()).update(
            right.verbs
        )
    return [
        rule([group], [resource], sorted(verbs), names)
        for (group, resource, names), verbs in sorted(wanted.items())
    ]


def rule(
    groups: list[str], resources: list[str], verbs: list[str], names: tuple[str, ...] = ()
) -> Rule:
    """One policy rule."""
    limited = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": groups, "resources": resources} | limited | {"verbs": verbs}


LEADER_RULES: list[Rule] = [
    rule(["coordination.k8s.io"], ["leases"], ["create", "get", "patch"]),
]
"""A Lease is created once and patched from then on; `create` cannot be limited to a name."""

REVIEW_RULES: list[Rule] = [
    rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
    rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
]

METRICS_READER_RULES: list[Rule] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


class UserRole(NamedTuple):
    """The verbs of a role for people, on the objects and on their scale."""

    verbs: list[str]
    scale: list[str]


def user_rules(kind: Kind, who: UserRole) -> list[Rule]:
    """What a person may do with a kind; to scale it is a right of its own, which Kubernetes' own roles have for Deployments too."""
    subresources = {"status": ["get"]} | ({"scale": who.scale} if kind.scale else {})
    return [
        rule([kind.group], [kind.plural], who.verbs),
        *(
            rule([kind.group], [f"{kind.plural}/{name}"], verbs)
            for name, verbs in subresources.items()
        ),
    ]


WRITE = ["create", "delete", "get", "list", "patch", "update", "watch"]
USER_ROLES = {
    "admin": UserRole(sorted([*WRITE, "deletecollection"]), ["get", "patch", "update"]),
    "editor": UserRole(WRITE, ["get", "patch", "update"]),
    "viewer": UserRole(["get", "list", "watch"], ["get"]),
}
