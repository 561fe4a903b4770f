"""What VmGroup checks first: folder, foreign disks, marks, quota, Secret, snapshot, placement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
from .crash_run import run_observed_manager
from .vsphere_user import VSphereUser

MUTATIONS = (
    "CreateFolder",
    "CloneVM_Task",
    "Destroy_Task",
    "UnregisterAndDestroy_Task",
    "PowerOffVM_Task",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
)


@pytest.fixture
def two_namespaces(installed: ControlPlane, namespace: str) -> Iterator[tuple[str, str]]:
    """Two namespaces in which the groups `b-c` and `c` have the same folder name."""
    other = f"{namespace}-b"
    installed.create_namespace(other)
    yield namespace, other
    installed.remove_namespace(other)


def list_mutations(injector: CrashInjector) -> list[str]:
    return [call.operation for call in injector.calls if call.operation in MUTATIONS]


async def test_a_group_without_its_folder_does_not_destroy_it(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    two_namespaces: tuple[str, str],
    tmp_path: Path,
) -> None:
    # The folder is empty while the clone runs, so nothing in it proves its owner.
    await simulator.delay_calls("CloneVM_Task", 5)
    async with run_observed_manager(
        installed, simulator, ",".join(two_namespaces), tmp_path / "m"
    ) as (_, injector):
        first, second = (
            VmGroupClient(installed, two_namespaces[0]),
            VmGroupClient(installed, two_namespaces[1]),
        )
        await first.create("b-c", replicas=1)

        async def cloning() -> bool:
            return len((await read_simulator_state(simulator)).clones) == 1

        await eventually(cloning, within=30)
        await second.create("c", replicas=1)
        status = await second.wait_for_phase("c", "ERROR")
        assert "folder" not in status
        await second.delete("c")
        await second.wait_until_deleted("c")
        await first.wait_for_phase("b-c", "RUNNING")
        assert list_mutations(injector) == ["CreateFolder", "CloneVM_Task"]


async def test_a_vm_with_the_name_of_the_folder_is_reported_until_renamed(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    await simulator.create_vm(f"{namespace}-web", folder=PARENT_FOLDER)
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        await groups.create("web", replicas=1)
        status = await groups.wait_for_phase("web", "ERROR")
        assert (
            f"{group_folder_path(namespace, 'web')} has the name of the group's folder, but is not "
            "a folder" in status["lastMessage"]
        )
        assert list_mutations(injector).count("CreateFolder") == 1
        (vm,) = [
            vm
            for vm in (await read_simulator_state(simulator)).vms
            if vm.name == f"{namespace}-web"
        ]
        await simulator.rename(vm.ref, "out-of-the-way")
        await groups.wait_for_phase("web", "RUNNING")


async def test_a_vm_with_a_foreign_disk_file_is_not_destroyed(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        groups, user = VmGroupClient(installed, namespace), VSphereUser(simulator)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        (vm,) = await list_group_vms(simulator, uid)
        other = next(
            vm for vm in (await read_simulator_state(simulator)).vms if vm.name == "DC0_C0_RP0_VM0"
        )
        file = await user.call_on(
            lambda remote_vm: list_disks(remote_vm)[0].backing.fileName, other.ref
        )
        await user.call_on(
            lambda remote_vm: remote_vm.ReconfigVM_Task(add_disk_spec(remote_vm, file)), vm.ref
        )
        await groups.delete("web")

        async def is_reported() -> bool:
            return file in (await groups.get("web"))["status"]["lastMessage"]

        await eventually(is_reported, within=30)
        assert "Destroy_Task" not in list_mutations(injector)
        await user.call_on(
            lambda remote_vm: remote_vm.ReconfigVM_Task(remove_disk_spec(remote_vm, file)), vm.ref
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


async def test_a_vm_without_configuration_is_not_replaced(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        manager,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        before, (vm,) = list_mutations(injector), await list_group_vms(simulator, uid)
        await simulator.rename(vm.ref, "%2fvmfs%2fvolumes%2fx%2fweb.vmx")
        await simulator.set_property(vm.ref, "runtime.connectionState", "inaccessible")
        # vCenter reports this for a VM with inaccessible files.
        await simulator.set_property(vm.ref, "config.instanceUuid", "")
        # Before the manager observes this, it would resize the VM.
        await groups.wait_for_phase("web", "PENDING")
        for _ in range(2):
            await groups.patch_spec("web", memory=2)
            await groups.wait_for_phase("web", "PENDING")
            assert list_mutations(injector) == before
            await manager.kill()
            manager.start()
            await groups.patch_spec("web", memory=1)
            await groups.wait_for_phase("web", "PENDING")
        await simulator.set_property(vm.ref, "config.instanceUuid", vm.instance_uuid)
        await simulator.set_property(vm.ref, "runtime.connectionState", "connected")
        await groups.wait_for_phase("web", "RUNNING")
        assert list_mutations(injector) == before


async def test_unreadable_marks_lead_to_no_second_vm(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        manager,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=2))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        await manager.kill()
        before = list_mutations(injector)
        # The configurations of VMs, and with them the marks, cannot be read.
        await simulator.fail_calls("RetrievePropertiesEx", "NoPermission", count=0)
        manager.start()
        await groups.patch_spec("web", memory=2)
        await groups.wait_for_phase("web", "PENDING")
        assert list_mutations(injector) == before
        await simulator.clear_rules()
        await groups.patch_spec("web", memory=1)
        await groups.wait_for_phase("web", "RUNNING", within=100)
        assert (await read_simulator_state(simulator)).peak_by_uid[uid] == 2


async def test_the_quota_prefers_older_groups_and_limits_the_surge(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text('limits:\n  - namespaces: ["*"]\n    quota: {vms: 3}\n')
    async with run_observed_manager(
        installed, simulator, namespace, tmp_path / "m", f"--vmgroup-limits={limits}"
    ):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("old", replicas=2))["metadata"]["uid"]
        await groups.wait_for_phase("old", "RUNNING")
        await groups.create("young", replicas=5)
        assert (
            "requested: vms=5, used: vms=2, limited: vms=3"
            in (await groups.wait_for_phase("young", "ERROR"))["lastMessage"]
        )
        gone = (await list_group_vms(simulator, uid))[0].ref
        await simulator.delete(gone)
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
        assert (await read_simulator_state(simulator)).peak_by_uid[uid] <= 3


async def test_vms_of_a_deleted_group_are_reported(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        uid = (await groups.create("web", replicas=1, deletionPolicy="Orphan"))["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        await groups.delete("web")
        await groups.wait_until_deleted("web")
        (left,) = await list_group_vms(simulator, uid)
        await groups.create("web", replicas=1)
        assert (
            "contains VMs of a deleted VmGroup"
            in (await groups.wait_for_phase("web", "ERROR"))["lastMessage"]
        )
        await simulator.delete(left.ref)
        await groups.wait_for_phase("web", "RUNNING")


async def test_user_data_is_read_from_a_secret_that_is_created_later(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    permissions = str(pytestconfig.rootpath / "config/optional/cloud-init-secrets.yaml")
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        uid = (
            await groups.create("web", replicas=1, bootstrap={"cloudInit": {"secretName": "boot"}})
        )["metadata"]["uid"]
        status = await groups.wait_for_phase("web", "ERROR")
        assert ready_condition({"status": status})["reason"] == "SecretForbidden"
        await asyncio.to_thread(installed.kubectl, "apply", "-n", namespace, "-f", permissions)
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
        (vm,) = await list_group_vms(simulator, uid)
        extra_config = await VSphereUser(simulator).call_on(
            lambda remote_vm: {option.key: option.value for option in remote_vm.config.extraConfig},
            vm.ref,
        )
        assert extra_config["guestinfo.userdata"] == "I2Nsb3VkLWNvbmZpZyBjYW5hcnktNzc="
        assert extra_config["guestinfo.userdata.encoding"] == "base64"
        assert "canary-77" not in (tmp_path / "m/manager.log").read_text()


async def test_a_linked_clone_waits_for_a_snapshot(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        await groups.create("web", replicas=1, linkedClone=True)
        status = await groups.wait_for_phase("web", "ERROR")
        assert "a linked clone needs a snapshot of the template" in status["lastMessage"]
        assert "CloneVM_Task" not in list_mutations(injector)
        template = next(
            entity
            for entity in await simulator.entities()
            if entity["name"] == "vm-operator-template"
        )
        await VSphereUser(simulator).call_on(
            lambda vm: vm.CreateSnapshot_Task("base", "", False, False), template["ref"]
        )
        await groups.wait_for_phase("web", "RUNNING")


async def test_placement_power_state_and_pause(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m") as (
        _,
        injector,
    ):
        groups = VmGroupClient(installed, namespace)
        placement = {
            "datacenter": "DC0",
            "cluster": "DC0_C0",
            "datastore": "LocalDS_0",
            "folder": "/DC0/vm/vm-operator",
        }
        uid = (
            await groups.create("web", replicas=1, placement=placement, powerState="poweredOff")
        )["metadata"]["uid"]
        await groups.wait_for_phase("web", "RUNNING")
        (vm,) = await list_group_vms(simulator, uid)
        assert (vm.power, vm.folder) == ("poweredOff", group_folder_path(namespace, "web"))
        before = list_mutations(injector)
        await groups.patch_spec("web", paused=True, replicas=3)
        assert (
            "Unset spec.paused to continue."
            in (await groups.wait_for_phase("web", "PENDING"))["lastMessage"]
        )
        assert list_mutations(injector) == before
        await groups.patch_spec("web", paused=False, powerState="poweredOn")
        await groups.wait_for_phase("web", "RUNNING")
        assert {vm.power for vm in await list_group_vms(simulator, uid)} == {"poweredOn"}
        await groups.create("lost", replicas=1, placement={"cluster": "nowhere"})
        assert (
            'no cluster named "nowhere"'
            in (await groups.wait_for_phase("lost", "ERROR"))["lastMessage"]
        )
