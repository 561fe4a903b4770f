"""config/rbac as documents: the manager's service account and roles, and roles for users."""

from __future__ import annotations

from ... import rbac
from ...definition import KindDefinition
from ...webhook.ca_bundle import ca_permissions
from ...webhook.options import WebhookOptions
from ..project import OperatorParts, Project
from . import Document, Files

_RBAC_GROUP = "rbac.authorization.k8s.io"
SERVICE_ACCOUNT = "controller-manager"
WEBHOOK_OPTIONS = WebhookOptions()
_AGGREGATION_TARGETS = {"admin": "admin", "editor": "edit", "viewer": "view"}


def build_role_files(project: Project, declared: OperatorParts) -> Files:
    """Every file of config/rbac."""
    documents: Files = {
        "namespace.yaml": [build_namespace(project)],
        "service_account.yaml": [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": SERVICE_ACCOUNT, "namespace": project.namespace},
            }
        ],
        "role.yaml": [
            build_role(
                project, "manager-role", rbac.manager_rules(declared.controllers, declared.webhooks)
            )
        ],
        "role_binding.yaml": [build_binding(project, "manager-rolebinding", "manager-role")],
        "leader_election_role.yaml": [
            build_role(
                project, "leader-election-role", rbac.LEADER_RULES, namespace=project.namespace
            )
        ],
        "leader_election_role_binding.yaml": [
            build_binding(
                project,
                "leader-election-rolebinding",
                "leader-election-role",
                namespace=project.namespace,
            )
        ],
        "metrics_auth_role.yaml": [build_role(project, "metrics-auth-role", rbac.REVIEW_RULES)],
        "metrics_auth_role_binding.yaml": [
            build_binding(project, "metrics-auth-rolebinding", "metrics-auth-role")
        ],
        "metrics_reader_role.yaml": [
            build_role(project, "metrics-reader", rbac.METRICS_READER_RULES)
        ],
    }
    if declared.has_webhook_server:
        documents["webhook_ca_roles.yaml"] = build_ca_roles(project, declared)
    # By name: the versions of a kind share their roles.
    definitions = {kind.definition.name: kind.definition for kind in declared.kinds}
    for definition in definitions.values():
        documents[f"{definition.name.lower()}_user_roles.yaml"] = _build_user_roles(
            project, definition
        )
    return documents


def build_namespace(project: Project) -> Document:
    """The manager's namespace, with the Pod Security level "restricted"."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": project.namespace, "labels": labels},
    }


def build_role(
    project: Project,
    name: str,
    rules: list[rbac.PolicyRule],
    *,
    namespace: str = "",
    labels: dict[str, str] | None = None,
) -> Document:
    """A Role if there is a namespace, otherwise a ClusterRole."""
    # The project's name is the prefix, because all operators of a cluster share these names.
    metadata: Document = (
        {"name": f"{project.name}-{name}"}
        | ({"namespace": namespace} if namespace else {})
        | ({"labels": labels} if labels else {})
    )
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    }


def build_binding(
    project: Project, name: str, role_name: str, *, namespace: str = "", role_kind: str = ""
) -> Document:
    """The role for the manager's service account; a namespace can bind a ClusterRole, too."""
    return {
        "apiVersion": f"{_RBAC_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{project.name}-{name}"}
        | ({"namespace": namespace} if namespace else {}),
        "roleRef": {
            "apiGroup": _RBAC_GROUP,
            "kind": role_kind or ("Role" if namespace else "ClusterRole"),
            "name": f"{project.name}-{role_name}",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": project.namespace}
        ],
    }


def _build_user_roles(project: Project, definition: KindDefinition) -> list[Document]:
    is_optional = definition.name in project.config.optional_editors
    return [
        build_role(
            project,
            f"{definition.name.lower()}-{role}-role",
            rbac.user_rules(definition, verbs),
            labels={} if is_optional and role != "viewer" else _build_aggregation_label(role),
        )
        for role, verbs in rbac.USER_ROLES.items()
    ]


def _build_aggregation_label(role: str) -> dict[str, str]:
    """The label that adds a role to one of the ClusterRoles admin, edit and view of Kubernetes."""
    return {f"{_RBAC_GROUP}/aggregate-to-{_AGGREGATION_TARGETS[role]}": "true"}


def build_aggregation_patches(project: Project) -> Files:
    """Patches that add the roles of optional_editors to those of Kubernetes."""
    return {
        f"{kind.lower()}_{role}_role_patch.yaml": [
            {
                "apiVersion": f"{_RBAC_GROUP}/v1",
                "kind": "ClusterRole",
                "metadata": {
                    "name": f"{project.name}-{kind.lower()}-{role}-role",
                    "labels": _build_aggregation_label(role),
                },
            }
        ]
        for kind in project.config.optional_editors
        for role in ("admin", "editor")
    }


def build_cluster_rules(declared: OperatorParts) -> list[rbac.PolicyRule]:
    """The manager's rules for cluster-scoped kinds, which a Role cannot grant."""
    permissions = [
        permission
        for controller in declared.controllers
        for permission in rbac.controller_permissions(controller)
    ]
    permissions += [entry for webhook in declared.webhooks for entry in webhook.permissions]
    return rbac.build_rules(entry for entry in permissions if not entry.kind.definition.namespaced)


def build_webhook_role(project: Project, declared: OperatorParts) -> list[Document]:
    """The role of optional webhooks, apart from the manager's; empty if they need none."""
    rules = rbac.build_rules(
        permission for webhook in declared.webhooks for permission in webhook.permissions
    )
    if not rules:
        return []
    return [
        build_role(project, "webhook-role", rules),
        build_binding(project, "webhook-rolebinding", "webhook-role"),
    ]


def build_feature_role(project: Project, declared: OperatorParts, name: str) -> list[Document]:
    """The role of an optional feature, apart from the manager's; empty if it needs none."""
    rules = rbac.build_rules(declared.feature_permissions[name])
    if not rules:
        return []
    return [
        build_role(project, f"{name}-role", rules),
        build_binding(project, f"{name}-rolebinding", f"{name}-role"),
    ]


def build_ca_roles(project: Project, declared: OperatorParts) -> list[Document]:
    """The roles of the manager's own CA: its Secret, and each caBundle by name."""
    cluster_scoped, namespaced = (
        rbac.build_rules(permissions)
        for permissions in ca_permissions(
            declared.webhooks, declared.conversions, WEBHOOK_OPTIONS, name=project.name
        )
    )
    role, binding, namespace = "webhook-ca-role", "webhook-ca-rolebinding", project.namespace
    return [
        build_role(project, role, cluster_scoped),
        build_binding(project, binding, role),
        build_role(project, role, namespaced, namespace=namespace),
        build_binding(project, binding, role, namespace=namespace),
    ]
