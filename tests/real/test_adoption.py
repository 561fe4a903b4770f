"""VMs of the original operator, and of a group that is made again, are adopted as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ready_condition
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import (
    MERGE_PATCH_HEADERS,
    VmGroupClient,
    group_folder_path,
    has_replica_name,
    list_group_vms,
)

from .crash_injection import CrashInjector, CrashMode, CrashPoint
from .crash_run import run_observed_manager, run_simulator
from .original_operator import clone_into_folder, create_original_vms

ANNOTATION = "vm.codeconnect.vmworld.com/adopt"
# Of the samples vg-1, vg-2 and vg-3: replicas, cpu and memory.
ORIGINAL_GROUPS = {"vg-1": (3, 1, 1), "vg-2": (2, 2, 2), "vg-3": (3, 4, 4)}


@dataclass(frozen=True)
class Harness:
    groups: VmGroupClient
    vcenter: SimulatedVCenter
    plane: ControlPlane

    async def run_plugin(self, *arguments: str, code: int = 0) -> str:
        """The output of `kubectl vsphere`; stderr too if it has to fail."""
        command = [sys.executable, "-m", "vsphere_operators.kubectl", *arguments]
        environ = {**os.environ, "KUBECONFIG": str(self.plane.admin_kubeconfig)}
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "-n", self.groups.namespace],
            env=environ,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    async def read_vms(self) -> dict[str, SimulatorVm]:
        return {vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms}

    async def list_changes(self) -> list[str]:
        """The clones, destroys and power changes since the last reset."""
        return [
            call["method"]
            for call in await self.vcenter.mutating_calls()
            if call["method"].endswith("_Task") and call["method"] != "ReconfigVM_Task"
        ]

    async def wait_for_reason(self, name: str, reason: str) -> dict[str, Any]:
        async def find() -> dict[str, Any] | None:
            group = await self.groups.get(name)
            return group if ready_condition(group).get("reason") == reason else None

        group: dict[str, Any] | None = await eventually(find, within=30, every=0.1)
        assert group is not None
        return group

    async def wait_for_adoptable(self, name: str, count: int) -> None:
        async def is_listed() -> bool:
            status = (await self.groups.get(name)).get("status", {})
            vms = status.get("adoption", {}).get("vms", [])
            return len([vm for vm in vms if vm["verdict"] == "Adoptable"]) == count

        await eventually(is_listed, within=30, every=0.1)


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as simulator:
        yield simulator


@pytest.fixture
def harness(installed: ControlPlane, namespace: str, vcenter: SimulatedVCenter) -> Harness:
    return Harness(VmGroupClient(installed, namespace), vcenter, installed)


def identity_of(vms: Mapping[str, SimulatorVm]) -> dict[str, tuple[str, str, str, str]]:
    return {ref: (vm.name, vm.folder, vm.power, vm.instance_uuid) for ref, vm in vms.items()}


async def test_vms_of_the_original_operator_are_adopted_and_given_back(
    harness: Harness, tmp_path: Path
) -> None:
    groups, vcenter, namespace = harness.groups, harness.vcenter, harness.groups.namespace
    refs = {}
    for name, (count, cpu, memory) in ORIGINAL_GROUPS.items():
        refs[name] = await create_original_vms(
            vcenter, namespace, name, count=count, cpu=cpu, memory=memory
        )
        await groups.create(name, replicas=count, cpu=cpu, memory=memory)
    (foreign,) = await clone_into_folder(vcenter, f"{namespace}-vg-1", ["jump-host"])
    before = await harness.read_vms()
    await vcenter.reset_mutating_calls()
    async with run_observed_manager(harness.plane, vcenter, namespace, tmp_path / "manager"):
        for name, (count, _, _) in ORIGINAL_GROUPS.items():
            group = await harness.wait_for_reason(name, "VMsNotAdopted")
            assert f"kubectl vsphere adopt {name} -n {namespace}" in group["status"]["lastMessage"]
            await harness.wait_for_adoptable(name, count)
        plan = await harness.run_plugin("adopt", "vg-1")
        assert "Dry run: nothing was changed." in plan
        assert "jump-host" in plan
        assert "Foreign" in plan
        assert await harness.read_vms() == before
        for name, (count, _, _) in ORIGINAL_GROUPS.items():
            output = await harness.run_plugin("adopt", name, "--yes")
            assert f"has adopted {count} VMs" in output
            status = await groups.wait_for_phase(name, "RUNNING")
            assert status["currentReplicas"] == count
            assert {replica["moRef"] for replica in status["replicas"]} == set(refs[name])
            assert ANNOTATION not in (await groups.get(name))["metadata"].get("annotations", {})
        assert await harness.list_changes() == []
        now = await harness.read_vms()
        assert now.keys() == before.keys()
        assert now[foreign] == before[foreign]
        assert {vm.power for vm in now.values()} == {vm.power for vm in before.values()}

        # The group scales as any other, and leaves the foreign VM alone.
        await groups.patch_spec("vg-1", replicas=4)
        await groups.wait_for_phase(
            "vg-1", "RUNNING", predicate=lambda status: status["currentReplicas"] == 4
        )
        await groups.patch_spec("vg-1", replicas=3)
        await groups.wait_for_phase(
            "vg-1", "RUNNING", predicate=lambda status: status["currentReplicas"] == 3
        )
        assert (await harness.read_vms())[foreign] == before[foreign]

        # Back to the original operator.
        plan = await harness.run_plugin("adopt", "vg-2", "--undo")
        assert "Dry run: nothing was changed." in plan
        await vcenter.reset_mutating_calls()
        await harness.run_plugin("adopt", "vg-2", "--undo", "--yes")
        await harness.wait_for_reason("vg-2", "VMsNotAdopted")
        assert await harness.list_changes() == []
        now = await harness.read_vms()
        for ref in refs["vg-2"]:
            assert identity_of({ref: now[ref]}) == identity_of({ref: before[ref]})
            assert now[ref].marks == {}
        # And forward again.
        assert "has adopted 2 VMs" in await harness.run_plugin("adopt", "vg-2", "--yes")
        await groups.wait_for_phase("vg-2", "RUNNING")
        assert await harness.list_changes() == []


async def test_a_group_that_is_made_again_adopts_its_vms(harness: Harness, tmp_path: Path) -> None:
    groups, namespace = harness.groups, harness.groups.namespace
    async with run_observed_manager(
        harness.plane, harness.vcenter, namespace, tmp_path / "manager"
    ):
        created = await groups.create("web", replicas=2)
        await groups.wait_for_phase("web", "RUNNING")
        before = await list_group_vms(harness.vcenter, created["metadata"]["uid"])
    # As after the loss of etcd: the object is gone, and the manager did not see it go.
    await groups.delete("web")
    await groups.call(
        "PATCH", groups.path("web"), {"metadata": {"finalizers": None}}, MERGE_PATCH_HEADERS
    )
    await groups.wait_until_deleted("web")
    await harness.vcenter.reset_mutating_calls()
    async with run_observed_manager(
        harness.plane, harness.vcenter, namespace, tmp_path / "manager"
    ):
        again = await groups.create("web", replicas=2)
        group = await harness.wait_for_reason("web", "FolderTaken")
        assert f"kubectl vsphere adopt web -n {namespace}" in group["status"]["lastMessage"]
        await harness.wait_for_adoptable("web", 2)
        assert "has adopted 2 VMs" in await harness.run_plugin("adopt", "web", "--yes")
        await groups.wait_for_phase("web", "RUNNING")
        now = await list_group_vms(harness.vcenter, again["metadata"]["uid"])
        assert {vm.ref for vm in now} == {vm.ref for vm in before}
        assert await harness.list_changes() == []
        assert "is undone" in await harness.run_plugin("adopt", "web", "--undo", "--yes")
        assert await list_group_vms(harness.vcenter, created["metadata"]["uid"]) == before


async def test_more_vms_than_replicas_are_refused(harness: Harness, tmp_path: Path) -> None:
    groups, namespace = harness.groups, harness.groups.namespace
    await create_original_vms(harness.vcenter, namespace, "web", count=3)
    await groups.create("web", replicas=2)
    before = await harness.read_vms()
    async with run_observed_manager(
        harness.plane, harness.vcenter, namespace, tmp_path / "manager"
    ):
        await harness.wait_for_adoptable("web", 3)
        output = await harness.run_plugin("adopt", "web", "--yes", code=1)
        assert "Set spec.replicas to 3" in output
        assert await harness.read_vms() == before
        await groups.patch_spec("web", replicas=3)

        async def is_possible() -> bool:
            status = (await groups.get("web"))["status"]
            return not status["adoption"].get("message")

        await eventually(is_possible, within=60, every=0.1)
        assert "has adopted 3 VMs" in await harness.run_plugin("adopt", "web", "--yes")


# A sample; the random histories kill the manager at every step.
@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        ("ReconfigVM_Task", "before"),
        ("ReconfigVM_Task", "sent"),
        ("PATCH vmgroups/status", "sent"),
    ],
)
async def test_a_kill_during_the_adoption_loses_and_creates_nothing(
    harness: Harness, tmp_path: Path, operation: str, mode: CrashMode
) -> None:
    groups, namespace = harness.groups, harness.groups.namespace
    refs = await create_original_vms(harness.vcenter, namespace, "web", count=2)
    created = await groups.create("web", replicas=2)
    before = await harness.read_vms()
    await harness.vcenter.reset_mutating_calls()
    async with run_observed_manager(
        harness.plane, harness.vcenter, namespace, tmp_path / "manager"
    ) as (_, injector):
        await harness.wait_for_adoptable("web", 2)
        await kill_at_next(injector, operation, mode)
        await harness.run_plugin("adopt", "web", "--yes")
        assert injector.crashed_call is not None
        await groups.wait_for_phase("web", "RUNNING")
        assert await harness.list_changes() == []
    vms = await list_group_vms(harness.vcenter, created["metadata"]["uid"])
    assert {vm.ref for vm in vms} == set(refs)
    assert all(has_replica_name("web", vm) for vm in vms)
    assert {vm.folder for vm in vms} == {group_folder_path(namespace, "web")}
    assert (await harness.read_vms()).keys() == before.keys()


async def kill_at_next(injector: CrashInjector, operation: str, mode: CrashMode) -> None:
    """Kill the manager at its next call of this operation."""
    matching = [name for name in injector.operation_counts if name.startswith(operation)]
    name = matching[0] if matching else operation
    injector.crash_point = CrashPoint(name, injector.operation_counts[name] + 1, mode)
