"""What follows from each way to end a reconcile; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubewright.client import Client
from kubewright.condition import Condition
from kubewright.controller import Controller, controller
from kubewright.errors import (
    ApiError,
    ConfigError,
    KindMissing,
    NotFound,
    NotLeader,
    NotSynced,
    Retry,
    Terminal,
)
from kubewright.kind import Key
from kubewright.log import Log
from kubewright.metrics import ControllerMetrics
from kubewright.outcome import Done, Waiting
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, WidgetSpec, WidgetStatus, double


async def test_status_is_written_once_with_condition_and_generation(api: ApiHarness) -> None:
    await api.create_widget(size=4)
    async with run_manager(api, controller(Widget, double)) as manager:
        condition = await api.wait_for_ready()
        widget = await api.get_widget()
        assert (widget.status.doubled, widget.status.observedGeneration) == (8, 1)
        assert (condition.status, condition.reason, condition.observedGeneration) == (
            "True",
            "Reconciled",
            1,
        )
        await api.client.patch(Widget, widget.key, {"spec": {"size": 5}})
        await eventually(lambda: is_doubled(api, 10))
        assert (await api.get_widget()).status.observedGeneration == 2
        assert ControllerMetrics(manager.metrics, "widget").status_writes.value == 2


async def is_doubled(api: ApiHarness, value: int, name: str = "a") -> bool:
    return (await api.get_widget(name)).status.doubled == value


async def test_nothing_is_written_when_nothing_changed(api: ApiHarness) -> None:
    await api.create_widget(size=4)
    async with run_manager(api, controller(Widget, double)):
        await api.wait_for_ready()
    before = (await api.get_widget()).metadata.resourceVersion
    runs: list[str] = []

    async def double_again(widget: Widget) -> None:
        await double(widget)
        runs.append(widget.metadata.name)

    async with run_manager(api, controller(Widget, double_again)):
        await eventually(lambda: runs)
    assert (await api.get_widget()).metadata.resourceVersion == before


async def test_lines_of_a_reconcile_name_its_object(
    api: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("a", "b"):
        await api.create_widget(name)

    async def greet(widget: Widget) -> None:
        Log("helper").info("async")
        await asyncio.to_thread(Log("helper").info, "in a thread")

    async with run_manager(api, controller(Widget, greet)):
        await api.wait_for_ready("a")
        await api.wait_for_ready("b")
    names = {
        (record.message, record.fields["name"])  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == "helper"
    }
    messages = ("async", "in a thread")
    assert names == {(message, name) for message in messages for name in ("a", "b")}


async def test_reconcile_that_raises_is_retried_with_back_off_and_recovers(api: ApiHarness) -> None:
    attempts = 0

    async def flaky(widget: Widget) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise ValueError("the moon is full, token=abcdefghijkl")
        await double(widget)

    async with run_manager(api, controller(Widget, flaky)):
        await api.create_widget(size=1)
        condition = await api.wait_for_ready(reason="Reconciled")
        assert condition.status == "True"
        assert attempts == 4
        assert set(await eventually(lambda: list_two_events(api)) or ()) == {
            ("Warning", "Error"),
            ("Normal", "Reconciled"),
        }


async def list_two_events(api: ApiHarness) -> list[tuple[str, str]] | None:
    events = await api.list_events()
    return events if len(events) >= 2 else None


async def test_failure_keeps_the_old_status_and_redacts_secrets(api: ApiHarness) -> None:
    broken = asyncio.Event()

    async def work(widget: Widget) -> None:
        if broken.is_set():
            raise ValueError("password=hunter2hunter2 refused")
        await double(widget)

    async with run_manager(api, controller(Widget, work)):
        await api.create_widget(size=3)
        await api.wait_for_ready(reason="Reconciled")
        broken.set()
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 9}})
        condition = await api.wait_for_ready(reason="Error")
        widget = await api.get_widget()
        assert widget.status.doubled == 6
        assert "hunter2" not in condition.message
        assert condition.observedGeneration == 2


async def test_terminal_clears_the_status_and_waits_for_a_change(api: ApiHarness) -> None:
    runs = 0

    async def strict(widget: Widget) -> None:
        nonlocal runs
        runs += 1
        if widget.spec.size > 10:
            raise Terminal("TooLarge", "a widget is at most 10; make it smaller")
        await double(widget)

    async with run_manager(api, controller(Widget, strict)):
        await api.create_widget(size=3)
        await api.wait_for_ready(reason="Reconciled")
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 11}})
        condition = await api.wait_for_ready(reason="TooLarge")
        assert (condition.status, condition.message) == (
            "False",
            "a widget is at most 10; make it smaller",
        )
        assert (await api.get_widget()).status.doubled is None
        runs_before = runs
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await api.wait_for_ready(reason="Reconciled")
        assert runs == runs_before + 1


async def test_terminal_with_keep_status_writes_what_the_reconcile_has_set(api: ApiHarness) -> None:
    async def fail_with_status(widget: Widget) -> None:
        widget.status = WidgetStatus(doubled=7)
        raise Terminal("Half", "only half is known", keep_status=widget.metadata.name == "kept")

    async with run_manager(api, controller(Widget, fail_with_status)):
        for name, doubled in (("kept", 7), ("cleared", None)):
            await api.create_widget(name, size=3)
            await api.wait_for_ready(name, reason="Half")
            assert (await api.get_widget(name)).status.doubled == doubled


async def test_waiting_is_not_ready_without_an_event_and_runs_again_after_its_delay(
    api: ApiHarness,
) -> None:
    runs = 0

    async def wait_once(widget: Widget) -> Done | Waiting:
        nonlocal runs
        runs += 1
        if runs == 1:
            return Waiting("Cloning", "Cloning 1 of 1.", requeue_after_seconds=0.05)
        return Done()

    async with run_manager(api, controller(Widget, wait_once)) as manager:
        await api.create_widget()
        await eventually(lambda: runs == 2)
        await api.wait_for_ready(reason="Reconciled")
        metrics = ControllerMetrics(manager.metrics, "widget")
        assert metrics.results["requeue_after"].value == 1
        assert metrics.errors.value == 0
    assert not [event for event in await api.list_events() if event[0] == "Warning"]


async def test_waiting_without_a_delay_is_enqueued_by_a_change_only(api: ApiHarness) -> None:
    runs = 0

    async def wait(widget: Widget) -> Waiting:
        nonlocal runs
        runs += 1
        return Waiting("Waiting", f"Size {widget.spec.size} is too small.")

    async with run_manager(api, controller(Widget, wait)):
        await api.create_widget(size=1)
        condition = await api.wait_for_ready(reason="Waiting")
        assert (condition.status, condition.message) == ("False", "Size 1 is too small.")
        await asyncio.sleep(0.2)
        assert runs == 1
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await eventually(lambda: runs == 2)


async def test_waiting_with_write_status_first_stores_the_record_before_the_next_run(
    api: ApiHarness,
) -> None:
    stored: list[int | None] = []

    async def record_then_act(widget: Widget) -> Done | Waiting:
        stored.append(widget.status.doubled)
        if widget.status.doubled is None:
            widget.status = WidgetStatus(doubled=1)
            return Waiting(
                "Recording",
                "Recorded the next step.",
                requeue_after_seconds=60,
                write_status_first=True,
            )
        return Done()

    async with run_manager(api, controller(Widget, record_then_act)):
        await api.create_widget()
        await api.wait_for_ready(reason="Reconciled")
    assert stored == [None, 1]


async def test_retry_runs_again_after_its_delay(api: ApiHarness) -> None:
    tries = 0

    async def fail_once(widget: Widget) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Retry("Warming", "not yet", requeue_after_seconds=0.05)
        await double(widget)

    async with run_manager(api, controller(Widget, fail_once)):
        await api.create_widget(size=1)
        await api.wait_for_ready(reason="Reconciled")
    assert tries == 2


async def test_not_synced_leaves_the_status_as_it_is(api: ApiHarness) -> None:
    loaded = True
    loaded_in_runs: list[bool] = []

    async def when_loaded(widget: Widget) -> None:
        loaded_in_runs.append(loaded)
        if not loaded:
            raise NotSynced("the inventory is loading", requeue_after_seconds=0.02)
        await double(widget)

    async with run_manager(api, controller(Widget, when_loaded)):
        await api.create_widget(size=4)
        await api.wait_for_ready(reason="Reconciled")
        before = await api.get_widget("a")
        loaded = False
        await api.client.patch(Widget, before.key, {"metadata": {"labels": {"touched": "yes"}}})
        await eventually(lambda: loaded_in_runs.count(False) >= 3)
        now = await api.client.get(Widget, before.key)
        assert now.status == before.status
        loaded = True
        await eventually(lambda: loaded_in_runs[-1])


async def test_write_without_the_lease_is_repeated_when_the_lease_is_back() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    fake.fail_next("PUT", "/status", NotLeader("not sure"), times=3)
    async with run_manager(api, controller(Widget, double)):
        await api.create_widget(size=2)
        await api.wait_for_ready(reason="Reconciled")


async def test_slow_status_writes_do_not_start_more_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubewright.engine._CANCEL_GRACE_SECONDS", 0.05)
    busy = most = 0

    class SlowApi(FakeApi):
        async def send(self, request: Request) -> bytes:
            nonlocal busy, most
            if request.method != "PUT":
                return await super().send(request)
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.4)
            busy -= 1
            return await super().send(request)

    fake = SlowApi()
    api = ApiHarness(fake, Client(fake), "n")
    async with run_manager(
        api, controller(Widget, double, timeout_seconds=0.05, max_concurrent_reconciles=1)
    ):
        for name in "abc":
            await api.create_widget(name, size=1)
        await api.wait_for_ready("c")
    assert most == 1


async def test_conditions_and_fields_of_other_writers_survive(api: ApiHarness) -> None:
    await api.create_widget(size=1)
    key = Key(api.namespace, "a")
    foreign = Condition(
        type="Foreign", status="True", reason="Because", message="m", lastTransitionTime=None
    )
    entry = {
        "type": "Foreign",
        "status": "True",
        "reason": "Because",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await api.client.patch(Widget, key, {"status": {"conditions": [entry]}}, subresource="status")
    await api.client.patch(
        Widget, key, {"metadata": {"labels": {"x": "y"}, "annotations": {"owner": "another"}}}
    )
    async with run_manager(api, controller(Widget, double)):
        await api.wait_for_ready()
        widget = await api.get_widget()
        assert {c.type for c in widget.status.conditions} == {"Foreign", "Ready"}
        kept = widget.status.condition("Foreign")
        assert kept is not None
        assert (kept.reason, kept.message) == (foreign.reason, foreign.message)
        assert widget.metadata.labels == {"x": "y"}
        assert widget.metadata.annotations == {"owner": "another"}


async def test_finalizer_is_set_before_reconcile_and_removed_after_finalize(
    api: ApiHarness,
) -> None:
    calls: list[str] = []
    is_empty = asyncio.Event()

    async def work(widget: Widget) -> None:
        calls.append(f"reconcile with {widget.metadata.finalizers}")

    async def clean(widget: Widget) -> Waiting | None:
        calls.append("finalize")
        if is_empty.is_set():
            return None
        if calls.count("finalize") == 1:
            raise Retry("Blocked", "cannot empty it", requeue_after_seconds=0.02)
        return Waiting("Emptying", "Not empty yet.", requeue_after_seconds=0.02)

    async with run_manager(
        api, controller(Widget, work, finalize=clean, finalizer="kubewright.test/hold")
    ):
        await api.create_widget()
        await api.wait_for_ready()
        assert calls[0] == "reconcile with ['kubewright.test/hold']"
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await api.wait_for_ready(reason="Emptying")
        is_empty.set()
        await eventually(lambda: has_no_widgets(api))
    assert calls[-1] == "finalize"


@pytest.mark.parametrize(
    ("error", "expected_errors", "expected_names"),
    [(NotFound("it is gone"), 0, []), (KindMissing("so is its kind"), 1, ["a"])],
)
async def test_missing_kind_is_retried_but_not_a_deleted_object_when_its_finalizer_is_set(
    error: ApiError, expected_errors: int, expected_names: list[str]
) -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "here")
    fake.fail_next("PATCH", "widgets/a", error)
    names: list[str] = []

    async def record(widget: Widget) -> None:
        names.append(widget.metadata.name)

    async with run_manager(
        api, controller(Widget, record, finalize=record, finalizer="kubewright.test/hold")
    ) as manager:
        await api.create_widget()
        results = ControllerMetrics(manager.metrics, "widget").results
        await eventually(lambda: results["success"].value)
        assert (results["error"].value, names) == (expected_errors, expected_names)


async def test_status_write_without_the_crd_is_a_failure_and_is_retried() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "here")
    fake.fail_next("PUT", "widgets/a/status", KindMissing("its CRD is gone"))
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget(size=4)
        await api.wait_for_ready()
        results = ControllerMetrics(manager.metrics, "widget").results
        assert (results["error"].value, results["success"].value) == (1, 1)


async def has_no_widgets(api: ApiHarness) -> bool:
    return not await api.client.list(Widget, api.namespace)


def test_controller_without_a_kind_is_rejected() -> None:
    class Nameless(Controller):  # type: ignore[type-arg]
        pass

    with pytest.raises(ConfigError, match=r"Controller\[YourKind\]"):
        Nameless()


def test_reconcile_cannot_change_the_spec() -> None:
    with pytest.raises(AttributeError):
        WidgetSpec(size=1).size = 2
