"""Other installations of the same operator: their CRDs and cluster roles have the same names.

A second one therefore changes or deletes what the first one uses, in whatever namespace it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .cluster import Cluster, Reference, read_annotation, read_label
from .manifests.deployment import manager_labels
from .manifests.installer import Object, manager_name
from .project import Project
from .records import Record, list_records, read_record

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
    """A Deployment of the operator, the record of one, or both."""

    namespace: str
    name: str
    deployment: Object | None = None
    record: Record | None = None

    @property
    def overlay(self) -> str:
        """The recorded overlay; empty if `kubewright deploy` of this version did not deploy it."""
        return self.record.overlay if self.record else ""

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"].get("replicas", 1)) if self.deployment else 0

    @property
    def is_ready(self) -> bool:
        return bool(self.deployment and self.deployment.get("status", {}).get("readyReplicas"))

    @property
    def tool(self) -> str:
        """What would restore or overwrite it, such as `the Helm release x`; empty if nothing."""
        item = self.deployment
        if not item:
            return ""
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
        return f"run: kubectl -n {self.namespace} delete deployment {self.name}"

    def __str__(self) -> str:
        overlay = f"the overlay {self.overlay}" if self.overlay else "no recorded overlay"
        return f"Deployment {self.namespace}/{self.name} ({self.tool or overlay})"

    @property
    def _release(self) -> str:
        """Of Helm alone: Flux and Argo CD would undo a change with its command."""
        release = read_annotation(self.deployment, _HELM_RELEASE) if self.deployment else ""
        return release if self.tool == f"the Helm release {release}" else ""

    @property
    def _release_namespace(self) -> str:
        namespace = read_annotation(self.deployment, _HELM_NAMESPACE) if self.deployment else ""
        return namespace or self.namespace


def list_installations(cluster: Cluster, project: Project) -> list[Installation]:
    """All in the cluster, by the name and by the labels in config/: overlays may change them."""
    labels = ",".join(f"{key}={value}" for key, value in manager_labels(project).items())
    name = f"metadata.name={manager_name(project)}"
    deployments = _list_deployments(cluster, ("-l", labels), ("--field-selector", name))
    return _combine(deployments, list_records(cluster, project))


def read_installation(cluster: Cluster, namespace: str, name: str) -> list[Installation]:
    """The one with this name, for a user that may not list all."""
    arguments = ("deployments.apps", name, "-n", namespace)
    deployments = cluster.list_objects(*arguments, subject="the Deployment")
    return _combine(deployments, read_record(cluster, namespace, name))


def _combine(deployments: Iterable[Object], records: Iterable[Record]) -> list[Installation]:
    by_name = {(record.namespace, record.deployment): record for record in records}
    installations = [
        Installation(namespace, name, item, by_name.pop((namespace, name), None))
        for item in deployments
        for namespace, name in [(item["metadata"]["namespace"], item["metadata"]["name"])]
    ]
    return installations + [
        Installation(namespace, name, record=record)
        for (namespace, name), record in by_name.items()
    ]


def find_records(own: Installation | None, installations: Iterable[Installation]) -> list[Record]:
    """That of this installation, and those of installations without a Deployment."""
    return [
        item.record
        for item in installations
        if item.record and (item is own or not item.deployment)
    ]


def list_other_operators(
    cluster: Cluster, installations: Iterable[Installation], crds: list[Object]
) -> list[Installation]:
    """Other operators that write these kinds, such as those that this project replaces.

    Their roles name a kind: a wildcard for all kinds is no sign that they use it.
    """
    deployments = _list_deployments(cluster, ("-l", f"{_ROLE_LABEL}=controller-manager"))
    names = {(item.namespace, item.name) for item in installations}
    others = [
        item for item in _combine(deployments, ()) if (item.namespace, item.name) not in names
    ]
    if not others or not crds:
        return []
    writers = Writers.read(cluster, crds, with_wildcards=False)
    # By its account: a role for all accounts is no sign that this operator uses the kinds.
    return [item for item in others if writers._includes_account(item)]


@dataclass(frozen=True)
class Writers:
    """The subjects of bindings that may write the objects of some CRDs."""

    subjects: frozenset[tuple[str, str, str]]
    """Kind, namespace and name."""

    @classmethod
    def read(cls, cluster: Cluster, crds: list[Object], *, with_wildcards: bool) -> Writers:
        resources = {
            (crd["spec"]["group"], crd["spec"]["names"]["plural"] + subresource)
            for crd in crds
            for subresource in ("", "/status")
        }
        if with_wildcards:
            resources |= {(crd["spec"]["group"], "*") for crd in crds}
            resources |= {("*", resource) for _, resource in resources}
        types = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
        names = ",".join(f"{name}.rbac.authorization.k8s.io" for name in types)
        items = cluster.list_objects(names, "-A", subject="the roles and their bindings")
        roles = {
            Reference.of(item)
            for item in items
            if any(_writes(rule, resources) for rule in item.get("rules") or ())
        }
        subjects = {
            (subject["kind"], subject.get("namespace", ""), subject["name"])
            for item in items
            if "roleRef" in item and _find_role(item) in roles
            for subject in item.get("subjects") or ()
        }
        return cls(frozenset(subjects))

    def _includes_account(self, item: Installation) -> bool:
        """Whether a binding names the account of this installation."""
        account = read_account(item)
        return not self.subjects.isdisjoint(
            {
                ("ServiceAccount", item.namespace, account),
                ("User", "", f"system:serviceaccount:{item.namespace}:{account}"),
            }
        )

    def includes(self, item: Installation) -> bool:
        """Whether a binding names its account, or a group that the account belongs to."""
        return self._includes_account(item) or not self.subjects.isdisjoint(
            {
                ("Group", "", f"system:serviceaccounts:{item.namespace}"),
                ("Group", "", "system:serviceaccounts"),
                ("Group", "", "system:authenticated"),
            }
        )


def read_account(item: Installation) -> str:
    if not item.deployment:
        return ""
    return str(item.deployment["spec"]["template"]["spec"].get("serviceAccountName", "default"))


def _list_deployments(cluster: Cluster, *selections: tuple[str, str]) -> list[Object]:
    deployments = {
        item["metadata"]["uid"]: item
        for selection in selections
        for item in cluster.list_objects(
            "deployments.apps", "-A", *selection, subject="the Deployments of all namespaces"
        )
    }
    return list(deployments.values())


def _find_role(binding: Object) -> Reference:
    role = binding["roleRef"]
    namespace = binding["metadata"]["namespace"] if role["kind"] == "Role" else ""
    return Reference(role["apiGroup"], role["kind"], namespace, role["name"])


def _writes(rule: Object, resources: set[tuple[str, str]]) -> bool:
    return not {"patch", "update", "*"}.isdisjoint(rule["verbs"]) and any(
        (group, resource) in resources
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )
