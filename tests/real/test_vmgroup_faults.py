"""VmGroup when vCenter refuses, fails, forgets or falls silent: words, patience, and never one VM too many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .groups import Groups, vms_of
from .snapshot import snapshot
from .stage import simulated, watched

CLONE_SECONDS = 3.0
REPLICAS = 3


@dataclass(frozen=True)
class Failure:
    """What happens to a clone, and what a person then reads."""

    fault: str
    where: Literal["call", "task"]
    phase: str
    words: str
    fields: dict[str, Any]


FAILURES = (
    Failure(
        "NoPermission",
        "call",
        "ERROR",
        "VirtualMachine.Provisioning.DeployTemplate",
        {"privilegeId": "VirtualMachine.Provisioning.DeployTemplate"},
    ),
    Failure("InsufficientResourcesFault", "task", "ERROR", "lower", {}),
    Failure(
        "NoDiskSpace", "task", "ERROR", "datastore", {"file": "x.vmdk", "datastore": "LocalDS_0"}
    ),
    Failure("TaskInProgress", "call", "PENDING", "tried again", {}),
)


@dataclass(frozen=True)
class Scene:
    """A namespace and its vCenter."""

    groups: Groups
    vcenter: SimulatedVCenter

    async def begin(self, name: str, replicas: int) -> str:
        """A group; returns its uid."""
        return str((await self.groups.create(name, replicas=replicas))["metadata"]["uid"])

    async def has_clones(self, count: int) -> bool:
        return len((await snapshot(self.vcenter)).clones) == count

    async def ends_right(self, name: str, uid: str, replicas: int) -> None:
        """It settles, and there never was one too many."""
        await self.groups.becomes(name, "RUNNING", within=90)
        assert len(await vms_of(self.vcenter, uid)) == replicas
        assert (await snapshot(self.vcenter)).most_of[uid] == replicas


@pytest.fixture
async def scene(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    async with (
        simulated(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        watched(installed, vcenter, namespace, tmp_path / "manager"),
    ):
        yield Scene(Groups(installed, namespace), vcenter)


async def test_a_failed_clone_is_told_with_its_cure_and_tried_again(scene: Scene) -> None:
    uids = {}
    for number, failure in enumerate(FAILURES):
        await scene.vcenter.fail_calls(
            "CloneVM_Task", failure.fault, where=failure.where, fields=failure.fields
        )
        uids[f"g-{number}"] = await scene.begin(f"g-{number}", 1)
        await scene.groups.becomes(f"g-{number}", failure.phase, where=partial(says, failure.words))
    for name, uid in uids.items():
        await scene.ends_right(name, uid, 1)


def says(words: str, status: dict[str, Any]) -> bool:
    return words in status["lastMessage"]


async def test_a_lost_answer_makes_no_second_vm(scene: Scene) -> None:
    await scene.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    await scene.vcenter.drop_responses("CloneVM_Task", count=2)
    uid = await scene.begin("web", REPLICAS)
    await scene.ends_right("web", uid, REPLICAS)
    clones = [
        each for each in await scene.vcenter.mutating_calls() if each["method"] == "CloneVM_Task"
    ]
    assert len(clones) == REPLICAS


async def test_a_session_that_dies_in_mid_clone_makes_no_second_vm(scene: Scene) -> None:
    await scene.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = await scene.begin("web", REPLICAS + 2)
    await eventually(lambda: scene.has_clones(REPLICAS), within=20)
    assert await scene.vcenter.expire_sessions() == 1
    await scene.ends_right("web", uid, REPLICAS + 2)


async def test_a_vcenter_that_is_away_in_mid_clone_makes_no_second_vm(scene: Scene) -> None:
    await scene.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = await scene.begin("web", REPLICAS + 2)
    await eventually(lambda: scene.has_clones(REPLICAS), within=20)
    await scene.vcenter.set_outage("reset", 5.0)
    await scene.ends_right("web", uid, REPLICAS + 2)
