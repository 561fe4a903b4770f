"""Managers that share their objects, in one process on one FakeApi, with their real guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from kubewright.builtin import Lease
from kubewright.client import Client
from kubewright.controller import Controller
from kubewright.errors import ConfigError, LeaseLost, NotLeader
from kubewright.kind import Key, ObjectMeta
from kubewright.lease_guard import WriteGuard
from kubewright.manager import Manager, Options
from kubewright.shard_ranges import ShardBy
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request, do_nothing

from ..support.api_harness import FAKE_CONNECTION
from ..support.widget_kind import Friend, Widget, WidgetSpec, WidgetStatus

pytestmark = pytest.mark.looptime
SHARDS = 6


class GuardedApi:
    """A FakeApi that checks the guard of one manager, as Transport does."""

    def __init__(self, api: FakeApi, guard: WriteGuard | None = None) -> None:
        self._api, self.guard = api, guard
        self.rejected: list[Request] = []

    async def send(self, request: Request) -> bytes:
        if request.method != "GET" and self.guard is not None and not self.guard.holds_lease():
            self.rejected.append(request)
            raise NotLeader(f"{request.operation} was not sent")
        return await self._api.send(request)

    async def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        async for line in self._api.stream_lines(
            request, idle_timeout_seconds=idle_timeout_seconds, on_open=on_open
        ):
            yield line

    def without_lease_guard(self) -> GuardedApi:
        return GuardedApi(self._api)

    async def close(self) -> None:
        """A fake has no connections."""


@dataclass
class Truth:
    """What all replicas did, as one observer sees it."""

    running: dict[str, str] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    handled: dict[str, list[str]] = field(default_factory=dict)


class SlowController(Controller[Widget]):
    resync_seconds = 0.0

    def __init__(self, truth: Truth, name: str, seconds: float, shard_by: ShardBy) -> None:
        self.truth, self.replica, self.seconds = truth, name, seconds
        self.shard_by = shard_by
        self.forgotten: list[str] = []
        self.cancelled: list[str] = []

    async def reconcile(self, widget: Widget) -> None:
        uid = widget.metadata.uid
        if uid in self.truth.running:
            self.truth.overlaps.append(uid)
        self.truth.running[uid] = self.replica
        self.truth.handled.setdefault(uid, []).append(self.replica)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled.append(uid)
            raise
        finally:
            del self.truth.running[uid]
        widget.status = WidgetStatus(doubled=widget.spec.size * 2)

    def forget(self, obj: Widget) -> None:
        self.forgotten.append(obj.metadata.uid)


class Ticker:
    """Work of the leader."""

    def __init__(self) -> None:
        self.is_running = False

    async def run(self) -> None:
        self.is_running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_running = False


class Replica:
    def __init__(
        self, group: Group, name: str, *, seconds: float = 0.05, shard_by: ShardBy = "uid"
    ) -> None:
        self.transport = GuardedApi(group.api)
        self.manager = Manager(
            FAKE_CONNECTION,
            Options(
                name="operator",
                identity=name,
                shards=SHARDS,
                metrics_bind_address="0",
                leader_election_namespace="system",
                graceful_shutdown_seconds=10,
            ),
            transport=self.transport,
        )
        self.transport.guard = self.manager.shards.guard
        clock = asyncio.get_running_loop().time
        guard = self.manager.shards.sharded_guard
        assert guard is not None
        for lease_guard in (guard.member, *guard.shards):
            lease_guard.clock = clock
        self.controller = SlowController(group.truth, name, seconds, shard_by)
        self.manager.add(self.controller)
        self.ticker = Ticker()
        self.manager.add_runnable(self.ticker, leader_only=True)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.manager.run(self.stop))

    def cached(self) -> int:
        return len(self.manager.cache.store(Widget).objects)

    async def end(self) -> None:
        self.stop.set()
        await self.task

    async def kill(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLost):
            await self.task


@dataclass
class Group:
    api: FakeApi = field(default_factory=FakeApi)
    truth: Truth = field(default_factory=Truth)
    replicas: list[Replica] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return Client(self.api)

    def start(self, name: str, *, seconds: float = 0.05, shard_by: ShardBy = "uid") -> Replica:
        replica = Replica(self, name, seconds=seconds, shard_by=shard_by)
        self.replicas.append(replica)
        return replica

    async def create(self, count: int, *, prefix: str = "w", size: int = 1) -> None:
        for number in range(count):
            metadata = ObjectMeta(name=f"{prefix}{number}", namespace=f"ns-{number % 5}")
            await self.client.create(Widget(metadata=metadata, spec=WidgetSpec(size=size)))

    async def resize(self, size: int) -> None:
        for widget in await self.client.list(Widget):
            await self.client.patch(Widget, widget.key, {"spec": {"size": size}})

    async def wait_until_done(self, within: float = 30) -> None:
        async def are_done() -> bool:
            widgets = await self.client.list(Widget)
            return all(w.status.doubled == 2 * w.spec.size for w in widgets)

        await eventually(are_done, within=within)

    async def wait_for_shares(self, *sizes: int, within: float = 30) -> None:
        async def have_shares() -> bool:
            held = [len(await self.read_shards(r)) for r in self.replicas if not r.task.done()]
            return sorted(held) == list(sizes)

        await eventually(have_shares, within=within)

    async def read_shards(self, replica: Replica) -> list[int]:
        leases = await self.client.list(Lease, "system")
        return [
            int(lease.metadata.name.rpartition("-")[2])
            for lease in leases
            if "-shard-" in lease.metadata.name
            and lease.spec.holderIdentity == replica.manager.options.identity
        ]


@asynccontextmanager
async def ending(group: Group) -> AsyncIterator[None]:
    try:
        yield
        assert group.truth.overlaps == []
    finally:
        for replica in group.replicas:
            if not replica.task.done():
                await replica.end()
    # A write that needs a shard was never tried without it.
    assert [r.operation for replica in group.replicas for r in replica.transport.rejected] == []


def on_both_servers(test: Callable[[Group], Awaitable[None]]) -> Callable[[bool], Awaitable[None]]:
    """Run the test with and without sharded list and watch. Not a fixture: in its teardown the
    virtual time jumps, and all leases would expire.
    """

    @pytest.mark.parametrize("selects_shards", [True, False], ids=["sharded-list", "filter"])
    async def run(selects_shards: bool) -> None:
        group = Group()
        group.api.selects_shards = selects_shards
        async with ending(group):
            await test(group)

    return run


@on_both_servers
async def test_replicas_divide_objects_and_caches(group: Group) -> None:
    await group.create(60)
    replicas = [group.start(name) for name in "abc"]
    await group.wait_for_shares(2, 2, 2)
    await group.resize(7)
    await group.wait_until_done()
    last = {uid: names[-1] for uid, names in group.truth.handled.items()}
    assert set(last.values()) == {"a", "b", "c"}
    assert sum(replica.cached() for replica in replicas) == 60
    assert max(replica.cached() for replica in replicas) < 40


@on_both_servers
async def test_edits_during_joins_and_leaves_are_handled_once_each_and_none_is_lost(
    group: Group,
) -> None:
    await group.create(40)
    group.start("a", seconds=0.3)
    await group.wait_for_shares(6)
    for size, name in enumerate("bcd", start=2):
        group.start(name, seconds=0.3)
        await group.resize(size)
        await asyncio.sleep(1.0)
    await group.wait_for_shares(1, 1, 2, 2)
    await group.resize(20)
    first, second, *_ = group.replicas
    await asyncio.gather(first.end(), group.resize(30))
    await group.wait_until_done()
    await second.end()
    await group.resize(40)
    await group.wait_until_done()
    await group.wait_for_shares(3, 3)


@on_both_servers
async def test_killed_replica_loses_no_edit(group: Group) -> None:
    await group.create(30)
    one, two = group.start("a", seconds=0.3), group.start("b", seconds=0.3)
    await group.wait_for_shares(3, 3)
    await group.resize(5)
    await asyncio.sleep(0.1)
    await one.kill()
    # The observer sees the reconciles of the killed replica end.
    await group.resize(6)
    await group.wait_until_done(within=40)
    assert len(await group.read_shards(two)) == SHARDS


@on_both_servers
async def test_reconcile_that_takes_long_is_cancelled_and_repeated_by_the_next_owner(
    group: Group,
) -> None:
    await group.create(12)
    one = group.start("a", seconds=60.0)
    await group.wait_for_shares(6)
    await eventually(lambda: len(group.truth.running) == 12)
    started = asyncio.get_running_loop().time()
    two = group.start("b")
    await group.wait_for_shares(3, 3)
    assert asyncio.get_running_loop().time() - started < 5
    moved = set(one.controller.cancelled)
    assert moved
    await eventually(lambda: moved <= {u for u, n in group.truth.handled.items() if "b" in n})
    # The status shows no failure of the cancelled run.
    widgets = await group.client.list(Widget)
    await eventually(lambda: two.cached() == len(moved))
    conditions = [widget.status.condition("Ready") for widget in widgets]
    assert {condition.status for condition in conditions if condition is not None} <= {"True"}


@on_both_servers
async def test_leader_work_moves_with_the_first_shard(group: Group) -> None:
    one = group.start("a")
    await group.wait_for_shares(6)
    await eventually(lambda: one.ticker.is_running)
    two = group.start("b")
    await group.wait_for_shares(3, 3)
    assert (one.ticker.is_running, two.ticker.is_running) == (True, False)
    await one.end()
    await eventually(lambda: two.ticker.is_running)
    assert not one.ticker.is_running


@on_both_servers
async def test_objects_of_a_namespace_are_on_one_replica(group: Group) -> None:
    await group.create(60)
    for name in "ab":
        group.start(name, shard_by="namespace")
    await group.wait_for_shares(3, 3)
    await group.resize(9)
    await group.wait_until_done()
    owners: dict[str, set[str]] = {}
    for widget in await group.client.list(Widget):
        last = group.truth.handled[widget.metadata.uid][-1]
        owners.setdefault(widget.metadata.namespace, set()).add(last)
    assert all(len(names) == 1 for names in owners.values())


@on_both_servers
async def test_controller_forgets_what_another_replica_has_changed_meanwhile(group: Group) -> None:
    await group.create(30)
    one = group.start("a")
    await group.wait_until_done()
    await group.wait_for_shares(6)
    one.controller.forgotten.clear()
    two = group.start("b")
    await group.wait_for_shares(3, 3)
    await eventually(lambda: two.cached() > 0)
    assert len(one.controller.forgotten) == two.cached()


@on_both_servers
async def test_object_that_is_created_again_belongs_to_its_new_shard(group: Group) -> None:
    for name in "ab":
        group.start(name)
    await group.wait_for_shares(3, 3)
    key, seen = Key("ns", "again"), set[str]()
    for size in range(1, 12):
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        await group.client.create(Widget(metadata=metadata, spec=WidgetSpec(size=size)))
        await group.wait_until_done()
        widget = await group.client.get(Widget, key)
        seen.add(group.truth.handled[widget.metadata.uid][-1])
        await group.client.delete(Widget, key)
    assert seen == {"a", "b"}


async def test_kind_that_a_reconcile_reads_is_cached_in_full() -> None:
    group = Group()

    async with ending(group):
        one = group.start("a")
        two = group.start("b")
        for replica in (one, two):
            replica.manager.add(ReadingFriends(group.truth))
        for number in range(20):
            metadata = ObjectMeta(name=f"f{number}", namespace="ns")
            await group.client.create(Friend(metadata=metadata, spec=WidgetSpec()))
        await group.wait_for_shares(3, 3)
        stores = [r.manager.cache.store(Friend).objects for r in (one, two)]
        await eventually(lambda: [len(objects) for objects in stores] == [20, 20])


class ReadingFriends(Controller[Friend]):
    caches_all_shards = True

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    async def reconcile(self, friend: Friend) -> None:
        self.truth.handled.setdefault(friend.metadata.uid, []).append("friend")


def test_number_of_shards_is_checked() -> None:
    for shards in (0, 65):
        with pytest.raises(ConfigError, match="it must be from 1 to 64"):
            Manager(FAKE_CONNECTION, Options(shards=shards), transport=FakeApi())
