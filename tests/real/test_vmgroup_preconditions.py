"""What VmGroup must not do when others share its folder's name, its quota or its VMs, or when vCenter shows less than all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ready_condition
from support.simulator_state import read_simulator_state
from support.vmgroup_client import PARENT_FOLDER, VmGroupClient, group_folder_path, list_group_vms

from .crash_injection import CrashInjector
from .crash_run import run_observed_manager, run_simulator
from .vsphere_user import VSphereUser

MUTATIONS = (
    "CreateFolder",
    "CloneVM_Task",
    "Destroy_Task",
    "PowerOffVM_Task",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
)


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        yield vcenter


@pytest.fixture
def two_namespaces(installed: ControlPlane, namespace: str) -> Iterator[tuple[str, str]]:
    """Two namespaces, in which groups `b-c` and `c` have the same folder."""
    other = f"{namespace}-b"
    installed.create_namespace(other)
    yield namespace, other
    installed.remove_namespace(other)


def list_mutations(reaper: CrashInjector) -> list[str]:
    return [call.operation for call in reaper.calls if call.operation in MUTATIONS]


async def test_who_was_refused_a_folder_does_not_take_it_along(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    two_namespaces: tuple[str, str],
    tmp_path: Path,
) -> None:
    await vcenter.delay_calls("CloneVM_Task", 5)
    async with run_observed_manager(
        installed, vcenter, ",".join(two_namespaces), tmp_path / "m"
    ) as (_, reaper):
        first, second = (
            VmGroupClient(installed, two_namespaces[0]),
            VmGroupClient(installed, two_namespaces[1]),
        )
        await first.create("b-c", replicas=1)

        async def cloning() -> bool:
            return len((await read_simulator_state(vcenter)).clones) == 1

        await eventually(cloning, within=30)
        await second.create("c", replicas=1)
        refused = await second.wait_for_phase("c", "ERROR")
        assert "folder" not in refused
        await second.delete("c")
        await second.wait_until_deleted("c")
        await first.wait_for_phase("b-c", "RUNNING")
        assert list_mutations(reaper) == ["CreateFolder", "CloneVM_Task"]


async def test_a_vm_named_like_the_folder_is_told_and_its_end_too(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    await vcenter.create_vm(f"{namespace}-web", folder=PARENT_FOLDER)
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = VmGroupClient(installed, namespace)
        await groups.create("web", replicas=1)
        told = await groups.wait_for_phase("web", "ERROR")
        assert (
            f"{group_folder_path(namespace, 'web')} has the name of the group's folder, but is not a folder"
            in told["lastMessage"]
        )
        assert list_mutations(reaper).count("CreateFolder") == 1
        (vm,) = [
            vm for vm in (await read_simulator_state(vcenter)).vms if vm.name == f"{namespace}-web"
        ]
        await vcenter.rename(vm.ref, "out-of-the-way")
        await groups.wait_for_phase("web", "RUNNING")


async def test_a_vm_with_somebodys_disk_file_is_not_destroyed(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups, hands = VmGroupClient(installed, namespace), VSphereUser(vcenter)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        (vm,) = await list_group_vms(vcenter, uid)
        other = next(
            vm for vm in (await read_simulator_state(vcenter)).vms if vm.name == "DC0_C0_RP0_VM0"
        )
        file = await hands.call_on(lambda found: list_disks(found)[0].backing.fileName, other.ref)
        await hands.call_on(lambda found: found.ReconfigVM_Task(add_disk_spec(found, file)), vm.ref)
        await groups.delete("web")

        async def told() -> bool:
            return file in (await groups.get("web"))["status"]["lastMessage"]

        await eventually(told, within=30)
        assert "Destroy_Task" not in list_mutations(reaper)
        await hands.call_on(
            lambda found: found.ReconfigVM_Task(remove_disk_spec(found, file)), vm.ref
        )
        await groups.wait_until_deleted("web")


def list_disks(vm: Any) -> list[Any]:
    return [
        device
        for device in vm.config.hardware.device
        if isinstance(device, vim.vm.device.VirtualDisk)
    ]


def add_disk_spec(vm: Any, file: str) -> Any:
    controllers = (vim.vm.device.VirtualSCSIController, vim.vm.device.VirtualIDEController)
    controller = next(
        device for device in vm.config.hardware.device if isinstance(device, controllers)
    )
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=file, diskMode="persistent")
    disk = vim.vm.device.VirtualDisk(
        controllerKey=controller.key, unitNumber=1, key=-1, capacityInKB=1024, backing=backing
    )
    return vim.vm.ConfigSpec(
        deviceChange=[vim.vm.device.VirtualDeviceSpec(operation="add", device=disk)]
    )


def remove_disk_spec(vm: Any, file: str) -> Any:
    disk = next(disk for disk in list_disks(vm) if disk.backing.fileName == file)
    return vim.vm.ConfigSpec(
        deviceChange=[vim.vm.device.VirtualDeviceSpec(operation="remove", device=disk)]
    )


async def test_a_vm_that_tells_no_configuration_keeps_its_place(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (
        manager,
        reaper,
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        before, (vm,) = list_mutations(reaper), await list_group_vms(vcenter, uid)
        await vcenter.rename(vm.ref, "%2fvmfs%2fvolumes%2fx%2fweb.vmx")
        await vcenter.set_property(vm.ref, "runtime.connectionState", "inaccessible")
        await vcenter.set_property(vm.ref, "config.instanceUuid", "")
        # Until it is seen, a change of size is carried out, and rightly.
        await groups.wait_for_phase("web", "PENDING")
        for _ in range(2):
            await groups.patch_spec("web", memory=2)
            await groups.wait_for_phase("web", "PENDING")
            assert list_mutations(reaper) == before
            await manager.kill()
            manager.start()
            await groups.patch_spec("web", memory=1)
            await groups.wait_for_phase("web", "PENDING")
        await vcenter.set_property(vm.ref, "config.instanceUuid", vm.instance_uuid)
        await vcenter.set_property(vm.ref, "runtime.connectionState", "connected")
        await groups.wait_for_phase("web", "RUNNING")
        assert list_mutations(reaper) == before


async def test_marks_that_cannot_be_read_lead_to_no_second_vm(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (
        manager,
        reaper,
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=2))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        await manager.kill()
        before = list_mutations(reaper)
        await vcenter.fail_calls("RetrievePropertiesEx", "NoPermission", count=0)
        manager.start()
        await groups.patch_spec("web", memory=2)
        await groups.wait_for_phase("web", "PENDING")
        assert list_mutations(reaper) == before
        await vcenter.clear_rules()
        await groups.patch_spec("web", memory=1)
        await groups.wait_for_phase("web", "RUNNING", within=100)
        assert (await read_simulator_state(vcenter)).peak_by_uid[uid] == 2


async def test_the_quota_is_the_oldest_groups_first_and_holds_while_a_template_changes(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text('limits:\n  - namespaces: ["*"]\n    quota: {vms: 3}\n')
    async with run_observed_manager(
        installed, vcenter, namespace, tmp_path / "m", f"--vmgroup-limits={limits}"
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("old", replicas=2))["metadata"]["uid"]
        await groups.wait_for_phase("old", "RUNNING")
        await groups.create("young", replicas=5)
        assert (
            "requested: vms=5, used: vms=2, limited: vms=3"
            in (await groups.wait_for_phase("young", "ERROR"))["lastMessage"]
        )
        gone = (await list_group_vms(vcenter, uid))[0].ref
        await vcenter.delete(gone)
        await groups.wait_for_phase(
            "old",
            "RUNNING",
            predicate=lambda status: (
                gone not in [replica["moRef"] for replica in status["replicas"]]
            ),
        )
        await groups.patch_spec("old", template="vm-operator-template-2", rollout={"maxSurge": 3})
        await groups.wait_for_phase(
            "old", "RUNNING", predicate=lambda status: status["updatedReplicas"] == 2
        )
        assert (await read_simulator_state(vcenter)).peak_by_uid[uid] <= 3


async def test_what_an_orphaned_group_left_is_said_as_such(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=1, deletionPolicy="Orphan"))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        await groups.delete("web")
        await groups.wait_until_deleted("web")
        (left,) = await list_group_vms(vcenter, uid)
        await groups.create("web", replicas=1)
        assert (
            "contains VMs of a deleted VmGroup"
            in (await groups.wait_for_phase("web", "ERROR"))["lastMessage"]
        )
        await vcenter.delete(left.ref)
        await groups.wait_for_phase("web", "RUNNING")


async def test_user_data_comes_from_a_secret_that_may_come_later(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    rights = str(pytestconfig.rootpath / "config/optional/cloud-init-secrets.yaml")
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        uid = (
            await groups.create("web", replicas=1, bootstrap={"cloudInit": {"secretName": "boot"}})
        )["metadata"]["uid"]
        refused = await groups.wait_for_phase("web", "ERROR")
        assert ready_condition({"status": refused})["reason"] == "SecretForbidden"
        await asyncio.to_thread(installed.kubectl, "apply", "-n", namespace, "-f", rights)
        await groups.wait_for_phase(
            "web", "ERROR", predicate=lambda status: "does not exist" in status["lastMessage"]
        )
        secret = (
            "create",
            "secret",
            "generic",
            "boot",
            "-n",
            namespace,
            "--from-literal=user-data=#cloud-config canary-77",
        )
        await asyncio.to_thread(installed.kubectl, *secret)
        await groups.wait_for_phase("web", "RUNNING")
        (vm,) = await list_group_vms(vcenter, uid)
        options = await VSphereUser(vcenter).call_on(
            lambda found: {option.key: option.value for option in found.config.extraConfig}, vm.ref
        )
        assert options["guestinfo.userdata"] == "I2Nsb3VkLWNvbmZpZyBjYW5hcnktNzc="
        assert options["guestinfo.userdata.encoding"] == "base64"
        assert "canary-77" not in (tmp_path / "m/manager.log").read_text()


async def test_a_linked_clone_needs_a_snapshot_and_waits_for_one(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = VmGroupClient(installed, namespace)
        await groups.create("web", replicas=1, linkedClone=True)
        told = await groups.wait_for_phase("web", "ERROR")
        assert "a linked clone needs a snapshot of the template" in told["lastMessage"]
        assert "CloneVM_Task" not in list_mutations(reaper)
        template = next(
            entity
            for entity in await vcenter.entities()
            if entity["name"] == "vm-operator-template"
        )
        await VSphereUser(vcenter).call_on(
            lambda vm: vm.CreateSnapshot_Task("base", "", False, False), template["ref"]
        )
        await groups.wait_for_phase("web", "RUNNING")


async def test_placement_power_and_pause(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = VmGroupClient(installed, namespace)
        place = {
            "datacenter": "DC0",
            "cluster": "DC0_C0",
            "datastore": "LocalDS_0",
            "folder": "/DC0/vm/vm-operator",
        }
        uid = (await groups.create("web", replicas=1, placement=place, powerState="poweredOff"))[
            "metadata"
        ]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        (vm,) = await list_group_vms(vcenter, uid)
        assert (vm.power, vm.folder) == ("poweredOff", group_folder_path(namespace, "web"))
        before = list_mutations(reaper)
        await groups.patch_spec("web", paused=True, replicas=3)
        assert (
            "Unset spec.paused to continue."
            in (await groups.wait_for_phase("web", "PENDING"))["lastMessage"]
        )
        assert list_mutations(reaper) == before
        await groups.patch_spec("web", paused=False, powerState="poweredOn")
        await groups.wait_for_phase("web", "RUNNING")
        assert {vm.power for vm in await list_group_vms(vcenter, uid)} == {"poweredOn"}
        await groups.create("lost", replicas=1, placement={"cluster": "nowhere"})
        assert (
            'no cluster named "nowhere"'
            in (await groups.wait_for_phase("lost", "ERROR"))["lastMessage"]
        )
