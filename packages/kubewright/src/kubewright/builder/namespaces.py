"""Whether a namespace may be deleted with the operator: nothing else may be in it.

Why are all types listed?  Nothing restores what is deleted with a namespace, and an object of any
    kind may be important. Only objects that Kubernetes or the manager creates do not count.
Why is a Secret of the user not the operator's?  Its name in a manifest proves nothing: other
    programs may use it, too.
Why field managers?  The API server records them for each object. They show what the manager has
    created, and whether a namespace existed before `kubectl apply`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import ConfigError
from .cluster import Cluster, format_names, read_annotation
from .manifests.installer import Object
from .manifests.rbac import WEBHOOK_OPTIONS
from .project import Project

# Kubernetes creates these for other objects.
_AUTOMATIC_TYPES = frozenset(
    {"events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"}
) | {
    # These are not stored: they show Pods, cluster-wide catalogs and RBAC in another form.
    "pods.metrics.k8s.io",
    "packagemanifests.packages.operators.coreos.com",
    "rolebindings.authorization.openshift.io",
    "roles.authorization.openshift.io",
    "rolebindingrestrictions.authorization.openshift.io",
}
# Kubernetes and OpenShift create these in every namespace.
_ACCOUNTS = frozenset({"default", "builder", "deployer"})
_AUTOMATIC_OBJECTS = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        *(("ServiceAccount", account) for account in _ACCOUNTS),
        ("RoleBinding", "system:image-pullers"),
        ("RoleBinding", "system:image-builders"),
        ("RoleBinding", "system:deployers"),
    }
)
# On Secrets with a token or a login of a service account.
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_KUBECTL_APPLY = frozenset({"kubectl", "kubectl-client-side-apply"})
# The API server sets it for the client that creates a namespace.
_NAME_LABEL = "f:kubernetes.io/metadata.name"


@dataclass
class NamespaceCheck:
    """What is in a namespace, before and after the operator is deleted."""

    cluster: Cluster
    project: Project
    name: str
    crds: list[Object]
    objects: list[Object]
    """Of the operator, as rendered."""
    deleted_uids: set[str] = field(default_factory=set)
    """Of the operator's objects and of those that they own: a Pod outlives its ReplicaSet."""

    def find_reason_to_keep(self) -> str:
        """Why the namespace has to stay; empty if it can be deleted.

        Called before the operator's objects are deleted, for their uids, and after that.
        """
        namespace = self.cluster.list_objects(
            *("namespace", self.name, "--show-managed-fields"),
            subject=f"the namespace {self.name}",
        )
        if not namespace:
            return ""
        if creator := _find_creator(namespace[0]):
            return f"it was created by {creator}, not by kubectl apply"
        try:
            content = self._list_content()
        except ConfigError as error:
            return f"its content is unknown: {error}"
        self._add_deleted_uids(content)
        others = [item for item in content if not self._is_own(item)]
        uids = {item["metadata"]["uid"] for item in others}
        # Not the Pods of a Deployment that is listed.
        owners = [item for item in others if uids.isdisjoint(_list_owner_uids(item))]
        return f"it also contains {format_names(owners, limit=20)}" if owners else ""

    def _list_content(self) -> list[Object]:
        own_types = {crd["metadata"]["name"] for crd in self.crds}
        types = set(self.cluster.list_namespaced_types()) - _AUTOMATIC_TYPES - own_types
        return self.cluster.list_objects(
            *(",".join(sorted(types)), "-n", self.name, "--show-managed-fields"),
            subject=f"the content of the namespace {self.name}",
        )

    def _add_deleted_uids(self, content: list[Object]) -> None:
        rendered = {_identify(item) for item in self.objects}
        self.deleted_uids |= {
            item["metadata"]["uid"] for item in content if _identify(item) in rendered
        }
        while owned := {
            item["metadata"]["uid"]
            for item in content
            if not self.deleted_uids.isdisjoint(_list_owner_uids(item))
        }.difference(self.deleted_uids):
            self.deleted_uids |= owned

    def _is_own(self, item: Object) -> bool:
        metadata = item["metadata"]
        return (
            metadata["uid"] in self.deleted_uids
            or (item["kind"], metadata["name"]) in _AUTOMATIC_OBJECTS
            or self._is_token(item)
            or any(
                is_custom_object(owner, self.crds)
                for owner in metadata.get("ownerReferences") or ()
            )
            or self._is_created_by_manager(item)
        )

    def _is_token(self, item: Object) -> bool:
        accounts = _ACCOUNTS | {
            account["metadata"]["name"]
            for account in self.objects
            if account["kind"] == "ServiceAccount"
        }
        return item["kind"] == "Secret" and read_annotation(item, _ACCOUNT_ANNOTATION) in accounts

    def _is_created_by_manager(self, item: Object) -> bool:
        """Its Leases, and the Secret with the CA of its webhooks; no other client has set fields.

        Not all that it has created: an operator may store data in objects without an owner.
        """
        secret = WEBHOOK_OPTIONS.secret_name(self.project.name)
        return (
            item["kind"] == "Lease"
            or (item["kind"], item["metadata"]["name"]) == ("Secret", secret)
        ) and {entry["manager"] for entry in _list_managed_fields(item)} == {self.project.name}


def is_custom_object(item: Object, crds: list[Object]) -> bool:
    """Whether one of the CRDs declares the kind of this object, or of this owner of one."""
    kind = (item["apiVersion"].rpartition("/")[0], item["kind"])
    return any(kind == (crd["spec"]["group"], crd["spec"]["names"]["kind"]) for crd in crds)


def _find_creator(namespace: Object) -> str:
    """The client that has created it, unless that is `kubectl apply`."""
    return next(
        (
            str(entry["manager"])
            for entry in _list_managed_fields(namespace)
            if entry["manager"] not in _KUBECTL_APPLY
            and _NAME_LABEL in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
        ),
        "",
    )


def _list_managed_fields(item: Object) -> list[Object]:
    return list(item["metadata"].get("managedFields") or ())


def _list_owner_uids(item: Object) -> Iterable[str]:
    return [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]


def _identify(item: Object) -> tuple[str, str, str, str]:
    """The type without its version, the namespace and the name."""
    metadata, group = item["metadata"], item["apiVersion"].rpartition("/")[0]
    return group, item["kind"], metadata.get("namespace", ""), metadata["name"]
