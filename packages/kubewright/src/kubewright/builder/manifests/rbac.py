"""config/rbac as documents: who the manager is, what it may do, and roles for the people who use the kinds."""

from __future__ import annotations

from typing import Any

from ... import rbac
from ...kind import Kind
from ...webhook.options import WebhookOptions
from ...webhook.rbac import cluster_rights, namespace_rights
from ..project import Declared, Project

Document = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ACCOUNT = "controller-manager"
OPTIONS = WebhookOptions()
AGGREGATE = {"admin": "admin", "editor": "edit", "viewer": "view"}


def role_documents(project: Project, declared: Declared) -> dict[str, list[Document]]:
    """Every file of config/rbac."""
    documents: dict[str, list[Document]] = {
        "namespace.yaml": [namespace(project)],
        "service_account.yaml": [service_account(project)],
        "role.yaml": [role(project, "manager-role", rbac.manager_rules(declared.controllers, declared.webhooks))],
        "role_binding.yaml": [binding(project, "manager-rolebinding", "manager-role")],
        "leader_election_role.yaml": [role(project, "leader-election-role", rbac.LEADER_RULES, namespace=project.namespace)],
        "leader_election_role_binding.yaml": [
            binding(project, "leader-election-rolebinding", "leader-election-role", namespace=project.namespace)
        ],
        "metrics_auth_role.yaml": [role(project, "metrics-auth-role", rbac.REVIEW_RULES)],
        "metrics_auth_role_binding.yaml": [binding(project, "metrics-auth-rolebinding", "metrics-auth-role")],
        "metrics_reader_role.yaml": [role(project, "metrics-reader", rbac.METRICS_READER_RULES)],
    }
    if declared.asked:
        documents["webhook_ca_roles.yaml"] = authority_documents(project, declared)
    for kind in {each.definition.name: each.definition for each in declared.kinds}.values():
        documents[f"{kind.name.lower()}_user_roles.yaml"] = user_roles(project, kind)
    return documents


def namespace(project: Project) -> Document:
    """The manager's namespace, where only Pods run that cannot become root."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace, "labels": labels}}


def service_account(project: Project) -> Document:
    """Who the manager is."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": project.namespace}}


def role(project: Project, name: str, rules: list[rbac.Rule], *, namespace: str = "", labels: dict[str, str] | None = None) -> Document:
    """A Role where there is a namespace, else a ClusterRole; its name begins with the project's, since the cluster is shared."""
    metadata: Document = (
        {"name": f"{project.name}-{name}"} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    )
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": rules}


def binding(project: Project, name: str, role_name: str, *, namespace: str = "", role_kind: str = "") -> Document:
    """The role, given to the manager's service account; in a namespace it may be a ClusterRole too."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{project.name}-{name}"} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {
            "apiGroup": RBAC,
            "kind": role_kind or ("Role" if namespace else "ClusterRole"),
            "name": f"{project.name}-{role_name}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": project.namespace}],
    }


def user_roles(project: Project, kind: Kind) -> list[Document]:
    """Roles for people, added to Kubernetes' own admin, edit and view by aggregation."""
    return [
        role(
            project,
            f"{kind.name.lower()}-{who}-role",
            rbac.user_rules(kind, allowed),
            labels={f"{RBAC}/aggregate-to-{AGGREGATE[who]}": "true"},
        )
        for who, allowed in rbac.USER_ROLES.items()
    ]


def cluster_rules(declared: Declared) -> list[rbac.Rule]:
    """Those of the manager's rules that no namespace can hold."""
    rights = [right for controller in declared.controllers for right in rbac.rights_of(controller)]
    rights += [right for webhook in declared.webhooks for right in webhook.rights]
    return rbac.rules_of(right for right in rights if not right.kind.definition.namespaced)


def webhook_role(project: Project, on: Declared) -> list[Document]:
    """What webhooks that are optional need for themselves, apart from the manager's role; none where they need nothing."""
    rules = rbac.rules_of(right for webhook in on.webhooks for right in webhook.rights)
    return [role(project, "webhook-role", rules), binding(project, "webhook-rolebinding", "webhook-role")] if rules else []


def authority_documents(project: Project, declared: Declared) -> list[Document]:
    """The rights that our own CA needs: its Secret, and each caBundle by name."""
    told = (declared.webhooks, declared.conversions, OPTIONS)
    wide, narrow = cluster_rights(*told, name=project.name), namespace_rights(*told, name=project.name)
    return [
        role(project, "webhook-ca-role", rbac.rules_of(wide)),
        binding(project, "webhook-ca-rolebinding", "webhook-ca-role"),
        role(project, "webhook-ca-role", rbac.rules_of(narrow), namespace=project.namespace),
        binding(project, "webhook-ca-rolebinding", "webhook-ca-role", namespace=project.namespace),
    ]
