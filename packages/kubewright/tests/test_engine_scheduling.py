"""When an object is reconciled: at the start, periodically, on request, debounced, in which
namespaces; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kubewright.builtin import ConfigMap, Namespace
from kubewright.client import Client
from kubewright.controller import Controller, controller
from kubewright.errors import ConfigError, Retry
from kubewright.kind import Key, ObjectMeta
from kubewright.manager import Options
from kubewright.outcome import Done
from kubewright.predicate import field_changed, labels_changed
from kubewright.source import Stream
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.workqueue import LOW_PRIORITY, Backoff, RateLimit, WorkQueue

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Friend, Widget, double


class CountingController(Controller[Widget]):
    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    async def reconcile(self, widget: Widget) -> None:
        self.runs[widget.metadata.name] += 1


async def create_friend(api: ApiHarness, name: str, namespace: str = "") -> None:
    metadata = ObjectMeta(name=name, namespace=namespace or api.namespace)
    await api.client.create(Friend(metadata=metadata))


async def create_namespace(api: ApiHarness) -> str:
    name = f"other-{uuid.uuid4().hex[:8]}"
    await api.client.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


@pytest.mark.parametrize("any_namespace", [False, True])
async def test_names_refer_to_the_namespace_of_the_object_unless_any_is_asked_for(
    api: ApiHarness, any_namespace: bool
) -> None:
    other = await create_namespace(api)
    counting = CountingController()
    counting.watches(
        Friend, index_by=lambda widget: widget.spec.friend, any_namespace=any_namespace
    )
    options = Options(metrics_bind_address="0", watch_namespaces=(api.namespace, other))
    async with run_manager(api, counting, options=options):
        await api.create_widget("a", friend="joe")
        await api.create_widget("b", friend="bob")
        await api.wait_for_ready("a")
        await api.wait_for_ready("b")
        await create_friend(api, "joe", other)
        await create_friend(api, "bob")
        await eventually(lambda: counting.runs["b"] == 2)
        assert counting.runs["a"] == (2 if any_namespace else 1)


async def test_key_refers_to_an_object_in_another_namespace(api: ApiHarness) -> None:
    other = await create_namespace(api)
    counting = CountingController()
    counting.watches(Friend, index_by=lambda widget: [Key(other, widget.spec.friend), "local"])
    options = Options(metrics_bind_address="0", watch_namespaces=(api.namespace, other))
    async with run_manager(api, counting, options=options):
        await api.create_widget("a", friend="joe")
        await api.wait_for_ready("a")
        await create_friend(api, "joe", other)
        await eventually(lambda: counting.runs["a"] == 2)
        await create_friend(api, "local")
        await eventually(lambda: counting.runs["a"] == 3)


async def test_function_maps_a_change_to_several_keys(api: ApiHarness) -> None:
    counting = CountingController()
    counting.watches(
        Friend, map_func=lambda friend: [Key(friend.metadata.namespace, n) for n in ("a", "b", "x")]
    )
    async with run_manager(api, counting):
        for name in "abc":
            await api.create_widget(name)
            await api.wait_for_ready(name)
        await create_friend(api, "joe")
        await eventually(lambda: counting.runs["a"] == counting.runs["b"] == 2)
        assert counting.runs == {"a": 2, "b": 2, "c": 1}


def has_label(old: Widget | None, new: Widget | None) -> bool:
    return new is None or "served" in new.metadata.labels


async def test_predicate_also_filters_the_start_and_the_resync(api: ApiHarness) -> None:
    await api.create_widget("ignored")
    await api.create_widget("served")
    labels = {"metadata": {"labels": {"served": ""}}}
    await api.client.patch(Widget, Key(api.namespace, "served"), labels)

    class Filtered(CountingController):
        predicate = has_label
        resync_seconds = 0.05

    filtered = Filtered()
    async with run_manager(api, filtered):
        await eventually(lambda: filtered.runs["served"] >= 3)
        assert filtered.runs["ignored"] == 0
        await api.client.patch(Widget, Key(api.namespace, "ignored"), labels)
        await eventually(lambda: filtered.runs["ignored"])


async def test_predicate_by_field_ignores_other_changes(api: ApiHarness) -> None:
    class BySize(CountingController):
        predicate = field_changed("spec.size")

    by_size = BySize()
    async with run_manager(api, by_size) as manager:
        await api.create_widget("a", size=1)
        await api.wait_for_ready("a")
        key = Key(api.namespace, "a")
        await api.client.patch(Widget, key, {"metadata": {"labels": {"x": "y"}}})
        await api.client.patch(Widget, key, {"spec": {"friend": "joe"}})
        await eventually(lambda: manager.cache.all(Widget)[0].spec.friend == "joe")
        assert by_size.runs["a"] == 1
        await api.client.patch(Widget, key, {"spec": {"size": 2}})
        await eventually(lambda: by_size.runs["a"] == 2)


async def test_object_is_reconciled_at_least_as_often_as_asked_for(api: ApiHarness) -> None:
    counting = CountingController()
    counting.reconcile_every(lambda widget: widget.spec.size / 1000 or None)
    async with run_manager(api, counting):
        await api.create_widget("often", size=20)
        await api.create_widget("never", size=0)
        await eventually(lambda: counting.runs["often"] >= 4)
        assert counting.runs["never"] == 1


async def test_function_of_reconcile_every_that_fails_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    counting = CountingController()
    counting.reconcile_every(lambda widget: 1 / widget.spec.size)
    async with run_manager(api, counting):
        await api.create_widget(size=0)
        await eventually(lambda: "the function of reconcile_every failed" in caplog.text)
        await api.wait_for_ready()


async def test_key_can_be_enqueued_from_outside_a_reconcile(api: ApiHarness) -> None:
    counting = CountingController()
    counting.enqueue(Key(api.namespace, "a"))
    async with run_manager(api, counting):
        await api.create_widget()
        await api.wait_for_ready()
        counting.enqueue(Key(api.namespace, "a"))
        await eventually(lambda: counting.runs["a"] == 2)
        counting.enqueue(Key(api.namespace, "a"), after_seconds=0.05)
        await eventually(lambda: counting.runs["a"] == 3)
        counting.enqueue(Key(api.namespace, "not there"))


async def test_changes_within_the_debounce_are_one_reconcile() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")

    class Debounced(CountingController):
        debounce_seconds = 0.4

    debounced = Debounced()
    async with run_manager(api, debounced) as manager:
        await api.create_widget(size=0)
        for size in range(1, 6):
            await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": size}})
        await eventually(lambda: manager.cache.all(Widget)[0].spec.size == 5)
        await api.wait_for_ready()
        assert debounced.runs["a"] == 1


@pytest.mark.looptime
async def test_back_off_is_that_of_the_controller() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    times: list[float] = []

    async def fail(widget: Widget) -> None:
        times.append(asyncio.get_running_loop().time())
        raise Retry("Later", "not yet")

    failing = controller(Widget, fail, backoff=Backoff(initial_seconds=1, max_seconds=3))
    async with run_manager(api, failing):
        await api.create_widget()
        await asyncio.sleep(30)
    waits = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert waits[:4] == [1, 2, 3, 3]


class FriendController(Controller[Friend]):
    """Sets the status of the Widget that has the name of a Friend."""

    async def reconcile(self, friend: Friend) -> None:
        await self.client.patch_status(Widget, friend.key, {"doubled": 7})


async def test_status_written_by_another_controller_of_the_process_enqueues_the_object(
    api: ApiHarness,
) -> None:
    counting = CountingController()
    async with run_manager(api, counting, FriendController()):
        await api.create_widget()
        await api.wait_for_ready()
        await create_friend(api, "a")
        await eventually(lambda: counting.runs["a"] == 2)


async def test_labels_are_a_predicate_of_a_watched_kind(api: ApiHarness) -> None:
    counting = CountingController()
    counting.watches(Friend, index_by=lambda widget: widget.spec.friend, predicate=labels_changed)
    async with run_manager(api, counting):
        await create_friend(api, "joe")
        await api.create_widget(friend="joe")
        await api.wait_for_ready()
        key = Key(api.namespace, "joe")
        before = counting.runs["a"]
        await api.client.patch(Friend, key, {"spec": {"size": 4}})
        await api.client.patch(Friend, key, {"metadata": {"labels": {"x": "y"}}})
        await eventually(lambda: counting.runs["a"] == before + 1)


@pytest.mark.looptime
async def test_back_off_grows_until_a_reconcile_succeeds() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    times: list[float] = []
    outcomes = [True, True, True, False, True, True]

    async def fail(widget: Widget) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) <= len(outcomes) and outcomes[len(times) - 1]:
            raise ValueError("not yet")

    failing = controller(Widget, fail, backoff=Backoff(initial_seconds=1, max_seconds=60))
    async with run_manager(api, failing):
        await api.create_widget()
        await asyncio.sleep(10)
        await api.client.patch(Widget, Key("n", "a"), {"spec": {"size": 1}})
        await asyncio.sleep(10)
    waits = [round(later - earlier) for earlier, later in pairwise(times)]
    assert [*waits[:3], *waits[4:6]] == [1, 2, 4, 1, 2]


@pytest.mark.parametrize(
    "error", [ValueError("broken"), Retry("Later", "not yet", requeue_after_seconds=60), None]
)
async def test_next_run_keeps_the_priority(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    priorities: list[int] = []
    add_after = WorkQueue.add_after

    def record(queue: WorkQueue[Key], key: Key, seconds: float, priority: int = 0) -> None:
        priorities.append(priority)
        add_after(queue, key, seconds, priority)

    monkeypatch.setattr(WorkQueue, "add_after", record)

    async def end(widget: Widget) -> Done:
        if error is not None:
            raise error
        return Done(requeue_after_seconds=60)

    await api.create_widget()
    async with run_manager(api, controller(Widget, end, backoff=Backoff(60, 60))):
        await eventually(lambda: priorities)
    # Objects that exist at the start have a low priority, so that a user's edit overtakes them.
    assert priorities == [LOW_PRIORITY]


@pytest.mark.parametrize("period", ["60", float("nan"), 0, -1])
async def test_wrong_period_stops_no_worker(
    api: ApiHarness, period: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class OneWorker(CountingController):
        max_concurrent_reconciles = 1

    counting = OneWorker()
    counting.reconcile_every(lambda widget: period)
    async with run_manager(api, counting):
        await api.create_widget("a")
        await eventually(lambda: "is not a positive, finite number of seconds" in caplog.text)
        await api.create_widget("b")
        await eventually(lambda: counting.runs["b"])
        assert (counting.runs["a"], counting.runs["b"]) == (1, 1)
    with pytest.raises(ConfigError, match="needs a positive number of seconds"):
        counting.reconcile_every(period)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(initial_seconds=0),
        lambda: Backoff(initial_seconds=2, max_seconds=1),
        lambda: RateLimit(per_second=0, burst=1),
        lambda: RateLimit(per_second=1, burst=0),
    ],
)
def test_limits_that_cannot_work_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


class FinalizingController(CountingController):
    finalizer = "kubewright.test/finalizing"

    def __init__(self) -> None:
        super().__init__()
        self.finalized: list[str] = []

    async def finalize(self, widget: Widget) -> None:
        self.finalized.append(widget.metadata.name)


def no_change(old: Widget | None, new: Widget | None) -> bool:
    return False


async def test_predicate_does_not_hide_a_deletion_from_the_finalizer(api: ApiHarness) -> None:
    class BySize(FinalizingController):
        predicate = field_changed("spec.size")

    by_size = BySize()
    async with run_manager(api, by_size):
        await api.create_widget("a")
        await api.wait_for_ready("a")
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await eventually(lambda: by_size.finalized == ["a"])

    class Nothing(FinalizingController):
        predicate = no_change

    # Deleted while no manager was running.
    metadata = ObjectMeta(
        namespace=api.namespace, name="b", finalizers=["kubewright.test/finalizing"]
    )
    await api.client.create(Widget(metadata=metadata))
    await api.client.delete(Widget, Key(api.namespace, "b"))
    nothing = Nothing()
    async with run_manager(api, nothing):
        await eventually(lambda: nothing.finalized == ["b"])


async def test_predicate_of_an_instance(api: ApiHarness) -> None:
    class Configured(CountingController):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, "predicate", has_label)  # noqa: B010 (a type checker refuses it)

    configured = Configured()
    async with run_manager(api, configured):
        await api.create_widget("ignored")
        metadata = ObjectMeta(namespace=api.namespace, name="served", labels={"served": ""})
        await api.client.create(Widget(metadata=metadata))
        await eventually(lambda: configured.runs["served"])
        assert configured.runs["ignored"] == 0


async def test_controller_that_deletes_its_own_object_finalizes_it(api: ApiHarness) -> None:
    """A ConfigMap has no generation, so only its content shows a change."""
    finalized: list[str] = []

    class OneShot(Controller[ConfigMap]):
        finalizer = "kubewright.test/one-shot"

        async def reconcile(self, obj: ConfigMap) -> None:
            if obj.metadata.name == "a":
                await self.client.delete(ConfigMap, obj.key)

        async def finalize(self, obj: ConfigMap) -> None:
            finalized.append(obj.metadata.name)

    metadata = ObjectMeta(namespace=api.namespace, name="a")
    await api.client.create(ConfigMap(metadata=metadata))
    async with run_manager(api, OneShot()):
        await eventually(lambda: finalized == ["a"])
        await eventually(lambda: is_empty(api))


async def is_empty(api: ApiHarness) -> bool:
    names = [obj.metadata.name for obj in await api.client.list(ConfigMap, api.namespace)]
    return "a" not in names


async def test_workers_start_when_a_stream_is_in_sync(api: ApiHarness) -> None:
    await api.create_widget(size=4)
    synced, sizes = asyncio.Event(), list[int]()

    class StreamController(Controller[Widget]):
        def __init__(self) -> None:
            self.watches(Stream(synced), index_by=lambda widget: widget.metadata.name)

        async def reconcile(self, widget: Widget) -> None:
            sizes.append(widget.spec.size)

    async with run_manager(api, StreamController()) as manager:
        key = (await api.get_widget()).key
        await api.client.patch(Widget, key, {"spec": {"size": 5}})

        def is_change_cached() -> bool:
            widget = manager.cache.get(Widget, key)
            return widget is not None and widget.spec.size == 5

        await eventually(is_change_cached)
        assert sizes == []
        synced.set()
        # Once, although the object was listed and then changed.
        await eventually(lambda: sizes)
        assert sizes == [5]


async def test_a_stream_that_never_syncs_delays_workers_for_a_limited_time(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.source._STREAM_SYNC_SECONDS", 0.01)
    await api.create_widget(size=4)

    class StreamController(Controller[Widget]):
        def __init__(self) -> None:
            self.watches(Stream(asyncio.Event()), index_by=lambda widget: widget.metadata.name)

        async def reconcile(self, widget: Widget) -> None:
            await double(widget)

    async with run_manager(api, StreamController()):
        await api.wait_for_ready()
