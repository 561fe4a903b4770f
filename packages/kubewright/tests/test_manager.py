"""What users add to a manager: runnables and health checks; and kinds that no controller declares.
On the fake and on the real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kubewright.builtin import Pod
from kubewright.controller import Controller, controller
from kubewright.errors import ConfigError
from kubewright.manager import Manager, Options
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from .support.api_harness import FAKE_CONNECTION, ApiHarness, run_manager
from .support.widget_kind import Friend, Widget, double


class RecordingRunnable:
    def __init__(self) -> None:
        self.events: list[str] = []

    async def run(self) -> None:
        self.events.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("ended")


@asynccontextmanager
async def run_with(
    api: FakeApi, everywhere: RecordingRunnable, leader: RecordingRunnable, options: Options
) -> AsyncIterator[Manager]:
    manager = Manager(FAKE_CONNECTION, options, transport=api)
    manager.add_runnable(everywhere)
    manager.add_runnable(leader, leader_only=True)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield manager
    finally:
        stop.set()
        await task


def leader_options(*, leader_election: bool = True) -> Options:
    """The options of another process: each has its own identity."""
    return Options(
        metrics_bind_address="0",
        leader_election=leader_election,
        leader_election_id="test",
        leader_election_namespace="n",
    )


async def test_runnable_of_the_leader_runs_in_one_process_only() -> None:
    api = FakeApi()
    first, first_leader = RecordingRunnable(), RecordingRunnable()
    second, second_leader = RecordingRunnable(), RecordingRunnable()
    async with run_with(api, first, first_leader, leader_options()):
        await eventually(lambda: first_leader.events)
        async with run_with(api, second, second_leader, leader_options()):
            await eventually(lambda: second.events)
            assert second_leader.events == []
    assert first.events == first_leader.events == second.events == ["started", "ended"]


async def test_runnable_of_the_leader_runs_without_leader_election() -> None:
    everywhere, leader = RecordingRunnable(), RecordingRunnable()
    async with run_with(FakeApi(), everywhere, leader, Options(metrics_bind_address="0")):
        await eventually(lambda: leader.events)
    assert leader.events == ["started", "ended"]


@pytest.mark.parametrize("leader_election", [False, True])
async def test_runnable_of_the_leader_that_fails_ends_the_manager(leader_election: bool) -> None:
    class Failing:
        async def run(self) -> None:
            raise ValueError("no connection")

    options = leader_options(leader_election=leader_election)
    manager = Manager(FAKE_CONNECTION, options, transport=FakeApi())
    other = RecordingRunnable()
    manager.add_runnable(Failing(), leader_only=True)
    manager.add_runnable(other, leader_only=True)
    with pytest.raises(ValueError, match="no connection"):
        await manager.run()
    assert other.events in ([], ["started", "ended"])


async def test_health_checks_of_users_are_served() -> None:
    manager = Manager(
        FAKE_CONNECTION,
        Options(metrics_bind_address="0", health_probe_bind_address="127.0.0.1:0"),
        transport=FakeApi(),
    )
    problem: str | None = "the license has expired"

    async def check_license() -> str | None:
        return problem

    manager.add_readyz_check("license", check_license)
    manager.add_healthz_check("deadlock", lambda: None)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    await eventually(lambda: manager.server is not None and manager.server.health_port)
    assert manager.server is not None
    port = manager.server.health_port
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        status, text = await get("/readyz")
        assert status == 500
        assert "[-]license failed: the license has expired" in text
        assert "[+]deadlock ok" in (await get("/healthz?verbose"))[1]
        problem = None
        assert (await get("/readyz"))[0] == 200
    stop.set()
    await task


@pytest.mark.parametrize("name", ["watches", "webhooks", "ping", "license"])
async def test_name_of_a_health_check_is_unique(name: str) -> None:
    manager = Manager(FAKE_CONNECTION, transport=FakeApi())
    manager.add_healthz_check("license", lambda: None)
    manager.add_readyz_check("license", lambda: None)
    with pytest.raises(ConfigError, match=f'two health checks with the name "{name}"'):
        manager.add_readyz_check(name, lambda: None)


async def test_store_that_no_controller_declares_is_an_error_at_the_start() -> None:
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=FakeApi())
    manager.add(controller(Widget, double))
    manager.cache.store(Friend).add_index("by-size", lambda friend: str(friend.spec.size))
    with pytest.raises(ConfigError, match=r"Friend is not watched.*reads\(Friend\)"):
        await manager.run()


class LateReader(Controller[Widget]):
    def __init__(self) -> None:
        self.reads(Friend)
        self.messages: list[str] = []

    async def reconcile(self, widget: Widget) -> None:
        self.cache.all(Friend)
        for read in (self.cache.store, self.cache.all):
            try:
                read(Pod)
            except ConfigError as error:
                self.messages.append(str(error))


async def test_kind_that_is_not_declared_cannot_be_read_after_the_start(api: ApiHarness) -> None:
    reader = LateReader()
    async with run_manager(api, reader):
        await api.create_widget()
        await api.wait_for_ready()
    assert len(reader.messages) == 2
    assert set(reader.messages) == {
        "Pod is not watched, so the cache has no Pod; declare it with watches(Pod, ...) or "
        "reads(Pod) in a controller, or use the client"
    }
