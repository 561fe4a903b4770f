"""RBAC rules from the declarations of controllers: least privilege, never a wildcard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .builtin import Event
from .controller import Controller
from .definition import KindDefinition
from .permission import HasPermissions, Permission

PolicyRule = dict[str, Any]
_READ_VERBS = ("list", "watch")
EVENT_PERMISSION = Permission(Event, ("create", "patch"))


def manager_rules(
    controllers: Iterable[Controller[Any]], others: Iterable[HasPermissions] = ()
) -> list[PolicyRule]:
    """The rules of the manager's ClusterRole."""
    return build_rules(manager_permissions(controllers, others))


def manager_permissions(
    controllers: Iterable[Controller[Any]], others: Iterable[HasPermissions] = ()
) -> list[Permission]:
    """All permissions of a manager, including those for Events."""
    permissions = [EVENT_PERMISSION]
    for controller in controllers:
        permissions += controller_permissions(controller)
    for other in others:
        permissions += other.permissions
    return permissions


def controller_permissions(controller: Controller[Any]) -> list[Permission]:
    """List and watch the cached kinds, write the status, apply and delete the children, and what
    `needs` declares.
    """
    kind = controller.kind
    permissions = [Permission(cached, _READ_VERBS) for cached in controller.cached_kinds()]
    if controller.writes_status:
        # The first status of an object replaces the empty one, all others are patches.
        verbs = ("patch", "update") if kind.definition.can_replace_status else ("patch",)
        permissions.append(Permission(kind, verbs, "status"))
    if controller.finalizer:
        permissions.append(Permission(kind, ("patch",)))
    # Server-side apply creates with both permissions, and a dry run of create needs the same.
    permissions += (
        Permission(child, ("create", "patch", "delete")) for child in controller.child_kinds
    )
    if controller.child_kinds:
        # The admission plugin OwnerReferencesPermissionEnforcement asks for it, because the owner
        # references of children block a foreground deletion of the owner.
        permissions.append(Permission(kind, ("update",), "finalizers"))
    return permissions + controller.permissions


def build_rules(permissions: Iterable[Permission]) -> list[PolicyRule]:
    """One rule per resource and set of resource names, sorted."""
    verbs_by_resource: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for permission in permissions:
        definition = permission.kind.definition
        resource = definition.plural
        if permission.subresource:
            resource += f"/{permission.subresource}"
        key = (definition.group, resource, tuple(sorted(permission.resource_names)))
        verbs_by_resource.setdefault(key, set()).update(permission.verbs)
    return [
        build_rule([group], [resource], sorted(verbs), names)
        for (group, resource, names), verbs in sorted(verbs_by_resource.items())
    ]


def build_rule(
    groups: list[str], resources: list[str], verbs: list[str], names: tuple[str, ...] = ()
) -> PolicyRule:
    resource_names = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": groups, "resources": resources} | resource_names | {"verbs": verbs}


# RBAC cannot limit `create` to a name, so the rule has no resourceNames.
LEADER_RULES: list[PolicyRule] = [
    build_rule(["coordination.k8s.io"], ["leases"], ["create", "get", "patch"]),
]

REVIEW_RULES: list[PolicyRule] = [
    build_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
    build_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
]

METRICS_READER_RULES: list[PolicyRule] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


class UserRole(NamedTuple):
    """The verbs of a user's role on the objects and on their scale subresource."""

    verbs: list[str]
    scale_verbs: list[str]


def user_rules(definition: KindDefinition, role: UserRole) -> list[PolicyRule]:
    """The rules of a user's role for a kind."""
    subresources = {"status": ["get"]}
    # Scaling has its own rule, as in the roles of Kubernetes for Deployments.
    if definition.scale:
        subresources["scale"] = role.scale_verbs
    return [
        build_rule([definition.group], [definition.plural], role.verbs),
        *(
            build_rule([definition.group], [f"{definition.plural}/{name}"], verbs)
            for name, verbs in subresources.items()
        ),
    ]


_WRITE_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
USER_ROLES = {
    "admin": UserRole(sorted([*_WRITE_VERBS, "deletecollection"]), ["get", "patch", "update"]),
    "editor": UserRole(_WRITE_VERBS, ["get", "patch", "update"]),
    "viewer": UserRole(["get", "list", "watch"], ["get"]),
}
