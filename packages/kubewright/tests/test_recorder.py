"""Events are counted, rate limited, and never block a reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubewright.builtin import Event
from kubewright.client import Client
from kubewright.errors import ServerError
from kubewright.kind import ObjectMeta
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.recorder import BURST, MAX_QUEUE_LENGTH, MAX_SEPARATE_EVENTS, EventRecorder
from kubewright.testing.fake import FakeApi

from .support.widget_kind import Widget

WIDGET = Widget(metadata=ObjectMeta(name="a", namespace="n", uid="u-1"))


class RecorderHarness:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.now = 0.0
        self.metrics = Metrics()
        self.recorder = EventRecorder(
            Client(self.api),
            self.metrics,
            Log("test"),
            component="m",
            instance="i",
            clock=lambda: self.now,
        )

    def record_event(self, reason: str, message: str = "message") -> None:
        self.recorder.event(WIDGET, "Warning", reason, message)

    async def flush_and_list(self) -> list[Event]:
        await self.recorder.flush()
        return await Client(self.api).list(Event, "n")

    @asynccontextmanager
    async def run_recorder(self) -> AsyncIterator[RecorderHarness]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_event_has_source_object_reason_and_message() -> None:
    async with RecorderHarness().run_recorder() as harness:
        harness.record_event("Broken", "the reason")
        (event,) = await harness.flush_and_list()
    assert (event.type, event.reason, event.message, event.count) == (
        "Warning",
        "Broken",
        "the reason",
        1,
    )
    assert (event.involvedObject.kind, event.involvedObject.uid) == ("Widget", "u-1")
    assert event.source.component == "m"


async def test_equal_event_raises_the_count_and_an_expired_one_is_created_again() -> None:
    async with RecorderHarness().run_recorder() as harness:
        for _ in range(3):
            harness.record_event("Broken")
        (event,) = await harness.flush_and_list()
        assert event.count == 3
        await Client(harness.api).delete(Event, event.key)
        harness.record_event("Broken")
        (created,) = await harness.flush_and_list()
        assert (created.count, created.key == event.key) == (1, False)
        harness.now += 3600
        harness.record_event("Broken")
        assert len(await harness.flush_and_list()) == 2


async def test_repeated_event_is_counted_after_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubewright.recorder._MAX_LRU_CACHE_ENTRIES", 2)
    async with RecorderHarness().run_recorder() as harness:
        for reason in ("Broken", "Other", "Broken", "Third", "Broken"):
            harness.record_event(reason)
        counts = {event.reason: event.count for event in await harness.flush_and_list()}
    assert counts == {"Broken": 3, "Other": 1, "Third": 1}


async def test_two_processes_write_one_event_about_a_version_of_an_object() -> None:
    old_leader, new_leader = RecorderHarness(), RecorderHarness()
    new_leader.recorder = EventRecorder(
        Client(old_leader.api), new_leader.metrics, Log("test"), component="m", instance="j"
    )
    versions = [
        Widget(metadata=ObjectMeta(name="a", namespace="n", uid="u-1", resourceVersion=version))
        for version in ("1", "2")
    ]
    async with old_leader.run_recorder(), new_leader.run_recorder():
        for harness, version in ((old_leader, 0), (new_leader, 0), (new_leader, 1)):
            harness.recorder.event(
                versions[version], "Normal", "Ready", f"VM {version}", once_per_version=True
            )
            await harness.recorder.flush()
        events = await old_leader.flush_and_list()
    assert sorted((event.message, event.count, event.reportingInstance) for event in events) == [
        ("VM 0", 1, "i"),
        ("VM 1", 1, "j"),
    ]
    assert new_leader.metrics.events_dropped.value == 0


async def test_events_of_one_object_are_rate_limited() -> None:
    async with RecorderHarness().run_recorder() as harness:
        for number in range(BURST + 10):
            harness.record_event(f"Reason{number}")
        assert len(await harness.flush_and_list()) == BURST
        assert harness.metrics.events_dropped.value == 10
        harness.now += 300
        harness.record_event("Later")
        assert len(await harness.flush_and_list()) == BURST + 1


async def test_similar_events_are_combined_as_in_client_go() -> None:
    async with RecorderHarness().run_recorder() as harness:
        for number in range(50):
            harness.record_event("Cloned", f"VM {number}")
        events = await harness.flush_and_list()
        messages = {event.message: event.count for event in events}
        assert len(messages) == MAX_SEPARATE_EVENTS + 1
        assert [messages.pop(f"VM {number}") for number in range(9)] == [1] * 9
        assert messages == {"(combined from similar events): VM 49": 41}
        # Another reason is not combined with these, and none was dropped.
        harness.record_event("Broken")
        assert len(await harness.flush_and_list()) == MAX_SEPARATE_EVENTS + 2
        assert harness.metrics.events_dropped.value == 0
        # After ten minutes, each is written again.
        harness.now += 600
        harness.record_event("Cloned", "VM 50")
        assert "VM 50" in {event.message for event in await harness.flush_and_list()}


async def test_a_similar_event_never_replaces_the_message_of_a_separate_one() -> None:
    async with RecorderHarness().run_recorder() as harness:
        for number in range(MAX_SEPARATE_EVENTS):
            harness.record_event("Cloned", f"VM {number}")
        separate = {event.metadata.name: event for event in await harness.flush_and_list()}
        # The tenth is combined from the start, so no Event is rewritten into another one.
        for number in (9, 10):
            harness.record_event("Cloned", f"VM {number}")
            events = {event.metadata.name: event for event in await harness.flush_and_list()}
            assert {name: events.pop(name).message for name in separate} == {
                name: event.message for name, event in separate.items()
            }
            (combined,) = events.values()
            assert (combined.message, combined.count) == (
                f"(combined from similar events): VM {number}",
                number - 8,
            )
        # A repetition of a separate one counts there, of a combined one in the combined Event.
        harness.record_event("Cloned", "VM 0")
        harness.record_event("Cloned", "VM 9")
        counts = {event.message: event.count for event in await harness.flush_and_list()}
    assert counts["VM 0"] == 2
    assert counts["(combined from similar events): VM 9"] == 3


async def test_a_combined_event_that_the_server_removed_is_written_again() -> None:
    async with RecorderHarness().run_recorder() as harness:
        for number in range(MAX_SEPARATE_EVENTS + 2):
            harness.record_event("Cloned", f"VM {number}")
        for event in await harness.flush_and_list():
            await Client(harness.api).delete(Event, event.key)
        for number in range(100, 102):
            harness.record_event("Cloned", f"VM {number}")
        events = await harness.flush_and_list()
    assert {event.message: event.count for event in events} == {
        "(combined from similar events): VM 101": 2
    }


async def test_without_a_token_an_event_is_combined_with_similar_ones() -> None:
    async with RecorderHarness().run_recorder() as harness:
        harness.record_event("Cloned", "VM 0")
        for number in range(BURST):
            harness.record_event(f"Reason{number}")
        for number in (1, 2):
            harness.record_event("Cloned", f"VM {number}")
        events = await harness.flush_and_list()
    assert len(events) == BURST + 1
    assert {event.message: event.count for event in events if event.reason == "Cloned"} == {
        "VM 0": 1,
        "(combined from similar events): VM 2": 2,
    }
    assert harness.metrics.events_dropped.value == 1


async def test_full_queue_and_failing_server_block_no_caller() -> None:
    harness = RecorderHarness()
    for _ in range(MAX_QUEUE_LENGTH + 5):
        harness.record_event("Flood")
    assert harness.metrics.events_dropped.value == 5
    other = RecorderHarness()
    other.api.fail_next("POST", "events", ServerError("no"))
    async with other.run_recorder():
        other.record_event("Lost")
        other.record_event("Kept")
        assert [event.reason for event in await other.flush_and_list()] == ["Kept"]
    assert other.metrics.events_dropped.value == 1
