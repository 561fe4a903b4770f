"""A StatefulSet of three spreads over three ESXi hosts: real scheduler, real controllers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controller_manager import DEFAULT_CONTROLLERS
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.scheduler import run_scheduler
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE

from .crash_sweep import install_manifests
from .gpu_cluster import GpuCluster

HOST_LABEL = "topology.corinternal.com/host"
# Two Nodes on each of three hosts, so that spreading over Nodes alone is not enough.
NODES = {
    f"worker-{number}": f"42030000-0000-4000-8000-00000000000{number}" for number in range(1, 7)
}


@pytest.fixture
def control_plane(binaries: dict[str, Path], pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """In place of the session's: with controllers, and with Nodes that no other test has."""
    folders = [pytestconfig.rootpath / ".testenv/bin"]
    names = ["kube-controller-manager", "kube-scheduler"]
    others = find_binaries(names, folders=folders, build=False)
    plane = ControlPlane(binaries | others, controllers=DEFAULT_CONTROLLERS)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    nodes = [f"--node={name}={uuid}" for name, uuid in NODES.items()]
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path / "vcsim",
        "--clusters=1",
        "--hosts=3",
        "--standalone-hosts=0",
        "--vms=0",
        *nodes,
    )
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


def read_example(root: Path) -> str:
    """The StatefulSet of the page for users."""
    page = (root / "docs/howto/node-labels.md").read_text()
    match = re.search(
        r"```yaml[^\n]*\n(apiVersion: apps/v1\nkind: StatefulSet\n.*?)```", page, re.S
    )
    assert match is not None
    return match[1]


async def test_stateful_set_of_the_how_to_lands_on_three_hosts(
    control_plane: ControlPlane,
    simulator: SimulatedVCenter,
    pytestconfig: pytest.Config,
    tmp_path: Path,
) -> None:
    plane, root = control_plane, pytestconfig.rootpath
    install_manifests(plane)
    plane.kubectl("apply", "-f", str(root / "config/components/label-nodes/role.yaml"))
    cluster = GpuCluster(plane, "default")
    hosts = [
        entity["name"] for entity in await simulator.entities() if entity["type"] == "HostSystem"
    ]
    host_by_node = {name: hosts[number // 2] for number, name in enumerate(NODES)}
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "100"}
    for name, uuid in NODES.items():
        await simulator.move_vm(name, host_by_node[name])
        await cluster.add_node(name, f"vsphere://{uuid}")
        await cluster.patch_node_status(name, "True", capacity=capacity, allocatable=capacity)
    kubeconfig = plane.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, tmp_path / "kubeconfig"
    )
    arguments = (
        kubeconfig,
        write_credentials(tmp_path / "creds", simulator),
        simulator.certificate,
    )
    async with (
        run_vcenter_manager(tmp_path / "manager.log", *arguments, "--label-nodes"),
        run_scheduler(plane.binaries["kube-scheduler"], plane) as scheduler,
    ):
        await eventually(lambda: list_labels(plane) == host_by_node, within=30)
        plane.kubectl("apply", "-f", "-", stdin=read_example(root))
        try:
            pods = await eventually(lambda: list_bound_pods(plane), within=60)
        except AssertionError as error:
            error.add_note(scheduler.read_log_tail())
            error.add_note(plane.kubectl("describe", "pods"))
            raise
    assert {host_by_node[pod["spec"]["nodeName"]] for pod in pods} == set(hosts)


def list_labels(plane: ControlPlane) -> dict[str, str]:
    with plane.apiserver.admin_client() as https:
        nodes = https.call("GET", "/api/v1/nodes")["items"]
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(HOST_LABEL, "") for node in nodes
    }


def list_bound_pods(plane: ControlPlane) -> list[Any]:
    """The three Pods when all have a Node. Reports bound Pods as running, as kubelets do."""
    with plane.apiserver.admin_client() as https:
        pods = https.call("GET", "/api/v1/namespaces/default/pods")["items"]
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for pod in bound:
        if pod["status"]["phase"] != "Running":
            # A StatefulSet creates the next Pod when this one is ready.
            patch = ("patch", "pod", pod["metadata"]["name"], "--subresource=status")
            plane.kubectl(*patch, "-p", json.dumps({"status": status}))
    return bound if len(bound) == 3 else []
