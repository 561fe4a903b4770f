"""Two managers of VmGroups: the leader is stopped in mid-clone and wakes too late. The truth is the simulator's ledger, and its count."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .groups import Groups, vms_of
from .managing import EVERYWHERE, SYSTEM, ManagerProcess, lease, started
from .snapshot import snapshot
from .stage import simulated
from .vsphere import credentials_in

STOPPED_SECONDS = 20.0
CLONE_SECONDS = 8.0
REPLICAS = 5
AT_ONCE = 3


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as vcenter:
        yield vcenter


@pytest.fixture
async def pair(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    namespace: str,
    service_account: Path,
    tmp_path: Path,
) -> AsyncIterator[tuple[ManagerProcess, ManagerProcess]]:
    """Who leads, and who waits."""
    flags = (
        f"--kubeconfig={service_account}",
        f"--vcenter-credentials={credentials_in(tmp_path / 'vc-creds', vcenter)}",
        f"--vcenter-ca-file={vcenter.certificate}",
        f"--watch-namespaces={namespace}",
        f"--leader-election-namespace={SYSTEM}",
        "--leader-elect",
        *EVERYWHERE,
    )
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(started(tmp_path / "leader.log", *flags))
        await leader.says("became leader", within=20)
        standby = await stack.enter_async_context(started(tmp_path / "standby.log", *flags))
        await standby.says("waiting for the leader lease")
        yield leader, standby
        await leader.stop(5)
        await standby.stop(5)


async def test_a_leader_stopped_in_mid_clone_makes_no_double_and_no_late_call(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    namespace: str,
    pair: tuple[ManagerProcess, ManagerProcess],
) -> None:
    leader, standby = pair
    groups = Groups(installed, namespace)
    await vcenter.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = (await groups.create("web", replicas=REPLICAS))["metadata"]["uid"]

    async def in_mid_clone() -> bool:
        return len((await snapshot(vcenter)).clones) == AT_ONCE

    await eventually(in_mid_clone, within=20)
    sessions = {each["session"] for each in await vcenter.mutating_calls()}
    assert len(sessions) == 1
    leader.send_signal(signal.SIGSTOP)
    # Of the issue: so long that the lease has run out, and the other has begun.
    await asyncio.sleep(STOPPED_SECONDS)
    await standby.says("became leader")
    since = datetime.fromisoformat(lease(installed)["acquireTime"])
    leader.send_signal(signal.SIGCONT)
    assert await leader.ended(within=10) == 1
    await groups.becomes("web", "RUNNING", within=90)
    assert {each["session"] for each in await vcenter.mutating_calls()} > sessions, (
        "the other manager never acted"
    )
    of_leader = [each for each in await vcenter.mutating_calls() if each["session"] in sessions]
    late = [each for each in of_leader if datetime.fromisoformat(each["time"]) > since]
    assert late == []
    assert len(await vms_of(vcenter, uid)) == REPLICAS
    assert (await snapshot(vcenter)).most_of[uid] == REPLICAS
