"""Labels and the condition of Nodes on a real API server with a simulated vCenter."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.pyvmomi_session import PyVmomiSession

from .doctor_command import read_doctor_report
from .gpu_cluster import NODE_UUIDS, GpuCluster
from .node_moves import (
    NODES,
    P99_LIMIT_SECONDS,
    VCENTER_FLAGS,
    WRONG_LIMIT_SECONDS,
    NodeMoves,
    run_node_moves,
)

HOST_LABEL = "topology.corinternal.com/host"
LABELS = (
    HOST_LABEL,
    "topology.corinternal.com/cluster",
    "topology.corinternal.com/datacenter",
)
MOVES = 60
# How long a busy machine may delay a process. node_moves.py, run alone, has the strict limits.
BUSY_SECONDS = 10.0
GUIDE = Path(__file__).parents[2] / "docs/howto/node-labels.md"


@pytest.fixture
async def moves(
    installed: ControlPlane, pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[NodeMoves]:
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *VCENTER_FLAGS
    )
    try:
        await vcenter.start()
        async with run_node_moves(installed, vcenter, tmp_path, seed=1) as moves:
            yield moves
    finally:
        await vcenter.stop()


async def test_labels_follow_vmotions_with_one_write_each_and_survive_kills(
    moves: NodeMoves,
) -> None:
    before = moves.write_count
    await moves.move(MOVES)
    await moves.wait_until_right()
    assert len(moves.watch.seconds) == MOVES
    assert moves.watch.p99_seconds <= P99_LIMIT_SECONDS + BUSY_SECONDS
    assert max(moves.watch.seconds) <= WRONG_LIMIT_SECONDS + BUSY_SECONDS
    assert moves.write_count - before <= MOVES
    for _ in range(2):
        assert await moves.kill_and_return() <= WRONG_LIMIT_SECONDS + BUSY_SECONDS
    nodes = json.loads(moves.plane.kubectl("get", "nodes", "-o", "json"))["items"]
    assert len(nodes) == len(NODES)
    for node in nodes:
        labels = node["metadata"]["labels"]
        host, cluster, datacenter = (labels.get(label, "") for label in LABELS)
        # DC0_C1_H2 is in DC0_C1, and the standalone host DC0_H0 is in no cluster.
        expected = host.rpartition("_")[0] if host != "DC0_H0" else ""
        assert (cluster, datacenter) == (expected, "DC0")


def read_condition(plane: ControlPlane, name: str) -> str:
    with plane.apiserver.admin_client() as https:
        node = https.call("GET", f"/api/v1/nodes/{name}")
    conditions = {item["type"]: item for item in node["status"].get("conditions", ())}
    condition = conditions.get("VSphereHostPressure", {})
    return "|".join(condition.get(field, "") for field in ("status", "reason", "message"))


def read_node_labels(plane: ControlPlane, name: str) -> list[str]:
    shown = plane.kubectl("get", "node", name, "--no-headers", "-L", ",".join(LABELS))
    return shown.split()[-len(LABELS) :]


async def test_pressure_outage_and_cleanup_with_the_role_of_the_component(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    config: Path,
) -> None:
    plane, role = cluster.control_plane, str(config / "components/label-nodes/role.yaml")
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    hosts: list[str] = [
        entity["name"] for entity in await gpu_vcenter.entities() if "_C0_H" in entity["name"]
    ]
    for name in NODE_UUIDS:
        await gpu_vcenter.move_vm(name, hosts[0])

    async def wait_for(name: str, text: str, *, within: float = 60) -> None:
        try:
            await eventually(lambda: text in read_condition(plane, name), within=within)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {read_condition(plane, name)!r}") from None

    def run(*flags: str) -> Any:
        arguments = (log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate)
        return run_vcenter_manager(*arguments, *flags)

    async with run("--label-nodes"):
        # Without the role nothing is written, and an Event explains why.
        await cluster.wait_for_event("NodeWriteForbidden", "default")
    plane.kubectl("apply", "-f", role)
    try:
        async with run("--label-nodes", "--host-pressure-interval=1s"):
            await wait_for("worker-1", "False|NoPressure|")
            assert read_node_labels(plane, "worker-1") == [hosts[0], "DC0_C0", "DC0"]
            await gpu_vcenter.set_stats("worker-1", overallCpuReadiness=22)
            await wait_for(
                "worker-1",
                f'True|CPUReady|VM "worker-1" on host "{hosts[0]}" waited for a CPU 22% of',
            )
            await gpu_vcenter.hold_calls("EnterMaintenanceMode_Task", "task")
            async with PyVmomiSession(gpu_vcenter) as session:
                host = (await session.read_one(vim.HostSystem, hosts[0], []))["obj"]
                await asyncio.to_thread(host.EnterMaintenanceMode_Task, 0)
            await wait_for("worker-2", f'True|EnteringMaintenance|Host "{hosts[0]}" is entering')
            await gpu_vcenter.release_calls()
            await wait_for("worker-2", f'True|InMaintenance|Host "{hosts[0]}" is in maintenance')
            await gpu_vcenter.move_vm("worker-2", hosts[1])
            await wait_for("worker-2", "False|NoPressure|")
            assert read_node_labels(plane, "worker-2")[0] == hosts[1]
            await gpu_vcenter.set_outage("503")
            await wait_for("worker-2", "Unknown|VCenterUnavailable|", within=60)
            assert read_node_labels(plane, "worker-2")[0] == hosts[1]
            await gpu_vcenter.set_outage("")
            await wait_for("worker-2", "False|NoPressure|", within=60)
        plane.kubectl("label", "node", "worker-3", "zone=a")
        async with run() as manager:
            await manager.wait_for_log("labels and conditions of -label-nodes are gone")
        for name in NODE_UUIDS:
            assert read_condition(plane, name) == "||"
        shown = plane.kubectl("get", "nodes", "--show-labels")
        assert HOST_LABEL not in shown
        assert "zone=a" in shown
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-f", role)


async def test_leftovers_without_permission_are_reported_and_can_be_removed(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    config: Path,
) -> None:
    plane, role = cluster.control_plane, str(config / "components/label-nodes/role.yaml")
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)

    def run(*flags: str) -> Any:
        arguments = (log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate)
        return run_vcenter_manager(*arguments, *flags)

    def count_leftovers() -> int:
        with plane.apiserver.admin_client() as https:
            nodes = https.call("GET", "/api/v1/nodes")["items"]
        return sum(
            any(label in node["metadata"].get("labels", {}) for label in LABELS)
            + any(
                condition["type"] == "VSphereHostPressure"
                for condition in node["status"].get("conditions", ())
            )
            for node in nodes
        )

    async def label_nodes() -> None:
        plane.kubectl("apply", "-f", role)
        async with run("--label-nodes"):
            await eventually(lambda: count_leftovers() == 2 * len(NODE_UUIDS), within=30)
        # The component has the flag and the role, so an overlay without it has neither.
        plane.kubectl("delete", "-f", role)

    async def run_commands(pattern: str, namespace: str = "") -> None:
        """Run the commands of the guide that match the pattern."""
        (commands,) = re.findall(pattern, GUIDE.read_text(), re.S)
        await asyncio.to_thread(
            subprocess.run,
            ["bash", "-ec", commands.replace("vsphere-operators-system", namespace)],
            env={
                "PATH": f"{plane.binaries['kubectl'].parent}:{os.environ['PATH']}",
                "HOME": str(plane.folder),
                "KUBECONFIG": str(plane.admin_kubeconfig),
            },
            check=True,
            timeout=150,
        )

    def read_namespace() -> str:
        """The namespace of the manager, which its field manager names."""
        nodes = plane.kubectl("get", "nodes", "--show-managed-fields", "-o", "json")
        (namespace,) = set(re.findall(r'"node-labels\.([^"]*)"', nodes))
        return str(namespace)

    try:
        await label_nodes()
        plane.kubectl("label", "node", "worker-1", f"{LABELS[1]}=mine", "--overwrite")
        async with run():
            await cluster.wait_for_event("NodeLabelLeft", "default")
            assert count_leftovers() == 2 * len(NODE_UUIDS)
        report = await read_doctor_report(f"--kubeconfig={manager_kubeconfig}")
        finding = report.finding_about("label-nodes")
        assert finding.level == "warning"
        assert finding.message.startswith(f"{len(NODE_UUIDS)} Nodes have labels")
        # The command of the doctor and of the Event, and the manager that runs anyway.
        plane.kubectl("apply", "-f", role)
        async with run():
            await run_commands("own=.*?\ndone\n", read_namespace())
        assert count_leftovers() == 1
        report = await read_doctor_report(f"--kubeconfig={manager_kubeconfig}")
        assert report.findings_about("label-nodes") == []
        plane.kubectl("label", "node", "worker-1", f"{LABELS[1]}-")
        # Without a manager: the commands of the guide.
        await label_nodes()
        await run_commands("kubectl label nodes --all.*?(?=```)")
        assert count_leftovers() == 0
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-f", role)
