"""What is destroyed: only what vCenter shows at the last moment, and suspended VMs too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import VmGroupClient, group_folder_path, list_group_vms

from .crash_injection import CrashInjector
from .crash_run import run_observed_manager, run_simulator
from .test_vmgroup_preconditions import add_disk_spec, list_disks, remove_disk_spec
from .vsphere_user import VSphereUser

GROUP_NAME = "web"
# Long enough for a user to act meanwhile.
CONFIRM_SECONDS = 4.0
FOREIGN_VM = "DC0_C0_RP0_VM0"


@dataclass
class DestroyHarness:
    client: VmGroupClient
    vcenter: SimulatedVCenter
    injector: CrashInjector
    uid: str = ""

    @property
    def user(self) -> VSphereUser:
        return VSphereUser(self.vcenter)

    async def create_group(self, **spec: Any) -> list[SimulatorVm]:
        self.uid = (await self.client.create(GROUP_NAME, **spec))["metadata"]["uid"]
        await self.client.wait_for_phase(GROUP_NAME, "RUNNING")
        return await self.list_vms()

    async def list_vms(self) -> list[SimulatorVm]:
        return await list_group_vms(self.vcenter, self.uid)

    async def find_foreign_vm(self) -> SimulatorVm:
        state = await read_simulator_state(self.vcenter)
        return next(vm for vm in state.vms if vm.name == FOREIGN_VM)

    async def find_folder(self) -> str:
        """The reference of the group's folder; "" if it does not exist."""
        path = group_folder_path(self.client.namespace, GROUP_NAME)
        entities = await self.vcenter.entities()
        return next((entity["ref"] for entity in entities if entity["path"] == path), "")

    def slow_down_confirmations(self) -> Callable[[], int]:
        """Delay every GET of the group; returns how to count them."""
        api = self.injector.proxies[0]
        path = f"*/vmgroups/{GROUP_NAME}"
        before = len(api.find_requests("GET", path))
        api.delay_next("GET", path, CONFIRM_SECONDS, times=100)
        return lambda: len(api.find_requests("GET", path)) - before

    def count_calls(self, operation: str) -> int:
        return sum(call.operation == operation for call in self.injector.calls)


