"""The record of `kubewright deploy`: a ConfigMap with the overlay and each object that it applied.

Why not render the overlay again?  It changes: undeploy would leave what an edit has dropped, and
    would delete what it names only since then, such as a Secret that you created.
Why two lists?  The record is written before the objects are applied, so that a failure leaves
    nothing unknown. An object that is pending may be yours: `kubectl apply` may not have reached
    it. Undeploy deletes it only if its managedFields name `kubectl apply`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .cluster import Cluster, Reference
from .manifests.installer import Object
from .project import Project

_SUFFIX = "-deployed"
KINDS_WITH_DATA = frozenset({"ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim"})
"""An object of these may be yours, even if a manifest names it."""
_OVERLAY, _APPLIED, _PENDING = "overlay", "applied", "pending"


@dataclass(frozen=True)
class Record:
    """What was deployed as one Deployment, in the namespace of that Deployment."""

    namespace: str
    deployment: str
    overlay: str
    applied: frozenset[Reference] = field(default=frozenset())
    pending: frozenset[Reference] = field(default=frozenset())

    @property
    def objects(self) -> frozenset[Reference]:
        return self.applied | self.pending

    @property
    def reference(self) -> Reference:
        """The ConfigMap."""
        return Reference("", "ConfigMap", self.namespace, self.deployment + _SUFFIX)

    def write(self, cluster: Cluster, project: Project) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.reference.name,
                "namespace": self.namespace,
                "labels": _build_labels(project),
            },
            "data": {
                _OVERLAY: self.overlay,
                _APPLIED: _format(self.applied),
                _PENDING: _format(self.pending),
            },
        }
        cluster.apply_quietly(document, f"the record {self.reference}")


def list_records(cluster: Cluster, project: Project) -> list[Record]:
    """All in the cluster."""
    labels = ",".join(f"{key}={value}" for key, value in _build_labels(project).items())
    items = cluster.list_objects("configmaps", "-A", "-l", labels, subject="the records of deploy")
    return [_parse_record(item) for item in items if item["metadata"]["name"].endswith(_SUFFIX)]


def read_record(cluster: Cluster, namespace: str, deployment: str) -> list[Record]:
    name = ("configmap", deployment + _SUFFIX, "-n", namespace)
    return [_parse_record(item) for item in cluster.list_objects(*name, subject="the record")]


def _build_labels(project: Project) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "kubewright", "app.kubernetes.io/name": project.name}


def _parse_record(item: Object) -> Record:
    metadata, data = item["metadata"], item.get("data") or {}
    return Record(
        metadata["namespace"],
        metadata["name"].removesuffix(_SUFFIX),
        data.get(_OVERLAY, ""),
        _parse(data.get(_APPLIED, "")),
        _parse(data.get(_PENDING, "")),
    )


def _format(references: Iterable[Reference]) -> str:
    """A line for each: `Role.rbac.authorization.k8s.io namespace/name`."""
    return "".join(
        f"{item.type} {item.namespace + '/' if item.namespace else ''}{item.name}\n"
        for item in sorted(references)
    )


def _parse(text: str) -> frozenset[Reference]:
    references = set()
    for line in text.splitlines():
        type_, _, path = line.partition(" ")
        kind, _, group = type_.partition(".")
        namespace, _, name = path.rpartition("/")
        references.add(Reference(group, kind, namespace, name))
    return frozenset(references)
