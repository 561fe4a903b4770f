"""What triggers a reconcile, in which order, and that other tasks run in between; on the fake and
on the real API server."""

from __future__ import annotations

import asyncio
from collections import Counter

from kubewright.controller import Controller, controller
from kubewright.kind import Key, ObjectMeta
from kubewright.manager import Manager
from kubewright.metrics import ControllerMetrics
from kubewright.outcome import Done
from kubewright.predicate import created_or_deleted
from kubewright.rbac import manager_rules
from kubewright.source import Stream
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Friend, Widget, WidgetSpec, double


async def test_object_is_enqueued_by_each_of_two_sources_of_one_kind(api: ApiHarness) -> None:
    names: list[str] = []

    async def record(widget: Widget) -> None:
        names.append(widget.metadata.name)

    widget_controller = controller(Widget, record)
    widget_controller.watches(Friend, index_by=lambda widget: widget.spec.friend)
    widget_controller.watches(Friend, index_by=lambda widget: f"twin-of-{widget.spec.friend}")
    async with run_manager(api, widget_controller):
        await api.create_widget("a", friend="joe")
        await api.wait_for_ready("a")
        names.clear()
        await api.client.create(Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace)))
        await eventually(lambda: len(names) == 1)
        await api.client.create(
            Friend(metadata=ObjectMeta(name="twin-of-joe", namespace=api.namespace))
        )
        await eventually(lambda: len(names) == 2)


class FriendWatchingController(Controller[Widget]):
    def __init__(self, manager: Manager) -> None:
        self.cache = manager.cache
        self.reconciled_names: list[str] = []
        self.watches(
            Friend, index_by=lambda widget: widget.spec.friend, predicate=created_or_deleted
        )

    async def reconcile(self, widget: Widget) -> Done:
        self.reconciled_names.append(widget.metadata.name)
        friend = self.cache.get(Friend, Key(widget.metadata.namespace, widget.spec.friend))
        return Done("Found" if friend else "Alone")


async def test_other_kind_enqueues_exactly_the_objects_that_depend_on_it(api: ApiHarness) -> None:
    controllers: list[FriendWatchingController] = []

    def create_controller(manager: Manager) -> FriendWatchingController:
        controllers.append(FriendWatchingController(manager))
        return controllers[0]

    async with run_manager(api, create_controller):
        await api.create_widget("a", friend="joe")
        await api.create_widget("b", friend="joe")
        await api.create_widget("c", friend="bob")
        for name in "abc":
            await api.wait_for_ready(name, reason="Alone")
        controllers[0].reconciled_names.clear()
        joe = Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace))
        await api.client.create(joe)
        for name in "ab":
            await api.wait_for_ready(name, reason="Found")
        await api.client.delete(Friend, joe.key)
        for name in "ab":
            await api.wait_for_ready(name, reason="Alone")
        assert sorted(controllers[0].reconciled_names) == ["a", "a", "b", "b"]


async def test_stream_enqueues_by_index(api: ApiHarness) -> None:
    stream = Stream()
    names: list[str] = []

    async def record(widget: Widget) -> None:
        names.append(widget.metadata.name)

    widget_controller = controller(Widget, record)
    widget_controller.watches(stream, index_by=lambda widget: widget.spec.friend)
    async with run_manager(api, widget_controller):
        await api.create_widget("a", friend="esx-1")
        await api.create_widget("b", friend="esx-2")
        await api.wait_for_ready("a")
        await api.wait_for_ready("b")
        names.clear()
        stream.notify("esx-2")
        stream.notify("esx-3")
        await eventually(lambda: names)
        assert names == ["b"]
        stream.notify_all()
        await eventually(lambda: sorted(names) == ["a", "b", "b"])


