"""VmGroup when vCenter rejects, fails or drops requests: messages, retries, never a VM too many."""

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
from support.simulator_state import read_simulator_state
from support.vmgroup_client import VmGroupClient, list_group_vms

from .crash_run import run_observed_manager, run_simulator

CLONE_SECONDS = 3.0
REPLICAS = 3


@dataclass(frozen=True)
class CloneFailure:
    """A failure of a clone, and the message in the status."""

    fault: str
    where: Literal["call", "task"]
    phase: str
    message: str
    fields: dict[str, Any]


CLONE_FAILURES = (
    CloneFailure(
        "NoPermission",
        "call",
        "ERROR",
        "VirtualMachine.Provisioning.DeployTemplate",
        {"privilegeId": "VirtualMachine.Provisioning.DeployTemplate"},
    ),
    CloneFailure("InsufficientResourcesFault", "task", "ERROR", "lower", {}),
    CloneFailure(
        "NoDiskSpace", "task", "ERROR", "datastore", {"file": "x.vmdk", "datastore": "LocalDS_0"}
    ),
    CloneFailure("TaskInProgress", "call", "PENDING", "retried automatically", {}),
)


@dataclass(frozen=True)
class GroupHarness:
    """The groups of a namespace, and their vCenter."""

    client: VmGroupClient
    vcenter: SimulatedVCenter

    async def create_group(self, name: str, replicas: int) -> str:
        """Returns the uid of the group."""
        return str((await self.client.create(name, replicas=replicas))["metadata"]["uid"])

    async def has_clones(self, count: int) -> bool:
        return len((await read_simulator_state(self.vcenter)).clones) == count

    async def check_converges(self, name: str, uid: str, replicas: int) -> None:
        """The group recovers, and there never was a VM too many."""
        await self.client.wait_for_phase(name, "RUNNING", within=90)
        assert len(await list_group_vms(self.vcenter, uid)) == replicas
        assert (await read_simulator_state(self.vcenter)).peak_by_uid[uid] == replicas


@pytest.fixture
async def harness(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[GroupHarness]:
    async with (
        run_simulator(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        run_observed_manager(installed, vcenter, namespace, tmp_path / "manager"),
    ):
        yield GroupHarness(VmGroupClient(installed, namespace), vcenter)


async def test_a_failed_clone_is_reported_with_advice_and_retried(harness: GroupHarness) -> None:
    uids = {}
    for number, failure in enumerate(CLONE_FAILURES):
        await harness.vcenter.fail_calls(
            "CloneVM_Task", failure.fault, where=failure.where, fields=failure.fields
        )
        uids[f"g-{number}"] = await harness.create_group(f"g-{number}", 1)
        await harness.client.wait_for_phase(
            f"g-{number}", failure.phase, predicate=partial(has_message, failure.message)
        )
    for name, uid in uids.items():
        await harness.check_converges(name, uid, 1)


def has_message(message: str, status: dict[str, Any]) -> bool:
    return message in status["lastMessage"]


async def test_a_lost_response_creates_no_second_vm(harness: GroupHarness) -> None:
    await harness.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    # vCenter starts the clones, but the manager never receives their tasks.
    await harness.vcenter.drop_responses("CloneVM_Task", count=2)
    uid = await harness.create_group("web", REPLICAS)
    await harness.check_converges("web", uid, REPLICAS)
    clones = [
        call for call in await harness.vcenter.mutating_calls() if call["method"] == "CloneVM_Task"
    ]
    assert len(clones) == REPLICAS


async def test_a_session_that_ends_during_clones_creates_no_second_vm(
    harness: GroupHarness,
) -> None:
    await harness.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = await harness.create_group("web", REPLICAS + 2)
    await eventually(lambda: harness.has_clones(REPLICAS), within=60)
    # The next call fails with NotAuthenticated and is sent again in a new session.
    assert await harness.vcenter.expire_sessions() == 1
    await harness.check_converges("web", uid, REPLICAS + 2)


async def test_an_outage_of_vcenter_during_clones_creates_no_second_vm(
    harness: GroupHarness,
) -> None:
    await harness.vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = await harness.create_group("web", REPLICAS + 2)
    await eventually(lambda: harness.has_clones(REPLICAS), within=60)
    await harness.vcenter.set_outage("reset", 5.0)
    await harness.check_converges("web", uid, REPLICAS + 2)
