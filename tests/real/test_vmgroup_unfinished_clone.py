"""A VM that vCenter shows before its clone has ended is left alone, also after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import VmGroupClient, list_group_vms

from .crash_injection import CrashInjector, CrashPoint
from .crash_run import run_observed_manager

GROUP_NAME = "web"
# Longer than the 10 s after which a manager takes a clone for lost.
LONG_AFTER_RESTART_SECONDS = 13.0


def list_vcenter_calls(injector: CrashInjector) -> list[str]:
    return [
        call.operation
        for call in injector.calls
        if call.operation.endswith("_Task") or call.operation == "CreateFolder"
    ]


async def wait_for_vm(vcenter: SimulatedVCenter, uid: str) -> SimulatorVm:
    async def first_vm() -> list[SimulatorVm]:
        return await list_group_vms(vcenter, uid)

    return (await eventually(first_vm, within=30))[0]


async def test_a_vm_is_not_powered_on_before_its_clone_has_ended(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    await simulator.hold_clones(50)
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create(GROUP_NAME, replicas=1))["metadata"]["uid"]
        assert (await wait_for_vm(simulator, uid)).power == "poweredOff"
        status = await groups.wait_for_phase(
            GROUP_NAME, "PENDING", predicate=lambda status: status["currentReplicas"] == 1
        )
        assert status["lastMessage"] == "0/1 replicas ready; cloning 1"
        assert [replica["state"] for replica in status["replicas"]] == ["Cloning"]
        assert await simulator.release_calls() == 1
        status = await groups.wait_for_phase(GROUP_NAME, "RUNNING")
        assert [replica["state"] for replica in status["replicas"]] == ["Present"]
        # The clone has powered it on.
        assert list_vcenter_calls(injector) == ["CreateFolder", "CloneVM_Task"]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["kept", "deleted"])
async def test_after_a_restart_a_clone_without_recorded_task_is_busy(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    is_deleted: bool,
) -> None:
    await simulator.hold_clones(50)
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        # The clone runs, and its manager dies before it knows the task.
        injector.crash_point = CrashPoint("CloneVM_Task", 1, "sent")
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create(GROUP_NAME, replicas=1))["metadata"]["uid"]
        vm = await wait_for_vm(simulator, uid)
        await injector.wait_for_restart()
        if is_deleted:
            await groups.delete(GROUP_NAME)
        loop = asyncio.get_running_loop()
        restarted_at = injector.restarted_at or 0.0
        await eventually(
            lambda: loop.time() > restarted_at + LONG_AFTER_RESTART_SECONDS,
            within=2 * LONG_AFTER_RESTART_SECONDS,
        )
        if not is_deleted:
            # A change of the spec ends all back-offs: a manager that wants to act does so now.
            await groups.patch_spec(GROUP_NAME, cpu=2)
            await groups.wait_for_phase(GROUP_NAME, "PENDING")
        assert list_vcenter_calls(injector) == ["CreateFolder", "CloneVM_Task"]
        assert await simulator.release_calls() == 1
        if is_deleted:
            await groups.wait_until_deleted(GROUP_NAME)
            assert await list_group_vms(simulator, uid) == []
        else:
            await groups.wait_for_phase(GROUP_NAME, "RUNNING")
            assert [vm.ref for vm in await list_group_vms(simulator, uid)] == [vm.ref]
        assert (await read_simulator_state(simulator)).peak_by_uid[uid] == 1
