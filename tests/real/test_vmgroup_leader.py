"""A leader that is stopped during clones and continues after it lost the lease does no harm."""

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
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    get_lease,
    run_manager,
)
from support.simulator_state import read_simulator_state
from support.vmgroup_client import VmGroupClient, list_group_vms

STOP_SECONDS = 20.0
CLONE_SECONDS = 8.0
REPLICAS = 5
PARALLEL_CLONES = 3


@pytest.fixture
async def managers(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    manager_kubeconfig: Path,
    tmp_path: Path,
) -> AsyncIterator[tuple[ManagerProcess, ManagerProcess]]:
    """The leader and the standby."""
    flags = (
        f"--kubeconfig={manager_kubeconfig}",
        f"--vcenter-credentials={write_credentials(tmp_path / 'vc-creds', simulator)}",
        f"--vcenter-ca-file={simulator.certificate}",
        f"--watch-namespaces={namespace}",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        "--leader-elect",
        *FREE_PORT_FLAGS,
    )
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(run_manager(tmp_path / "leader.log", *flags))
        await leader.wait_for_log("became leader", within=60)
        standby = await stack.enter_async_context(run_manager(tmp_path / "standby.log", *flags))
        await standby.wait_for_log("waiting for the leader lease")
        yield leader, standby
        await leader.stop(5)
        await standby.stop(5)


async def test_a_leader_that_is_stopped_during_clones_sends_no_late_call(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    managers: tuple[ManagerProcess, ManagerProcess],
) -> None:
    leader, standby = managers
    groups = VmGroupClient(installed, namespace)
    await simulator.delay_calls("CloneVM_Task", CLONE_SECONDS)
    uid = (await groups.create("web", replicas=REPLICAS))["metadata"]["uid"]

    async def in_mid_clone() -> bool:
        return len((await read_simulator_state(simulator)).clones) == PARALLEL_CLONES

    await eventually(in_mid_clone, within=60)
    sessions = {call["session"] for call in await simulator.mutating_calls()}
    assert len(sessions) == 1
    leader.send_signal(signal.SIGSTOP)
    # Longer than the lease duration, so that the standby has taken over.
    await asyncio.sleep(STOP_SECONDS)
    await standby.wait_for_log("became leader")
    since = datetime.fromisoformat(get_lease(installed)["acquireTime"])
    leader.send_signal(signal.SIGCONT)
    assert await leader.wait_for_exit() == 1
    await groups.wait_for_phase("web", "RUNNING", within=90)
    assert {call["session"] for call in await simulator.mutating_calls()} > sessions, (
        "the standby never acted"
    )
    of_leader = [call for call in await simulator.mutating_calls() if call["session"] in sessions]
    late = [call for call in of_leader if datetime.fromisoformat(call["time"]) > since]
    assert late == []
    assert len(await list_group_vms(simulator, uid)) == REPLICAS
    assert (await read_simulator_state(simulator)).peak_by_uid[uid] == REPLICAS
