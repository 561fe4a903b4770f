"""A reconcile that misbehaves affects its own key only; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubewright.controller import Controller, controller
from kubewright.errors import Retry
from kubewright.kind import Key, Status
from kubewright.manager import Options
from kubewright.outcome import Done, Waiting
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, double


@pytest.mark.parametrize("value", [42, "done", {"requeue": True}])
async def test_wrong_return_value_is_reported(api: ApiHarness, value: Any) -> None:
    async def return_value(widget: Widget) -> Any:
        return value if widget.metadata.name == "a" else None

    async with run_manager(api, controller(Widget, return_value)):
        await api.create_widget("a")
        await api.create_widget("b")
        assert "return None, Done(...) or Waiting(...)" in (await api.wait_for_ready("a")).message
        assert (await api.wait_for_ready("b")).status == "True"


async def test_status_of_another_type_is_reported(api: ApiHarness) -> None:
    async def set_status(widget: Widget) -> None:
        widget.status = Status()  # type: ignore[assignment]

    async with run_manager(api, controller(Widget, set_status)):
        await api.create_widget()
        assert "not a WidgetStatus" in (await api.wait_for_ready()).message


async def test_hanging_cancelled_or_exiting_reconcile_does_not_affect_other_objects(
    api: ApiHarness,
) -> None:
    async def misbehave(widget: Widget) -> None:
        match widget.metadata.name:
            case "hangs":
                await asyncio.Event().wait()
            case "cancels":
                raise asyncio.CancelledError
            case "exits":
                raise SystemExit(3)
        await double(widget)

    async with run_manager(
        api, controller(Widget, misbehave, timeout_seconds=0.2, max_concurrent_reconciles=1)
    ):
        for name in ("hangs", "cancels", "exits", "good"):
            await api.create_widget(name, size=2)
        assert (await api.wait_for_ready("good")).status == "True"
        assert (await api.wait_for_ready("hangs")).reason == "TimedOut"
        assert "CancelledError" in (await api.wait_for_ready("cancels")).message
        assert "SystemExit" in (await api.wait_for_ready("exits")).message


async def test_reconcile_that_ignores_its_cancellation_is_replaced_by_another_worker(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.engine._CANCEL_GRACE_SECONDS", 0.1)
    release = asyncio.Event()
    started_names: list[str] = []

    async def stubborn(widget: Widget) -> None:
        started_names.append(widget.metadata.name)
        while widget.metadata.name == "a" and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with run_manager(
        api, controller(Widget, stubborn, timeout_seconds=0.1, max_concurrent_reconciles=1)
    ):
        await api.create_widget("a")
        await eventually(lambda: started_names)
        await api.create_widget("b")
        assert (await api.wait_for_ready("b")).status == "True"
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 1}})
        await api.create_widget("c")
        await api.wait_for_ready("c")
        assert started_names.count("a") == 1
        release.set()
        await eventually(lambda: started_names.count("a") == 2)


class CatchesCancellation(Controller[Widget]):
    """Its reconcile and its cleanup end in another way when they are cancelled."""

    finalizer = "test.example.com/cleanup"

    def __init__(self, ending: str) -> None:
        self.ending, self.started = ending, asyncio.Event()

    async def reconcile(self, widget: Widget) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            widget.status.doubled = 1
            if self.ending == "raises":
                raise RuntimeError("interrupted") from None

    async def finalize(self, widget: Widget) -> None:
        await self.reconcile(widget)


@pytest.mark.parametrize("ending", ["returns", "raises"])
@pytest.mark.parametrize("deleting", [False, True])
async def test_reconcile_that_catches_its_cancellation_by_stop_writes_nothing(
    api: ApiHarness, ending: str, deleting: bool
) -> None:
    widget = await api.create_widget()
    finalizers = {"metadata": {"finalizers": [CatchesCancellation.finalizer]}}
    await api.client.patch(Widget, widget.key, finalizers)
    if deleting:
        await api.client.delete(Widget, widget.key)
    before = await api.get_widget()
    controller = CatchesCancellation(ending)
    options = Options(
        metrics_bind_address="0", watch_namespaces=(api.namespace,), graceful_shutdown_seconds=0.2
    )
    async with run_manager(api, controller, options=options):
        await asyncio.wait_for(controller.started.wait(), 30)
    after = await api.get_widget()
    assert after.metadata.resourceVersion == before.metadata.resourceVersion
    assert after.metadata.finalizers == [CatchesCancellation.finalizer]


@pytest.mark.parametrize("delay", ["soon", float("nan"), float("inf"), -1, True])
async def test_invalid_delay_is_reported_for_its_own_key_only(api: ApiHarness, delay: Any) -> None:
    async def return_delay(widget: Widget) -> Done | Waiting | None:
        match widget.metadata.name:
            case "returns":
                return Done(requeue_after_seconds=delay)
            case "waits":
                return Waiting("Waiting", "later", requeue_after_seconds=delay)
            case "raises":
                raise Retry("Later", "later", requeue_after_seconds=delay)
        return None

    async with run_manager(api, controller(Widget, return_delay, max_concurrent_reconciles=1)):
        for name in ("returns", "waits", "raises", "good"):
            await api.create_widget(name)
        assert (await api.wait_for_ready("good")).status == "True"
        for name in ("returns", "waits", "raises"):
            assert "number of seconds" in (await api.wait_for_ready(name, reason="Error")).message


async def test_reconcile_that_cancels_its_own_task_does_not_end_its_worker(api: ApiHarness) -> None:
    async def cancel_itself(widget: Widget) -> None:
        task = asyncio.current_task()
        if widget.metadata.name in ("now", "later") and task is not None:
            task.cancel()
            if widget.metadata.name == "now":
                await asyncio.sleep(0)

    async with run_manager(api, controller(Widget, cancel_itself, max_concurrent_reconciles=1)):
        for name in ("now", "later", "good"):
            await api.create_widget(name)
        assert (await api.wait_for_ready("good")).status == "True"
        assert "CancelledError" in (await api.wait_for_ready("now")).message
        await api.create_widget("another")
        await api.wait_for_ready("another")


async def test_failed_task_group_leaves_no_cancellation_on_the_worker(
    api: ApiHarness,
) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError

    cancellations: list[int] = []

    async def grouped(widget: Widget) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancellations.append(task.cancelling())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
        except* ValueError:
            pass
        if widget.metadata.name == "late":
            raise TimeoutError("raised by user code")

    async with run_manager(api, controller(Widget, grouped, max_concurrent_reconciles=1)):
        await api.create_widget("late")
        assert "raised by user code" in (await api.wait_for_ready("late")).message
        for name in ("a", "b"):
            await api.create_widget(name)
            assert (await api.wait_for_ready(name)).status == "True"
    assert len(cancellations) >= 3
    assert not any(cancellations)


async def test_done_with_a_delay_keeps_the_finalizer(api: ApiHarness) -> None:
    finished = asyncio.Event()

    async def clean(widget: Widget) -> Any:
        return None if finished.is_set() else Done("Emptying", requeue_after_seconds=0.02)

    async with run_manager(
        api, controller(Widget, double, finalize=clean, finalizer="kubewright.test/hold")
    ):
        await api.create_widget()
        await api.wait_for_ready()
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await api.wait_for_ready(reason="Emptying")
        widget = await api.client.get(Widget, Key(api.namespace, "a"))
        assert widget.metadata.finalizers == ["kubewright.test/hold"]
        finished.set()
        await eventually(lambda: is_gone(api))


async def is_gone(api: ApiHarness) -> bool:
    return not await api.client.list(Widget, api.namespace)
