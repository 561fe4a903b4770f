"""Which answer each sample should get: "" where it has it, else what is wrong. Pure, over the objects as kubectl shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .scene import BUSY_GPU, DISK_ID, HOSTS, IDLE_GPU, WORKER

Object = Mapping[str, Any]
Expectation = Callable[[Object], str]
SUCCESS = "successfully reconciled VmGroup"


def ready_of(obj: Object) -> Mapping[str, Any]:
    """The Ready condition, {} where there is none."""
    return next((each for each in obj.get("status", {}).get("conditions", ()) if each["type"] == "Ready"), {})


def current(obj: Object) -> str:
    """Whether the answer is to what is asked now, and is one."""
    ready = ready_of(obj)
    if not ready:
        return "no answer yet"
    if ready.get("observedGeneration") != obj["metadata"]["generation"]:
        return "the answer is to an older spec"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"


def host(obj: Object) -> str:
    """HostInfo: numbers that a host can have."""
    status = obj.get("status", {})
    if wrong := current(obj):
        return wrong
    fits = status.get("connectionState") == "connected" and 0 < status.get("freeCPU", 0) <= status.get("totalCPU", 0)
    return "" if fits and status["inventoryPath"].endswith(HOSTS[0]) else f"{status}"


def machine(obj: Object) -> str:
    """VMInfo: the very VM, by its uuid."""
    status = obj.get("status", {})
    fits = status.get("powerState") == "poweredOn" and str(status.get("biosUUID", "")).lower() == WORKER.uuid
    return current(obj) or ("" if fits and status.get("ipAddress") else f"{status}")


def disk(obj: Object) -> str:
    """FCDInfo: the disk that the PersistentVolume names."""
    status = obj.get("status", {})
    fits = status.get("id") == DISK_ID and status.get("sizeMB", 0) > 0 and status.get("filePath")
    return current(obj) or ("" if fits else f"{status}")


def placed_on(node: str) -> Expectation:
    """GPUInfo: this node."""

    def check(obj: Object) -> str:
        found = obj.get("status", {}).get("suitableNodeName", "")
        return current(obj) or ("" if found == node else f"{found} was chosen, and not {node}")

    return check


def running(obj: Object) -> str:
    """VmGroup: as many as wanted, all of them ready."""
    status, wanted = obj.get("status", {}), obj["spec"]["replicas"]
    counts = (status.get("currentReplicas"), status.get("readyReplicas"))
    fits = status.get("phase") == "RUNNING" and counts == (wanted, wanted) and status.get("lastMessage") == SUCCESS
    return "" if fits else f"{status.get('phase')}: {counts[1]} of {wanted} ready; {status.get('lastMessage')}"


def template_missing(obj: Object) -> str:
    """VmGroup vg-2: an error on purpose, which names what is missing."""
    status = obj.get("status", {})
    fits = status.get("phase") == "ERROR" and obj["spec"]["template"] in status.get("lastMessage", "")
    return "" if fits else f"it should be ERROR, but is {status.get('phase')}: {status.get('lastMessage')}"


def healthy(wanted: bool) -> Expectation:
    """MyCustomResource."""
    return lambda obj: current(obj) or ("" if obj["status"].get("Healthy") is wanted else f"Healthy is {obj['status'].get('Healthy')}")


SAMPLES: Mapping[tuple[str, str], Expectation] = {
    ("HostInfo", "hostinfo-host-e"): host,
    ("VMInfo", "tkg-worker-1"): machine,
    ("FCDInfo", "fcdinfo-sample"): disk,
    ("GPUInfo", "gpuinfo-sample"): placed_on(IDLE_GPU.name),
    ("GPUInfo", "gpu1"): placed_on(IDLE_GPU.name),
    ("GPUInfo", "gpu2"): placed_on(BUSY_GPU.name),
    ("GPUInfo", "gpu3"): placed_on(IDLE_GPU.name),
    ("GPUInfo", "gpu4"): placed_on(BUSY_GPU.name),
    ("VmGroup", "vg-1"): running,
    ("VmGroup", "vg-2"): template_missing,
    ("VmGroup", "vg-3"): running,
    ("VmGroup", "vmgroup-sample"): running,
    ("MyCustomResource", "my-custom-resource-01"): healthy(True),
    ("MyCustomResource", "my-custom-resource-02"): healthy(False),
}


def shortfalls(objects: Mapping[tuple[str, str], Object]) -> dict[tuple[str, str], str]:
    """Every sample that has not the answer that it should, with what is wrong."""
    found = {key: check(objects[key]) if key in objects else "the sample is not there" for key, check in SAMPLES.items()}
    return {key: wrong for key, wrong in found.items() if wrong}
