"""What a user sees first: columns of `kubectl get`, `kubectl wait`, and a manager that is gone."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from simulator import SimulatedVCenter
from support.info_client import InfoClient, run_vcenter_manager, write_credentials
from support.manager_process import (
    LEASE_NAME,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    get_lease,
    list_mutations,
)

from .doctor_command import METRICS_OFF, run_doctor
from .gpu_cluster import NONE_AVAILABLE, GpuCluster

HOST_NAME = "esxi-dell-e.rainpole.com"
NODE_NAME = "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"
DISK_NAME = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"
# The name of the node in the sample of VMInfo is 49 characters long.
MAX_WIDTH = 125
LEADER_FLAGS = ("--leader-elect", f"--leader-election-namespace={SYSTEM_NAMESPACE}")


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (
        "--clusters=1",
        "--hosts=1",
        "--vms=0",
        "--folder=vm-operator",
        f"--host-name={HOST_NAME}",
        f"--node={NODE_NAME}",
        f"--fcd={DISK_NAME}",
    )
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    )
    try:
        yield await simulator.start()
    finally:
        await simulator.stop()


@pytest.fixture
async def manager(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> AsyncIterator[ManagerProcess]:
    """A manager that leads; its lease is removed afterwards, since the tests kill it."""
    credentials = write_credentials(tmp_path / "vc-creds", simulator)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, simulator.certificate, *LEADER_FLAGS
    ) as manager:
        # A leader that another test killed may hold the lease for 15 s.
        await manager.wait_for_log("Starting workers", within=40)
        yield manager
    installed.kubectl("-n", SYSTEM_NAMESPACE, "delete", "lease", LEASE_NAME, "--ignore-not-found")


async def read_table(
    client: InfoClient, resource: str, *flags: str
) -> tuple[dict[str, str], list[str]]:
    """The cells of the only row by column, and the lines."""
    table = await asyncio.to_thread(
        client.control_plane.kubectl, "get", resource, "-n", client.namespace, *flags
    )
    lines = [line.rstrip() for line in table.splitlines()]
    # kubectl separates columns by at least three spaces, and pads them.
    titles = [title for title in lines[0].split("   ") if title.strip()]
    starts = [lines[0].index(title.strip()) for title in titles]
    ends = [*starts[1:], None]
    return {
        lines[0][start:end].strip(): lines[1][start:end].strip()
        for start, end in zip(starts, ends, strict=True)
    }, lines


async def test_default_columns_have_the_answer_within_one_screen(
    manager: ManagerProcess, installed: ControlPlane, namespace: str, config: Path
) -> None:
    client = InfoClient(installed, namespace)
    for sample in ("topology_v1_hostinfo", "topology_v1_vminfo", "topology_v1_fcdinfo"):
        installed.kubectl("apply", "-n", namespace, "-f", str(config / f"samples/{sample}.yaml"))
    statuses = {
        "hi": await client.wait_for_status("HostInfo", "hostinfo-host-e"),
        "vi": await client.wait_for_status("VMInfo", "tkg-worker-1"),
        "fcd": await client.wait_for_status("FCDInfo", "fcdinfo-sample"),
    }
    fields = {
        "hi": {
            "CPU-MHZ": "totalCPU",
            "FREE-CPU-MHZ": "freeCPU",
            "MEMORY-MB": "totalMemoryMB",
            "FREE-MEMORY-MB": "freeMemoryMB",
        },
        "vi": {
            "POWER": "powerState",
            "CPUS": "totalCPU",
            "MEMORY-MB": "totalMem",
            "ADDRESS": "ipAddress",
        },
        "fcd": {"SIZE-MB": "sizeMB", "PROVISIONING": "provisioningType", "DATASTORE": "datastore"},
    }
    for resource, columns in fields.items():
        cells, lines = await read_table(client, resource)
        expected = {title: str(statuses[resource][name]) for title, name in columns.items()}
        assert {title: cells[title] for title in columns} == expected
        assert cells["READY"] == "True"
        assert max(map(len, lines)) <= MAX_WIDTH, lines


async def test_last_message_of_a_vmgroup_is_short(
    manager: ManagerProcess, installed: ControlPlane, namespace: str, config: Path
) -> None:
    sample = config / "samples/vm_v1alpha1_vmgroup_vg2.yaml"
    installed.kubectl("apply", "-n", namespace, "-f", str(sample))
    wait = ("wait", "-n", namespace, "vg/vg-2", "--timeout=60s")
    await asyncio.to_thread(installed.kubectl, *wait, "--for=jsonpath={.status.phase}=ERROR")
    await asyncio.to_thread(installed.kubectl, *wait, "--for=condition=Degraded")
    client = InfoClient(installed, namespace)
    cells, lines = await read_table(client, "vg")
    assert cells["LAST_MESSAGE"] == 'Template "doesNotExist" not found in /DC0'
    assert max(map(len, lines)) <= MAX_WIDTH, lines
    group = json.loads(installed.kubectl("get", "vg", "vg-2", "-n", namespace, "-o", "json"))
    message = group["status"]["lastMessage"]
    assert message.endswith("Create it there, or change spec.template.")


async def test_wait_for_ready_of_a_gpuinfo_waits_for_a_node(
    gpu_manager: ManagerProcess, cluster: GpuCluster
) -> None:
    await cluster.create_gpuinfo("job", 100_000, False)
    status = await cluster.wait_for_node("job", NONE_AVAILABLE)
    assert (status["nodeCPUUsage"], status["availableAcceleratorTime"]) == (0, 0)
    wait = ("wait", "-n", cluster.namespace, "gpu/job", "--for=condition=Ready")
    with pytest.raises(KubectlFailed, match="timed out waiting"):
        await asyncio.to_thread(cluster.control_plane.kubectl, *wait, "--timeout=2s")
    await cluster.patch_gpuinfo("job", {"spec": {"desAccTime": 10}})
    met = await asyncio.to_thread(cluster.control_plane.kubectl, *wait, "--timeout=60s")
    assert "condition met" in met


async def run_plugin(kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `kubectl vsphere`."""
    variables = (f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", "HOME=/nonexistent")
    child = await asyncio.create_subprocess_exec(
        shutil.which("env") or "env",
        "-i",
        *variables,
        sys.executable,
        "-m",
        "vsphere_operators.kubectl",
        f"--kubeconfig={kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(child.communicate(), 60)
    return child.returncode or 0, output.decode(), errors.decode()


async def test_tools_report_since_when_no_manager_is_active(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    client = InfoClient(installed, namespace)
    await client.create("HostInfo", "host", HOST_NAME)
    await client.wait_for_status("HostInfo", "host")
    kubeconfig = installed.admin_kubeconfig
    top = (kubeconfig, "top", "hosts", "-n", namespace)
    doctor = (f"-kubeconfig={kubeconfig}", METRICS_OFF, "-o", "json")

    code, rows, notes = await run_plugin(*top, "-o", "json")
    assert code == 0
    assert [row["name"] for row in json.loads(rows)] == [HOST_NAME]
    assert notes == (
        f"1 host has a HostInfo in namespace {namespace}. Use -A or --vcenter to see more.\n"
    )
    # The lease is the only write at rest, and the manager renews it anyway.
    writes = len(list_mutations(installed, manager))
    renewed_at = get_lease(installed)["renewTime"]
    await eventually(lambda: get_lease(installed)["renewTime"] > renewed_at)
    assert len(list_mutations(installed, manager)) == writes

    await manager.kill()
    lease = get_lease(installed)
    last_renewal = lease["renewTime"]
    # Each run of the plugin costs a second of CPU time, and the lease lasts for 15 s.
    lifetime = timedelta(seconds=lease["leaseDurationSeconds"])
    expires_at = datetime.fromisoformat(last_renewal) + lifetime
    await eventually(lambda: datetime.now(UTC) > expires_at, within=40)

    async def is_reported() -> bool:
        return "No manager is active" in (await run_plugin(*top))[2]

    await eventually(is_reported, within=40, every=1)
    code, rows, notes = await run_plugin(*top, "-o", "json")
    assert code == 0
    assert [row["name"] for row in json.loads(rows)] == [HOST_NAME]
    assert f"lease {SYSTEM_NAMESPACE}/{LEASE_NAME} expired (last renewed " in notes
    assert f"The objects are as of {last_renewal.partition('.')[0]}Z" in notes
    # The status itself cannot show it.
    installed.kubectl("wait", "-n", namespace, "hi/host", "--for=condition=Ready", "--timeout=30s")
    code, text = await run_doctor(*doctor)
    report = json.loads(text)
    (leader,) = [entry for entry in report["findings"] if entry["subject"] == "leader"]
    assert (code, report["healthy"], leader["level"]) == (1, False, "problem")
    assert leader["section"] == "Kubernetes"
    assert "No active leader: lease" in leader["message"]
    assert leader["fix"]
