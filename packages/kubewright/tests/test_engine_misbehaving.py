"""Reconciles that misbehave hurt their own key only; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubewright.controller import Done, controller
from kubewright.errors import Retry
from kubewright.kind import Status
from kubewright.meta import Key
from kubewright.testing import eventually

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Widget, double


@pytest.mark.parametrize("nonsense", [42, "done", {"requeue": True}])
async def test_a_reconcile_that_returns_nonsense_is_told_so(api: ApiHarness, nonsense: Any) -> None:
    async def odd(widget: Widget) -> Any:
        return nonsense if widget.metadata.name == "a" else None

    async with run_manager(api, controller(Widget, odd)):
        await api.create_widget("a")
        await api.create_widget("b")
        assert "return None or Done" in (await api.wait_for_ready("a")).message
        assert (await api.wait_for_ready("b")).status == "True"


async def test_a_status_of_another_type_is_refused_in_words(api: ApiHarness) -> None:
    async def odd(widget: Widget) -> None:
        widget.status = Status()  # type: ignore[assignment]

    async with run_manager(api, controller(Widget, odd)):
        await api.create_widget()
        assert "not WidgetStatus" in (await api.wait_for_ready()).message


async def test_a_reconcile_that_hangs_is_cancelled_or_stops_the_process_hurts_nobody_else(
    api: ApiHarness,
) -> None:
    async def awful(widget: Widget) -> None:
        match widget.metadata.name:
            case "hangs":
                await asyncio.Event().wait()
            case "cancels":
                raise asyncio.CancelledError
            case "exits":
                raise SystemExit(3)
        await double(widget)

    async with run_manager(api, controller(Widget, awful, timeout_seconds=0.2, concurrency=1)):
        for name in ("hangs", "cancels", "exits", "good"):
            await api.create_widget(name, size=2)
        assert (await api.wait_for_ready("good")).status == "True"
        assert (await api.wait_for_ready("hangs")).reason == "TimedOut"
        assert "CancelledError" in (await api.wait_for_ready("cancels")).message
        assert "SystemExit" in (await api.wait_for_ready("exits")).message


async def test_a_reconcile_that_will_not_even_stop_loses_its_worker_and_nobody_elses(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.engine.GRACE_SECONDS", 0.1)
    release = asyncio.Event()
    running_now: list[str] = []

    async def stubborn(widget: Widget) -> None:
        running_now.append(widget.metadata.name)
        while widget.metadata.name == "a" and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with run_manager(api, controller(Widget, stubborn, timeout_seconds=0.1, concurrency=1)):
        await api.create_widget("a")
        await eventually(lambda: running_now)
        await api.create_widget("b")
        assert (await api.wait_for_ready("b")).status == "True"
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 1}})
        await api.create_widget("c")
        await api.wait_for_ready("c")
        assert running_now.count("a") == 1
        release.set()
        await eventually(lambda: running_now.count("a") == 2)


@pytest.mark.parametrize("delay", ["soon", float("nan"), float("inf"), -1, True])
async def test_a_delay_that_is_none_hurts_its_own_key_only(api: ApiHarness, delay: Any) -> None:
    async def odd(widget: Widget) -> Done | None:
        match widget.metadata.name:
            case "returns":
                return Done(requeue_after_seconds=delay)
            case "raises":
                raise Retry("later", after=delay)
        return None

    async with run_manager(api, controller(Widget, odd, concurrency=1)):
        for name in ("returns", "raises", "good"):
            await api.create_widget(name)
        assert (await api.wait_for_ready("good")).status == "True"
        assert "number of seconds" in (await api.wait_for_ready("returns", reason="Error")).message
        assert "number of seconds" in (await api.wait_for_ready("raises", reason="Error")).message


async def test_a_reconcile_that_cancels_its_own_task_keeps_its_worker(api: ApiHarness) -> None:
    async def suicidal(widget: Widget) -> None:
        task = asyncio.current_task()
        if widget.metadata.name in ("now", "later") and task is not None:
            task.cancel()
            if widget.metadata.name == "now":
                await asyncio.sleep(0)

    async with run_manager(api, controller(Widget, suicidal, concurrency=1)):
        for name in ("now", "later", "good"):
            await api.create_widget(name)
        assert (await api.wait_for_ready("good")).status == "True"
        assert "CancelledError" in (await api.wait_for_ready("now")).message
        await api.create_widget("another")
        await api.wait_for_ready("another")


async def test_a_task_group_that_failed_in_a_reconcile_leaves_nothing_on_its_worker(
    api: ApiHarness,
) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError

    left: list[int] = []

    async def grouped(widget: Widget) -> None:
        task = asyncio.current_task()
        assert task is not None
        left.append(task.cancelling())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
        except* ValueError:
            pass
        if widget.metadata.name == "late":
            raise TimeoutError("by itself")

    async with run_manager(api, controller(Widget, grouped, concurrency=1)):
        await api.create_widget("late")
        assert "by itself" in (await api.wait_for_ready("late")).message
        for name in ("a", "b"):
            await api.create_widget(name)
            assert (await api.wait_for_ready(name)).status == "True"
    assert len(left) >= 3
    assert not any(left)
