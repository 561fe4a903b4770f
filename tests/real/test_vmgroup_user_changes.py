"""Changes that users make in vCenter: each row of the table in docs/designs/vmgroup.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import (
    PARENT_FOLDER,
    VmGroupClient,
    group_folder_path,
    is_running,
    list_group_vms,
)

from .crash_injection import CrashInjector
from .crash_run import run_observed_manager, run_simulator
from .vsphere_user import VSphereUser

GROUP_NAME = "web"


@dataclass
class GroupHarness:
    """A running group and a user of vCenter."""

    client: VmGroupClient
    vcenter: SimulatedVCenter
    injector: CrashInjector
    uid: str = ""

    @property
    def user(self) -> VSphereUser:
        return VSphereUser(self.vcenter)

    @property
    def folder(self) -> str:
        return group_folder_path(self.client.namespace, GROUP_NAME)

    async def create_group(self, replicas: int) -> list[SimulatorVm]:
        """Returns the VMs of the group, sorted by name."""
        self.uid = (await self.client.create(GROUP_NAME, replicas=replicas))["metadata"]["uid"]
        await self.client.wait_for_phase(GROUP_NAME, "RUNNING")
        return await self.list_vms()

    async def list_vms(self) -> list[SimulatorVm]:
        return sorted(await list_group_vms(self.vcenter, self.uid), key=lambda vm: vm.name)

    async def wait_for_vms(self, check: Callable[[list[SimulatorVm]], bool]) -> list[SimulatorVm]:
        """The VMs, once the check holds and the group is RUNNING."""

        async def there() -> list[SimulatorVm]:
            vms = await self.list_vms()
            return vms if check(vms) and is_running(await self.client.get(GROUP_NAME)) else []

        try:
            return await eventually(there, within=40, every=0.1)
        except AssertionError as error:
            status = (await self.client.get(GROUP_NAME)).get("status")
            raise AssertionError(f"{error}; {await self.list_vms()}; {status}") from None

    def list_vcenter_calls(self) -> list[str]:
        return [
            call.operation
            for call in self.injector.calls
            if call.operation.endswith("_Task") or call.operation == "CreateFolder"
        ]


@pytest.fixture
async def harness(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[GroupHarness]:
    async with (
        run_simulator(
            pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", "--hosts=2"
        ) as vcenter,
        run_observed_manager(
            installed, vcenter, namespace, tmp_path / "manager", "--disk-refresh-interval=1s"
        ) as (_, injector),
    ):
        yield GroupHarness(VmGroupClient(installed, namespace), vcenter, injector)


async def test_a_deleted_vm_is_cloned_again_under_its_name(harness: GroupHarness) -> None:
    first, second = await harness.create_group(2)
    await harness.vcenter.delete(first.ref)
    vms_now = await harness.wait_for_vms(
        lambda vms: len(vms) == 2 and first.ref not in {vm.ref for vm in vms}
    )
    assert [vm.name for vm in vms_now] == [first.name, second.name]
    assert [vm.marks["vsphere-operators.slot"] for vm in vms_now] == [
        vm.marks["vsphere-operators.slot"] for vm in (first, second)
    ]
    assert vms_now[1].ref == second.ref


async def test_a_vm_that_is_off_or_suspended_is_powered_on(harness: GroupHarness) -> None:
    first, second = await harness.create_group(2)
    await harness.vcenter.set_power(first.ref, False)
    await harness.user.suspend(second.ref)
    vms_now = await harness.wait_for_vms(
        lambda vms: (
            all(vm.power == "poweredOn" for vm in vms)
            and harness.list_vcenter_calls().count("PowerOnVM_Task") >= 2
        )
    )
    assert [vm.ref for vm in vms_now] == [first.ref, second.ref]


async def test_a_resized_vm_gets_its_size_back(harness: GroupHarness) -> None:
    (vm,) = await harness.create_group(1)
    before = harness.list_vcenter_calls()
    await harness.vcenter.set_power(vm.ref, False)
    await eventually(lambda: try_resize(harness, vm), within=60, every=0.0)
    vms_now = await harness.wait_for_vms(
        lambda vms: [(vm.cpus, vm.power) for vm in vms] == [(1, "poweredOn")]
    )
    assert [vm.ref for vm in vms_now] == [vm.ref]
    assert "ReconfigVM_Task" in harness.list_vcenter_calls()[len(before) :]


async def try_resize(harness: GroupHarness, vm: SimulatorVm) -> bool:
    """Resize the VM before the manager powers it on; if that is too late, power it off again."""
    try:
        await harness.user.resize(vm.ref, 2)
        return True
    except AssertionError:
        await harness.vcenter.set_power(vm.ref, False)
        return False


async def test_a_vm_that_is_renamed_moved_or_migrated_is_kept(harness: GroupHarness) -> None:
    first, second, third = await harness.create_group(3)
    before = harness.list_vcenter_calls()
    await harness.user.rename(first.ref, "my-own-name")
    await harness.user.move_to_parent_folder(second.ref)
    hosts = {
        entity["ref"]
        for entity in await harness.vcenter.entities()
        if entity["type"] == "HostSystem"
    }
    other = min(hosts - {await harness.user.read_host(third.ref)})
    await harness.user.migrate(third.ref, other)
    # The edit makes sure that the group is reconciled after all of it.
    await harness.client.patch_spec(GROUP_NAME, replicas=4)
    vms_now = await harness.wait_for_vms(lambda vms: len(vms) == 4)
    by_ref = {vm.ref: vm for vm in vms_now}
    assert by_ref[first.ref].name == "my-own-name"
    assert by_ref[second.ref].folder == harness.folder.rpartition("/")[0]
    assert await harness.user.read_host(third.ref) == other
    assert set(harness.list_vcenter_calls()[len(before) :]) <= {"CloneVM_Task", "PowerOnVM_Task"}
    await harness.client.delete(GROUP_NAME)
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert await harness.list_vms() == []


async def test_foreign_vms_in_the_folder_are_not_touched(
    harness: GroupHarness,
) -> None:
    first, _ = await harness.create_group(2)
    copy = await harness.user.clone(first.ref, "a-copy")
    foreign_vm = await harness.vcenter.create_vm("a-foreign-vm", folder=harness.folder)
    before = {
        vm.ref: vm
        for vm in (await read_simulator_state(harness.vcenter)).vms
        if vm.ref in (copy, foreign_vm)
    }
    await harness.client.patch_spec(GROUP_NAME, replicas=1)
    await harness.wait_for_vms(
        lambda vms: len(vms) == 2
    )  # one replica, and the copy with the same mark
    await harness.client.delete(GROUP_NAME)
    await harness.client.wait_until_deleted(GROUP_NAME)
    after = await read_simulator_state(harness.vcenter)
    assert {vm.ref: vm for vm in after.vms if vm.folder == harness.folder} == before
    assert {call.target for call in harness.injector.calls} & {copy, foreign_vm} == set()


async def test_a_deleted_folder_is_created_again_with_its_vms(harness: GroupHarness) -> None:
    before = await harness.create_group(2)
    # vCenter deletes no folder with running VMs, and the manager would power them on again.
    await harness.client.patch_spec(GROUP_NAME, paused=True)
    await harness.client.wait_for_phase(
        GROUP_NAME, "RUNNING", predicate=lambda status: "paused" in status["lastMessage"]
    )
    for vm in before:
        await harness.vcenter.set_power(vm.ref, False)
    await harness.vcenter.delete(harness.folder)
    assert await harness.list_vms() == []
    await harness.client.patch_spec(GROUP_NAME, paused=False)
    vms_now = await harness.wait_for_vms(lambda vms: len(vms) == 2)
    assert [vm.name for vm in vms_now] == [vm.name for vm in before]
    assert {vm.folder for vm in vms_now} == {harness.folder}


async def test_a_renamed_folder_is_used_and_deleted_with_its_group(
    harness: GroupHarness,
) -> None:
    await harness.create_group(1)
    await harness.vcenter.rename(harness.folder, "my-own-folder")
    await harness.client.patch_spec(GROUP_NAME, replicas=2)
    vms_now = await harness.wait_for_vms(lambda vms: len(vms) == 2)
    assert {vm.folder for vm in vms_now} == {f"{PARENT_FOLDER}/my-own-folder"}
    await harness.client.delete(GROUP_NAME)
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert harness.list_vcenter_calls().count("CreateFolder") == 1
    assert f"{PARENT_FOLDER}/my-own-folder" not in {
        entity["path"] for entity in await harness.vcenter.entities()
    }


async def test_a_vm_without_its_mark_is_kept_and_replaced(harness: GroupHarness) -> None:
    first, second = await harness.create_group(2)
    await harness.user.remove_mark(first.ref)
    vms_now = await harness.wait_for_vms(lambda vms: len(vms) == 2)
    assert second.ref in {vm.ref for vm in vms_now}
    assert first.name not in {vm.name for vm in vms_now}
    unmarked = next(
        vm for vm in (await read_simulator_state(harness.vcenter)).vms if vm.ref == first.ref
    )
    assert (unmarked.name, unmarked.folder, unmarked.power) == (
        first.name,
        harness.folder,
        "poweredOn",
    )
    assert first.ref not in {call.target for call in harness.injector.calls}


async def test_a_vm_with_a_volume_is_not_destroyed(harness: GroupHarness) -> None:
    vms = await harness.create_group(3)
    newest = max(vms, key=lambda vm: int(vm.marks["vsphere-operators.slot"]))
    disk = await harness.vcenter.create_disk("pvc-of-a-pod")
    await harness.vcenter.attach_disk(disk, newest.ref)
    await eventually(lambda: has_disk(harness, newest), within=60)
    await harness.client.patch_spec(GROUP_NAME, replicas=1)
    vms_now = await harness.wait_for_vms(lambda vms: len(vms) == 1)
    assert [vm.ref for vm in vms_now] == [newest.ref]
    await harness.client.delete(GROUP_NAME)
    await eventually(lambda: has_error(harness, "pvc-of-a-pod"), within=30)
    assert [vm.ref for vm in await harness.list_vms()] == [newest.ref]
    assert "pvc-of-a-pod" in {disk["name"] for disk in await harness.vcenter.disks()}
    await harness.vcenter.attach_disk(disk, "")
    await harness.client.wait_until_deleted(GROUP_NAME)
    assert await harness.list_vms() == []
    assert "pvc-of-a-pod" in {disk["name"] for disk in await harness.vcenter.disks()}


async def has_disk(harness: GroupHarness, vm: SimulatorVm) -> bool:
    devices = await harness.user.call_on(
        lambda vm: [getattr(device, "vDiskId", None) for device in vm.config.hardware.device],
        vm.ref,
    )
    return any(devices)


async def has_error(harness: GroupHarness, message: str) -> bool:
    status = (await harness.client.get(GROUP_NAME))["status"]
    return status["phase"] == "ERROR" and message in status["lastMessage"]
