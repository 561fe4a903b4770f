"""The first load of an inventory from a vCenter that is large, slow, or does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.faults import NotAuthenticated, TimedOut, Unreachable, VCenterError
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
from vsphere_operators.vsphere.property_collector import CollectorOptions
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

OPTIONS = CollectorOptions(
    max_wait_seconds=1,
    call_timeout_seconds=30.0,
    max_object_updates=20,
    load_timeout_seconds=600.0,
    load_probe_seconds=0.1,
    close_timeout_seconds=1.0,
)
PAGE_DELAY_SECONDS = 1.0


class TimeoutRecordingSoap(SoapClient):
    """Records the limit of each call that waits for a page."""

    def __init__(self, address: Address, metrics: RecordingMetrics) -> None:
        super().__init__(address, metrics)
        self.page_timeouts = list[float]()

    async def post(
        self,
        body: bytes,
        *,
        method: str,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        **options: Any,
    ) -> bytes:
        if method == "WaitForUpdatesEx":
            self.page_timeouts.append(timeout_seconds)
        return await super().post(body, method=method, timeout_seconds=timeout_seconds, **options)


class PageMetrics(RecordingMetrics):
    """Calls a function for the updates of each page."""

    def __init__(self, on_page: Callable[[], None]) -> None:
        super().__init__()
        self._on_page = on_page

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        self._on_page()


class Load:
    """One load of the simulator's inventory."""

    def __init__(self, soap: SoapClient, session: Session, options: CollectorOptions) -> None:
        self.inventory, self.loaded = Inventory("lab"), asyncio.Event()
        self.slow_messages: list[str] = []
        # Every page takes this long by the clock of the load.
        self.seconds_per_page, self._seconds = 0.0, 0.0
        self.watcher = InventoryWatcher(
            soap,
            session,
            self.inventory,
            Log("vcenter"),
            PageMetrics(self._on_page),
            on_loaded=self.loaded.set,
            on_slow_load=lambda message: self.slow_messages.append(str(message)),
            options=options,
            clock=lambda: self._seconds,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.watcher.run())

    def _on_page(self) -> None:
        self._seconds += self.seconds_per_page

    async def wait_for_error(self, within: float = 60.0) -> BaseException | None:
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
    simulator: SimulatedVCenter, log: Log, metrics: RecordingMetrics
) -> None:
    soap = TimeoutRecordingSoap(simulator_address(simulator), metrics)
    session = Session(soap, simulator_credentials(simulator), log)
    await session.login()
    await simulator.delay_pages(PAGE_DELAY_SECONDS)
    async with start_load(soap, session) as load:
        await asyncio.wait_for(load.loaded.wait(), 60)
        assert load.inventory.hosts
        assert load.inventory.vms
    await session.logout()
    await soap.close()
    pages = metrics.calls.count(("WaitForUpdatesEx", "ok"))
    assert pages >= 2
    # A page may take as long as the load, and not only as long as a call.
    assert set(soap.page_timeouts[:pages]) == {OPTIONS.load_timeout_seconds}
    assert ("CurrentTime", "ok") in metrics.calls
    [message] = set(load.slow_messages)
    assert "has not sent its inventory yet" in message


async def test_load_has_a_limit(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.delay_pages(PAGE_DELAY_SECONDS)
    async with start_load(soap, session) as load:
        # The second page is too late.
        load.seconds_per_page = OPTIONS.load_timeout_seconds
        error = await load.wait_for_error()
    assert isinstance(error, TimedOut)
    assert "could not be read within 600 s; 20 objects arrived" in str(error)
    assert "raise -vcenter-load-timeout" in str(error)


async def test_vcenter_that_does_not_respond_is_noticed_before_the_limit(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.hold_calls("WaitForUpdatesEx")
    async with start_load(soap, session, replace(OPTIONS, call_timeout_seconds=1.0)) as load:
        await eventually(lambda: load.slow_messages)
        await simulator.set_outage("hang")
        error = await load.wait_for_error()
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
        assert isinstance(await load.wait_for_error(), NotAuthenticated)
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
