"""The walks: what triggers each, and which status patch is its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .environment import NODES, TEMPLATE, Api, Simulator, wait_for

# The longest pause after work is 5 s (the vCenter side reads disks, tags and devices that often).
SETTLE_SECONDS = 8.0
BETWEEN_SECONDS = 3.0

_TOPOLOGY = "/apis/topology.corinternal.com/v1/namespaces/default"
_GROUPS = "/apis/vm.codeconnect.vmworld.com/v1alpha1/namespaces/default/vmgroups"


@dataclass(frozen=True)
class Walk:
    """One trigger, which gets the number of the repeat, and how its result is recognized."""

    name: str
    trigger: Callable[[int], object]
    plural: str
    is_result: Callable[[dict[str, Any]], bool]
    prepare: Callable[[], object] = lambda: None
    """Runs before the first repeat."""
    undo: Callable[[], object] = lambda: None
    """Runs after each repeat, so that the next one finds the same state."""


def _create_nodes(api: Api) -> None:
    """Four Nodes with VMs in vcsim, two of them with a GPU."""
    for name, uuid in NODES.items():
        spec = {"providerID": f"vsphere://{uuid}"}
        api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        api.call("PATCH", f"/api/v1/nodes/{name}/status", ready)
        # The API server taints a new Node as not ready; nothing here would take that off.
        api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    # Until the devices of their VMs have been read, a GPUInfo has to wait.
    time.sleep(SETTLE_SECONDS)


def create_objects(api: Api, host: str) -> None:
    """What must be there before the first trigger."""
    _create(api, f"{_TOPOLOGY}/hostinfoes", "HostInfo", "host", {"hostname": host})
    spec = {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE}
    _create(api, _GROUPS, "VmGroup", "group", spec)


def _create(api: Api, path: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
    """One object in a collection; the path contains the group and the version."""
    group, version = path.split("/")[2:4]
    meta = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}}
    api.call("POST", path, {**meta, "spec": spec})


def _scale(api: Api, replicas: int) -> None:
    """Set spec.replicas of the group."""
    api.call("PATCH", f"{_GROUPS}/group", {"spec": {"replicas": replicas}})


def wait_for_group(api: Api, replicas: int) -> None:
    """Return when the group is RUNNING with so many replicas."""

    def is_ready() -> bool:
        group = api.call("GET", f"{_GROUPS}/group")
        status = group.get("status", {})
        observed = status.get("observedGeneration") == group["metadata"]["generation"]
        return observed and _is_running(status) and len(status.get("replicas", ())) == replicas

    wait_for(is_ready, 60, f"the VmGroup is RUNNING with {replicas} replicas")


def _is_running(status: Mapping[str, Any]) -> bool:
    """Whether a status of a VmGroup, or a patch of it, reports the desired state."""
    return status.get("phase") == "RUNNING"


def walks_of(api: Api, vcenter: Simulator, hosts: Sequence[str]) -> list[Walk]:
    """All walks, in the order in which they run."""

    def edit_host(number: int) -> None:
        spec = {"hostname": hosts[(number + 1) % 2]}
        api.call("PATCH", f"{_TOPOLOGY}/hostinfoes/host", {"spec": spec})

    def change_host(number: int) -> None:
        hostname = api.call("GET", f"{_TOPOLOGY}/hostinfoes/host")["spec"]["hostname"]
        vcenter.call("/host", {"host": hostname, "maintenance": number % 2 == 0})

    def create_gpu_info(number: int) -> None:
        spec = {"desAccTime": 4, "gpuRequired": True}
        _create(api, f"{_TOPOLOGY}/gpuinfoes", "GPUInfo", f"gpu-{number}", spec)

    def scale_down() -> None:
        # The patch reported RUNNING; this fails unless the group really has both replicas.
        wait_for_group(api, 2)
        time.sleep(BETWEEN_SECONDS)
        _scale(api, 1)
        wait_for_group(api, 1)
        time.sleep(BETWEEN_SECONDS)

    return [
        Walk("host-edit", edit_host, "hostinfoes", bool),
        Walk("host-change", change_host, "hostinfoes", bool),
        Walk("scale-up", lambda number: _scale(api, 2), "vmgroups", _is_running, undo=scale_down),
        Walk("gpu", create_gpu_info, "gpuinfoes", bool, prepare=lambda: _create_nodes(api)),
    ]
