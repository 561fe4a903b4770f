"""The status that each sample should get. A check returns "" if it has it, else what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .fixtures import ALL_WORKERS, BUSY_GPU, DISK_ID, HOSTS, IDLE_GPU, WORKER
from .snapshot import Object

SampleCheck = Callable[[Object], str]
_SUCCESS_MESSAGE = "successfully reconciled VmGroup"


def ready_condition(obj: Object) -> Mapping[str, Any]:
    """The Ready condition, {} if the object has none."""
    conditions = obj.get("status", {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


def _check_ready(obj: Object) -> str:
    ready = ready_condition(obj)
    if not ready:
        return "not reconciled yet"
    if ready.get("observedGeneration") != obj["metadata"]["generation"]:
        return "the status is of an older spec"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"


def _check_host(obj: Object) -> str:
    status = obj.get("status", {})
    if problem := _check_ready(obj):
        return problem
    fits = status.get("connectionState") == "connected" and 0 < status.get(
        "freeCPU", 0
    ) <= status.get("totalCPU", 0)
    return "" if fits and status["inventoryPath"].endswith(HOSTS[0]) else f"{status}"


def _check_vm(obj: Object) -> str:
    status = obj.get("status", {})
    fits = (
        status.get("powerState") == "poweredOn"
        and str(status.get("biosUUID", "")).lower() == WORKER.uuid
    )
    return _check_ready(obj) or ("" if fits and status.get("ipAddress") else f"{status}")


def _check_disk(obj: Object) -> str:
    status = obj.get("status", {})
    fits = status.get("id") == DISK_ID and status.get("sizeMB", 0) > 0 and status.get("filePath")
    return _check_ready(obj) or ("" if fits else f"{status}")


def _check_datastore(obj: Object) -> str:
    status = obj.get("status", {})
    volumes = status.get("persistentVolumes", {}).get("volumes", ())
    fits = [volume["diskId"] for volume in volumes] == [DISK_ID] and status.get("capacityMB", 0) > 0
    return _check_ready(obj) or ("" if fits else f"{status}")


def _check_cluster(obj: Object) -> str:
    status = obj.get("status", {})
    counts = (status.get("hosts"), status.get("nodes", {}).get("count"))
    fits = counts == (len(HOSTS), len(ALL_WORKERS)) and status.get("freeMemoryMB", 0) > 0
    return _check_ready(obj) or ("" if fits else f"{status}")


def _expect_node(node: str) -> SampleCheck:
    def check(obj: Object) -> str:
        selected = obj.get("status", {}).get("suitableNodeName", "")
        return _check_ready(obj) or (
            "" if selected == node else f"{selected} is selected, expected {node}"
        )

    return check


def _check_group_running(obj: Object) -> str:
    status, desired = obj.get("status", {}), obj["spec"]["replicas"]
    counts = (status.get("currentReplicas"), status.get("readyReplicas"))
    fits = (
        status.get("phase") == "RUNNING"
        and counts == (desired, desired)
        and status.get("lastMessage") == _SUCCESS_MESSAGE
    )
    return (
        ""
        if fits
        else f"{status.get('phase')}: {counts[1]} of {desired} ready; {status.get('lastMessage')}"
    )


def _check_template_missing(obj: Object) -> str:
    # vg-2 names a template that does not exist; the message has to name it.
    status = obj.get("status", {})
    fits = status.get("phase") == "ERROR" and obj["spec"]["template"] in status.get(
        "lastMessage", ""
    )
    return "" if fits else f"expected ERROR, got {status.get('phase')}: {status.get('lastMessage')}"


def _expect_healthy(expected: bool) -> SampleCheck:
    def check(obj: Object) -> str:
        healthy = obj.get("status", {}).get("Healthy")
        return _check_ready(obj) or ("" if healthy is expected else f"Healthy is {healthy}")

    return check


SAMPLE_CHECKS: Mapping[tuple[str, str], SampleCheck] = {
    ("HostInfo", "hostinfo-host-e"): _check_host,
    ("VMInfo", "tkg-worker-1"): _check_vm,
    ("FCDInfo", "fcdinfo-sample"): _check_disk,
    ("DatastoreInfo", "datastoreinfo-sample"): _check_datastore,
    ("ClusterInfo", "clusterinfo-sample"): _check_cluster,
    ("GPUInfo", "gpuinfo-sample"): _expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu1"): _expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu2"): _expect_node(BUSY_GPU.name),
    ("GPUInfo", "gpu3"): _expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu4"): _expect_node(BUSY_GPU.name),
    ("VmGroup", "vg-1"): _check_group_running,
    ("VmGroup", "vg-2"): _check_template_missing,
    ("VmGroup", "vg-3"): _check_group_running,
    ("VmGroup", "vmgroup-sample"): _check_group_running,
    ("MyCustomResource", "my-custom-resource-01"): _expect_healthy(True),
    ("MyCustomResource", "my-custom-resource-02"): _expect_healthy(False),
}


def find_failed_samples(objects: Mapping[tuple[str, str], Object]) -> dict[tuple[str, str], str]:
    """The samples that do not have the expected status, with what is wrong."""
    problems = {
        key: check(objects[key]) if key in objects else "the sample does not exist"
        for key, check in SAMPLE_CHECKS.items()
    }
    return {key: problem for key, problem in problems.items() if problem}
