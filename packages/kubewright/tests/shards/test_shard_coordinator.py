"""Replicas that share shards through Leases, with a clock that jumps from timer to timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from kubewright.builtin import Lease
from kubewright.client import Client
from kubewright.errors import LeaseLost, Unreachable
from kubewright.kind import Key
from kubewright.leader import LEASE_DURATION_SECONDS, LeaderElector
from kubewright.lease_guard import LeaseGuard
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.shard_coordinator import ShardCoordinator
from kubewright.shard_guard import ANY_SHARD, ShardGuard, in_shard
from kubewright.shard_members import holder_of_all, read_members
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request

LEADER = Key("system", "manager-leader")
SHARDS = 6
pytestmark = pytest.mark.looptime


@dataclass
class Work:
    """Records what runs; `overlaps` is shared by all replicas of a test."""

    running: dict[int, str]
    overlaps: list[int]
    name: str
    load_seconds: float = 0.2
    stop_seconds: float = 0.0
    covered: frozenset[int] = frozenset()
    wanted: frozenset[int] = frozenset()
    history: list[tuple[str, int]] = field(default_factory=list)

    def cover(self, shards: frozenset[int]) -> None:
        if shards != self.wanted:
            self.wanted = shards
            self.covered &= shards
            loop = asyncio.get_running_loop()
            loop.call_later(self.load_seconds, self._on_loaded, shards)

    def _on_loaded(self, shards: frozenset[int]) -> None:
        if shards == self.wanted:
            self.covered = shards

    def warm_shards(self) -> frozenset[int]:
        return self.covered

    def start(self, shard: int) -> None:
        if shard in self.running:
            self.overlaps.append(shard)
        self.running[shard] = self.name
        self.history.append(("start", shard))

    async def stop(self, shard: int, timeout_seconds: float) -> None:
        await asyncio.sleep(min(self.stop_seconds, timeout_seconds))
        assert self.running.pop(shard) == self.name
        self.history.append(("stop", shard))


class Replica:
    def __init__(self, group: Group, name: str) -> None:
        self.name = name
        self.work = Work(group.running, group.overlaps, name)
        clock = asyncio.get_running_loop().time
        self.guard = ShardGuard(LeaseGuard(clock), [LeaseGuard(clock) for _ in range(group.count)])
        self.transport = CuttableApi(group.api)
        metrics = Metrics()
        metrics.register_shard_metrics()
        self.coordinator = ShardCoordinator(
            Client(self.transport),
            LEADER,
            name,
            self.guard,
            self.work,
            metrics=metrics,
            log=Log("test"),
            stop_seconds=5.0,
        )
        self.task = asyncio.create_task(self.coordinator.run())

    @property
    def owned(self) -> set[int]:
        return self.coordinator.owned

    async def leave(self) -> None:
        await self.coordinator.leave()
        await self.task
        await self.coordinator.release()

    async def kill(self) -> None:
        """As SIGKILL: nothing is released, and nothing runs any more."""
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLost):
            await self.task
        for shard in [s for s, name in self.work.running.items() if name == self.name]:
            del self.work.running[shard]


class CuttableApi:
    """The API server as one replica sees it."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.is_cut = False

    async def send(self, request: Request) -> bytes:
        if self.is_cut:
            raise Unreachable("cut off by the test")
        return await self._api.send(request)

    def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[bytes]:
        raise NotImplementedError


@dataclass
class Group:
    api: FakeApi = field(default_factory=FakeApi)
    count: int = SHARDS
    running: dict[int, str] = field(default_factory=dict)
    overlaps: list[int] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)

    def start(self, name: str) -> Replica:
        replica = Replica(self, name)
        self.replicas.append(replica)
        return replica

    async def wait_for(self, check: Callable[[], bool], within: float) -> float:
        """Wait until it is true; returns the seconds."""
        clock = asyncio.get_running_loop().time
        started = clock()
        while not check():
            assert clock() - started < within, f"not within {within} s: {self.running}"
            await asyncio.sleep(0.05)
        return clock() - started

    def sizes(self) -> list[int]:
        return sorted(len(replica.owned) for replica in self.replicas if not replica.task.done())

    def is_complete(self, *sizes: int) -> bool:
        return sorted(self.running) == list(range(self.count)) and self.sizes() == list(sizes)


