"""Errors of calls and of the author, and objects that are gone; on the fake and on the real API
server."""

from __future__ import annotations

import asyncio

import pytest

from kubewright.builtin import ConfigMap
from kubewright.client import Client
from kubewright.controller import Controller, controller
from kubewright.errors import NotSynced, Retry
from kubewright.kind import Key, ObjectMeta
from kubewright.metrics import ControllerMetrics
from kubewright.outcome import Done
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Friend, Widget


async def test_name_that_is_taken_is_reported_and_retried(
    api: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    taken = ConfigMap(metadata=ObjectMeta(name="taken", namespace=api.namespace))
    await api.client.create(taken)

    class Creator(Controller[Widget]):
        async def reconcile(self, widget: Widget) -> None:
            await self.client.create(taken)

    async with run_manager(api, Creator()) as manager:
        await api.create_widget()
        condition = await api.wait_for_ready(reason="AlreadyExists")
        assert condition.status == "False"
        assert "taken" in condition.message
        errors = ControllerMetrics(manager.metrics, "widget").errors
        await eventually(lambda: errors.value >= 3)
        await api.client.delete(ConfigMap, taken.key)
        await api.wait_for_ready(reason="Reconciled", within=30)
    assert "Reconciler error" in caplog.text


async def test_retry_without_a_delay_has_back_off(api: ApiHarness) -> None:
    runs = 0

    async def fail(widget: Widget) -> None:
        nonlocal runs
        runs += 1
        if runs < 5:
            raise Retry("Warming", "It is not warm yet.")

    async with run_manager(api, controller(Widget, fail)) as manager:
        await api.create_widget()
        await api.wait_for_ready(reason="Reconciled")
        results = ControllerMetrics(manager.metrics, "widget").results
        assert results["requeue"].value == 4


async def test_mistake_in_the_code_is_terminal(api: ApiHarness) -> None:
    class Undeclared(Controller[Widget]):
        def __init__(self) -> None:
            self.runs = 0

        async def reconcile(self, widget: Widget) -> None:
            self.runs += 1
            widget.status.doubled = 3
            self.cache.all(Friend)

    undeclared = Undeclared()
    async with run_manager(api, undeclared) as manager:
        await api.create_widget()
        condition = await api.wait_for_ready(reason="ConfigError")
        assert "declare it with watches(Friend, ...) or reads(Friend)" in condition.message
        assert (await api.get_widget()).status.doubled == 3
        assert ControllerMetrics(manager.metrics, "widget").terminal_errors.value == 1
        await asyncio.sleep(0.1)
        assert undeclared.runs == 1


class DeletionController(Controller[Widget]):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures = 2

    async def reconcile(self, widget: Widget) -> None:
        self.calls.append(f"reconcile {widget.metadata.name}")

    async def reconcile_deleted(self, key: Key) -> Done:
        self.calls.append(f"deleted {key.name}")
        if self.failures:
            self.failures -= 1
            raise Retry("Busy", "It cannot be cleaned up yet.", requeue_after_seconds=0.01)
        return Done()


async def test_controller_is_called_for_an_object_that_is_gone(api: ApiHarness) -> None:
    deletion = DeletionController()
    async with run_manager(api, deletion) as manager:
        await api.create_widget()
        await api.wait_for_ready()
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await eventually(lambda: deletion.calls.count("deleted a") == 3)
        results = ControllerMetrics(manager.metrics, "widget").results
        await eventually(lambda: results["success"].value == 2)
        assert results["requeue_after"].value == 2
    assert deletion.calls[0] == "reconcile a"


async def test_failure_after_the_object_is_gone_is_logged_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    runs = 0

    async def noop(widget: Widget) -> None:
        """Reconciles nothing."""

    async def fail_once(key: Key) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("the cleanup failed")
        if runs == 2:
            raise NotSynced("not loaded", requeue_after_seconds=0.01)

    async with run_manager(api, controller(Widget, noop, reconcile_deleted=fail_once)):
        await api.create_widget()
        await api.wait_for_ready()
        await api.client.delete(Widget, Key("n", "a"))
        await eventually(lambda: runs == 3)
    assert "the cleanup failed" in caplog.text


async def test_every_timeout_of_the_engine_is_counted_and_no_other(api: ApiHarness) -> None:
    async def work(widget: Widget) -> None:
        if widget.metadata.name == "slow":
            await asyncio.sleep(60)
        if widget.metadata.name == "own":
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

    async with run_manager(api, controller(Widget, work, timeout_seconds=0.5)) as manager:
        timeouts = ControllerMetrics(manager.metrics, "widget").timeouts
        await api.create_widget("fast")
        await api.create_widget("own")
        await api.wait_for_ready("fast", reason="Reconciled")
        await api.wait_for_ready("own", reason="TimedOut")
        assert timeouts.value == 0
        await api.create_widget("slow")
        await api.wait_for_ready("slow", reason="TimedOut")
        await eventually(lambda: timeouts.value >= 2)
