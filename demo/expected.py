"""Which answer each sample should get: "" where it has it, else what is wrong. Pure, over the objects as kubectl shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .fixtures import BUSY_GPU, DISK_ID, HOSTS, IDLE_GPU, WORKER

Object = Mapping[str, Any]
SampleCheck = Callable[[Object], str]
SUCCESS_MESSAGE = "successfully reconciled VmGroup"


def ready_condition(obj: Object) -> Mapping[str, Any]:
    """The Ready condition, {} where there is none."""
    return next(
        (each for each in obj.get("status", {}).get("conditions", ()) if each["type"] == "Ready"),
        {},
    )


def check_ready(obj: Object) -> str:
    """Whether the answer is to what is asked now, and is one."""
    ready = ready_condition(obj)
    if not ready:
        return "no answer yet"
    if ready.get("observedGeneration") != obj["metadata"]["generation"]:
        return "the answer is to an older spec"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"


def check_host(obj: Object) -> str:
    """HostInfo: numbers that a host can have."""
    status = obj.get("status", {})
    if wrong := check_ready(obj):
        return wrong
    fits = status.get("connectionState") == "connected" and 0 < status.get(
        "freeCPU", 0
    ) <= status.get("totalCPU", 0)
    return "" if fits and status["inventoryPath"].endswith(HOSTS[0]) else f"{status}"


def check_vm(obj: Object) -> str:
    """VMInfo: the very VM, by its uuid."""
    status = obj.get("status", {})
    fits = (
        status.get("powerState") == "poweredOn"
        and str(status.get("biosUUID", "")).lower() == WORKER.uuid
    )
    return check_ready(obj) or ("" if fits and status.get("ipAddress") else f"{status}")


def check_disk(obj: Object) -> str:
    """FCDInfo: the disk that the PersistentVolume names."""
    status = obj.get("status", {})
    fits = status.get("id") == DISK_ID and status.get("sizeMB", 0) > 0 and status.get("filePath")
    return check_ready(obj) or ("" if fits else f"{status}")


def expect_node(node: str) -> SampleCheck:
    """GPUInfo: this node."""

    def check(obj: Object) -> str:
        found = obj.get("status", {}).get("suitableNodeName", "")
        return check_ready(obj) or ("" if found == node else f"{found} was chosen, and not {node}")

    return check


def check_group_running(obj: Object) -> str:
    """VmGroup: as many as wanted, all of them ready."""
    status, wanted = obj.get("status", {}), obj["spec"]["replicas"]
    counts = (status.get("currentReplicas"), status.get("readyReplicas"))
    fits = (
        status.get("phase") == "RUNNING"
        and counts == (wanted, wanted)
        and status.get("lastMessage") == SUCCESS_MESSAGE
    )
    return (
        ""
        if fits
        else f"{status.get('phase')}: {counts[1]} of {wanted} ready; {status.get('lastMessage')}"
    )


def check_template_missing(obj: Object) -> str:
    """VmGroup vg-2: an error on purpose, which names what is missing."""
    status = obj.get("status", {})
    fits = status.get("phase") == "ERROR" and obj["spec"]["template"] in status.get(
        "lastMessage", ""
    )
    return (
        ""
        if fits
        else f"it should be ERROR, but is {status.get('phase')}: {status.get('lastMessage')}"
    )


def expect_healthy(wanted: bool) -> SampleCheck:
    """MyCustomResource."""
    return lambda obj: (
        check_ready(obj)
        or (
            ""
            if obj["status"].get("Healthy") is wanted
            else f"Healthy is {obj['status'].get('Healthy')}"
        )
    )


SAMPLE_CHECKS: Mapping[tuple[str, str], SampleCheck] = {
    ("HostInfo", "hostinfo-host-e"): check_host,
    ("VMInfo", "tkg-worker-1"): check_vm,
    ("FCDInfo", "fcdinfo-sample"): check_disk,
    ("GPUInfo", "gpuinfo-sample"): expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu1"): expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu2"): expect_node(BUSY_GPU.name),
    ("GPUInfo", "gpu3"): expect_node(IDLE_GPU.name),
    ("GPUInfo", "gpu4"): expect_node(BUSY_GPU.name),
    ("VmGroup", "vg-1"): check_group_running,
    ("VmGroup", "vg-2"): check_template_missing,
    ("VmGroup", "vg-3"): check_group_running,
    ("VmGroup", "vmgroup-sample"): check_group_running,
    ("MyCustomResource", "my-custom-resource-01"): expect_healthy(True),
    ("MyCustomResource", "my-custom-resource-02"): expect_healthy(False),
}


def find_failed_samples(objects: Mapping[tuple[str, str], Object]) -> dict[tuple[str, str], str]:
    """Every sample that has not the answer that it should, with what is wrong."""
    found = {
        key: check(objects[key]) if key in objects else "the sample is not there"
        for key, check in SAMPLE_CHECKS.items()
    }
    return {key: wrong for key, wrong in found.items() if wrong}
