"""One look at a vCenter: log in, read the inventory once, log out. For commands that ask and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubewright.log import Log

from ..vsphere.faults import Unreachable
from ..vsphere.vcenter import VCenter
from .config import VCenterConfig

_LOAD_TIMEOUT_SECONDS = 60.0


class NoMetrics:
    """A meter that nobody reads."""

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        """A call ended."""

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        """Updates came."""


@asynccontextmanager
async def temporary_vcenter(config: VCenterConfig) -> AsyncIterator[VCenter]:
    """A vCenter to which nothing has been said yet; what was opened is closed at the end."""
    vcenter = VCenter(
        config.name,
        config.address,
        config.build_credential_source(),
        Log("vcenter", vCenter=config.name),
        NoMetrics(),
    )
    try:
        yield vcenter
    finally:
        if vcenter.session.logged_in:
            await vcenter.session.logout()
        await vcenter.soap.close()


async def load_inventory(vcenter: VCenter) -> None:
    """Read the inventory once."""
    loaded = asyncio.Event()
    vcenter.state_changed.connect(loaded.set)
    follower = asyncio.create_task(vcenter.inventory_watcher.run())
    waiter = asyncio.create_task(loaded.wait())
    try:
        done, _ = await asyncio.wait(
            (follower, waiter), timeout=_LOAD_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise Unreachable(
                f"the inventory of vCenter {vcenter.name} could not be read within {_LOAD_TIMEOUT_SECONDS:.0f} s"
            )
        if follower in done:
            await follower
    finally:
        for task in (follower, waiter):
            task.cancel()
        await asyncio.gather(follower, waiter, return_exceptions=True)
