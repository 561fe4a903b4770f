"""Logs in to a vCenter, reads its inventory once, and logs out: for command-line tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubewright.log import Log

from ..vsphere.faults import Unreachable
from ..vsphere.vcenter import VCenter
from .config import VCenterConfig

_LOAD_TIMEOUT_SECONDS = 60.0


class _NoMetrics:
    def observe_call(self, method: str, outcome: str, seconds: float) -> None: ...

    def count_updates(self, type_name: str, kind: str, count: int) -> None: ...


@asynccontextmanager
async def temporary_vcenter(config: VCenterConfig) -> AsyncIterator[VCenter]:
    """A vCenter without a session yet. At the end it is logged out and closed."""
    vcenter = VCenter(
        config.name,
        config.address,
        config.build_credential_source(),
        Log("vcenter", vCenter=config.name),
        _NoMetrics(),
    )
    try:
        yield vcenter
    finally:
        if vcenter.session.logged_in:
            await vcenter.session.logout()
        await vcenter.soap.close()


async def load_inventory(vcenter: VCenter) -> None:
    loaded = asyncio.Event()
    vcenter.state_changed.connect(loaded.set)
    watcher = asyncio.create_task(vcenter.inventory_watcher.run())
    waiter = asyncio.create_task(loaded.wait())
    try:
        done, _ = await asyncio.wait(
            (watcher, waiter), timeout=_LOAD_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise Unreachable(
                f"the inventory of vCenter {vcenter.name} could not be read within "
                f"{_LOAD_TIMEOUT_SECONDS:.0f} s"
            )
        if watcher in done:
            await watcher
    finally:
        for task in (watcher, waiter):
            task.cancel()
        await asyncio.gather(watcher, waiter, return_exceptions=True)
