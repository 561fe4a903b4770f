"""Never deaf: each way a watch can end, on the fake, in virtual time; the same on the real API server is in real/."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubewright.cache import Store, Via
from kubewright.client import Client
from kubewright.errors import (
    Forbidden,
    Gone,
    KindMissing,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unreachable,
    from_status,
)
from kubewright.log import Log
from kubewright.meta import Key, ObjectMeta
from kubewright.metrics import Metrics
from kubewright.reflector import LONGEST_PAUSE_SECONDS, Reflector
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from .kinds import Widget, WidgetSpec

pytestmark = pytest.mark.looptime


class Rig:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.client = Client(self.api)
        self.metrics = Metrics()
        self.store: Store[Widget] = Store(Widget.definition, Log("test"))
        self.heard: list[tuple[str, bool, Via]] = []
        self.store.listeners.append(
            lambda key, old, new, via: self.heard.append((key.name, new is None, via))
        )
        loop = asyncio.get_running_loop()
        self.reflector = Reflector(
            Widget, self.store, self.client, self.metrics, Log("test"), clock=loop.time
        )

    def add(self, name: str, size: int = 0) -> None:
        self.api.add(
            Widget(metadata=ObjectMeta(name=name, namespace="n"), spec=WidgetSpec(size=size))
        )

    def names(self) -> set[str]:
        return {key.name for key in self.store.objects}

    def lists(self) -> int:
        return sum("limit=" in request.query for request in self.api.requests)

    def watches(self) -> int:
        return sum("watch=1" in request.query for request in self.api.requests)


@asynccontextmanager
async def reflecting(*names: str) -> AsyncIterator[Rig]:
    rig = Rig()
    for name in names:
        rig.add(name)
    task = asyncio.create_task(rig.reflector.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_first_the_list_then_what_changes() -> None:
    async with reflecting("a", "b") as rig:
        await rig.reflector.synced.wait()
        assert rig.heard == [("a", False, Via.FIRST_LIST), ("b", False, Via.FIRST_LIST)]
        await eventually(rig.watches)
        rig.add("c")
        await rig.client.delete(Widget, Key("n", "a"))
        await eventually(lambda: rig.names() == {"b", "c"})
        assert rig.heard[2:] == [("c", False, Via.WATCH), ("a", True, Via.WATCH)]


async def test_a_watch_that_the_server_ends_goes_on_from_where_it_was() -> None:
    async with reflecting("a") as rig:
        await eventually(rig.watches)
        rig.api.close_watches()
        rig.add("b")
        await eventually(lambda: rig.names() == {"a", "b"})
        await eventually(lambda: rig.watches() >= 2)
        assert rig.lists() == 1


async def test_silence_connects_again_without_a_list() -> None:
    async with reflecting("a") as rig:
        await eventually(rig.watches)
        rig.api.fail_next("GET", "widgets", TimedOut("silent"))
        rig.api.close_watches()
        rig.add("b")
        await eventually(lambda: rig.names() == {"a", "b"}, within=60)
        assert rig.lists() == 1
        assert rig.metrics.watch_restarts.labels("widgets.kubewright.test", "silent").value == 1


async def test_410_lists_again_and_finds_what_was_deleted_meanwhile() -> None:
    async with reflecting("a", "b") as rig:
        await eventually(rig.watches)
        rig.api.fail_next("GET", "widgets", Unreachable("down"), times=3)
        rig.api.close_watches()
        await rig.client.delete(Widget, Key("n", "a"))
        rig.add("c")
        rig.api.compact()
        await eventually(lambda: rig.names() == {"b", "c"}, within=120)
        assert rig.lists() == 2
        assert ("a", True, Via.WATCH) in rig.heard


async def test_an_outage_backs_off_to_a_bound_and_ends_without_loss() -> None:
    async with reflecting("a") as rig:
        await eventually(rig.watches)
        before, told = len(rig.api.requests), list[bool]()
        rig.reflector.turned.append(lambda: told.append(bool(rig.reflector.problem)))
        rig.api.fail_next("GET", "widgets", Unreachable("down"), times=12)
        rig.api.close_watches()
        rig.add("b")
        started = asyncio.get_running_loop().time()
        await eventually(lambda: rig.reflector.problem)
        assert "trying again: down" in rig.reflector.problem
        await eventually(lambda: rig.names() == {"a", "b"}, within=600)
        took = asyncio.get_running_loop().time() - started
        assert len(rig.api.requests) - before == 13
        assert 40 < took < 12 * LONGEST_PAUSE_SECONDS * 1.2
        assert rig.reflector.problem == ""
        assert told == [True, False]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KindMissing("404 page not found"), "waiting for its CRD: kubectl apply -k config/crd"),
        (Forbidden('widgets is forbidden: User "x" cannot list'), "kubectl apply -k config/rbac"),
        (ServerError("etcd is unwell"), "trying again: etcd is unwell"),
    ],
)
async def test_what_keeps_us_from_listing_is_said_and_waited_for(
    error: Exception, words: str
) -> None:
    rig = Rig()
    rig.add("a")
    rig.api.fail_next("GET", "widgets", error, times=3)
    task = asyncio.create_task(rig.reflector.run())
    await eventually(lambda: words in rig.reflector.problem)
    assert not rig.reflector.synced.is_set()
    await eventually(rig.reflector.synced.is_set, within=60)
    assert rig.names() == {"a"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_retry_after_is_obeyed() -> None:
    rig = Rig()
    rig.api.fail_next("GET", "widgets", TooManyRequests("slow down", retry_after=33))
    task = asyncio.create_task(rig.reflector.run())
    started = asyncio.get_running_loop().time()
    await eventually(rig.reflector.synced.is_set, within=60)
    assert asyncio.get_running_loop().time() - started >= 33
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_object_that_does_not_decode_is_counted_and_stops_nobody() -> None:
    rig = Rig()
    rig.add("a")
    rig.api.create(
        Widget.definition.path("n"),
        {"metadata": {"name": "bad", "namespace": "n"}, "spec": {"size": "huge"}},
    )
    task = asyncio.create_task(rig.reflector.run())
    await eventually(rig.reflector.synced.is_set)
    await eventually(rig.watches)
    rig.add("z")
    await eventually(lambda: rig.names() == {"a", "bad", "z"})
    assert rig.metrics.undecodable_total.labels("widgets.kubewright.test").value == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_server_restored_from_a_backup_is_believed() -> None:
    async with reflecting("a", "b") as rig:
        await eventually(rig.watches)
        rig.api.objects.pop(f"{Widget.definition.path('n')}/b")
        rig.api.history.clear()
        rig.api.revision -= 500
        for stored in rig.api.objects.values():
            stored["metadata"]["resourceVersion"] = str(rig.api.revision)
        rig.api.oldest_revision = 10**9
        rig.api.close_watches()
        await eventually(lambda: rig.names() == {"a"}, within=60)
        rig.api.oldest_revision = 0
        rig.add("new")
        await eventually(lambda: rig.names() == {"a", "new"}, within=60)


async def test_the_age_of_a_watch_grows_while_it_is_silent() -> None:
    async with reflecting("a") as rig:
        await eventually(rig.watches)
        await asyncio.sleep(50)
        assert rig.reflector.age_seconds == pytest.approx(50, abs=1)
        rig.add("b")
        await eventually(lambda: rig.reflector.age_seconds < 1)


async def test_a_watch_that_goes_back_in_time_leads_to_a_new_list() -> None:
    async with reflecting("a") as rig:
        await eventually(rig.watches)
        rig.api.revision -= 500
        rig.add("b")
        await eventually(lambda: rig.names() == {"a", "b"}, within=60)
        assert rig.lists() >= 2


async def test_a_list_that_is_always_gone_is_not_a_hot_loop() -> None:
    rig = Rig()
    rig.api.fail_next("GET", "widgets", Gone("expired"), times=10**6)
    task = asyncio.create_task(rig.reflector.run())
    await asyncio.sleep(60)
    assert 5 < len(rig.api.requests) < 20
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("asked", ["soon", 86400, float("inf"), -5, None, {"a": 1}])
async def test_patience_is_bounded_whatever_the_server_asks(asked: object) -> None:
    rig = Rig()
    rig.add("a")
    body = {"kind": "Status", "message": "slow down", "details": {"retryAfterSeconds": asked}}
    rig.api.fail_next("GET", "widgets", from_status(429, body, doing="list"))
    task = asyncio.create_task(rig.reflector.run())
    await eventually(rig.reflector.synced.is_set, within=61)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
