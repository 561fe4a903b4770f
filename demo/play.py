"""What happens while somebody watches: loads drift all the time, and now and then a person does something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

from . import scene
from .stage import Stage, attempt

DRIFT = 0.04
DRIFT_SECONDS = 3.0
ACT_SECONDS = 12.0
POD = f"/api/v1/namespaces/default/pods/{scene.FRIEND}"


class Play:
    """Runs until cancelled."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def run(self) -> None:
        """Both at once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.drift())
            group.create_task(self.act())

    async def drift(self) -> None:
        """Loads move, as they do."""
        while True:
            await asyncio.sleep(DRIFT_SECONDS)
            await self.stage.vcenter.churn(DRIFT)

    async def act(self) -> None:
        """One thing after the other, from the beginning again."""
        deeds: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: self.call("DELETE", f"{POD}?gracePeriodSeconds=0"),
            lambda: self.power_off_a_replica(),
            lambda: self.call("POST", POD.rpartition("/")[0], scene.pod(scene.FRIEND)),
            lambda: self.stage.vcenter.maintenance(scene.HOSTS[2], True),
            lambda: self.stage.vcenter.maintenance(scene.HOSTS[2], False),
        )
        for deed in cycle(deeds):
            await asyncio.sleep(ACT_SECONDS)
            await attempt(deed)

    async def power_off_a_replica(self) -> None:
        """Somebody switches a VM of vg-1 off; the manager switches it on again."""
        replicas = [each["name"] for each in await self.stage.vcenter.entities() if each["name"].startswith("vg-1-replica-")]
        if replicas:
            await self.stage.vcenter.power(replicas[0], False)

    async def call(self, verb: str, path: str, body: Any = None) -> None:
        """A call to the API server, as a user."""

        def work() -> None:
            with self.stage.plane.apiserver.https() as https:
                https.call(verb, path, body)

        await asyncio.to_thread(work)
