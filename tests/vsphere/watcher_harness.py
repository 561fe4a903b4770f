"""A running InventoryWatcher, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
from vsphere_operators.vsphere.properties import InventoryObject
from vsphere_operators.vsphere.property_collector import CollectorOptions
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

SHORT_TIMEOUTS = CollectorOptions(max_wait_seconds=1, close_timeout_seconds=1.0)


class UpdateRecordingMetrics(RecordingMetrics):
    """Records updates too."""

    def __init__(self) -> None:
        super().__init__()
        self.update_counts: dict[tuple[str, str], int] = {}

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        self.update_counts[type_name, kind] = self.update_counts.get((type_name, kind), 0) + count


class WatcherHarness:
    """A running InventoryWatcher, and the changes that its inventory reported."""

    def __init__(
        self,
        simulator: SimulatedVCenter,
        soap: SoapClient,
        session: Session,
        metrics: UpdateRecordingMetrics,
        options: CollectorOptions,
    ) -> None:
        self.simulator, self.soap, self.session, self.metrics = simulator, soap, session, metrics
        self.inventory, self.load_count = Inventory("lab"), 0
        self.changes = list[Change[InventoryObject]]()
        self.inventory.connect(self.changes.append)
        self.watcher = InventoryWatcher(
            soap,
            session,
            self.inventory,
            Log("vcenter"),
            metrics,
            on_loaded=self.on_loaded,
            options=options,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.watcher.run())

    def on_loaded(self) -> None:
        self.load_count += 1
        self.changes.clear()

    async def wait_for_load(self, times: int = 1) -> None:
        await eventually(lambda: self.load_count >= times or self.task.done())
        if self.task.done():
            self.task.result()

    async def wait_for_end(self) -> BaseException | None:
        await asyncio.wait([self.task], timeout=60)
        return self.task.exception()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self.task


@asynccontextmanager
async def run_watcher(
    simulator: SimulatedVCenter, options: CollectorOptions = SHORT_TIMEOUTS
) -> AsyncIterator[WatcherHarness]:
    metrics = UpdateRecordingMetrics()
    soap = SoapClient(simulator_address(simulator), metrics)
    session = Session(soap, simulator_credentials(simulator), Log("vcenter"))
    await session.login()
    harness = WatcherHarness(simulator, soap, session, metrics, options)
    try:
        await harness.wait_for_load()
        yield harness
    finally:
        await harness.stop()
        await session.logout()
        await soap.close()
