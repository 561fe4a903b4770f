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

from .crashing import Reaper
from .groups import PARENT, Groups, folder_of, vms_of
from .hands import Hands
from .managing import ready_of
from .snapshot import snapshot
from .stage import simulated, watched

CHANGES = (
    "CreateFolder",
    "CloneVM_Task",
    "Destroy_Task",
    "PowerOffVM_Task",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
)


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        yield vcenter


@pytest.fixture
def spaces(installed: ControlPlane, namespace: str) -> Iterator[tuple[str, str]]:
    """Two namespaces, in which groups `b-c` and `c` have the same folder."""
    other = f"{namespace}-b"
    installed.create_namespace(other)
    yield namespace, other
    installed.remove_namespace(other)


def changes(reaper: Reaper) -> list[str]:
    return [each.sort for each in reaper.calls if each.sort in CHANGES]


async def test_who_was_refused_a_folder_does_not_take_it_along(
    installed: ControlPlane, vcenter: SimulatedVCenter, spaces: tuple[str, str], tmp_path: Path
) -> None:
    await vcenter.delay_calls("CloneVM_Task", 5)
    async with watched(installed, vcenter, ",".join(spaces), tmp_path / "m") as (_, reaper):
        first, second = Groups(installed, spaces[0]), Groups(installed, spaces[1])
        await first.create("b-c", replicas=1)

        async def cloning() -> bool:
            return len((await snapshot(vcenter)).clones) == 1

        await eventually(cloning, within=30)
        await second.create("c", replicas=1)
        refused = await second.becomes("c", "ERROR")
        assert "folder" not in refused
        await second.delete("c")
        await second.gone("c")
        await first.becomes("b-c", "RUNNING")
        assert changes(reaper) == ["CreateFolder", "CloneVM_Task"]


