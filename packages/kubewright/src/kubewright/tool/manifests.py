"""CRDs and RBAC as files, from the types and from what the controllers declare."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import rbac
from ..controller import Controller
from ..crd import HEADER, crds, to_yaml
from ..kind import Kind
from .project import Project

Document = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
GENERATED = ("config/crd", "config/rbac")


def manifests(project: Project) -> dict[Path, str]:
    """Every generated file with its text."""
    controllers = project.controllers()
    return crd_files(controllers) | rbac_files(project, controllers)


def crd_files(controllers: Sequence[Controller[Any]]) -> dict[Path, str]:
    """config/crd: one file a CRD, and the list of them."""
    folder = Path("config/crd")
    made = {
        f"{each['spec']['group']}_{each['spec']['names']['plural']}.yaml": each
        for each in crds(kind for c in controllers for kind in (c.kind, *c.versions))
    }
    files = {folder / "bases" / name: to_yaml(document) for name, document in made.items()}
    return files | {folder / "kustomization.yaml": kustomization([f"bases/{name}" for name in made])}


def rbac_files(project: Project, controllers: Sequence[Controller[Any]]) -> dict[Path, str]:
    """config/rbac: who the manager is, what it may do, and roles for the people who use the kinds."""
    folder = Path("config/rbac")
    documents: dict[str, Sequence[Document]] = {
        "namespace.yaml": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace}}],
        "service_account.yaml": [service_account(project)],
        "role.yaml": [role(project, "manager-role", rbac.manager_rules(controllers))],
        "role_binding.yaml": [binding(project, "manager-rolebinding", "manager-role")],
        "leader_election_role.yaml": [role(project, "leader-election-role", rbac.LEADER_RULES, namespace=project.namespace)],
        "leader_election_role_binding.yaml": [
            binding(project, "leader-election-rolebinding", "leader-election-role", namespace=project.namespace)
        ],
        "metrics_auth_role.yaml": [role(project, "metrics-auth-role", rbac.REVIEW_RULES)],
        "metrics_auth_role_binding.yaml": [binding(project, "metrics-auth-rolebinding", "metrics-auth-role")],
        "metrics_reader_role.yaml": [role(project, "metrics-reader", rbac.METRICS_READER_RULES)],
    }
    for controller in controllers:
        documents[f"{controller.name}_user_roles.yaml"] = user_roles(project, controller.kind.definition)
    files = {folder / name: to_yaml(*parts) for name, parts in documents.items()}
    return files | {folder / "kustomization.yaml": kustomization(list(documents))}


def service_account(project: Project) -> Document:
    """Who the manager is."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "controller-manager", "namespace": project.namespace}}


def role(project: Project, name: str, rules: list[rbac.Rule], *, namespace: str = "", labels: dict[str, str] | None = None) -> Document:
    """A Role where there is a namespace, else a ClusterRole; its name begins with the project's, since the cluster is shared."""
    metadata: Document = (
        {"name": f"{project.name}-{name}"} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    )
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": rules}


def binding(project: Project, name: str, role_name: str, *, namespace: str = "") -> Document:
    """The role, given to the manager's service account."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{project.name}-{name}"} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": RBAC, "kind": "Role" if namespace else "ClusterRole", "name": f"{project.name}-{role_name}"},
        "subjects": [{"kind": "ServiceAccount", "name": "controller-manager", "namespace": project.namespace}],
    }


def user_roles(project: Project, kind: Kind) -> list[Document]:
    """Roles for people, added to Kubernetes' own admin, edit and view by aggregation."""
    aggregate = {"admin": "admin", "editor": "edit", "viewer": "view"}
    return [
        role(
            project,
            f"{kind.name.lower()}-{who}-role",
            rbac.user_rules(kind, verbs, status_verbs),
            labels={f"{RBAC}/aggregate-to-{aggregate[who]}": "true"},
        )
        for who, (verbs, status_verbs) in rbac.USER_ROLES.items()
    ]


def kustomization(resources: list[str]) -> str:
    """The list of files that kustomize reads."""
    return to_yaml({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(resources)})


def write(project: Project, files: dict[Path, str]) -> list[Path]:
    """Write what is not there yet in this form, and remove what is not generated any more; returns what changed."""
    for path in left_over(project, files):
        (project.root / path).unlink()
    changed = [path for path, text in files.items() if text_of(project.root / path) != text]
    for path in changed:
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        (project.root / path).write_text(files[path])
    return changed


def left_over(project: Project, files: dict[Path, str]) -> list[Path]:
    """Files that were generated once and are not any more: of a kind that has gone, say."""
    there = (path.relative_to(project.root) for folder in GENERATED for path in (project.root / folder).rglob("*.yaml"))
    return sorted(path for path in there if path not in files and text_of(project.root / path).startswith(HEADER))


def stale(project: Project, files: dict[Path, str]) -> str:
    """The difference between the files and what would be generated now; empty when there is none."""
    parts = [f"{path} is not generated any more\n" for path in left_over(project, files)]
    for path, text in files.items():
        old = text_of(project.root / path)
        if old != text:
            parts.extend(difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(path), f"{path} (generated now)"))
    return "".join(parts)


def text_of(path: Path) -> str:
    """What is in the file, nothing where there is none."""
    return path.read_text() if path.exists() else ""
