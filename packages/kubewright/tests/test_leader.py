"""The lease, with a fake clock. tests/real has the change of leader between processes."""

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
from kubewright.lease_guard import LeaseGuard
from kubewright.log import Log
from kubewright.manager import Manager, Options
from kubewright.metrics import Metrics
from kubewright.process_presence import ProcessPresence
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

LEASE_KEY = Key("system", "manager-leader")


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_candidate(api: FakeApi, name: str, clock: Callable[[], float]) -> LeaderElector:
    return LeaderElector(
        Client(api), LEASE_KEY, name, guard=LeaseGuard(clock), metrics=Metrics(), log=Log("test")
    )


async def read_holder(api: FakeApi) -> str:
    return (await Client(api).get(Lease, LEASE_KEY)).spec.holderIdentity


async def test_first_candidate_leads_for_ten_seconds_from_sending() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    assert not one.guard.holds_lease()
    assert await one.try_acquire_or_renew()
    clock.now += RENEW_DEADLINE_SECONDS - 0.01
    assert one.guard.holds_lease()
    clock.now += 0.02
    assert not one.guard.holds_lease()


async def test_standby_reports_that_it_does_not_lead() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.acquire()
    waiting = asyncio.create_task(two.acquire())
    await asyncio.sleep(0)
    statuses = [
        candidate._metrics.registry.get_sample_value(
            "leader_election_master_status", {"name": str(LEASE_KEY)}
        )
        for candidate in (one, two)
    ]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert statuses == [1, 0]


async def test_standby_takes_over_after_a_whole_duration_by_its_own_clock() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    assert not await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS - 1
    await one.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS - 1
    assert not await two.try_acquire_or_renew(), (
        "the duration starts again with a renewal that it had not seen"
    )
    clock.now += LEASE_DURATION_SECONDS + 0.1
    assert await two.try_acquire_or_renew()
    assert await read_holder(api) == "two"
    assert (await Client(api).get(Lease, LEASE_KEY)).spec.leaseTransitions == 1


async def test_there_are_never_two_leaders() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    for _ in range(400):
        clock.now += 0.1
        await two.try_acquire_or_renew()
        assert not (one.guard.holds_lease() and two.guard.holds_lease())
    assert two.guard.holds_lease()
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


async def test_holder_that_wakes_up_late_does_not_lead() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS + 5
    assert await two.try_acquire_or_renew()
    assert not one.guard.holds_lease()
    assert not await one.try_acquire_or_renew()
    assert await read_holder(api) == "two"


@pytest.mark.looptime
async def test_lease_that_cannot_be_renewed_is_lost() -> None:
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
async def test_transient_failure_does_not_lose_the_lease() -> None:
    api = FakeApi()
    loop = asyncio.get_running_loop()
    one = make_candidate(api, "one", loop.time)
    await one.acquire()
    api.fail_next("PATCH", "leases", ServerError("hiccup"), times=5)
    api.fail_next("PATCH", "leases", Conflict("our own write without a response"), times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await one.renew_until_lost()
    assert one.guard.holds_lease()


async def test_released_lease_can_be_taken_at_once() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    await one.release()
    assert not one.guard.holds_lease()
    assert await two.try_acquire_or_renew()


async def test_release_does_not_clear_another_holder() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    clock.now += LEASE_DURATION_SECONDS + 1
    await two.try_acquire_or_renew()
    one.guard.expires_at = clock.now + 5
    await one.release()
    assert await read_holder(api) == "two"


async def test_lease_edited_to_another_holder_is_given_up_at_once() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    await one.try_acquire_or_renew()
    await Client(api).patch(
        Lease, LEASE_KEY, {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 60}}
    )
    clock.now += 2
    assert not await one.try_acquire_or_renew()
    assert not one.guard.holds_lease()
    clock.now += 2
    assert not await one.try_acquire_or_renew()
    assert await read_holder(api) == "another"


async def test_standby_polls_every_second_and_when_the_lease_expires() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    assert two._next_poll_seconds() == 1.0
    clock.now += LEASE_DURATION_SECONDS - 0.3
    assert two._next_poll_seconds() == pytest.approx(0.3)


async def test_deleted_lease_neither_adds_nor_removes_a_leader() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "one", clock), make_candidate(api, "two", clock)
    await one.try_acquire_or_renew()
    await two.try_acquire_or_renew()
    await Client(api).delete(Lease, LEASE_KEY)
    assert not await two.try_acquire_or_renew()
    assert await one.try_acquire_or_renew()
    assert one.guard.holds_lease()
    await Client(api).delete(Lease, LEASE_KEY)
    clock.now += LEASE_DURATION_SECONDS + 1
    assert await two.try_acquire_or_renew()