async def test_a_vm_named_like_the_folder_is_told_and_its_end_too(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    await vcenter.create_vm(f"{namespace}-web", folder=PARENT)
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = Groups(installed, namespace)
        await groups.create("web", replicas=1)
        told = await groups.becomes("web", "ERROR")
        assert (
            f"{folder_of(namespace, 'web')} has the name of the group's folder and is none"
            in told["lastMessage"]
        )
        assert changes(reaper).count("CreateFolder") == 1
        (vm,) = [each for each in (await snapshot(vcenter)).vms if each.name == f"{namespace}-web"]
        await vcenter.rename(vm.ref, "out-of-the-way")
        await groups.becomes("web", "RUNNING")


async def test_a_vm_with_somebodys_disk_file_is_not_destroyed(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups, hands = Groups(installed, namespace), Hands(vcenter)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.becomes("web", "RUNNING")
        (vm,) = await vms_of(vcenter, uid)
        other = next(
            each for each in (await snapshot(vcenter)).vms if each.name == "DC0_C0_RP0_VM0"
        )
        file = await hands.do(lambda found: disks_in(found)[0].backing.fileName, other.ref)
        await hands.do(lambda found: found.ReconfigVM_Task(with_disk(found, file)), vm.ref)
        await groups.delete("web")

        async def told() -> bool:
            return file in (await groups.get("web"))["status"]["lastMessage"]

        await eventually(told, within=30)
        assert "Destroy_Task" not in changes(reaper)
        await hands.do(lambda found: found.ReconfigVM_Task(without_disk(found, file)), vm.ref)
        await groups.gone("web")


def disks_in(vm: Any) -> list[Any]:
    return [
        each for each in vm.config.hardware.device if isinstance(each, vim.vm.device.VirtualDisk)
    ]


def with_disk(vm: Any, file: str) -> Any:
    controllers = (vim.vm.device.VirtualSCSIController, vim.vm.device.VirtualIDEController)
    controller = next(each for each in vm.config.hardware.device if isinstance(each, controllers))
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName=file, diskMode="persistent")
    disk = vim.vm.device.VirtualDisk(
        controllerKey=controller.key, unitNumber=1, key=-1, capacityInKB=1024, backing=backing
    )
    return vim.vm.ConfigSpec(
        deviceChange=[vim.vm.device.VirtualDeviceSpec(operation="add", device=disk)]
    )


def without_disk(vm: Any, file: str) -> Any:
    disk = next(each for each in disks_in(vm) if each.backing.fileName == file)
    return vim.vm.ConfigSpec(
        deviceChange=[vim.vm.device.VirtualDeviceSpec(operation="remove", device=disk)]
    )


async def test_a_vm_that_tells_no_configuration_keeps_its_place(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (manager, reaper):
        groups = Groups(installed, namespace)
        uid = (await groups.create("web", replicas=1))["metadata"]["uid"]
        await groups.becomes("web", "RUNNING")
        before, (vm,) = changes(reaper), await vms_of(vcenter, uid)
        await vcenter.rename(vm.ref, "%2fvmfs%2fvolumes%2fx%2fweb.vmx")
        await vcenter.set_property(vm.ref, "runtime.connectionState", "inaccessible")
        await vcenter.set_property(vm.ref, "config.instanceUuid", "")
        # Until it is seen, a change of size is carried out, and rightly.
        await groups.becomes("web", "PENDING")
        for _ in range(2):
            await groups.change("web", memory=2)
            await groups.becomes("web", "PENDING")
            assert changes(reaper) == before
            await manager.kill()
            manager.start()
            await groups.change("web", memory=1)
            await groups.becomes("web", "PENDING")
        await vcenter.set_property(vm.ref, "config.instanceUuid", vm.instance_uuid)
        await vcenter.set_property(vm.ref, "runtime.connectionState", "connected")
        await groups.becomes("web", "RUNNING")
        assert changes(reaper) == before


async def test_marks_that_cannot_be_read_lead_to_no_second_vm(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (manager, reaper):
        groups = Groups(installed, namespace)
        uid = (await groups.create("web", replicas=2))["metadata"]["uid"]
        await groups.becomes("web", "RUNNING")
        await manager.kill()
        before = changes(reaper)
        await vcenter.fail_calls("RetrievePropertiesEx", "NoPermission", count=0)
        manager.start()
        await groups.change("web", memory=2)
        await groups.becomes("web", "PENDING")
        assert changes(reaper) == before
        await vcenter.clear_rules()
        await groups.change("web", memory=1)
        await groups.becomes("web", "RUNNING", within=100)
        assert (await snapshot(vcenter)).most_of[uid] == 2


async def test_the_quota_is_the_oldest_groups_first_and_holds_while_a_template_changes(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text('limits:\n  - namespaces: ["*"]\n    quota: {vms: 3}\n')
    async with watched(installed, vcenter, namespace, tmp_path / "m", f"--vmgroup-limits={limits}"):
        groups = Groups(installed, namespace)
        uid = (await groups.create("old", replicas=2))["metadata"]["uid"]
        await groups.becomes("old", "RUNNING")
        await groups.create("young", replicas=5)
        assert (
            "of these 5 by this group, and 3 are allowed"
            in (await groups.becomes("young", "ERROR"))["lastMessage"]
        )
        gone = (await vms_of(vcenter, uid))[0].ref
        await vcenter.delete(gone)
        await groups.becomes(
            "old",
            "RUNNING",
            where=lambda status: gone not in [each["moRef"] for each in status["replicas"]],
        )
        await groups.change("old", template="vm-operator-template-2", rollout={"maxSurge": 3})
        await groups.becomes("old", "RUNNING", where=lambda status: status["updatedReplicas"] == 2)
        assert (await snapshot(vcenter)).most_of[uid] <= 3


async def test_what_an_orphaned_group_left_is_said_as_such(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m"):
        groups = Groups(installed, namespace)
        uid = (await groups.create("web", replicas=1, deletionPolicy="Orphan"))["metadata"]["uid"]
        await groups.becomes("web", "RUNNING")
        await groups.delete("web")
        await groups.gone("web")
        (left,) = await vms_of(vcenter, uid)
        await groups.create("web", replicas=1)
        assert (
            "VMs of a group that is gone" in (await groups.becomes("web", "ERROR"))["lastMessage"]
        )
        await vcenter.delete(left.ref)
        await groups.becomes("web", "RUNNING")


async def test_user_data_comes_from_a_secret_that_may_come_later(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    rights = str(pytestconfig.rootpath / "config/optional/cloud-init-secrets.yaml")
    async with watched(installed, vcenter, namespace, tmp_path / "m"):
        groups = Groups(installed, namespace)
        uid = (
            await groups.create("web", replicas=1, bootstrap={"cloudInit": {"secretName": "boot"}})
        )["metadata"]["uid"]
        refused = await groups.becomes("web", "ERROR")
        assert ready_of({"status": refused})["reason"] == "SecretForbidden"
        await asyncio.to_thread(installed.kubectl, "apply", "-n", namespace, "-f", rights)
        await groups.becomes(
            "web", "ERROR", where=lambda status: "does not exist" in status["lastMessage"]
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
        await groups.becomes("web", "RUNNING")
        (vm,) = await vms_of(vcenter, uid)
        options = await Hands(vcenter).do(
            lambda found: {each.key: each.value for each in found.config.extraConfig}, vm.ref
        )
        assert options["guestinfo.userdata"] == "I2Nsb3VkLWNvbmZpZyBjYW5hcnktNzc="
        assert options["guestinfo.userdata.encoding"] == "base64"
        assert "canary-77" not in (tmp_path / "m/manager.log").read_text()


async def test_a_linked_clone_needs_a_snapshot_and_waits_for_one(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = Groups(installed, namespace)
        await groups.create("web", replicas=1, linkedClone=True)
        told = await groups.becomes("web", "ERROR")
        assert "a linked clone needs a snapshot of the template" in told["lastMessage"]
        assert "CloneVM_Task" not in changes(reaper)
        template = next(
            each for each in await vcenter.entities() if each["name"] == "vm-operator-template"
        )
        await Hands(vcenter).do(
            lambda vm: vm.CreateSnapshot_Task("base", "", False, False), template["ref"]
        )
        await groups.becomes("web", "RUNNING")


async def test_placement_power_and_pause(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    async with watched(installed, vcenter, namespace, tmp_path / "m") as (_, reaper):
        groups = Groups(installed, namespace)
        place = {
            "datacenter": "DC0",
            "cluster": "DC0_C0",
            "datastore": "LocalDS_0",
            "folder": "/DC0/vm/vm-operator",
        }
        uid = (await groups.create("web", replicas=1, placement=place, powerState="poweredOff"))[
            "metadata"
        ]["uid"]
        await groups.becomes("web", "RUNNING")
        (vm,) = await vms_of(vcenter, uid)
        assert (vm.power, vm.folder) == ("poweredOff", folder_of(namespace, "web"))
        before = changes(reaper)
        await groups.change("web", paused=True, replicas=3)
        assert (
            "unset spec.paused to go on" in (await groups.becomes("web", "PENDING"))["lastMessage"]
        )
        assert changes(reaper) == before
        await groups.change("web", paused=False, powerState="poweredOn")
        await groups.becomes("web", "RUNNING")
        assert {each.power for each in await vms_of(vcenter, uid)} == {"poweredOn"}
        await groups.create("lost", replicas=1, placement={"cluster": "nowhere"})
        assert (
            'no cluster named "nowhere"' in (await groups.becomes("lost", "ERROR"))["lastMessage"]
        )