@asynccontextmanager
async def running_group(count: int = SHARDS) -> AsyncIterator[Group]:
    group = Group(count=count)
    try:
        yield group
        assert group.overlaps == []
    finally:
        for replica in group.replicas:
            if not replica.task.done():
                await replica.kill()


async def test_first_replica_takes_all_shards() -> None:
    async with running_group() as group:
        group.start("a")
        assert await group.wait_for(lambda: group.is_complete(6), within=1) < 1


async def test_replica_that_joins_gets_its_share_within_three_seconds() -> None:
    async with running_group() as group:
        one = group.start("a")
        await group.wait_for(lambda: group.is_complete(6), within=5)
        two = group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=3)
        group.start("c")
        await group.wait_for(lambda: group.is_complete(2, 2, 2), within=3)
        # Only what had to move has moved.
        assert [action for action, _ in one.work.history].count("stop") == 4
        assert [action for action, _ in two.work.history].count("stop") == 1


async def test_owner_keeps_a_shard_until_the_next_one_has_loaded_it() -> None:
    async with running_group() as group:
        one = group.start("a")
        await group.wait_for(lambda: group.is_complete(6), within=5)
        two = group.start("b")
        two.work.load_seconds = 20.0
        await asyncio.sleep(15)
        assert len(one.owned) == 6
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)


async def test_replica_that_stops_hands_over_within_three_seconds() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        # Reconciles that do not end are cancelled after 1.5 s.
        one.work.stop_seconds = 60.0
        leaving = asyncio.create_task(one.leave())
        seconds = await group.wait_for(lambda: len(two.owned) == 6, within=3)
        assert seconds > 1.5
        await leaving
        assert [member.identity for member in read_members(await read_leader(group))] == ["b"]


async def test_replica_stops_although_the_api_server_does_not_answer() -> None:
    async with running_group() as group:
        one = group.start("a")
        await group.wait_for(lambda: group.is_complete(6), within=5)
        one.transport.is_cut = True
        started = asyncio.get_running_loop().time()
        await one.coordinator.leave()
        assert asyncio.get_running_loop().time() - started < 6


async def read_leader(group: Group) -> Lease:
    return await Client(group.api).get(Lease, LEADER)


async def test_last_replica_that_stops_releases_the_lease_of_all() -> None:
    async with running_group() as group:
        one = group.start("a")
        await group.wait_for(lambda: group.is_complete(6), within=5)
        await one.leave()
        assert (await read_leader(group)).spec.holderIdentity == ""
        group.start("b")
        await group.wait_for(lambda: group.is_complete(6), within=2)


async def test_shards_of_a_killed_replica_are_taken_within_the_lease_time_and_two_seconds() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        await one.kill()
        seconds = await group.wait_for(
            lambda: len(two.owned) == 6, within=LEASE_DURATION_SECONDS + 2
        )
        # Not before: its last writes may still be on their way.
        assert seconds > LEASE_DURATION_SECONDS - 2.5


async def test_shards_of_a_killed_replica_are_loaded_before_they_are_free() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        await one.kill()
        await asyncio.sleep(9)
        assert len(two.owned) == 3
        assert two.work.covered == frozenset(range(6))


async def test_replica_that_is_cut_off_ends_and_stops_writing_before_another_takes_over() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        shards = sorted(one.owned)
        one.transport.is_cut = True
        await group.wait_for(lambda: not one.guard.holds_shard(shards[0]), within=11)
        assert len(two.owned) == 3
        with pytest.raises(LeaseLost):
            await one.task
        await one.kill()
        await group.wait_for(lambda: len(two.owned) == 6, within=8)


