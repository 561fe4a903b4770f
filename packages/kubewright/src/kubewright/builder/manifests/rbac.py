"""config/rbac as documents: who the manager is, what it may do, and roles for the people who use the kinds."""

from __future__ import annotations

from typing import Any

from ... import rbac
from ...kind import KindDefinition
from ...webhook.ca_bundle import cluster_permissions, namespace_permissions
from ...webhook.options import WebhookOptions
from ..project import Declarations, Project

Document = dict[str, Any]
RBAC_GROUP = "rbac.authorization.k8s.io"
SERVICE_ACCOUNT = "controller-manager"
WEBHOOK_OPTIONS = WebhookOptions()
_AGGREGATION_TARGETS = {"admin": "admin", "editor": "edit", "viewer": "view"}


def build_role_files(project: Project, declared: Declarations) -> dict[str, list[Document]]:
    """Every file of config/rbac."""
    documents: dict[str, list[Document]] = {
        "namespace.yaml": [build_namespace(project)],
        "service_account.yaml": [_build_service_account(project)],
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
    for kind in {each.definition.name: each.definition for each in declared.kinds}.values():
        documents[f"{kind.name.lower()}_user_roles.yaml"] = _build_user_roles(project, kind)
    return documents


def build_namespace(project: Project) -> Document:
    """The manager's namespace, where only Pods run that cannot become root."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": project.namespace, "labels": labels},
    }


def _build_service_account(project: Project) -> Document:
    """Who the manager is."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": project.namespace},
    }


def build_role(
    project: Project,
    name: str,
    rules: list[rbac.PolicyRule],
    *,
    namespace: str = "",
    labels: dict[str, str] | None = None,
) -> Document:
    """A Role where there is a namespace, else a ClusterRole; its name begins with the project's, since the cluster is shared."""
    metadata: Document = (
        {"name": f"{project.name}-{name}"}
        | ({"namespace": namespace} if namespace else {})
        | ({"labels": labels} if labels else {})
    )
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    }


def build_binding(
    project: Project, name: str, role_name: str, *, namespace: str = "", role_kind: str = ""
) -> Document:
    """The role, given to the manager's service account; in a namespace it may be a ClusterRole too."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{project.name}-{name}"}
        | ({"namespace": namespace} if namespace else {}),
        "roleRef": {
            "apiGroup": RBAC_GROUP,
            "kind": role_kind or ("Role" if namespace else "ClusterRole"),
            "name": f"{project.name}-{role_name}",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": project.namespace}
        ],
    }


def _build_user_roles(project: Project, kind: KindDefinition) -> list[Document]:
    """Roles for people, added to Kubernetes' own admin, edit and view by aggregation."""
    return [
        build_role(
            project,
            f"{kind.name.lower()}-{who}-role",
            rbac.user_rules(kind, allowed),
            labels={f"{RBAC_GROUP}/aggregate-to-{_AGGREGATION_TARGETS[who]}": "true"},
        )
        for who, allowed in rbac.USER_ROLES.items()
    ]


def build_cluster_rules(declared: Declarations) -> list[rbac.PolicyRule]:
    """Those of the manager's rules that no namespace can hold."""
    rights = [
        right
        for controller in declared.controllers
        for right in rbac.controller_permissions(controller)
    ]
    rights += [right for webhook in declared.webhooks for right in webhook.permissions]
    return rbac.build_rules(right for right in rights if not right.kind.definition.namespaced)


def build_webhook_role(project: Project, on: Declarations) -> list[Document]:
    """What webhooks that are optional need for themselves, apart from the manager's role; none where they need nothing."""
    rules = rbac.build_rules(right for webhook in on.webhooks for right in webhook.permissions)
    return (
        [
            build_role(project, "webhook-role", rules),
            build_binding(project, "webhook-rolebinding", "webhook-role"),
        ]
        if rules
        else []
    )


def build_ca_roles(project: Project, declared: Declarations) -> list[Document]:
    """The rights that our own CA needs: its Secret, and each caBundle by name."""
    told = (declared.webhooks, declared.conversions, WEBHOOK_OPTIONS)
    wide, narrow = (
        cluster_permissions(*told, name=project.name),
        namespace_permissions(*told, name=project.name),
    )
    return [
        build_role(project, "webhook-ca-role", rbac.build_rules(wide)),
        build_binding(project, "webhook-ca-rolebinding", "webhook-ca-role"),
        build_role(
            project, "webhook-ca-role", rbac.build_rules(narrow), namespace=project.namespace
        ),
        build_binding(
            project, "webhook-ca-rolebinding", "webhook-ca-role", namespace=project.namespace
        ),
    ]
