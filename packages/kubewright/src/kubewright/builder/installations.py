"""Other installations of the same operator: their CRDs and cluster roles have the same names.

A second one therefore changes or deletes what the first one uses, in whatever namespace it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import Cluster, format_name, read_annotation
from .manifests.installer import OVERLAY_ANNOTATION, Object

_HELM_RELEASE, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


@dataclass(frozen=True)
class Installation:
    deployment: Object
    release: str = ""
    """Of Helm; empty if Helm has not installed it."""

    @property
    def namespace(self) -> str:
        return str(self.deployment["metadata"]["namespace"])

    @property
    def removal(self) -> str:
        """The command that removes it."""
        if self.release:
            namespace = read_annotation(self.deployment, _HELM_NAMESPACE) or self.namespace
            return f"helm uninstall {self.release} -n {namespace}"
        return f"make undeploy OVERLAY={self._overlay or 'config/overlays/...'}"

    def __str__(self) -> str:
        if self.release:
            owner = f"the Helm release {self.release}"
        else:
            owner = f"the overlay {self._overlay}" if self._overlay else "another overlay or tool"
        return f"{format_name(self.deployment)}, which {owner} has installed,"

    @property
    def _overlay(self) -> str:
        return read_annotation(self.deployment, OVERLAY_ANNOTATION)


def list_installations(
    cluster: Cluster, manager: Object
) -> tuple[list[Installation], list[Installation]]:
    """That of `kubewright deploy` in the namespace of this Deployment, and all others."""
    labels = manager["spec"]["selector"]["matchLabels"].items()
    selector = ",".join(f"{key}={value}" for key, value in labels)
    installations = [
        Installation(deployment, read_annotation(deployment, _HELM_RELEASE))
        for deployment in cluster.list_objects(
            *("deployments", "-A", "-l", selector), subject="the Deployments of all namespaces"
        )
    ]
    own_namespace = manager["metadata"]["namespace"]
    own = [item for item in installations if item.namespace == own_namespace and not item.release]
    return own, [item for item in installations if item not in own]