async def test_manager_with_another_number_of_shards_waits_until_the_others_have_ended() -> None:
    async with running_group() as group:
        one = group.start("a")
        await group.wait_for(lambda: group.is_complete(6), within=5)
        group.count = 4
        two = group.start("b")
        await asyncio.sleep(40)
        assert not two.owned
        assert len(one.owned) == 6
        await one.leave()
        await group.wait_for(lambda: len(two.owned) == 4, within=3)
        lease = await read_leader(group)
        assert lease.spec.holderIdentity == holder_of_all(4)
        assert [member.identity for member in read_members(lease)] == ["b"]


async def test_leader_without_shards_and_replicas_with_shards_exclude_each_other() -> None:
    async with running_group() as group:
        clock = asyncio.get_running_loop().time
        guard = LeaseGuard(clock)
        leader = LeaderElector(
            Client(group.api), LEADER, "old", guard=guard, metrics=Metrics(), log=Log("test")
        )
        await leader.acquire()
        renewing = asyncio.create_task(leader.renew_until_lost())
        one = group.start("a")
        await asyncio.sleep(40)
        assert not one.owned
        renewing.cancel()
        await leader.release()
        await group.wait_for(lambda: group.is_complete(6), within=3)
        # And the other way round.
        assert not await leader.try_acquire_or_renew()
        await asyncio.sleep(40)
        assert not await leader.try_acquire_or_renew()
        await one.leave()
        assert await leader.try_acquire_or_renew()


async def test_replica_that_joins_after_a_kill_does_not_wait_for_the_killed_one() -> None:
    async with running_group() as group:
        one = group.start("a")
        group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        await one.kill()
        await group.wait_for(lambda: group.is_complete(6), within=18)
        group.start("c")
        await group.wait_for(lambda: group.is_complete(3, 3), within=3)


async def test_write_needs_the_lease_of_its_own_shard() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        for replica in (one, two):
            for shard in range(SHARDS):
                with in_shard(shard):
                    assert replica.guard.holds_lease() is (shard in replica.owned)
            with in_shard(ANY_SHARD):
                assert replica.guard.holds_lease()
            assert replica.guard.is_leader() is (0 in replica.owned)


async def test_members_that_are_gone_are_removed_from_the_lease() -> None:
    async with running_group() as group:
        gone = [group.start("a"), group.start("c")]
        two = group.start("b")
        await group.wait_for(lambda: group.is_complete(2, 2, 2), within=10)
        for replica in gone:
            await replica.kill()
        await asyncio.sleep(70)
        assert not two.task.done()
        lease = await read_leader(group)
        assert [member.identity for member in read_members(lease)] == ["b"]


async def test_lease_that_another_replica_had_in_the_meantime_is_lost() -> None:
    api, now = FakeApi(), [0.0]
    electors = [
        LeaderElector(
            Client(api),
            LEADER,
            name,
            guard=LeaseGuard(lambda: now[0]),
            metrics=Metrics(),
            log=Log("test"),
        )
        for name in ("stopped", "other")
    ]
    stopped, other = electors
    assert await stopped.try_acquire_or_renew()
    assert not await other.try_acquire_or_renew()
    now[0] += LEASE_DURATION_SECONDS + 1
    assert await other.try_acquire_or_renew()
    await other.release()
    # The lease is free, and this process does not know what the other one has done.
    with pytest.raises(LeaseLost):
        await stopped.renew_until_lost()


async def test_more_replicas_than_shards_leave_some_on_standby() -> None:
    async with running_group(count=2) as group:
        for name in "abc":
            group.start(name)
        await group.wait_for(lambda: group.is_complete(0, 1, 1), within=10)


async def test_restarted_replicas_do_not_exchange_shards_without_need() -> None:
    async with running_group() as group:
        one, two = group.start("a"), group.start("b")
        await group.wait_for(lambda: group.is_complete(3, 3), within=10)
        before = [len(replica.work.history) for replica in (one, two)]
        await asyncio.sleep(60)
        assert [len(replica.work.history) for replica in (one, two)] == before
