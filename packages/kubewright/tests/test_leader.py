"""The lease: who may act and until when, with a clock of our own; the handover between processes is in tests/real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kubewright.builtin import Lease
from kubewright.client import Client
from kubewright.errors import Conflict, LeaseLost, ServerError, Unreachable
from kubewright.kind import Key
from kubewright.kubeconfig import Connection, Identity
from kubewright.leader import LEASE_DURATION_SECONDS, RENEW_DEADLINE_SECONDS, LeaderElector
from kubewright.log import Log
from kubewright.manager import Manager, Options
from kubewright.metrics import Metrics
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import WriteGuard

LEASE_KEY = Key("system", "manager-leader")


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_candidate(api: FakeApi, name: str, clock: Callable[[], float]) -> LeaderElector:
    return LeaderElector(
        Client(api), LEASE_KEY, name, guard=WriteGuard(clock), metrics=Metrics(), log=Log("test")
    )


async def read_holder(api: FakeApi) -> str:
    return (await Client(api).get(Lease, LEASE_KEY)).spec.holderIdentity


async def test_the_first_candidate_wins_and_is_sure_for_ten_seconds_from_sending() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    assert not one.is_leader_now()
    assert await one.try_acquire_or_renew()
    clock.now += RENEW_DEADLINE_SECONDS - 0.01
    assert one.is_leader_now()
    clock.now += 0.02
    assert not one.is_leader_now()


async def test_a_standby_takes_over_only_after_a_whole_duration_without_renewal_by_its_own_watch() -> (
    None
):
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    assert not await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS - 1
    await one.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS - 1
    assert not await two.try_acquire_or_renew(), (
        "a renewal that it had not seen before starts its stopwatch anew"
    )
    clock.now += LEASE_DURATION_SECONDS + 0.1
    assert await two.try_acquire_or_renew()
    assert await read_holder(api) == "two"
    assert (await Client(api).get(Lease, LEASE_KEY)).spec.leaseTransitions == 1


async def test_no_moment_with_two_leaders() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    for _ in range(400):
        clock.now += 0.1
        await two.try_acquire_or_renew()
        assert not (one.is_leader_now() and two.is_leader_now())
    assert two.is_leader_now()
    assert not await one.try_acquire_or_renew()


async def test_two_candidates_at_once_cannot_both_win() -> None:
    api, clock = FakeApi(), FakeClock()
    candidates = [make_candidate(api, f"c{n}", clock) for n in range(8)]
    won = await asyncio.gather(*(c.try_acquire_or_renew() for c in candidates))
    assert sum(won) == 1
    clock.now += LEASE_DURATION_SECONDS + 1
    for c in candidates:
        c.guard.expires_at = 0
    won = await asyncio.gather(*(c.try_acquire_or_renew() for c in candidates))
    assert sum(won) <= 1


async def test_a_holder_that_wakes_up_late_does_not_believe_itself() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS + 5
    assert await two.try_acquire_or_renew()
    assert not one.is_leader_now()
    assert not await one.try_acquire_or_renew()
    assert await read_holder(api) == "two"


@pytest.mark.looptime
async def test_a_lease_that_cannot_be_renewed_is_lost_in_words() -> None:
    api = FakeApi()
    loop = asyncio.get_running_loop()
    one = make_candidate(api, "one", loop.time)
    await one.acquire()
    api.fail_next("PATCH", "leases", Unreachable("gone"), times=1000)
    api.fail_next("GET", "leases", Unreachable("gone"), times=1000)
    started = loop.time()
    with pytest.raises(LeaseLost, match="could not be renewed for 10 s"):
        await one.renew_until_lost()
    assert loop.time() - started == pytest.approx(RENEW_DEADLINE_SECONDS, abs=1)


@pytest.mark.looptime
async def test_a_passing_failure_does_not_lose_the_lease() -> None:
    api = FakeApi()
    loop = asyncio.get_running_loop()
    one = make_candidate(api, "one", loop.time)
    await one.acquire()
    api.fail_next("PATCH", "leases", ServerError("hiccup"), times=5)
    api.fail_next("PATCH", "leases", Conflict("a write of ours that was not answered"), times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await one.renew_until_lost()
    assert one.is_leader_now()


async def test_a_release_lets_the_next_one_in_at_once() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    await one.release()
    assert not one.is_leader_now()
    assert await two.try_acquire_or_renew()


async def test_a_release_never_takes_the_lease_from_somebody_else() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS + 1
    await two.try_acquire_or_renew()
    one.guard.expires_at = clock.now + 5
    await one.release()
    assert await read_holder(api) == "two"


async def test_a_lease_given_to_somebody_else_by_hand_is_given_up_at_once() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    await one.try_acquire_or_renew()
    await Client(api).patch(
        Lease, LEASE_KEY, {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 60}}
    )
    clock.now += 2
    assert not await one.try_acquire_or_renew()
    assert not one.is_leader_now()
    clock.now += 2
    assert not await one.try_acquire_or_renew()
    assert await read_holder(api) == "somebody"


async def test_a_standby_looks_at_least_every_second_and_just_when_the_lease_runs_out() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    assert two._next_poll_seconds() == 1.0
    clock.now += LEASE_DURATION_SECONDS - 0.3
    assert two._next_poll_seconds() == pytest.approx(0.3)


async def test_a_deleted_lease_makes_no_second_leader_and_loses_no_first_one() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    await Client(api).delete(Lease, LEASE_KEY)
    assert not await two.try_acquire_or_renew()
    assert await one.try_acquire_or_renew()
    assert one.is_leader_now()
    await Client(api).delete(Lease, LEASE_KEY)
    clock.now += LEASE_DURATION_SECONDS + 1
    assert await two.try_acquire_or_renew()


async def test_a_release_bears_a_renewal_that_was_cut_short() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    await one.try_acquire_or_renew()
    await Client(api).patch(
        Lease, LEASE_KEY, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    )
    await one.release()
    assert await read_holder(api) == ""


async def test_a_manager_tells_when_it_begins_to_lead() -> None:
    api, stop, led = FakeApi(), asyncio.Event(), list[bool]()
    api.objects["/version"] = {"gitVersion": "v1"}
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 1}
    api.create(
        "/apis/coordination.k8s.io/v1/namespaces/sys/leases",
        {"metadata": {"name": "op-leader"}, "spec": spec},
    )
    options = Options(
        name="op", metrics_bind_address="0", leader_election=True, leader_election_namespace="sys"
    )
    manager = Manager(
        Connection(server="https://fake.invalid", identity=Identity(), source="a test"),
        options,
        transport=api,
    )
    manager.started_leading.connect(lambda: led.append(manager.leader.is_leader_now()))
    life = asyncio.create_task(manager.run(stop))
    await eventually(lambda: led, within=10)
    stop.set()
    await life
    assert led == [True]
