"""etcd is restored from a backup that is older than the VMs: the steps of docs/howto/backup.md."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import SYSTEM_NAMESPACE, ready_condition
from support.vmgroup_client import VmGroupClient, is_running, list_group_vms

from .crash_run import run_observed_manager

NAMESPACE = "default"
STOP_SECONDS = 10.0


@pytest.fixture
async def plane(control_plane: ControlPlane, config: Path) -> AsyncIterator[ControlPlane]:
    """A control plane of its own, because its etcd is restored."""
    async with ControlPlane(control_plane.binaries) as plane:
        await asyncio.to_thread(plane.create_namespace, SYSTEM_NAMESPACE)
        for part in ("crd", "rbac"):
            await asyncio.to_thread(plane.kubectl, "apply", "-k", str(config / part))
        await asyncio.to_thread(plane.wait_for_crds)
        yield plane


async def back_up_etcd(plane: ControlPlane) -> Path:
    backup = plane.folder / "backup"
    await plane.etcd.process.stop(STOP_SECONDS)
    await asyncio.to_thread(shutil.copytree, plane.folder / "etcd", backup)
    plane.etcd.process.start()
    return backup


async def restore_etcd(plane: ControlPlane, backup: Path) -> None:
    await plane.apiserver.terminate()
    await plane.etcd.process.stop(STOP_SECONDS)
    await asyncio.to_thread(shutil.rmtree, plane.folder / "etcd")
    await asyncio.to_thread(shutil.copytree, backup, plane.folder / "etcd")
    plane.etcd.process.start()
    await plane.apiserver.start()


def pause_all_groups(plane: ControlPlane, page: Path) -> None:
    """The commands of the page."""
    (commands,) = [
        block.text for block in fenced_blocks(page.read_text()) if '"paused":true' in block.text
    ]
    folder = plane.binaries["kubectl"].parent
    environ = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "HOME": str(plane.folder),
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", commands],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" patched") == 3, done.stdout


async def create_running(groups: VmGroupClient, name: str, replicas: int) -> str:
    """Create a group, wait for its VMs, and return its uid."""
    uid = str((await groups.create(name, replicas=replicas))["metadata"]["uid"])
    await wait_until_running(groups, name)
    return uid


async def wait_until_running(groups: VmGroupClient, name: str) -> None:
    async def running() -> bool:
        return is_running(await groups.get(name))

    await eventually(running, within=60, every=0.1)


async def wait_for_reason(groups: VmGroupClient, name: str, reason: str) -> dict[str, Any]:
    async def find() -> dict[str, Any] | None:
        group = await groups.get(name)
        return group if ready_condition(group).get("reason") == reason else None

    return await eventually(find, within=60, every=0.1) or {}


async def list_destroyed(vcenter: SimulatedVCenter) -> list[str]:
    calls = await vcenter.mutating_calls()
    return [call["object"].rpartition(":")[2] for call in calls if call["method"] == "Destroy_Task"]


async def test_no_vm_is_lost_if_the_login_is_blocked_until_the_groups_are_checked(
    plane: ControlPlane,
    simulator: SimulatedVCenter,
    pytestconfig: pytest.Config,
    tmp_path: Path,
) -> None:
    groups = VmGroupClient(plane, NAMESPACE)
    password = simulator.password
    async with run_observed_manager(
        plane, simulator, NAMESPACE, tmp_path / "m", "--vmgroup-missing-vm-timeout=4s"
    ) as (manager, _):
        checked = await create_running(groups, "checked", 1)
        unchecked = await create_running(groups, "unchecked", 1)
        await create_running(groups, "deleted", 1)
        backup = await back_up_etcd(plane)
        for name in ("checked", "unchecked"):
            await groups.patch_spec(name, replicas=2)
            await wait_until_running(groups, name)
        await groups.delete("deleted")
        await groups.wait_until_deleted("deleted")
        lost = await create_running(groups, "created", 1)
        vms = {uid: await list_group_vms(simulator, uid) for uid in (checked, unchecked, lost)}

        await manager.kill()
        await simulator.set_password(simulator.user, "blocked")
        await simulator.expire_sessions()
        await simulator.reset_mutating_calls()
        await restore_etcd(plane, backup)
        manager.start()
        await wait_for_reason(groups, "checked", "VCenterLoginFailed")
        assert (await groups.get("checked"))["spec"]["replicas"] == 1
        assert await groups.find("created") is None
        page = pytestconfig.rootpath / "docs/howto/backup.md"
        await asyncio.to_thread(pause_all_groups, plane, page)
        await groups.create("created", replicas=1)
        assert await simulator.mutating_calls() == []

        await simulator.set_password(simulator.user, password)
        await manager.kill()
        manager.start()
        # A paused group counts its VMs, so that its user sees what the old spec would destroy.
        for name in ("checked", "unchecked"):
            await groups.wait_for_phase(
                name,
                "PENDING",
                predicate=lambda status: status["summary"] == "Paused: 2/1 replicas ready",
            )
        changes = [call["method"] for call in await simulator.mutating_calls()]
        assert [method for method in changes if method.endswith("_Task")] == []
        await groups.patch_spec("checked", replicas=2, paused=False)
        await wait_until_running(groups, "checked")
        assert await list_group_vms(simulator, checked) == vms[checked]
        # Nothing corrected this one: the replica that its old spec does not request is destroyed.
        for name in ("unchecked", "deleted"):
            await groups.patch_spec(name, paused=False)
        await wait_until_running(groups, "unchecked")
        (kept,) = await list_group_vms(simulator, unchecked)
        assert kept in vms[unchecked]
        (destroyed,) = [vm.ref for vm in vms[unchecked] if vm != kept]
        # Its VM is gone, as its user wanted; the restored object requests it again.
        await wait_until_running(groups, "deleted")
        message = (await wait_for_reason(groups, "created", "FolderTaken"))["status"]["lastMessage"]
        assert f"kubectl vsphere adopt created -n {NAMESPACE}" in message
        assert await list_group_vms(simulator, lost) == vms[lost]
        assert await list_destroyed(simulator) == [destroyed]
