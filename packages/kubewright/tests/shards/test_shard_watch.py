"""The objects of a changing set of shards, compared with what the API server stores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest

from kubewright.cache import Origin, Store
from kubewright.client import Client
from kubewright.errors import KindMissing, ServerError
from kubewright.kind import Key, ObjectMeta
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.shard_ranges import ShardScope, shard_of
from kubewright.shard_watch import ShardWatch
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from ..support.widget_kind import Widget, WidgetSpec

COUNT = 4
pytestmark = [
    pytest.mark.looptime,
    # A server without sharded list and watch ignores the selector.
    pytest.mark.parametrize("selects_shards", [True, False]),
    pytest.mark.parametrize("use_watch_list", [True, False]),
]


class WatchHarness:
    def __init__(self, *, selects_shards: bool, use_watch_list: bool) -> None:
        self.api = FakeApi()
        self.api.selects_shards = selects_shards
        self.client = Client(self.api)
        self.store: Store[Widget] = Store(Widget.definition, Log("test"))
        self.changes: list[tuple[Key, str, str, Origin]] = []
        self.store.changed.connect(self._on_change)
        self.deleted: set[str] = set()
        self.resurrected: set[str] = set()
        reflector = Reflector(
            Widget,
            self.store,
            self.client,
            Metrics(),
            Log("test"),
            use_watch_list=use_watch_list,
            clock=asyncio.get_running_loop().time,
        )
        self.watch = ShardWatch(reflector, self.client, "uid", COUNT, Log("test"))

    def _on_change(self, key: Key, old: Widget | None, new: Widget | None, origin: Origin) -> None:
        uid = (old or new).metadata.uid  # type: ignore[union-attr]
        if new is None and origin is not Origin.RELEASED:
            self.deleted.add(uid)
        elif new is not None and new.metadata.uid in self.deleted:
            self.resurrected.add(uid)
        self.changes.append((key, uid, "DELETED" if new is None else "PUT", origin))

    async def create(self, name: str, size: int = 0) -> Widget:
        return await self.client.create(
            Widget(metadata=ObjectMeta(name=name, namespace="a"), spec=WidgetSpec(size=size))
        )

    async def cover(self, *shards: int) -> None:
        self.watch.cover(frozenset(shards))
        await eventually(lambda: self.watch.covered == frozenset(shards), within=60)

    async def read_truth(self, *shards: int) -> dict[Key, str]:
        scope = ShardScope("uid", COUNT, frozenset(shards))
        return {
            widget.key: widget.metadata.resourceVersion
            for widget in await self.client.list(Widget)
            if scope.covers(widget.metadata)
        }

    def stored(self) -> dict[Key, str]:
        return {key: obj.metadata.resourceVersion for key, obj in self.store.objects.items()}

    async def check(self, *shards: int) -> None:
        async def is_equal() -> bool:
            assert self.stored() == await self.read_truth(*shards)
            return True

        await eventually(is_equal, within=30)


@pytest.fixture
async def harness(selects_shards: bool, use_watch_list: bool) -> AsyncIterator[WatchHarness]:
    harness = WatchHarness(selects_shards=selects_shards, use_watch_list=use_watch_list)
    async with running(harness.watch):
        yield harness


@asynccontextmanager
async def running(watch: ShardWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


async def test_only_covered_shards_are_stored_and_followed(harness: WatchHarness) -> None:
    for number in range(20):
        await harness.create(f"before-{number}")
    await harness.cover(1, 2)
    await harness.check(1, 2)
    for number in range(20):
        await harness.create(f"after-{number}")
    for number in range(0, 20, 3):
        await harness.client.delete(Widget, Key("a", f"before-{number}"))
    await harness.check(1, 2)


async def test_added_shard_is_listed_and_followed(harness: WatchHarness) -> None:
    for number in range(20):
        await harness.create(f"before-{number}")
    await harness.cover(0)
    await harness.check(0)
    await harness.cover(0, 3)
    await harness.check(0, 3)
    for number in range(20):
        await harness.client.patch(
            Widget, Key("a", f"before-{number}"), {"spec": {"size": number + 1}}
        )
    await harness.check(0, 3)


async def test_dropped_shard_is_released_not_deleted(harness: WatchHarness) -> None:
    for number in range(20):
        await harness.create(f"before-{number}")
    await harness.cover(0, 1, 2, 3)
    harness.changes.clear()
    await harness.cover(0)
    await harness.check(0)
    assert harness.changes
    assert {(action, origin) for _, _, action, origin in harness.changes} == {
        ("DELETED", Origin.RELEASED)
    }
    await harness.cover()
    assert not harness.store.objects


async def test_nothing_is_requested_while_no_shard_is_wanted(harness: WatchHarness) -> None:
    await harness.create("a")
    await asyncio.sleep(100)
    assert [request for request in harness.api.requests if request.method == "GET"] == []
    assert harness.watch.problem == ""
    assert harness.watch.is_listed


async def test_one_watch_serves_all_shards(harness: WatchHarness) -> None:
    await harness.cover(0, 2)
    await harness.cover(0, 2, 3)
    await asyncio.sleep(1)
    assert len(harness.api.watchers) == 1
    queries = [
        parse_qs(request.query) for request in harness.api.requests if "watch=1" in request.query
    ]
    assert queries[-1]["shardSelector"] == [ShardScope("uid", COUNT, frozenset({0, 2, 3})).selector]


async def test_response_to_a_write_of_another_shard_is_not_stored(harness: WatchHarness) -> None:
    await harness.cover(0)
    widgets = [await harness.create(f"w{number}") for number in range(12)]
    for widget in widgets:
        harness.store.apply_own_write(widget)
    await harness.check(0)


async def test_list_of_an_added_shard_is_retried(harness: WatchHarness) -> None:
    for number in range(20):
        await harness.create(f"before-{number}")
    await harness.cover(0)
    harness.api.fail_next("GET", "/widgets", ServerError("down"), times=4)
    await harness.cover(0, 1)
    await harness.check(0, 1)


async def test_missing_kind_is_a_problem_and_covered_later(harness: WatchHarness) -> None:
    harness.api.fail_next("GET", "/widgets", KindMissing("no such kind"), times=5)
    harness.watch.cover(frozenset({0}))
    await eventually(lambda: harness.watch.problem, within=30)
    assert not harness.watch.covered
    await eventually(lambda: harness.watch.covered == {0}, within=60)


async def test_shards_change_during_writes_without_a_lost_or_old_object(
    harness: WatchHarness,
) -> None:
    chance = random.Random(5866)

    async def write() -> None:
        for number in range(400):
            name = f"w{chance.randrange(40)}"
            key = Key("a", name)
            exists = key in {widget.key for widget in await harness.client.list(Widget)}
            if not exists:
                await harness.create(name, size=number)
            elif chance.random() < 0.4:
                await harness.client.delete(Widget, key)
            else:
                await harness.client.patch(Widget, key, {"spec": {"size": number}})
            await asyncio.sleep(chance.random() / 20)

    writing = asyncio.create_task(write())
    covered: set[int] = set()
    while not writing.done():
        covered ^= {chance.randrange(COUNT)}
        harness.watch.cover(frozenset(covered))
        await asyncio.sleep(chance.random())
    await writing
    await harness.cover(1, 2, 3)
    await harness.check(1, 2, 3)
    # A uid that was seen as deleted was never seen again.
    assert harness.deleted
    assert not harness.resurrected
    assert all(shard_of(obj.metadata, "uid", COUNT) != 0 for obj in harness.store.objects.values())
