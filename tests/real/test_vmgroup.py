"""VmGroup as its users know it: their manifests, their commands, the lines that they grep for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .groups import SUCCESS, Groups, folder_of, vms_of, well_named
from .managing import ManagerProcess
from .snapshot import snapshot
from .stage import simulated, watched

SAMPLES = ("vmgroup_vg1", "vmgroup_vg2", "vmgroup_vg3")
COLUMNS = ["NAME", "PHASE", "CURRENT", "DESIRED", "CPU", "MEMORY", "TEMPLATE", "LAST_MESSAGE"]

Kubectl = Callable[..., str]


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        yield vcenter


@pytest.fixture
async def manager(
    installed: ControlPlane, vcenter: SimulatedVCenter, namespace: str, tmp_path: Path
) -> AsyncIterator[ManagerProcess]:
    async with watched(installed, vcenter, namespace, tmp_path / "manager") as (manager, _):
        yield manager


@pytest.fixture
def groups(installed: ControlPlane, namespace: str) -> Groups:
    return Groups(installed, namespace)


@pytest.fixture
def user(installed: ControlPlane, namespace: str) -> Kubectl:
    """kubectl in the namespace; it blocks, so call it through `typed`."""
    return lambda *words: installed.kubectl("-n", namespace, *words)


async def typed(user: Kubectl, *words: str) -> str:
    """What kubectl prints."""
    return await asyncio.to_thread(user, *words)


def sample(config: Path, name: str) -> str:
    """The file of a sample."""
    return str(config / "samples" / f"vm_v1alpha1_{name}.yaml")


async def test_the_samples_work_word_for_word(
    vcenter: SimulatedVCenter, groups: Groups, user: Kubectl, config: Path, manager: ManagerProcess
) -> None:
    for name in SAMPLES:
        await typed(user, "apply", "-f", sample(config, name))
    await groups.becomes("vg-1", "RUNNING")
    await groups.becomes("vg-3", "RUNNING")
    wrong = await groups.becomes("vg-2", "ERROR")
    assert "doesNotExist" in wrong["lastMessage"]
    rows = [line.split() for line in (await typed(user, "get", "vg")).splitlines()]
    assert rows[0][: len(COLUMNS)] == COLUMNS
    assert rows[1][:7] == ["vg-1", "RUNNING", "3", "3", "1", "1", "vm-operator-template"]
    assert rows[2][:2] == ["vg-2", "ERROR"]
    assert rows[3][:7] == ["vg-3", "RUNNING", "2", "2", "4", "4", "vm-operator-template"]
    await typed(
        user,
        "patch",
        "vg",
        "vg-2",
        "--type",
        "merge",
        "-p",
        '{"spec":{"template":"vm-operator-template"}}',
    )
    mended = await groups.becomes("vg-2", "RUNNING")
    assert (mended["currentReplicas"], mended["desiredReplicas"], mended["lastMessage"]) == (
        2,
        2,
        SUCCESS,
    )
    for name, count, cpus, memory_mb in (
        ("vg-1", 3, 1, 1024),
        ("vg-2", 2, 2, 2048),
        ("vg-3", 2, 4, 4096),
    ):
        vms = await vms_of(vcenter, (await groups.get(name))["metadata"]["uid"])
        assert len(vms) == count
        for vm in vms:
            assert well_named(name, vm)
            assert (vm.folder, vm.power) == (folder_of(groups.namespace, name), "poweredOn")
            assert (vm.cpus, vm.memory_mb) == (cpus, memory_mb)


async def test_kubectl_scales_and_waits_and_deletes(
    vcenter: SimulatedVCenter, groups: Groups, user: Kubectl, config: Path, manager: ManagerProcess
) -> None:
    before = await snapshot(vcenter)
    await typed(user, "apply", "-f", sample(config, "vmgroup_vg1"))
    uid = (await groups.get("vg-1"))["metadata"]["uid"]
    for replicas in (3, 5, 1):
        await typed(user, "scale", "vg", "vg-1", f"--replicas={replicas}")
        await eventually(partial(observed, groups, "vg-1", replicas), within=60)
        assert "condition met" in await typed(
            user, "wait", "--for=condition=Ready", "vg/vg-1", "--timeout=60s"
        )
        assert len(await vms_of(vcenter, uid)) == replicas
        scale = await groups.call("GET", f"{groups.path('vg-1')}/scale")
        assert scale["status"]["replicas"] == replicas
        assert scale["status"]["selector"]
    await typed(user, "delete", "vg", "vg-1", "--timeout=60s")
    assert await groups.find("vg-1") is None
    after = await snapshot(vcenter)
    assert (after.vms, after.clones) == (before.vms, ())
    assert folder_of(groups.namespace, "vg-1") not in {
        each["path"] for each in await vcenter.entities()
    }


async def observed(groups: Groups, name: str, replicas: int) -> bool:
    """Whether the manager has looked at this wish; before, Ready may still be that of the last one."""
    group = await groups.get(name)
    status = group.get("status", {})
    return bool(
        group["spec"]["replicas"] == replicas
        and status.get("observedGeneration") == group["metadata"]["generation"]
    )


async def test_the_lines_that_people_grep_for(
    vcenter: SimulatedVCenter, groups: Groups, manager: ManagerProcess
) -> None:
    uid = (await groups.create("web", replicas=2))["metadata"]["uid"]
    await groups.becomes("web", "RUNNING")
    kept = (await vms_of(vcenter, uid))[0]
    await vcenter.set_power(kept.ref, False)
    await manager.says("attempting to power on")
    await groups.becomes("web", "RUNNING", where=lambda status: status["lastMessage"] == SUCCESS)
    await groups.change("web", replicas=1)
    await groups.becomes("web", "RUNNING", where=lambda status: status["currentReplicas"] == 1)
    await groups.delete("web")
    await groups.gone("web")
    messages = [line["msg"] for line in manager.lines]
    folder = f"{groups.namespace}-web"
    for pattern in (
        rf'received reconcile request for "web" \(namespace: "{groups.namespace}"\)',
        r"VmGroup folder does not exist, creating folder",
        r'creating clone "web-replica-[a-z]{8}" from template "vm-operator-template"',
        r"too few replicas, creating 2 replica\(s\)",
        r"too many replicas, deleting 1",
        r'deleting virtual machine "web-replica-[a-z]{8}"',
        r"replica count in sync, checking power state",
        rf'vm "{kept.name}" powered off, attempting to power on\.\.\.',
        r"VmGroup marked for deletion",
        rf'deleting group folder "{folder}" \(path: "{folder_of(groups.namespace, "web")}"\)',
    ):
        assert any(re.fullmatch(pattern, message) for message in messages), f"no line is {pattern}"
