"""What happens while somebody watches: loads drift all the time, and now and then a person does something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

from . import fixtures
from .environment import DemoEnvironment, try_action

LOAD_DRIFT = 0.04
LOAD_DRIFT_SECONDS = 3.0
ACTION_SECONDS = 12.0
POD_PATH = f"/api/v1/namespaces/default/pods/{fixtures.FRIEND_POD}"


class Activity:
    """Runs until cancelled."""

    def __init__(self, environment: DemoEnvironment) -> None:
        self.environment = environment

    async def run(self) -> None:
        """Both at once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.drift_loads())
            group.create_task(self.run_actions())

    async def drift_loads(self) -> None:
        """Loads move, as they do."""
        while True:
            await asyncio.sleep(LOAD_DRIFT_SECONDS)
            await self.environment.vcenter.churn_stats(LOAD_DRIFT)

    async def run_actions(self) -> None:
        """One thing after the other, from the beginning again."""
        deeds: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: self.call_api_server("DELETE", f"{POD_PATH}?gracePeriodSeconds=0"),
            lambda: self.power_off_replica(),
            lambda: self.call_api_server(
                "POST", POD_PATH.rpartition("/")[0], fixtures.pod_manifest(fixtures.FRIEND_POD)
            ),
            lambda: self.environment.vcenter.set_maintenance(fixtures.HOSTS[2], True),
            lambda: self.environment.vcenter.set_maintenance(fixtures.HOSTS[2], False),
        )
        for deed in cycle(deeds):
            await asyncio.sleep(ACTION_SECONDS)
            await try_action(deed)

    async def power_off_replica(self) -> None:
        """Somebody switches a VM of vg-1 off; the manager switches it on again."""
        replicas = [
            each["name"]
            for each in await self.environment.vcenter.entities()
            if each["name"].startswith("vg-1-replica-")
        ]
        if replicas:
            await self.environment.vcenter.set_power(replicas[0], False)

    async def call_api_server(self, verb: str, path: str, body: Any = None) -> None:
        """A call to the API server, as a user."""

        def work() -> None:
            with self.environment.control_plane.apiserver.admin_client() as https:
                https.call(verb, path, body)

        await asyncio.to_thread(work)
