"""What an administrator does to the simulated vCenter, as tests use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim, vmodl

from kubewright.testing import eventually
from simulator import ControlError, SimulatedVCenter
from support.pyvmomi_session import PyVmomiSession

FOLDER = "/DC0/vm/vm-operator"
INSTANCE_UUID = "50030000-0000-4000-8000-00000000000a"


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    vcenter = SimulatedVCenter(
        binary, tmp_path, "--folder=vm-operator", "--template=template", "--vms=1"
    )
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


def find_child(folder: Any, name: str) -> Any:
    return next(child for child in folder.childEntity if child.name == name)


def start_clone(session: PyVmomiSession, name: str, profile: str = "") -> Any:
    datacenter = session.content.rootFolder.childEntity[0]
    location = vim.vm.RelocateSpec(pool=datacenter.hostFolder.childEntity[0].resourcePool)
    if profile:
        location.profile = [vim.vm.DefinedProfileSpec(profileId=profile)]
    spec = vim.vm.CloneSpec(powerOn=True, template=False, location=location)
    return find_child(datacenter.vmFolder, "template").CloneVM_Task(
        find_child(datacenter.vmFolder, "vm-operator"), name, spec
    )


async def wait_for(task: Any) -> Any:
    """The error of a task that has ended, None if it succeeded."""
    await eventually(lambda: asyncio.to_thread(lambda: task.info.state in ("success", "error")))
    return await asyncio.to_thread(lambda: task.info.error)


async def test_clone_is_visible_and_busy_before_it_ends(vcenter: SimulatedVCenter) -> None:
    await vcenter.hold_clones(50)
    async with PyVmomiSession(vcenter) as session:
        clone = await asyncio.to_thread(start_clone, session, "replica")
        await eventually(lambda: vcenter.held_calls())
        replica = await session.read_one(vim.VirtualMachine, "replica", ["runtime.powerState"])
        assert replica["runtime.powerState"] == "poweredOff"
        destroy = await asyncio.to_thread(replica["obj"].Destroy_Task)
        assert isinstance(await wait_for(destroy), vim.fault.TaskInProgress)
        assert await vcenter.release_calls("CloneVM_Task") == 1
        assert await wait_for(clone) is None
        replica = await session.read_one(vim.VirtualMachine, "replica", ["runtime.powerState"])
    assert replica["runtime.powerState"] == "poweredOn"


async def test_removed_host_returns_with_new_references(vcenter: SimulatedVCenter) -> None:
    old = await vcenter.create_vm("mine", host="DC0_H0", folder=FOLDER, instanceUuid=INSTANCE_UUID)
    await vcenter.remove_host("DC0_H0")
    assert "mine" not in {vm["name"] for vm in await vcenter.vms()}
    added = await vcenter.add_host("DC0_H0")
    (mine,) = (vm for vm in await vcenter.vms() if vm["name"] == "mine")
    assert (mine["instanceUuid"], mine["path"]) == (INSTANCE_UUID, f"{FOLDER}/mine")
    assert mine["ref"] == added["vms"]["mine"] != old
    with pytest.raises(ControlError, match="no host"):
        await vcenter.add_host("DC0_H0")


async def test_restore_drops_new_vms_and_returns_destroyed_ones(vcenter: SimulatedVCenter) -> None:
    old = await vcenter.create_vm("old", folder=FOLDER)
    await vcenter.back_up()
    await vcenter.delete(old)
    await vcenter.create_vm("new", folder=FOLDER)
    async with PyVmomiSession(vcenter):
        assert await vcenter.restore_backup() == {"dropped": 1, "returned": 1}
        assert await vcenter.sessions() == []
    refs = {vm["name"]: vm["ref"] for vm in await vcenter.vms()}
    assert (refs["old"], "new" in refs) == (old, False)
    assert set(await vcenter.discover_vms()) == {"new"}


async def test_hidden_vm_is_not_seen(vcenter: SimulatedVCenter) -> None:
    async def names() -> set[str]:
        async with PyVmomiSession(vcenter) as session:
            return {vm["name"] for vm in await session.read_all(vim.VirtualMachine, ["name"])}

    await vcenter.create_vm("mine", folder=FOLDER)
    await vcenter.hide_vm("mine")
    assert "mine" not in await names()
    await vcenter.show_vm("mine")
    assert "mine" in await names()


async def test_account_without_privilege_is_rejected(vcenter: SimulatedVCenter) -> None:
    await vcenter.set_permission(vcenter.user, ["VirtualMachine.Inventory.CreateFromExisting"])
    async with PyVmomiSession(vcenter) as session:
        with pytest.raises(vim.fault.NoPermission) as rejection:
            await asyncio.to_thread(start_clone, session, "replica")
        assert rejection.value.privilegeId == "VirtualMachine.Provisioning.DeployTemplate"
        await vcenter.clear_permissions()
        assert await wait_for(await asyncio.to_thread(start_clone, session, "replica")) is None


async def test_clone_has_what_it_asked_for(vcenter: SimulatedVCenter) -> None:
    profile = await vcenter.create_storage_profile("gold")
    await vcenter.set_vapp("template", hostname="ova")
    await vcenter.set_cpu_topology("template", 4, 2)
    async with PyVmomiSession(vcenter) as session:
        task = await asyncio.to_thread(start_clone, session, "replica", profile)
        assert await wait_for(task) is None
        unknown = await asyncio.to_thread(start_clone, session, "other", "no-such-profile")
        assert isinstance(await wait_for(unknown), vmodl.fault.InvalidArgument)
    (replica,) = (vm for vm in await vcenter.vms() if vm["name"] == "replica")
    assert replica["profiles"] == {"home": profile, "disks": {}}
    assert (replica["vApp"], replica["coresPerSocket"]) == ({"hostname": "ova"}, 2)


async def test_suspended_vm_cannot_be_powered_off(vcenter: SimulatedVCenter) -> None:
    await vcenter.suspend("DC0_H0_VM0")
    with pytest.raises(ControlError, match="current state"):
        await vcenter.set_power("DC0_H0_VM0", False)


async def test_addresses_and_identity_are_known(vcenter: SimulatedVCenter) -> None:
    async with PyVmomiSession(vcenter) as session:
        assert session.content.about.instanceUuid == vcenter.instance_uuid
    assert vcenter.tunnel_address[1] not in (0, vcenter.address[1])