async def test_reconciles_that_never_await_let_other_tasks_run(
    api: ApiHarness,
) -> None:
    # Watches, the lease and probes need the event loop, also while a backlog is worked off.
    count, workers = 60, 4
    stream, iteration, runs_by_iteration = Stream(), 0, Counter[int]()

    async def record(widget: Widget) -> None:
        runs_by_iteration[iteration] += 1

    async def tick() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    widget_controller = controller(Widget, record, max_concurrent_reconciles=workers)
    widget_controller.watches(stream, index_by=lambda widget: widget.spec.friend)
    for number in range(count):
        await api.create_widget(f"w{number:02}")
    async with run_manager(api, widget_controller) as manager:
        status_writes = ControllerMetrics(manager.metrics, "widget").status_writes
        await eventually(lambda: status_writes.value == count, within=30)
        runs_by_iteration.clear()
        ticking = asyncio.create_task(tick())
        stream.notify_all()
        await eventually(lambda: runs_by_iteration.total() == count)
        ticking.cancel()
        assert status_writes.value == count
    assert max(runs_by_iteration.values()) <= workers


async def test_timer_and_done_run_the_object_again(api: ApiHarness) -> None:
    names: list[str] = []

    async def record(widget: Widget) -> Done:
        names.append(widget.metadata.name)
        return Done(requeue_after_seconds=0.02 if widget.metadata.name == "a" else None)

    widget_controller = controller(Widget, record)
    widget_controller.reconcile_every(0.05)
    async with run_manager(api, widget_controller):
        await api.create_widget("a")
        await api.create_widget("b")
        await eventually(lambda: names.count("a") >= 4 and names.count("b") >= 3)


async def test_edit_by_a_user_overtakes_the_initial_list(api: ApiHarness) -> None:
    for number in range(30):
        await api.create_widget(f"w{number:02}")
    order: list[str] = []
    gate = asyncio.Event()

    async def slow(widget: Widget) -> None:
        order.append(f"{widget.metadata.name}:{widget.spec.size}")
        await gate.wait()

    async with run_manager(api, controller(Widget, slow, max_concurrent_reconciles=1)) as manager:
        await eventually(lambda: order)
        await api.client.patch(Widget, Key(api.namespace, "w29"), {"spec": {"size": 7}})
        await eventually(
            lambda: (
                [w.spec.size for w in manager.cache.all(Widget) if w.metadata.name == "w29"] == [7]
            )
        )
        gate.set()
        await eventually(lambda: len(order) >= 30)
        assert order[1] == "w29:7"


class FriendReadingController(Controller[Widget]):
    def __init__(self, manager: Manager) -> None:
        self.cache = manager.cache
        self.friend_counts: list[int] = []
        self.reads(Friend)

    async def reconcile(self, widget: Widget) -> None:
        self.friend_counts.append(len(self.cache.all(Friend)))


async def test_kind_that_is_read_is_in_the_cache_but_enqueues_no_object(api: ApiHarness) -> None:
    await api.client.create(Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace)))
    await api.create_widget()
    controllers: list[FriendReadingController] = []

    def create_controller(manager: Manager) -> FriendReadingController:
        controllers.append(FriendReadingController(manager))
        return controllers[0]

    async with run_manager(api, create_controller) as manager:
        await api.wait_for_ready()
        assert controllers[0].friend_counts == [1], "the first list is read before the first run"
        await api.client.create(Friend(metadata=ObjectMeta(name="bob", namespace=api.namespace)))
        await eventually(lambda: len(manager.cache.all(Friend)) == 2)
        await asyncio.sleep(0.1)
        assert len(controllers[0].friend_counts) == 1


class IndexingController(Controller[Widget]):
    def __init__(self) -> None:
        self.names: list[str] = []
        self.indexes(Friend, size=lambda friend: str(friend.spec.size))

    async def reconcile(self, widget: Widget) -> None:
        size = str(widget.spec.size)
        self.names = [obj.metadata.name for obj in self.cache.by_index(Friend, "size", size)]


async def test_kind_that_is_read_has_the_declared_index(api: ApiHarness) -> None:
    for name, size in (("joe", 1), ("bob", 2)):
        metadata = ObjectMeta(name=name, namespace=api.namespace)
        await api.client.create(Friend(metadata=metadata, spec=WidgetSpec(size=size)))
    await api.create_widget(size=2)
    indexing = IndexingController()
    async with run_manager(api, indexing):
        await eventually(lambda: indexing.names == ["bob"])


def test_role_of_a_controller_may_list_and_watch_the_kinds_that_it_reads() -> None:
    reading = controller(Widget, double)
    reading.reads(Friend)
    rules = {rule["resources"][0]: rule["verbs"] for rule in manager_rules([reading])}
    assert rules["friends"] == ["list", "watch"]
