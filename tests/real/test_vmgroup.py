"""VmGroup with the manifests, commands and log lines of the original operator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ManagerProcess
from support.simulator_state import read_simulator_state
from support.vmgroup_client import (
    SUCCESS_MESSAGE,
    VmGroupClient,
    group_folder_path,
    has_replica_name,
    list_group_vms,
)

from .crash_run import run_observed_manager

SAMPLES = ("vmgroup_vg1", "vmgroup_vg2", "vmgroup_vg3")
COLUMNS = ["NAME", "PHASE", "CURRENT", "DESIRED", "CPU", "MEMORY", "TEMPLATE", "LAST_MESSAGE"]

Kubectl = Callable[..., str]


@pytest.fixture
async def manager(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> AsyncIterator[ManagerProcess]:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "manager") as (
        manager,
        _,
    ):
        yield manager


@pytest.fixture
def group_client(installed: ControlPlane, namespace: str) -> VmGroupClient:
    return VmGroupClient(installed, namespace)


@pytest.fixture
def namespace_kubectl(installed: ControlPlane, namespace: str) -> Kubectl:
    """kubectl in the namespace; it blocks, so call it through `run_kubectl`."""
    return lambda *arguments: installed.kubectl("-n", namespace, *arguments)


async def run_kubectl(kubectl: Kubectl, *arguments: str) -> str:
    return await asyncio.to_thread(kubectl, *arguments)


def sample_path(config: Path, name: str) -> str:
    return str(config / "samples" / f"vm_v1alpha1_{name}.yaml")


async def test_the_samples_work_unchanged(
    simulator: SimulatedVCenter,
    group_client: VmGroupClient,
    namespace_kubectl: Kubectl,
    config: Path,
    manager: ManagerProcess,
) -> None:
    for name in SAMPLES:
        await run_kubectl(namespace_kubectl, "apply", "-f", sample_path(config, name))
    await group_client.wait_for_phase("vg-1", "RUNNING")
    await group_client.wait_for_phase("vg-3", "RUNNING")
    # vg-2 has a missing template on purpose.
    wrong = await group_client.wait_for_phase("vg-2", "ERROR")
    assert "doesNotExist" in wrong["lastMessage"]
    rows = [
        line.split() for line in (await run_kubectl(namespace_kubectl, "get", "vg")).splitlines()
    ]
    assert rows[0][: len(COLUMNS)] == COLUMNS
    assert rows[1][:7] == ["vg-1", "RUNNING", "3", "3", "1", "1", "vm-operator-template"]
    assert rows[2][:2] == ["vg-2", "ERROR"]
    assert rows[3][:7] == ["vg-3", "RUNNING", "2", "2", "4", "4", "vm-operator-template"]
    await run_kubectl(
        namespace_kubectl,
        "patch",
        "vg",
        "vg-2",
        "--type",
        "merge",
        "-p",
        '{"spec":{"template":"vm-operator-template"}}',
    )
    fixed = await group_client.wait_for_phase("vg-2", "RUNNING")
    assert (fixed["currentReplicas"], fixed["desiredReplicas"], fixed["lastMessage"]) == (
        2,
        2,
        SUCCESS_MESSAGE,
    )
    for name, count, cpus, memory_mb in (
        ("vg-1", 3, 1, 1024),
        ("vg-2", 2, 2, 2048),
        ("vg-3", 2, 4, 4096),
    ):
        vms = await list_group_vms(simulator, (await group_client.get(name))["metadata"]["uid"])
        assert len(vms) == count
        for vm in vms:
            assert has_replica_name(name, vm)
            assert (vm.folder, vm.power) == (
                group_folder_path(group_client.namespace, name),
                "poweredOn",
            )
            assert (vm.cpus, vm.memory_mb) == (cpus, memory_mb)


async def test_kubectl_scales_and_waits_and_deletes(
    simulator: SimulatedVCenter,
    group_client: VmGroupClient,
    namespace_kubectl: Kubectl,
    config: Path,
    manager: ManagerProcess,
) -> None:
    before = await read_simulator_state(simulator)
    await run_kubectl(namespace_kubectl, "apply", "-f", sample_path(config, "vmgroup_vg1"))
    uid = (await group_client.get("vg-1"))["metadata"]["uid"]
    for replicas in (3, 5, 1):
        await run_kubectl(namespace_kubectl, "scale", "vg", "vg-1", f"--replicas={replicas}")
        await eventually(partial(is_observed, group_client, "vg-1", replicas), within=60)
        assert "condition met" in await run_kubectl(
            namespace_kubectl, "wait", "--for=condition=Ready", "vg/vg-1", "--timeout=60s"
        )
        assert len(await list_group_vms(simulator, uid)) == replicas
        scale = await group_client.call("GET", f"{group_client.path('vg-1')}/scale")
        assert scale["status"]["replicas"] == replicas
        assert scale["status"]["selector"]
    await run_kubectl(namespace_kubectl, "delete", "vg", "vg-1", "--timeout=60s")
    assert await group_client.find("vg-1") is None
    after = await read_simulator_state(simulator)
    assert (after.vms, after.clones) == (before.vms, ())
    assert group_folder_path(group_client.namespace, "vg-1") not in {
        entity["path"] for entity in await simulator.entities()
    }


async def is_observed(groups: VmGroupClient, name: str, replicas: int) -> bool:
    """Whether the manager has observed this spec; before, Ready may be that of the last one."""
    group = await groups.get(name)
    status = group.get("status", {})
    return bool(
        group["spec"]["replicas"] == replicas
        and status.get("observedGeneration") == group["metadata"]["generation"]
    )


async def test_the_log_lines_of_the_contract(
    simulator: SimulatedVCenter, group_client: VmGroupClient, manager: ManagerProcess
) -> None:
    uid = (await group_client.create("web", replicas=2))["metadata"]["uid"]
    await group_client.wait_for_phase("web", "RUNNING")
    kept = (await list_group_vms(simulator, uid))[0]
    # Outside of the manager, so that it has to power the VM on.
    await simulator.set_power(kept.ref, False)
    await manager.wait_for_log("attempting to power on")
    await group_client.wait_for_phase(
        "web", "RUNNING", predicate=lambda status: status["lastMessage"] == SUCCESS_MESSAGE
    )
    await group_client.patch_spec("web", replicas=1)
    await group_client.wait_for_phase(
        "web", "RUNNING", predicate=lambda status: status["currentReplicas"] == 1
    )
    await group_client.delete("web")
    await group_client.wait_until_deleted("web")
    messages = [line["msg"] for line in manager.log_records]
    folder = f"{group_client.namespace}-web"
    folder_path = group_folder_path(group_client.namespace, "web")
    for pattern in (
        rf'received reconcile request for "web" \(namespace: "{group_client.namespace}"\)',
        r"VmGroup folder does not exist, creating folder",
        r'creating clone "web-replica-[a-z]{8}" from template "vm-operator-template"',
        r"too few replicas, creating 2 replica\(s\)",
        r"too many replicas, deleting 1",
        r'deleting virtual machine "web-replica-[a-z]{8}"',
        r"replica count in sync, checking power state",
        rf'vm "{kept.name}" powered off, attempting to power on\.\.\.',
        r"VmGroup marked for deletion",
        rf'deleting group folder "{folder}" \(path: "{folder_path}"\)',
    ):
        assert any(re.fullmatch(pattern, message) for message in messages), (
            f"no log line matches {pattern}"
        )
