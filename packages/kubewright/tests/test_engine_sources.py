"""What wakes an object, in which order, and who gets a turn meanwhile; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
from collections import Counter

from kubewright.controller import Controller, Done, controller
from kubewright.manager import Manager
from kubewright.meta import Key, ObjectMeta
from kubewright.source import Stream, created_or_deleted
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Friend, Widget


async def test_two_wakes_on_one_kind_both_count(api: ApiHarness) -> None:
    seen: list[str] = []

    async def note(widget: Widget) -> None:
        seen.append(widget.metadata.name)

    made = controller(Widget, note)
    made.wake_on(Friend, by=lambda widget: widget.spec.friend)
    made.wake_on(Friend, by=lambda widget: f"twin-of-{widget.spec.friend}")
    async with run_manager(api, made):
        await api.create_widget("a", friend="joe")
        await api.wait_for_ready("a")
        seen.clear()
        await api.client.create(Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace)))
        await eventually(lambda: len(seen) == 1)
        await api.client.create(
            Friend(metadata=ObjectMeta(name="twin-of-joe", namespace=api.namespace))
        )
        await eventually(lambda: len(seen) == 2)


class FriendWatchingController(Controller[Widget]):
    def __init__(self, manager: Manager) -> None:
        self.cache = manager.cache
        self.reconciled_names: list[str] = []
        self.wake_on(Friend, by=lambda widget: widget.spec.friend, when=created_or_deleted)

    async def reconcile(self, widget: Widget) -> Done:
        self.reconciled_names.append(widget.metadata.name)
        friend = self.cache.get(Friend, Key(widget.metadata.namespace, widget.spec.friend))
        return Done("Found" if friend else "Alone")


async def test_another_kind_wakes_exactly_the_objects_that_depend_on_it(api: ApiHarness) -> None:
    made: list[FriendWatchingController] = []

    def create_controller(manager: Manager) -> FriendWatchingController:
        made.append(FriendWatchingController(manager))
        return made[0]

    async with run_manager(api, create_controller):
        await api.create_widget("a", friend="joe")
        await api.create_widget("b", friend="joe")
        await api.create_widget("c", friend="bob")
        for name in "abc":
            await api.wait_for_ready(name, reason="Alone")
        made[0].reconciled_names.clear()
        joe = Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace))
        await api.client.create(joe)
        for name in "ab":
            await api.wait_for_ready(name, reason="Found")
        await api.client.delete(Friend, joe.key)
        for name in "ab":
            await api.wait_for_ready(name, reason="Alone")
        assert sorted(made[0].reconciled_names) == ["a", "a", "b", "b"]


async def test_an_outside_stream_wakes_by_index(api: ApiHarness) -> None:
    stream = Stream()
    seen: list[str] = []

    async def note(widget: Widget) -> None:
        seen.append(widget.metadata.name)

    made = controller(Widget, note)
    made.wake_on(stream, by=lambda widget: widget.spec.friend)
    async with run_manager(api, made):
        await api.create_widget("a", friend="esx-1")
        await api.create_widget("b", friend="esx-2")
        await api.wait_for_ready("a")
        await api.wait_for_ready("b")
        seen.clear()
        stream.publish("esx-2")
        stream.publish("esx-3")
        await eventually(lambda: seen)
        assert seen == ["b"]
        stream.publish_all()
        await eventually(lambda: sorted(seen) == ["a", "b", "b"])


async def test_reconciles_that_wait_for_nothing_leave_turns_to_everybody_else(
    api: ApiHarness,
) -> None:
    """A watch that brings an edit, the lease and probes all need the loop, also while a backlog of settled objects is gone through."""
    count, workers = 60, 4
    stream, turn, turns = Stream(), 0, Counter[int]()

    async def note(widget: Widget) -> None:
        turns[turn] += 1

    async def tick() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    made = controller(Widget, note, concurrency=workers)
    made.wake_on(stream, by=lambda widget: widget.spec.friend)
    for number in range(count):
        await api.create_widget(f"w{number:02}")
    async with run_manager(api, made) as manager:
        await eventually(
            lambda: manager.metrics.for_controller("widget").status_writes.value == count, within=30
        )
        turns.clear()
        ticking = asyncio.create_task(tick())
        stream.publish_all()
        await eventually(lambda: turns.total() == count)
        ticking.cancel()
        assert manager.metrics.for_controller("widget").status_writes.value == count
    assert max(turns.values()) <= workers


async def test_a_timer_and_done_look_again(api: ApiHarness) -> None:
    seen: list[str] = []

    async def note(widget: Widget) -> Done:
        seen.append(widget.metadata.name)
        return Done(requeue_after_seconds=0.02 if widget.metadata.name == "a" else None)

    made = controller(Widget, note)
    made.wake_every(0.05)
    async with run_manager(api, made):
        await api.create_widget("a")
        await api.create_widget("b")
        await eventually(lambda: seen.count("a") >= 4 and seen.count("b") >= 3)


async def test_the_initial_list_waits_behind_a_persons_edit(api: ApiHarness) -> None:
    for number in range(30):
        await api.create_widget(f"w{number:02}")
    order: list[str] = []
    gate = asyncio.Event()

    async def slow(widget: Widget) -> None:
        order.append(f"{widget.metadata.name}:{widget.spec.size}")
        await gate.wait()

    async with run_manager(api, controller(Widget, slow, concurrency=1)) as manager:
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
