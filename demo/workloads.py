"""Pods on the Nodes, with the statuses that a kubelet and the controllers of a cluster would write.

No kubelet, scheduler or kube-controller-manager runs in the demo. These Pods make the questions of
the page real: `training` has both of its Pods on one host, `database` has one Pod and a volume,
`web` has a replica on another host, and `log-agent` runs on every Node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from .fixtures import BUSY_GPU, CORDONED_GPU, DISK_ID, DISK_NAME, IDLE_GPU, WORKER, Worker

_CLAIM = "data-database-0"
_MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


class ApiClient(Protocol):
    def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any: ...


@dataclass(frozen=True)
class Workload:
    """A controller and its Pods, one on each of `workers`."""

    namespace: str
    kind: str
    name: str
    workers: Sequence[Worker]
    claim: str = ""
    # For a PodDisruptionBudget; 0 means that there is none.
    min_available: int = 0

    @property
    def resource(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def labels(self) -> dict[str, str]:
        return {"app": self.name}


WORKLOADS = (
    Workload("shop", "ReplicaSet", "web", (WORKER, BUSY_GPU), min_available=1),
    Workload("shop", "StatefulSet", "database", (WORKER,), claim=_CLAIM, min_available=1),
    Workload("ml", "ReplicaSet", "training", (IDLE_GPU, CORDONED_GPU), min_available=1),
    Workload(
        "kube-system",
        "DaemonSet",
        "log-agent",
        (WORKER, IDLE_GPU, BUSY_GPU, CORDONED_GPU),
    ),
)


def create_workloads(api: ApiClient) -> None:
    for namespace in ("shop", "ml"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        api.call("POST", "/api/v1/namespaces", body)
    _create_volume(api)
    for workload in WORKLOADS:
        _create_workload(api, workload)


def _create_workload(api: ApiClient, workload: Workload) -> None:
    apps = f"/apis/apps/v1/namespaces/{workload.namespace}/{workload.resource}"
    owner = api.call("POST", apps, _controller_manifest(workload))
    count = len(workload.workers)
    status: dict[str, Any] = {"replicas": count, "readyReplicas": count, "availableReplicas": count}
    if workload.kind == "DaemonSet":
        status = {
            "currentNumberScheduled": count,
            "desiredNumberScheduled": count,
            "numberReady": count,
            "numberMisscheduled": 0,
        }
    api.call("PATCH", f"{apps}/{workload.name}/status", {"status": status}, _MERGE_PATCH)
    pods = f"/api/v1/namespaces/{workload.namespace}/pods"
    for number, worker in enumerate(workload.workers):
        pod = _pod_manifest(workload, number, worker, owner["metadata"]["uid"])
        api.call("POST", pods, pod)
        name = pod["metadata"]["name"]
        api.call("PATCH", f"{pods}/{name}/status", _running_status(workload), _MERGE_PATCH)
    if workload.min_available:
        _create_budget(api, workload)


def _controller_manifest(workload: Workload) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": workload.labels},
        "template": {"metadata": {"labels": workload.labels}, "spec": _pod_spec(workload)},
    }
    if workload.kind != "DaemonSet":
        spec["replicas"] = len(workload.workers)
    if workload.kind == "StatefulSet":
        spec["serviceName"] = workload.name
    return {
        "apiVersion": "apps/v1",
        "kind": workload.kind,
        "metadata": {"name": workload.name},
        "spec": spec,
    }


def _pod_spec(workload: Workload) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": _image(workload)}],
    }
    if workload.claim:
        source = {"persistentVolumeClaim": {"claimName": workload.claim}}
        spec["volumes"] = [{"name": "data", **source}]
    return spec


def _pod_manifest(
    workload: Workload, number: int, worker: Worker, owner_uid: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{workload.name}-{number}",
            "labels": workload.labels,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": workload.kind,
                    "name": workload.name,
                    "uid": owner_uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": worker.name, **_pod_spec(workload)},
    }


def _running_status(workload: Workload) -> dict[str, Any]:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    container = {
        "name": "main",
        "image": _image(workload),
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [container],
        }
    }


def _image(workload: Workload) -> str:
    return f"{workload.name}:1.0"


def _create_budget(api: ApiClient, workload: Workload) -> None:
    path = f"/apis/policy/v1/namespaces/{workload.namespace}/poddisruptionbudgets"
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": workload.name},
        "spec": {
            "minAvailable": workload.min_available,
            "selector": {"matchLabels": workload.labels},
        },
    }
    generation = api.call("POST", path, body)["metadata"]["generation"]
    count = len(workload.workers)
    status = {
        "observedGeneration": generation,
        "expectedPods": count,
        "currentHealthy": count,
        "desiredHealthy": workload.min_available,
        "disruptionsAllowed": count - workload.min_available,
    }
    api.call("PATCH", f"{path}/{workload.name}/status", {"status": status}, _MERGE_PATCH)


def _create_volume(api: ApiClient) -> None:
    """A bound PersistentVolume, as the vSphere CSI driver would create it."""
    size = {"storage": "1Gi"}
    claims = "/api/v1/namespaces/shop/persistentvolumeclaims"
    claim = api.call(
        "POST",
        claims,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": _CLAIM},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": size},
                "storageClassName": "",
                "volumeName": DISK_NAME,
            },
        },
    )
    volumes = "/api/v1/persistentvolumes"
    api.call(
        "POST",
        volumes,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": DISK_NAME},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": DISK_ID},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": "shop",
                    "name": _CLAIM,
                    "uid": claim["metadata"]["uid"],
                },
            },
        },
    )
    bound = {"status": {"phase": "Bound"}}
    api.call("PATCH", f"{claims}/{_CLAIM}/status", bound, _MERGE_PATCH)
    api.call("PATCH", f"{volumes}/{DISK_NAME}/status", bound, _MERGE_PATCH)
