"""The first load of an inventory from a vCenter that is large, slow, or does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.faults import NotAuthenticated, TimedOut, Unreachable, VCenterError
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
from vsphere_operators.vsphere.property_collector import CollectorOptions
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

# A response takes longer than a call may take, as with a large vCenter and the real limits.
OPTIONS = CollectorOptions(
    max_wait_seconds=1,
    call_timeout_seconds=1.0,
    max_object_updates=20,
    load_timeout_seconds=60.0,
    load_probe_seconds=0.2,
    close_timeout_seconds=1.0,
)
PAGE_DELAY_SECONDS = 1.5


class Load:
    """One load of the simulator's inventory."""

    def __init__(self, soap: SoapClient, session: Session, options: CollectorOptions) -> None:
        self.inventory, self.loaded = Inventory("lab"), asyncio.Event()
        self.slow_messages: list[str] = []
        self.watcher = InventoryWatcher(
            soap,
            session,
            self.inventory,
            Log("vcenter"),
            RecordingMetrics(),
            on_loaded=self.loaded.set,
            on_slow_load=lambda message: self.slow_messages.append(str(message)),
            options=options,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.watcher.run())

    async def wait_for_error(self, within: float = 20.0) -> BaseException | None:
        await asyncio.wait([self.task], timeout=within)
        assert not self.loaded.is_set()
        return self.task.exception()


@asynccontextmanager
async def start_load(
    soap: SoapClient, session: Session, options: CollectorOptions = OPTIONS
) -> AsyncIterator[Load]:
    load = Load(soap, session, options)
    try:
        yield load
    finally:
        load.task.cancel()
        await asyncio.gather(load.task, return_exceptions=True)


async def test_slow_pages_are_waited_for(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session, metrics: RecordingMetrics
) -> None:
    await simulator.delay_pages(PAGE_DELAY_SECONDS)
    async with start_load(soap, session) as load:
        await asyncio.wait_for(load.loaded.wait(), 30)
        assert load.inventory.hosts
        assert load.inventory.vms
    pages = metrics.calls.count(("WaitForUpdatesEx", "ok"))
    assert pages >= 2
    assert metrics.calls.count(("CurrentTime", "ok")) >= pages
    [message] = set(load.slow_messages)
    assert "has not sent its inventory yet" in message


async def test_load_has_a_limit(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.delay_pages(PAGE_DELAY_SECONDS)
    limit = replace(OPTIONS, load_timeout_seconds=2.0)
    async with start_load(soap, session, limit) as load:
        error = await load.wait_for_error()
    assert isinstance(error, TimedOut)
    # The second page was too late.
    assert "could not be read within 2 s; 20 objects arrived" in str(error)
    assert "raise -vcenter-load-timeout" in str(error)


async def test_vcenter_that_does_not_respond_is_noticed_before_the_limit(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.hold_calls("WaitForUpdatesEx")
    async with start_load(soap, session) as load:
        await eventually(lambda: load.slow_messages)
        await simulator.set_outage("hang")
        error = await load.wait_for_error(within=10)
        assert isinstance(error, Unreachable)
        assert "CurrentTime" in str(error)
        await simulator.set_outage("")
        await simulator.release_calls()


async def test_session_that_ends_during_a_load_is_noticed(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.hold_calls("WaitForUpdatesEx")
    async with start_load(soap, session) as load:
        await eventually(lambda: load.slow_messages)
        await simulator.expire_sessions()
        assert isinstance(await load.wait_for_error(within=10), NotAuthenticated)
        await simulator.release_calls()


@pytest.mark.parametrize("loaded", [False, True])
def test_only_a_slow_reload_is_a_problem(loaded: bool, simulator: SimulatedVCenter) -> None:
    clock_seconds = [1000.0]
    vcenter = VCenter(
        "vc",
        simulator_address(simulator),
        simulator_credentials(simulator),
        Log("vcenter"),
        RecordingMetrics(),
        clock=lambda: clock_seconds[0],
    )
    vcenter.loaded = loaded
    message = TimedOut("vCenter vc has not sent its inventory yet")
    for _ in range(3):
        clock_seconds[0] += 30
        vcenter._on_slow_load(message)
    expected: VCenterError | None = message if loaded else None
    assert vcenter.problem is expected
