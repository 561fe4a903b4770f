"""The quota of a namespace counts what exists, whatever the specs request."""

from __future__ import annotations

from pathlib import Path

from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ready_condition
from support.simulator_state import read_simulator_state
from support.vmgroup_client import VmGroupClient, list_group_vms

from .crash_run import run_observed_manager


def write_quota(folder: Path, quota: str) -> str:
    file = folder / "limits.yaml"
    file.write_text(f'limits:\n  - namespaces: ["*"]\n    quota: {quota}\n')
    return f"--vmgroup-limits={file}"


async def test_a_paused_group_with_fewer_replicas_frees_no_quota(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    flag = write_quota(tmp_path, "{vms: 3}")
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m", flag):
        groups = VmGroupClient(installed, namespace)
        await groups.create("old", replicas=3)
        await groups.wait_for_phase("old", "RUNNING")
        await groups.patch_spec("old", paused=True, replicas=1)
        await groups.wait_for_phase("old", "PENDING")
        await groups.create("young", replicas=2)
        status = await groups.wait_for_phase("young", "ERROR")
        assert "requested: vms=2, used: vms=3, limited: vms=3" in status["lastMessage"]
        assert ready_condition({"status": status})["reason"] == "QuotaExceeded"
        assert len((await read_simulator_state(simulator)).marked_vms) == 3
        # As soon as the VMs are gone, the other group continues.
        await groups.patch_spec("old", paused=False)
        await groups.wait_for_phase("young", "RUNNING", within=30)
        assert len((await read_simulator_state(simulator)).marked_vms) == 3


async def test_a_resize_above_the_quota_is_rejected(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    flag = write_quota(tmp_path, "{cpus: 4, memoryGB: 4}")
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m", flag):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=2))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        await groups.patch_spec("web", cpu=3)
        status = await groups.wait_for_phase("web", "ERROR")
        assert "requested: cpus=6, used: cpus=0, limited: cpus=4" in status["lastMessage"]
        vms = await list_group_vms(simulator, uid)
        assert {(vm.cpus, vm.power) for vm in vms} == {(1, "poweredOn")}
        await groups.patch_spec("web", cpu=2, memory=2)
        status = await groups.wait_for_phase("web", "RUNNING")
        assert [(vm.cpus, vm.memory_mb) for vm in await list_group_vms(simulator, uid)] == [
            (2, 2048)
        ] * 2
        assert [(replica["cpu"], replica["memoryMB"]) for replica in status["replicas"]] == [
            (2, 2048)
        ] * 2


async def test_vms_of_a_deleted_group_count_until_they_are_deleted(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    flag = write_quota(tmp_path, "{vms: 2}")
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m", flag):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("first", replicas=2, deletionPolicy="Orphan"))["metadata"]["uid"]
        await groups.wait_for_phase("first", "RUNNING")
        await groups.delete("first")
        await groups.wait_until_deleted("first")
        await groups.create("second", replicas=1)
        status = await groups.wait_for_phase("second", "ERROR")
        assert "2 VMs belong to deleted VmGroups" in status["lastMessage"]
        for vm in await list_group_vms(simulator, uid):
            await simulator.delete(vm.ref)
        await groups.patch_spec("second", memory=2)
        await groups.wait_for_phase("second", "RUNNING")
