"""A reconcile that is a plain function runs in a thread; on the fake and on the real API server."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from kubewright.client import Client
from kubewright.controller import Controller, controller
from kubewright.errors import ConfigError, Retry
from kubewright.kind import Key, ObjectMeta
from kubewright.outcome import Done, Waiting
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.threads import ReconcileThreads

from .support.api_harness import ApiHarness, run_manager
from .support.widget_kind import Friend, Widget, double


class BlockingController(Controller[Widget]):
    finalizer = "kubewright.test/hold"
    max_concurrent_reconciles = 3

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.deleted: list[Key] = []
        self.running = self.most = 0
        self.lock = threading.Lock()

    def reconcile(self, widget: Widget) -> Done:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.threads.add(threading.current_thread().name)
        time.sleep(0.02)
        with self.lock:
            self.running -= 1
        widget.status.doubled = widget.spec.size * 2
        self.event(widget, "Normal", "Slept", "It slept.")
        return Done("Slept")

    def finalize(self, widget: Widget) -> Waiting | None:
        self.threads.add(threading.current_thread().name)
        return None

    def reconcile_deleted(self, key: Key) -> None:
        self.deleted.append(key)


async def test_plain_functions_run_in_threads_of_the_controller(api: ApiHarness) -> None:
    blocking = BlockingController()
    async with run_manager(api, blocking):
        for name in "abcdefgh":
            await api.create_widget(name, size=2)
        for name in "abcdefgh":
            await api.wait_for_ready(name, reason="Slept")
        assert (await api.get_widget("h")).status.doubled == 4
        await eventually(lambda: has_event(api, "a", ("Normal", "Slept")))
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await eventually(lambda: blocking.deleted == [Key(api.namespace, "a")])
    assert 1 <= blocking.most <= 3
    assert len(blocking.threads) <= 3
    assert all(name.startswith("reconcile-widget") for name in blocking.threads)


async def has_event(api: ApiHarness, name: str, event: tuple[str, str]) -> bool:
    return event in await api.list_events(name)


async def test_thread_waits_for_coroutines_in_the_event_loop(api: ApiHarness) -> None:
    class Reader(Controller[Widget]):
        def __init__(self) -> None:
            self.reads(Friend)

        def reconcile(self, widget: Widget) -> Done:
            friend = self.run_async(self.client.get(Friend, Key(api.namespace, "joe")))
            # The write of a thread is that of this controller: it does not trigger a reconcile.
            self.run_async(self.client.patch_status(Widget, widget.key, {"doubled": 1}))
            self.enqueue(Key(api.namespace, "none"))
            return Done("Read", friend.metadata.name)

    await api.client.create(Friend(metadata=ObjectMeta(name="joe", namespace=api.namespace)))
    async with run_manager(api, Reader()):
        await api.create_widget()
        assert (await api.wait_for_ready(reason="Read")).message == "joe"


async def test_errors_of_a_thread_are_those_of_the_reconcile(api: ApiHarness) -> None:
    def fail(widget: Widget) -> None:
        raise Retry("Blocked", "It is blocked.", requeue_after_seconds=60)

    async with run_manager(api, controller(Widget, fail)):
        await api.create_widget()
        assert (await api.wait_for_ready(reason="Blocked")).message == "It is blocked."


class HangingController(Controller[Widget]):
    timeout_seconds = 0.1
    max_concurrent_reconciles = 2

    def __init__(self) -> None:
        self.released = threading.Event()
        self.starts: list[str] = []
        self.refused: list[str] = []

    def reconcile(self, widget: Widget) -> None:
        self.starts.append(widget.metadata.name)
        if widget.metadata.name == "hangs":
            self.released.wait(20)
            try:
                self.run_async(self.client.get(Widget, widget.key))
            except TimeoutError as error:
                self.refused.append(str(error))


async def test_object_stays_locked_until_its_thread_has_ended(api: ApiHarness) -> None:
    hanging = HangingController()
    try:
        async with run_manager(api, hanging):
            await api.create_widget("hangs")
            condition = await api.wait_for_ready("hangs", reason="TimedOut")
            assert "when its thread has ended, which cannot be stopped" in condition.message
            await api.client.patch(Widget, Key(api.namespace, "hangs"), {"spec": {"size": 1}})
            await api.create_widget("other")
            await api.wait_for_ready("other", reason="Reconciled")
            assert hanging.starts.count("hangs") == 1
            hanging.released.set()
            await eventually(lambda: hanging.starts.count("hangs") >= 2)
            await eventually(lambda: hanging.refused)
    finally:
        hanging.released.set()
    assert hanging.refused[0] == "the reconcile was stopped; it makes no more calls"


async def test_call_that_a_thread_waits_for_is_cancelled_at_the_timeout() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    errors: list[str] = []

    class Waiter(Controller[Widget]):
        timeout_seconds = 0.1

        def reconcile(self, widget: Widget) -> None:
            try:
                self.run_async(asyncio.sleep(30))
            except TimeoutError as error:
                errors.append(str(error))
                raise

    async with run_manager(api, Waiter()):
        await api.create_widget()
        await api.wait_for_ready(reason="TimedOut")
        await eventually(lambda: errors)
    assert errors[0] == "the reconcile was stopped during this call"


async def test_manager_ends_while_a_thread_hangs() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    hanging = HangingController()
    try:
        async with run_manager(api, hanging):
            await api.create_widget("hangs")
            await eventually(lambda: hanging.starts)
    finally:
        hanging.released.set()


async def test_run_async_is_not_for_the_event_loop() -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")

    class Confused(Controller[Widget]):
        async def reconcile(self, widget: Widget) -> None:
            self.run_async(self.client.get(Widget, widget.key))

    async with run_manager(api, Confused()):
        await api.create_widget()
        condition = await api.wait_for_ready(reason="ConfigError")
    assert "in an async def, await the coroutine" in condition.message


class AsyncCallable:
    async def __call__(self, widget: Widget) -> None:
        assert threading.current_thread() is threading.main_thread()
        await double(widget)


@pytest.mark.parametrize(
    "reconcile", [lambda widget: double(widget), functools.partial(double), AsyncCallable()]
)
async def test_other_callables_are_awaited(reconcile: Any) -> None:
    fake = FakeApi()
    api = ApiHarness(fake, Client(fake), "n")
    async with run_manager(api, controller(Widget, reconcile)):
        await api.create_widget(size=2)
        await api.wait_for_ready(reason="Reconciled")
        assert (await api.get_widget()).status.doubled == 4


def test_run_async_without_a_manager_is_an_error() -> None:
    async def nothing() -> None:
        """Never awaited."""

    with pytest.raises(ConfigError, match="run_async is for a reconcile that is a plain def"):
        controller(Widget, double).run_async(nothing())


HANGS_AT_EXIT = """
import asyncio, time
from contextlib import suppress
from kubewright.kind import Key
from kubewright.threads import ReconcileThreads

async def main():
    hanging = ReconcileThreads("a").run(Key("n", "a"), time.sleep, 3600)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await hanging

asyncio.run(main())
"""


def test_blocked_thread_does_not_keep_the_process_alive() -> None:
    subprocess.run([sys.executable, "-c", HANGS_AT_EXIT], check=True, timeout=30)


async def test_stop_iteration_of_a_function_is_an_error() -> None:
    def stop(_: object) -> object:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await ReconcileThreads("a").run(Key("n", "a"), stop, None)
