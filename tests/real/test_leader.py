"""Two managers, of which one acts, according to the Lease and the audit log."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import (
    FREE_PORT_FLAGS,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    create_pod,
    create_resource,
    get_lease,
    get_resource,
    list_mutations,
    run_manager,
    wait_for_mutations,
    wait_for_status,
)

RESOURCE_COUNT = 40
FRIEND_POD = "funny-joe"
LEASE_SECONDS = 15.0
# How long a busy machine may delay a process.
BUSY_SECONDS = 10.0


@dataclass(frozen=True)
class ManagerPair:
    leader: ManagerProcess
    standby: ManagerProcess


@pytest.fixture
async def managers(
    installed: ControlPlane, manager_kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[ManagerPair]:
    """Two managers; the first one leads."""
    flags = (
        f"--kubeconfig={manager_kubeconfig}",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        *FREE_PORT_FLAGS,
    )
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(run_manager(tmp_path / "leader.log", *flags))
        await leader.wait_for_log("became leader", within=60)
        standby = await stack.enter_async_context(run_manager(tmp_path / "standby.log", *flags))
        await standby.wait_for_log("waiting for the leader lease")
        yield ManagerPair(leader, standby)
        # Both release the lease, so that the next test does not wait until it expires.
        await leader.stop(5)
        await standby.stop(5)


async def signal_and_wait_for_takeover(
    plane: ControlPlane, pair: ManagerPair, number: signal.Signals
) -> float:
    """Waits until the standby leads and reconciles; returns the seconds until its lease."""
    before, signalled_at = get_lease(plane)["holderIdentity"], datetime.now(UTC)
    pair.leader.send_signal(number)
    await eventually(
        lambda: get_lease(plane).get("holderIdentity") not in ("", None, before), within=60
    )
    # By the time in the Lease: this process may be late on a busy machine.
    acquired_at = datetime.fromisoformat(get_lease(plane)["acquireTime"])
    await pair.standby.wait_for_log("Starting workers")
    return (acquired_at - signalled_at).total_seconds()


async def test_standby_waits_with_synced_caches(
    installed: ControlPlane, managers: ManagerPair, namespace: str
) -> None:
    create_resource(installed, namespace, "joe", spec={"name": FRIEND_POD})
    await wait_for_status(installed, namespace, "joe", "NoFriend")
    cached = 'kind="mycustomresources.poc.test.domain"'
    await eventually(lambda: is_cached_by_standby(managers, cached))
    assert "Starting workers" not in managers.standby.log_text
    await wait_for_mutations(installed, managers.leader)
    assert list_mutations(installed, managers.standby) == []
    assert list((await managers.leader.read_metric("leader_election_master_status")).values()) == [
        1.0
    ]
    await managers.standby.wait_until_ready()


async def is_cached_by_standby(pair: ManagerPair, labels: str) -> bool:
    return (await pair.standby.read_metric("kubewright_cached_objects")).get(labels) == 1


async def test_sigterm_hands_over_within_3_seconds(
    installed: ControlPlane, managers: ManagerPair, namespace: str
) -> None:
    seconds = await signal_and_wait_for_takeover(installed, managers, signal.SIGTERM)
    assert seconds <= 3 + BUSY_SECONDS < LEASE_SECONDS
    assert await managers.leader.wait_for_exit() == 0
    create_resource(installed, namespace, "joe", spec={"name": FRIEND_POD})
    await wait_for_status(installed, namespace, "joe", "NoFriend")
    await wait_for_mutations(installed, managers.standby)


async def test_sigkill_hands_over_within_17_seconds(
    installed: ControlPlane, managers: ManagerPair, namespace: str
) -> None:
    seconds = await signal_and_wait_for_takeover(installed, managers, signal.SIGKILL)
    assert seconds <= 17 + BUSY_SECONDS
    create_resource(installed, namespace, "joe", spec={"name": FRIEND_POD})
    await wait_for_status(installed, namespace, "joe", "NoFriend")


async def test_restarted_manager_takes_its_lease_back_at_once(
    installed: ControlPlane, manager_kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    """As a container that is restarted in its Pod; the Lease of a lost node has to expire."""
    flags = (
        f"--kubeconfig={manager_kubeconfig}",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        *FREE_PORT_FLAGS,
    )
    async with run_manager(tmp_path / "killed.log", *flags) as killed:
        await killed.wait_for_log("became leader", within=60)
        before = get_lease(installed)["holderIdentity"]
        killed.send_signal(signal.SIGKILL)
        await killed.wait_for_exit()
        assert get_lease(installed)["holderIdentity"] == before
    async with run_manager(tmp_path / "restarted.log", *flags) as restarted:
        await restarted.wait_for_log("waiting for the leader lease", within=60)
        await restarted.wait_for_log("became leader", within=LEASE_SECONDS - 1)
        assert "the process that holds the leader lease has ended" in restarted.log_text
        create_resource(installed, namespace, "joe", spec={"name": FRIEND_POD})
        await wait_for_status(installed, namespace, "joe", "NoFriend")
        await restarted.stop(5)


async def test_suspended_leader_does_not_act_when_it_resumes(
    installed: ControlPlane, managers: ManagerPair, namespace: str
) -> None:
    names = [f"waiting-{number}" for number in range(RESOURCE_COUNT)]
    for name in names:
        create_resource(installed, namespace, name, spec={"name": FRIEND_POD})
    for name in names:
        await wait_for_status(installed, namespace, name, "NoFriend")
    await wait_for_mutations(installed, managers.leader, RESOURCE_COUNT)
    await signal_and_wait_for_takeover(installed, managers, signal.SIGSTOP)
    since = datetime.fromisoformat(get_lease(installed)["acquireTime"])
    managers.standby.send_signal(
        signal.SIGSTOP
    )  # so that only the resumed leader could do this work
    create_pod(installed, namespace, FRIEND_POD)
    managers.leader.send_signal(signal.SIGCONT)
    assert await managers.leader.wait_for_exit() == 1
    managers.standby.send_signal(signal.SIGCONT)
    for name in names:
        await wait_for_status(installed, namespace, name, "FriendFound", within=60)
    late = [
        event
        for event in list_mutations(installed, managers.leader)
        if datetime.fromisoformat(event["requestReceivedTimestamp"]) > since
    ]
    assert late == []
    assert "could not be renewed" in managers.leader.log_text
    assert "so that two managers never act at the same time" in managers.leader.log_text
    assert all(get_resource(installed, namespace, name)["status"]["Healthy"] for name in names)
