"""Logs in to a vCenter, reads its inventory once, and logs out: for command-line tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubewright.log import Log

from ..vsphere.transport import SoapClient
from ..vsphere.vcenter import SoapBuilder, VCenter
from .config import VCenterConfig


class _NoMetrics:
    def observe_call(self, method: str, outcome: str, seconds: float) -> None: ...

    def count_undecodable(self, type_name: str, path: str) -> None: ...

    def count_updates(self, type_name: str, kind: str, count: int) -> None: ...


@asynccontextmanager
async def temporary_vcenter(
    config: VCenterConfig, *, build_soap: SoapBuilder = SoapClient
) -> AsyncIterator[VCenter]:
    """A vCenter without a session yet. At the end it is logged out and closed."""
    vcenter = VCenter(
        config.name,
        config.address,
        config.build_credential_source(),
        Log("vcenter", vCenter=config.name),
        _NoMetrics(),
        load_timeout_seconds=config.load_timeout_seconds,
        build_soap=build_soap,
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
        # The watcher ends with an error if vCenter does not respond or the load takes too long.
        done, _ = await asyncio.wait((watcher, waiter), return_when=asyncio.FIRST_COMPLETED)
        if watcher in done:
            await watcher
    finally:
        for task in (watcher, waiter):
            task.cancel()
        await asyncio.gather(watcher, waiter, return_exceptions=True)
