"""Whether a namespace may be deleted with the operator: nothing else may be in it.

Why are all types listed?  Nothing restores what is deleted with a namespace, and an object of any
    kind may be important. Only objects that Kubernetes or the manager creates do not count.
Why is a Secret of the user not the operator's?  Its name in a manifest proves nothing: other
    programs may use it, too.
Why field managers?  The API server records them for each object. They show what the manager has
    created, and whether only `kubectl apply` has set the fields of a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import ConfigError
from .cluster import (
    Cluster,
    Reference,
    format_names,
    is_apply,
    is_being_deleted,
    list_managed_fields,
)
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
# Secrets with a token or a login of a service account.
_TOKEN_TYPES = frozenset({"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"})
_TOKEN_CREATORS = frozenset({"kube-controller-manager", "openshift-controller-manager"})


@dataclass
class NamespaceCheck:
    """What is in a namespace, before and after the operator is deleted."""

    cluster: Cluster
    project: Project
    name: str
    crds: list[Object]
    objects: frozenset[Reference]
    """Of the operator."""
    deleted_uids: set[str] = field(default_factory=set)
    """Of the operator's objects and of those that they own: a Pod outlives its ReplicaSet."""

    def is_being_deleted(self) -> bool:
        return any(map(is_being_deleted, self.read()))

    def find_reason_to_keep(self) -> str:
        """Why the namespace has to stay; empty if it can be deleted.

        Called before the operator's objects are deleted, for their uids, and after that.
        """
        namespace = self.read()
        if not namespace:
            return ""
        if manager := _find_other_manager(namespace[0]):
            return f"it was created or changed by {manager}, not only by kubectl apply"
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

    def read(self) -> list[Object]:
        return self.cluster.list_objects(
            *("namespace", self.name, "--show-managed-fields"),
            subject=f"the namespace {self.name}",
        )

    def _list_content(self) -> list[Object]:
        own_types = {crd["metadata"]["name"] for crd in self.crds}
        types = set(self.cluster.list_namespaced_types()) - _AUTOMATIC_TYPES - own_types
        return self.cluster.list_objects(
            *(",".join(sorted(types)), "-n", self.name, "--show-managed-fields"),
            subject=f"the content of the namespace {self.name}",
        )

    def _add_deleted_uids(self, content: list[Object]) -> None:
        self.deleted_uids |= {
            item["metadata"]["uid"] for item in content if Reference.of(item) in self.objects
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
            or _is_token(item)
            or any(
                is_custom_object(owner, self.crds)
                for owner in metadata.get("ownerReferences") or ()
            )
            or self._is_created_by_manager(item)
        )

    def _is_created_by_manager(self, item: Object) -> bool:
        """Its Leases, and the Secret with the CA of its webhooks; no other client has set fields.

        Not all that it has created: an operator may store data in objects without an owner.
        """
        secret = WEBHOOK_OPTIONS.secret_name(self.project.name)
        return (
            item["kind"] == "Lease"
            or (item["kind"], item["metadata"]["name"]) == ("Secret", secret)
        ) and {entry.get("manager") for entry in list_managed_fields(item)} == {self.project.name}


def is_custom_object(item: Object, crds: list[Object]) -> bool:
    """Whether one of the CRDs declares the kind of this object, or of this owner of one."""
    kind = (item["apiVersion"].rpartition("/")[0], item["kind"])
    return any(kind == (crd["spec"]["group"], crd["spec"]["names"]["kind"]) for crd in crds)


def _find_other_manager(namespace: Object) -> str:
    """A client that has set fields of it, apart from the status, unless that is kubectl apply."""
    return next(
        (
            str(entry.get("manager") or "a client without a name")
            for entry in list_managed_fields(namespace)
            if entry.get("subresource") != "status" and not is_apply(entry)
        ),
        "",
    )


def _is_token(item: Object) -> bool:
    """Whether a controller has created it: you may create Secrets of these types, too."""
    managers = {entry.get("manager", "") for entry in list_managed_fields(item)}
    return (
        item["kind"] == "Secret"
        and item.get("type") in _TOKEN_TYPES
        and bool(managers)
        and managers <= _TOKEN_CREATORS
    )


def _list_owner_uids(item: Object) -> Iterable[str]:
    return [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
