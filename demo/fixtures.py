"""What is in the demo's vCenter and cluster, so that every sample gets a status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

HOSTS = ("esxi-dell-e.rainpole.com", "esxi-dell-f.rainpole.com", "esxi-dell-g.rainpole.com")
# The simulator's hosts are smaller than the VMs on them.
HOST_CORES, CORE_MHZ, HOST_MEMORY_MB = 4, 2294, 16 * 1024
HOST_HARDWARE = {
    "summary.hardware.numCpuCores": HOST_CORES,
    "summary.hardware.cpuMhz": CORE_MHZ,
    "summary.hardware.memorySize": HOST_MEMORY_MB << 20,
}
DISK_NAME = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"
DISK_ID = "6f1c6c5e-0c7e-4b4e-9f0a-5a3d3f2b1a00"
# A disk that was left on the second datastore: no PersistentVolume of the cluster names it.
ORPHANED_DISK_NAME, ORPHANED_DISK_DATASTORE = "pvc-0b8f2c61-deleted-cluster", "LocalDS_1"
TEMPLATE_NAME = "vm-operator-template"
FRIEND_POD = "funny-joe"
_WORKER_NAME_PREFIX = "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685"
_NEXT_MAINTENANCE_ANNOTATION = "topology.corinternal.com/next-maintenance"


@dataclass(frozen=True)
class Worker:
    """A Node and its VM; `gpu` is vgpu, passthrough or dynamic, and 0 hours mean no maintenance."""

    name: str
    uuid: str
    cpu_demand_mhz: int
    host: str
    gpu: str = ""
    hours_to_maintenance: int = 0
    cordoned: bool = False


WORKER = Worker(
    f"{_WORKER_NAME_PREFIX}-5v298", "42030000-0000-4000-8000-000000000001", 900, HOSTS[0]
)
IDLE_GPU = Worker(
    f"{_WORKER_NAME_PREFIX}-gpu-a",
    "42030000-0000-4000-8000-000000000002",
    400,
    HOSTS[1],
    gpu="vgpu",
    hours_to_maintenance=160,
)
BUSY_GPU = Worker(
    f"{_WORKER_NAME_PREFIX}-gpu-b",
    "42030000-0000-4000-8000-000000000003",
    1500,
    HOSTS[2],
    gpu="passthrough",
)
CORDONED_GPU = Worker(
    f"{_WORKER_NAME_PREFIX}-gpu-c",
    "42030000-0000-4000-8000-000000000004",
    100,
    HOSTS[1],
    gpu="vgpu",
    cordoned=True,
)
ALL_WORKERS = (WORKER, IDLE_GPU, BUSY_GPU, CORDONED_GPU)


def vcsim_flags() -> list[str]:
    flags = [
        "--datacenters=1",
        "--clusters=1",
        f"--hosts={len(HOSTS)}",
        "--standalone-hosts=0",
        "--vms=0",
        "--datastores=2",
    ]
    flags += [
        f"--host-name={','.join(HOSTS)}",
        f"--template={TEMPLATE_NAME}",
        "--folder=vm-operator",
        f"--fcd={DISK_NAME}={DISK_ID}",
    ]
    flags += [f"--node={worker.name}={worker.uuid}" for worker in ALL_WORKERS]
    return flags + [f"--gpu-vm={worker.name}={worker.gpu}" for worker in ALL_WORKERS if worker.gpu]


def manifests(now: datetime | None = None) -> Iterator[dict[str, Any]]:
    """What is in the cluster in addition to the samples: Nodes and a Pod."""
    for worker in ALL_WORKERS:
        yield _node_manifest(worker, now or datetime.now(UTC))
    yield pod_manifest(FRIEND_POD)


def _node_manifest(worker: Worker, now: datetime) -> dict[str, Any]:
    """A Node as the vSphere cloud provider would register it."""
    annotations = {}
    if worker.hours_to_maintenance:
        # Half an hour more, so that the whole hours stay the same while the demo starts.
        start = now + timedelta(hours=worker.hours_to_maintenance, minutes=30)
        annotations[_NEXT_MAINTENANCE_ANNOTATION] = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": worker.name, "annotations": annotations},
        "spec": {"providerID": f"vsphere://{worker.uuid}", "unschedulable": worker.cordoned},
    }


def ready_status_patch() -> dict[str, Any]:
    """The status that a kubelet would write; the demo has none."""
    return {
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "set by the demo",
                }
            ]
        }
    }


def pod_manifest(name: str) -> dict[str, Any]:
    # No kubelet runs it.
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