@pytest.mark.looptime
async def test_release_works_after_an_interrupted_renewal() -> None:
    api, clock = FakeApi(), FakeClock()
    one = make_candidate(api, "one", clock)
    await one.try_acquire_or_renew()
    await Client(api).patch(
        Lease, LEASE_KEY, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    )
    await one.release()
    assert await read_holder(api) == ""


async def test_manager_emits_started_leading() -> None:
    api, stop, leading = FakeApi(), asyncio.Event(), list[bool]()
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
    manager.started_leading.connect(lambda: leading.append(manager.leader.guard.holds_lease()))
    task = asyncio.create_task(manager.run(stop))
    await eventually(lambda: leading)
    stop.set()
    await task
    assert leading == [True]


class FakePresence(ProcessPresence):
    """A process in a scope of sockets, which may have ended."""

    def __init__(self, identity: str, scope: str, ended: set[str]) -> None:
        super().__init__(identity, scope="")
        self._scope, self._ended = scope, ended
        self.address = self._address_of(identity)

    def has_ended(self, identity: str, address: str) -> bool:
        return address == self._address_of(identity) and identity in self._ended


def make_present_candidate(
    api: FakeApi, name: str, clock: Callable[[], float], scope: str, ended: set[str]
) -> LeaderElector:
    candidate = make_candidate(api, name, clock)
    candidate._presence = FakePresence(name, scope, ended)
    return candidate


async def test_the_lease_of_a_process_that_has_ended_is_taken_at_once() -> None:
    api, clock, ended = FakeApi(), FakeClock(), set[str]()
    one = make_present_candidate(api, "pod_1", clock, "pod", ended)
    two = make_present_candidate(api, "pod_2", clock, "pod", ended)
    elsewhere = make_present_candidate(api, "other_1", clock, "other", ended)
    await one.try_acquire_or_renew()
    assert not await two.try_acquire_or_renew()
    ended.add("pod_1")
    assert not await elsewhere.try_acquire_or_renew(), "nothing is proven on another machine"
    assert await two.try_acquire_or_renew()
    assert await read_holder(api) == "pod_2"
    assert (await Client(api).get(Lease, LEASE_KEY)).spec.leaseTransitions == 1
    # The address is now that of the new holder.
    assert not await elsewhere.try_acquire_or_renew()
    ended.add("pod_2")
    three = make_present_candidate(api, "pod_3", clock, "pod", ended)
    assert await three.try_acquire_or_renew()


async def test_holder_without_address_does_not_keep_that_of_its_predecessor() -> None:
    """Two processes of one Pod have one identity, and only the first could bind its socket."""
    api, clock, ended = FakeApi(), FakeClock(), set[str]()
    first = make_present_candidate(api, "laptop", clock, "pod", ended)
    second = make_candidate(api, "laptop", clock)
    second._presence = ProcessPresence("laptop", scope="")
    other = make_present_candidate(api, "pod_1", clock, "pod", ended)
    assert await first.try_acquire_or_renew()
    assert not await second.try_acquire_or_renew()
    # The first process ends, and with it the socket.
    ended.add("laptop")
    clock.now += LEASE_DURATION_SECONDS + 1
    assert await second.try_acquire_or_renew()
    assert not await other.try_acquire_or_renew(), "the second process leads"
    assert await second.try_acquire_or_renew()
    assert second.guard.holds_lease()


async def test_of_two_that_see_the_end_only_one_wins() -> None:
    api, clock, ended = FakeApi(), FakeClock(), {"pod_0"}
    await make_present_candidate(api, "pod_0", clock, "pod", ended).try_acquire_or_renew()
    candidates = [
        make_present_candidate(api, f"pod_{number}", clock, "pod", ended) for number in range(1, 6)
    ]
    won = await asyncio.gather(*(c.try_acquire_or_renew() for c in candidates))
    assert sum(won) == 1


async def test_two_processes_with_one_identity_never_lead_both() -> None:
    api, clock = FakeApi(), FakeClock()
    one, two = make_candidate(api, "laptop", clock), make_candidate(api, "laptop", clock)
    won = await asyncio.gather(one.try_acquire_or_renew(), two.try_acquire_or_renew())
    assert sorted(won) == [False, True]
    leader, standby = (one, two) if won[0] else (two, one)
    for _ in range(60):
        clock.now += 1
        assert await leader.try_acquire_or_renew()
        assert not await standby.try_acquire_or_renew()
        assert not standby.guard.holds_lease()
