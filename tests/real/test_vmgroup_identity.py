"""Another vCenter at the same address, the same one at another, and none at all."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import write_credentials
from support.manager_process import FREE_PORT_FLAGS, ManagerProcess, ready_condition, run_manager
from support.simulator_state import read_simulator_state
from support.vmgroup_client import PARENT_FOLDER, VmGroupClient

from .crash_run import run_simulator
from .vsphere_user import VSphereUser

ManagerStarter = Callable[..., Any]


@pytest.fixture
def start_manager(
    installed: ControlPlane, namespace: str, manager_kubeconfig: Path, tmp_path: Path
) -> ManagerStarter:
    """Runs a manager with the credentials directory `vc-creds`."""

    @asynccontextmanager
    async def start(*flags: str) -> AsyncIterator[ManagerProcess]:
        async with run_manager(
            tmp_path / "manager.log",
            f"--kubeconfig={manager_kubeconfig}",
            f"--vcenter-credentials={tmp_path / 'vc-creds'}",
            "--insecure",
            f"--watch-namespaces={namespace}",
            *FREE_PORT_FLAGS,
            *flags,
        ) as manager:
            yield manager

    return start


async def list_changes(vcenter: SimulatedVCenter) -> list[str]:
    """What a client changed, without sessions, views and filters."""
    return [
        call["method"]
        for call in await vcenter.mutating_calls()
        if call["method"].endswith("_Task") or call["method"] == "CreateFolder"
    ]


async def test_the_same_vcenter_under_another_address_is_the_same(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    start_manager: ManagerStarter,
    tmp_path: Path,
) -> None:
    groups = VmGroupClient(installed, namespace)
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        write_credentials(tmp_path / "vc-creds", vcenter)
        async with start_manager():
            await groups.create("web", replicas=2)
            status = await groups.wait_for_phase("web", "RUNNING")
            assert status["vcenter"] == "127.0.0.1"
            await vcenter.reset_mutating_calls()
            url = vcenter.url.replace("127.0.0.1", "localhost")
            write_credentials(tmp_path / "vc-creds", vcenter, GOVMOMI_URL=url)
            status = await groups.wait_for_phase(
                "web", "RUNNING", predicate=lambda status: status["vcenter"] == "localhost"
            )
            assert (status["currentReplicas"], status["vcenterUUID"]) == (2, vcenter.instance_uuid)
            assert await list_changes(vcenter) == []
            # It also continues to be changed there.
            await groups.patch_spec("web", replicas=1)
            await groups.wait_for_phase(
                "web", "RUNNING", predicate=lambda status: status["currentReplicas"] == 1
            )


async def create_folder_with_ref(vcenter: SimulatedVCenter, ref: str) -> str:
    """Create folders until one gets this reference, as vCenter numbers them; returns its path."""
    user = VSphereUser(vcenter)
    (parent,) = [
        entity["ref"] for entity in await vcenter.entities() if entity["path"] == PARENT_FOLDER
    ]
    for number in range(200):
        name = f"finance-prepared-{number}"
        created = await user.call_on(methodcaller("CreateFolder", name), parent, vim.Folder)
        if created._moId == ref:
            return f"{PARENT_FOLDER}/{name}"
    raise AssertionError(f"no folder got the reference {ref}; the last was {created._moId}")


async def test_another_vcenter_at_the_same_address_is_not_touched(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    start_manager: ManagerStarter,
    tmp_path: Path,
) -> None:
    groups = VmGroupClient(installed, namespace)
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with run_simulator(binary, tmp_path / "old") as old:
        write_credentials(tmp_path / "vc-creds", old)
        address, old_uuid = "{}:{}".format(*old.address), old.instance_uuid
        async with start_manager():
            await groups.create("web", replicas=2)
            status = await groups.wait_for_phase("web", "RUNNING")
    folder_ref = status["folder"]["ref"]
    async with run_simulator(binary, tmp_path / "new", f"--listen={address}") as new:
        stranger = await create_folder_with_ref(new, folder_ref)
        await new.reset_mutating_calls()
        async with start_manager():
            status = await groups.wait_for_phase("web", "ERROR")
            assert old_uuid in status["lastMessage"]
            assert new.instance_uuid in status["lastMessage"]
            group = await groups.get("web")
            assert ready_condition(group)["reason"] == "VCenterChanged"
            # The records stay, so that the group continues when its vCenter is back.
            assert len(status["replicas"]) == 2
            assert status["folder"]["ref"] == folder_ref
            # A new group is served by the new vCenter.
            await groups.create("other", replicas=1)
            assert (await groups.wait_for_phase("other", "RUNNING"))[
                "vcenterUUID"
            ] == new.instance_uuid
            assert (await list_changes(new)).count("CloneVM_Task") == 1
            await groups.delete("web")
            await run_named_command(installed, groups, "web")
            await groups.wait_until_deleted("web", within=60)
            assert stranger in {entity["path"] for entity in await new.entities()}
            assert await list_changes(new) == ["CreateFolder", "CloneVM_Task"]
        assert len((await read_simulator_state(new)).marked_vms) == 1


async def run_named_command(plane: ControlPlane, groups: VmGroupClient, name: str) -> None:
    """Wait for the message of a group that cannot be deleted, and run the command in it."""

    async def find_command() -> str:
        message = (await groups.get(name))["status"]["lastMessage"]
        command = re.search(r"(?<=run: )kubectl patch .*", message)
        return command[0] if command else ""

    command = await eventually(find_command, within=60)
    program, *arguments = shlex.split(command)
    assert program == "kubectl"
    plane.kubectl(*arguments)


async def test_groups_of_a_vcenter_that_is_gone_can_be_deleted(
    pytestconfig: pytest.Config,
    installed: ControlPlane,
    namespace: str,
    start_manager: ManagerStarter,
    tmp_path: Path,
) -> None:
    groups = VmGroupClient(installed, namespace)
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with run_simulator(binary, tmp_path / "vcsim") as vcenter:
        write_credentials(tmp_path / "vc-creds", vcenter)
        async with start_manager():
            await groups.create("kept", replicas=1, deletionPolicy="Orphan")
            await groups.create("web", replicas=1)
            for name in ("kept", "web"):
                await groups.wait_for_phase(name, "RUNNING")
    async with start_manager():
        await eventually(lambda: has_reason(groups, "web", "VCenterUnreachable"), within=30)
        await groups.delete("kept")
        await groups.wait_until_deleted("kept", within=60)
        await groups.delete("web")
        await run_named_command(installed, groups, "web")
        await groups.wait_until_deleted("web", within=60)

        async def list_vms_left() -> dict[str, str]:
            path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
            events = (await groups.call("GET", path))["items"]
            notes = {
                event["regarding"]["name"]: event["note"]
                for event in events
                if event["reason"] == "VMsLeft"
            }
            assert notes.keys() == {"kept", "web"}
            return notes

        # Events may be written after the object is gone.
        left = await eventually(list_vms_left, within=60)
        assert 'VMs left in vCenter "127.0.0.1": web-replica-' in left["web"]


async def has_reason(groups: VmGroupClient, name: str, reason: str) -> bool:
    return bool(ready_condition(await groups.get(name)).get("reason") == reason)