@pytest.fixture
async def harness(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[DestroyHarness]:
    async with (
        run_simulator(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        run_observed_manager(installed, vcenter, namespace, tmp_path / "manager") as (_, injector),
    ):
        yield DestroyHarness(VmGroupClient(installed, namespace), vcenter, injector)


async def test_a_disk_that_is_attached_while_the_api_server_is_slow_is_kept(
    harness: DestroyHarness,
) -> None:
    (vm,) = await harness.create_group(replicas=1)
    other = await harness.find_foreign_vm()
    file = await harness.user.call_on(
        lambda proxy: list_disks(proxy)[0].backing.fileName, other.ref
    )
    count_confirmations = harness.slow_down_confirmations()
    await harness.client.delete(GROUP_NAME)
    await eventually(lambda: count_confirmations() == 1, within=30)
    await harness.user.call_on(
        lambda proxy: proxy.ReconfigVM_Task(add_disk_spec(proxy, file)), vm.ref
    )

    async def is_reported() -> bool:
        return file in (await harness.client.get(GROUP_NAME))["status"]["lastMessage"]

    await eventually(is_reported, within=30)
    assert harness.count_calls("Destroy_Task") == 0
    await harness.user.call_on(
        lambda proxy: proxy.ReconfigVM_Task(remove_disk_spec(proxy, file)), vm.ref
    )
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert await harness.find_foreign_vm() == other


async def test_a_vm_that_is_moved_into_the_folder_while_the_api_server_is_slow_is_kept(
    harness: DestroyHarness,
) -> None:
    await harness.create_group(replicas=1)
    other, folder = await harness.find_foreign_vm(), await harness.find_folder()
    await harness.vcenter.set_power(other.ref, False)
    count_confirmations = harness.slow_down_confirmations()
    await harness.client.delete(GROUP_NAME)
    # The first is for the VM, the second for the folder.
    await eventually(lambda: count_confirmations() == 2, within=60)
    assert await harness.list_vms() == []
    await harness.user.move_to_folder(other.ref, folder)
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert (await harness.find_foreign_vm()).ref == other.ref
    assert await harness.find_folder() == folder
    assert harness.count_calls("UnregisterAndDestroy_Task") == 0
    assert harness.count_calls("Destroy_Task") == 1


async def test_a_vm_that_is_moved_into_the_folder_after_the_last_read_keeps_its_disks(
    harness: DestroyHarness,
) -> None:
    await harness.create_group(replicas=1)
    other, folder = await harness.find_foreign_vm(), await harness.find_folder()
    await harness.vcenter.set_power(other.ref, False)
    await harness.vcenter.hold_calls("UnregisterAndDestroy_Task")
    await harness.client.delete(GROUP_NAME)
    await eventually(harness.vcenter.held_calls, within=30)
    await harness.user.move_to_folder(other.ref, folder)
    datastore, file = await harness.user.call_on(
        lambda vm: (vm.datastore[0].info.url, list_disks(vm)[0].backing.fileName), other.ref
    )
    # The simulator keeps a datastore in a directory.
    disk = Path(datastore) / file.partition("] ")[2]
    assert disk.exists()
    assert await harness.vcenter.release_calls() == 1
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert await harness.find_folder() == ""
    # The VM is only unregistered.
    assert FOREIGN_VM not in {vm.name for vm in (await read_simulator_state(harness.vcenter)).vms}
    assert disk.exists()


async def test_a_suspended_vm_is_deleted_with_the_group(harness: DestroyHarness) -> None:
    vms = await harness.create_group(replicas=2)
    await harness.client.patch_spec(GROUP_NAME, paused=True)
    for vm in vms:
        await harness.vcenter.suspend(vm.ref)
    await harness.client.patch_spec(GROUP_NAME, replicas=1, paused=False)
    await harness.client.wait_for_phase(GROUP_NAME, "RUNNING")
    (left,) = await harness.list_vms()
    assert left.power == "poweredOn"
    await harness.vcenter.hold_calls("PowerOnVM_Task")
    await harness.vcenter.suspend(left.ref)
    await harness.client.delete(GROUP_NAME)
    # The manager was about to resume it.
    await harness.vcenter.release_calls()
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert await harness.list_vms() == []


async def test_a_suspended_vm_is_powered_off_and_resized(harness: DestroyHarness) -> None:
    (vm,) = await harness.create_group(replicas=1)
    await harness.client.patch_spec(GROUP_NAME, paused=True)
    await harness.vcenter.suspend(vm.ref)
    await harness.client.patch_spec(GROUP_NAME, powerState="poweredOff", cpu=2, paused=False)
    await harness.client.wait_for_phase(GROUP_NAME, "RUNNING")
    assert [(vm.ref, vm.power, vm.cpus) for vm in await harness.list_vms()] == [
        (vm.ref, "poweredOff", 2)
    ]
    await harness.client.patch_spec(GROUP_NAME, powerState="poweredOn")
    await harness.client.wait_for_phase(GROUP_NAME, "RUNNING")
    await harness.client.patch_spec(GROUP_NAME, paused=True)
    await harness.vcenter.suspend(vm.ref)
    await harness.client.patch_spec(GROUP_NAME, cpu=1, paused=False)
    await harness.client.wait_for_phase(GROUP_NAME, "RUNNING")
    assert [(vm.ref, vm.power, vm.cpus) for vm in await harness.list_vms()] == [
        (vm.ref, "poweredOn", 1)
    ]


async def test_after_a_restore_nothing_of_an_earlier_plan_is_sent(harness: DestroyHarness) -> None:
    await harness.vcenter.back_up()
    await harness.create_group(replicas=2)
    await harness.client.patch_spec(GROUP_NAME, paused=True)
    first = (await harness.client.get(GROUP_NAME))["status"]["replicas"][0]["moRef"]
    await harness.vcenter.set_power(first, False)
    await harness.client.delete(GROUP_NAME)
    count_confirmations = harness.slow_down_confirmations()
    await harness.client.patch_spec(GROUP_NAME, paused=False)
    # The plan: destroy the first VM, power off the second one.
    await eventually(lambda: count_confirmations() == 1, within=30)
    await harness.vcenter.restore_backup()
    # The new session has read everything again before the API server answers.
    await asyncio.sleep(CONFIRM_SECONDS + 2.0)
    for operation in ("Destroy_Task", "PowerOffVM_Task"):
        assert harness.count_calls(operation) == 0
