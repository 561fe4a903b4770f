"""Two managers: one acts. The truth is in the Lease and in the audit log."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from .managing import (
    EVERYWHERE,
    SYSTEM,
    ManagerProcess,
    create_pod,
    lease,
    mutations,
    resource,
    started,
    status_of,
    write_resource,
)

RESOURCES = 40
FRIEND = "funny-joe"


@dataclass(frozen=True)
class Pair:
    """Who leads, and who waits."""

    leader: ManagerProcess
    standby: ManagerProcess


@pytest.fixture
async def pair(
    installed: ControlPlane, service_account: Path, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Two managers, the first of which leads."""
    flags = (
        f"--kubeconfig={service_account}",
        "--leader-elect",
        f"--leader-election-namespace={SYSTEM}",
        *EVERYWHERE,
    )
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(started(tmp_path / "leader.log", *flags))
        await leader.says("became leader", within=20)
        standby = await stack.enter_async_context(started(tmp_path / "standby.log", *flags))
        await standby.says("waiting for the leader lease")
        yield Pair(leader, standby)
        # Released by both, so that the next test need not wait for the lease to run out.
        await leader.stop(5)
        await standby.stop(5)


async def taken_over(plane: ControlPlane, pair: Pair, *, within: float) -> float:
    """Wait until the standby leads and works; returns the seconds until its lease."""
    before = lease(plane)["holderIdentity"]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await eventually(
        lambda: lease(plane)["holderIdentity"] not in ("", before), within=within + 5, every=0.05
    )
    seconds = loop.time() - began
    await pair.standby.says("Starting workers")
    return seconds


async def test_one_leads_and_the_other_waits_with_warm_caches(
    installed: ControlPlane, pair: Pair, namespace: str
) -> None:
    write_resource(installed, namespace, "joe", spec={"name": FRIEND})
    await status_of(installed, namespace, "joe", "NoFriend")
    cached = 'kind="mycustomresources.poc.test.domain"'
    await eventually(lambda: standby_knows(pair, cached))
    assert "Starting workers" not in pair.standby.text
    assert mutations(installed, pair.leader) != []
    assert mutations(installed, pair.standby) == []
    assert list((await pair.leader.series("leader_election_master_status")).values()) == [1.0]
    await pair.standby.becomes_ready()


async def standby_knows(pair: Pair, labels: str) -> bool:
    return (await pair.standby.series("kubewright_cached_objects")).get(labels) == 1


async def test_sigterm_hands_over_within_3_seconds(
    installed: ControlPlane, pair: Pair, namespace: str
) -> None:
    pair.leader.send_signal(signal.SIGTERM)
    assert await taken_over(installed, pair, within=3) <= 3
    assert await pair.leader.ended() == 0
    write_resource(installed, namespace, "joe", spec={"name": FRIEND})
    await status_of(installed, namespace, "joe", "NoFriend")
    assert len(mutations(installed, pair.standby)) >= 1


async def test_sigkill_hands_over_within_17_seconds(
    installed: ControlPlane, pair: Pair, namespace: str
) -> None:
    pair.leader.send_signal(signal.SIGKILL)
    assert await taken_over(installed, pair, within=17) <= 17
    write_resource(installed, namespace, "joe", spec={"name": FRIEND})
    await status_of(installed, namespace, "joe", "NoFriend")


async def test_a_stopped_leader_does_not_act_when_it_wakes(
    installed: ControlPlane, pair: Pair, namespace: str
) -> None:
    names = [f"waiting-{number}" for number in range(RESOURCES)]
    for name in names:
        write_resource(installed, namespace, name, spec={"name": FRIEND})
    for name in names:
        await status_of(installed, namespace, name, "NoFriend")
    assert len(mutations(installed, pair.leader)) >= RESOURCES
    pair.leader.send_signal(signal.SIGSTOP)
    await taken_over(installed, pair, within=17)
    since = datetime.fromisoformat(lease(installed)["acquireTime"])
    pair.standby.send_signal(
        signal.SIGSTOP
    )  # so that all of this work is left for the one that wakes
    create_pod(installed, namespace, FRIEND)
    pair.leader.send_signal(signal.SIGCONT)
    assert await pair.leader.ended(within=10) == 1
    pair.standby.send_signal(signal.SIGCONT)
    for name in names:
        await status_of(installed, namespace, name, "FriendFound", within=20)
    late = [
        event
        for event in mutations(installed, pair.leader)
        if datetime.fromisoformat(event["requestReceivedTimestamp"]) > since
    ]
    assert late == []
    assert "could not be renewed" in pair.leader.text
    assert "so that no two managers act at once" in pair.leader.text
    assert all(resource(installed, namespace, name)["status"]["Healthy"] for name in names)
