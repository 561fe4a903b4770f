"""VMs that are missing and come back: a host, a backup, a permission. None is cloned again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ready_condition
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import VmGroupClient, is_running, list_group_vms

from .crash_run import run_observed_manager, run_simulator
from .vsphere_user import VSphereUser

NAME = "web"
# Long enough to see that nothing happens: without the wait, a VM is cloned within a second.
QUIET_SECONDS = 5.0


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", "--hosts=2"
    ) as simulator:
        yield simulator


@pytest.fixture
def groups(installed: ControlPlane, namespace: str) -> VmGroupClient:
    return VmGroupClient(installed, namespace)


@pytest.fixture
def start_manager(
    installed: ControlPlane, namespace: str, simulator: SimulatedVCenter, tmp_path: Path
) -> Callable[..., Any]:
    return lambda *flags: run_observed_manager(
        installed, simulator, namespace, tmp_path / "m", *flags
    )


async def create_group(
    groups: VmGroupClient, vcenter: SimulatedVCenter, replicas: int = 2
) -> list[SimulatorVm]:
    uid = (await groups.create(NAME, replicas=replicas))["metadata"]["uid"]
    await groups.wait_for_phase(NAME, "RUNNING")
    await vcenter.reset_mutating_calls()
    return await list_group_vms(vcenter, uid)


async def wait_for_missing(groups: VmGroupClient, vcenter: SimulatedVCenter, *texts: str) -> None:
    """Wait until the group reports the missing VMs; then nothing is changed for some seconds."""

    def reports(status: Any) -> bool:
        # For up to 2 s it is not known yet whether the VM was deleted.
        is_waiting = ready_condition({"status": status})["reason"] == "VMMissing"
        return is_waiting and all(text in status["lastMessage"] for text in ("is missing", *texts))

    await groups.wait_for_phase(NAME, "PENDING", predicate=reports)
    await asyncio.sleep(QUIET_SECONDS)
    await assert_unchanged(vcenter)
    await groups.wait_for_phase(NAME, "PENDING", predicate=reports)


async def wait_until_back(
    groups: VmGroupClient, vcenter: SimulatedVCenter, vms: list[SimulatorVm]
) -> None:
    """Wait until the group is in the desired state with the VMs that it had."""

    async def running() -> bool:
        return is_running(await groups.get(NAME))

    await eventually(running, within=60)
    await assert_unchanged(vcenter)
    state = await read_simulator_state(vcenter)
    assert sorted(vm.instance_uuid for vm in state.marked_vms) == sorted(
        vm.instance_uuid for vm in vms
    )
    assert list(state.peak_by_uid.values()) == [len(vms)]


async def assert_unchanged(vcenter: SimulatedVCenter) -> None:
    methods = [call["method"] for call in await vcenter.mutating_calls()]
    assert [method for method in methods if method.endswith("_Task")] == []
    assert "CreateFolder" not in methods


@pytest.mark.parametrize("discovered", [False, True])
async def test_a_host_is_removed_and_added(
    simulator: SimulatedVCenter,
    groups: VmGroupClient,
    start_manager: Callable[..., Any],
    discovered: bool,
) -> None:
    user = VSphereUser(simulator)
    async with start_manager():
        vms = await create_group(groups, simulator)
        (template,) = [
            entity["ref"]
            for entity in await simulator.entities()
            if entity["name"] == "vm-operator-template"
        ]
        template_host = await user.read_host(template)
        host = next(
            entity
            for entity in await simulator.entities()
            if entity["type"] == "HostSystem" and entity["ref"] != template_host
        )
        await simulator.move_vm(vms[0].ref, host["ref"])
        await groups.wait_for_phase(
            NAME, "RUNNING", predicate=lambda status: host["name"] in str(status["replicas"])
        )
        await simulator.remove_host(host["name"])
        await wait_for_missing(groups, simulator, vms[0].name, "If it is still missing at 20")
        await simulator.add_host(host["name"], discovered=discovered)
        await wait_until_back(groups, simulator, vms)


async def test_a_restored_vcenter_finds_its_vms_later(
    simulator: SimulatedVCenter, groups: VmGroupClient, start_manager: Callable[..., Any]
) -> None:
    await simulator.back_up()
    async with start_manager():
        vms = await create_group(groups, simulator)
        assert (await simulator.restore_backup())["dropped"] == 2
        await wait_for_missing(groups, simulator, *(vm.name for vm in vms))
        await simulator.discover_vms()
        await wait_until_back(groups, simulator, vms)


async def test_a_restored_vcenter_shows_deleted_vms_first(
    simulator: SimulatedVCenter, groups: VmGroupClient, start_manager: Callable[..., Any]
) -> None:
    async with start_manager():
        (old,) = await create_group(groups, simulator, replicas=1)
        await simulator.back_up()
        # The replica is replaced by one of another template.
        await groups.patch_spec(NAME, template="vm-operator-template-2")
        uid = (await groups.get(NAME))["metadata"]["uid"]

        async def find_new_vm() -> list[SimulatorVm]:
            vms = await list_group_vms(simulator, uid)
            is_replaced = len(vms) == 1 and vms[0].ref != old.ref
            return vms if is_replaced and is_running(await groups.get(NAME)) else []

        (new,) = await eventually(find_new_vm, within=60)
        await simulator.reset_mutating_calls()
        await simulator.restore_backup()
        # Were the missing VM selected for deletion, the current one would be destroyed when found.
        await wait_for_missing(groups, simulator, new.name)
        await simulator.discover_vms()

        async def has_only_new_vm() -> bool:
            vms = await list_group_vms(simulator, uid)
            return [vm.instance_uuid for vm in vms] == [new.instance_uuid] and is_running(
                await groups.get(NAME)
            )

        await eventually(has_only_new_vm, within=90)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_permission_is_taken_and_given_back(
    simulator: SimulatedVCenter,
    groups: VmGroupClient,
    start_manager: Callable[..., Any],
    restart: bool,
) -> None:
    async with start_manager("--vmgroup-missing-vm-timeout=2s") as (manager, _):
        vms = await create_group(groups, simulator)
        if restart:
            await manager.kill()
        await simulator.hide_vm(vms[0].ref)
        if restart:
            manager.start()
        # Longer than the timeout: vCenter still has the VM.
        await wait_for_missing(groups, simulator, "does not show it to the manager's account")
        await simulator.show_vm(vms[0].ref)
        await wait_until_back(groups, simulator, vms)


async def test_a_vm_deleted_between_two_managers_is_cloned_again_after_the_timeout(
    simulator: SimulatedVCenter, groups: VmGroupClient, start_manager: Callable[..., Any]
) -> None:
    async with start_manager("--vmgroup-missing-vm-timeout=4s") as (manager, _):
        vms = await create_group(groups, simulator)
        await manager.kill()
        await unregister(simulator, vms[0].ref)
        started_at = datetime.now(UTC)
        manager.start()

        async def list_clone_calls() -> list[dict[str, Any]]:
            calls = await simulator.mutating_calls()
            return [call for call in calls if call["method"] == "CloneVM_Task"]

        async def is_back() -> bool:
            return bool(await list_clone_calls()) and is_running(await groups.get(NAME))

        await eventually(is_back, within=60)
        # Not by the phase meanwhile, which a busy machine may miss.
        (clone,) = await list_clone_calls()
        waited = datetime.fromisoformat(clone["time"]) - started_at
        assert waited.total_seconds() >= 4.0

        async def is_reported() -> bool:
            events = await groups.call("GET", f"/api/v1/namespaces/{groups.namespace}/events")
            return any(
                event["reason"] == "VMMissing" and "it counts as deleted" in event["message"]
                for event in events["items"]
            )

        await eventually(is_reported)
        state = await read_simulator_state(simulator)
        assert sorted(vm.name for vm in state.marked_vms) == sorted(vm.name for vm in vms)


async def unregister(vcenter: SimulatedVCenter, ref: str) -> None:
    """Take a VM out of the inventory, which no destroy task reports."""
    user = VSphereUser(vcenter)
    await user.call_on(lambda vm: vm.PowerOffVM_Task(), ref)
    await user.call_on(lambda vm: vm.UnregisterVM(), ref)
    await vcenter.reset_mutating_calls()
