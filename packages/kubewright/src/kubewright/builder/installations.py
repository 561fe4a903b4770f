"""Other installations of the same operator: their CRDs and cluster roles have the same names.

A second one therefore changes or deletes what the first one uses, in whatever namespace it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .cluster import Cluster, format_name, read_annotation, read_label
from .manifests.deployment import manager_labels
from .manifests.installer import OVERLAY_ANNOTATION, Object, manager_name
from .project import Project

_ROLE_LABEL = "control-plane"
_FLUX_HELM_LABEL = "helm.toolkit.fluxcd.io/name"
_FLUX_HELM_NAMESPACE = "helm.toolkit.fluxcd.io/namespace"
_FLUX_LABEL = "kustomize.toolkit.fluxcd.io/name"
_FLUX_NAMESPACE = "kustomize.toolkit.fluxcd.io/namespace"
# Of the form `application:group/kind:namespace/name`. Not the label app.kubernetes.io/instance,
# which Argo CD can use instead: charts and kustomizations set it, too.
_ARGO_ANNOTATION = "argocd.argoproj.io/tracking-id"
_HELM_RELEASE, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"


@dataclass(frozen=True)
class Installation:
    """A Deployment of the operator."""

    deployment: Object

    @property
    def namespace(self) -> str:
        return str(self.deployment["metadata"]["namespace"])

    @property
    def overlay(self) -> str:
        """The recorded overlay; empty if `kubewright deploy` of this version did not deploy it."""
        return read_annotation(self.deployment, OVERLAY_ANNOTATION)

    @property
    def tool(self) -> str:
        """What would restore or overwrite it, such as `the Helm release x`; empty if nothing."""
        item = self.deployment
        # Flux and Argo CD also set the labels of Helm, when they install a chart.
        if name := read_label(item, _FLUX_HELM_LABEL):
            return f"the HelmRelease {read_label(item, _FLUX_HELM_NAMESPACE)}/{name} of Flux"
        if name := read_label(item, _FLUX_LABEL):
            return f"the Kustomization {read_label(item, _FLUX_NAMESPACE)}/{name} of Flux"
        if identity := read_annotation(item, _ARGO_ANNOTATION):
            return f"the application {identity.partition(':')[0]} of Argo CD"
        if release := read_annotation(item, _HELM_RELEASE):
            return f"the Helm release {release}"
        return "Helm" if read_label(item, _MANAGED_BY_LABEL) == "Helm" else ""

    @property
    def update(self) -> str:
        """How to update it: this deletes nothing."""
        if self._release:
            return f"run: helm upgrade {self._release} CHART -n {self._release_namespace}"
        if self.tool:
            return f"change it with {self.tool}"
        if self.overlay:
            return f"run: make deploy OVERLAY={self.overlay}"
        return f"run: make deploy OVERLAY=..., with the overlay for the namespace {self.namespace}"

    @property
    def removal(self) -> str:
        """How to remove it without its CRDs and their objects."""
        if self._release:
            return f"run: helm uninstall {self._release} -n {self._release_namespace}"
        if self.tool:
            return f"remove it with {self.tool}"
        name = self.deployment["metadata"]["name"]
        return f"run: kubectl -n {self.namespace} delete deployment {name}"

    def __str__(self) -> str:
        overlay = f"the overlay {self.overlay}" if self.overlay else "no recorded overlay"
        return f"{format_name(self.deployment)} ({self.tool or overlay})"

    @property
    def _release(self) -> str:
        """Of Helm alone: Flux and Argo CD would undo a change with its command."""
        release = read_annotation(self.deployment, _HELM_RELEASE)
        return release if self.tool == f"the Helm release {release}" else ""

    @property
    def _release_namespace(self) -> str:
        return read_annotation(self.deployment, _HELM_NAMESPACE) or self.namespace


def list_installations(cluster: Cluster, project: Project) -> list[Installation]:
    """All in the cluster, by the name and by the labels in config/: overlays may change them."""
    labels = ",".join(f"{key}={value}" for key, value in manager_labels(project).items())
    name = f"metadata.name={manager_name(project)}"
    return _list_deployments(cluster, ("-l", labels), ("--field-selector", name))


def read_installation(cluster: Cluster, metadata: Object) -> list[Installation]:
    """The one with this name, for a user that may not list all."""
    name = ("deployments.apps", metadata["name"], "-n", metadata["namespace"])
    return [Installation(item) for item in cluster.list_objects(*name, subject="the Deployment")]


def list_other_operators(
    cluster: Cluster, installations: Iterable[Installation], crds: list[Object]
) -> list[Installation]:
    """Other operators that write these kinds, such as those that this project replaces.

    Their ClusterRoles name a kind: a wildcard is no sign that they use it.
    """
    deployments = _list_deployments(cluster, ("-l", f"{_ROLE_LABEL}=controller-manager"))
    uids = {item.deployment["metadata"]["uid"] for item in installations}
    others = [item for item in deployments if item.deployment["metadata"]["uid"] not in uids]
    if not others or not crds:
        return []
    subject = "the cluster roles"
    resources = {
        (crd["spec"]["group"], crd["spec"]["names"]["plural"] + subresource)
        for crd in crds
        for subresource in ("", "/status")
    }
    roles = {
        role["metadata"]["name"]
        for role in cluster.list_objects("clusterroles", subject=subject)
        if any(_writes(rule, resources) for rule in role.get("rules") or ())
    }
    accounts = {
        (account.get("namespace"), account["name"])
        for binding in cluster.list_objects("clusterrolebindings", subject=subject)
        if binding["roleRef"]["name"] in roles
        for account in binding.get("subjects") or ()
        if account["kind"] == "ServiceAccount"
    }
    return [item for item in others if (item.namespace, _read_account(item)) in accounts]


def _list_deployments(cluster: Cluster, *selections: tuple[str, str]) -> list[Installation]:
    deployments = {
        item["metadata"]["uid"]: Installation(item)
        for selection in selections
        for item in cluster.list_objects(
            "deployments.apps", "-A", *selection, subject="the Deployments of all namespaces"
        )
    }
    return list(deployments.values())


def _writes(rule: Object, resources: set[tuple[str, str]]) -> bool:
    return not {"patch", "update"}.isdisjoint(rule["verbs"]) and any(
        (group, resource) in resources
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )


def _read_account(item: Installation) -> str:
    return str(item.deployment["spec"]["template"]["spec"].get("serviceAccountName", "default"))
