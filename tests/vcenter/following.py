"""A collector at work, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.property_collector import InventoryWatcher
from vsphere_operators.vsphere.server_view import CollectorOptions
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .rig import Tally, account, address_of_simulator

SHORT = CollectorOptions(max_wait_seconds=1, call_timeout_seconds=3.0, close_timeout_seconds=1.0)


class Meter(Tally):
    """A tally that also remembers updates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: dict[tuple[str, str], int] = {}

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        self.updates[type_name, kind] = self.updates.get((type_name, kind), 0) + count


class Follower:
    """A collector at work, and what its inventory told."""

    def __init__(
        self,
        simulator: SimulatedVCenter,
        soap: SoapClient,
        session: Session,
        meter: Meter,
        limits: CollectorOptions,
    ) -> None:
        self.simulator, self.soap, self.session, self.meter = simulator, soap, session, meter
        self.inventory, self.changes, self.loads = Inventory("lab"), list[Change](), 0
        self.inventory.listeners.append(self.changes.append)
        self.collector = InventoryWatcher(
            soap,
            session,
            self.inventory,
            Log("vcenter"),
            meter,
            on_loaded=self.loaded,
            options=limits,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.collector.run())

    def loaded(self) -> None:
        self.loads += 1
        self.changes.clear()

    async def load(self, times: int = 1) -> None:
        await eventually(lambda: self.loads >= times or self.task.done())
        if self.task.done():
            self.task.result()

    async def ended(self) -> BaseException | None:
        await asyncio.wait([self.task], timeout=15)
        return self.task.exception()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self.task


@asynccontextmanager
async def following(
    simulator: SimulatedVCenter, limits: CollectorOptions = SHORT
) -> AsyncIterator[Follower]:
    meter = Meter()
    soap = SoapClient(address_of_simulator(simulator), meter)
    session = Session(soap, account(simulator), Log("vcenter"))
    await session.login()
    follower = Follower(simulator, soap, session, meter, limits)
    try:
        await follower.load()
        yield follower
    finally:
        await follower.stop()
        await session.logout()
        await soap.close()
