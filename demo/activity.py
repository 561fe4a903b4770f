"""Changes while the demo runs: loads drift, and every few seconds a user does something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

from . import fixtures
from .environment import DemoEnvironment, try_action

_LOAD_DRIFT = 0.04
_LOAD_DRIFT_SECONDS = 3.0
_ACTION_SECONDS = 12.0
_POD_PATH = f"/api/v1/namespaces/default/pods/{fixtures.FRIEND_POD}"


class Activity:
    """Runs until cancelled."""

    def __init__(self, environment: DemoEnvironment) -> None:
        self._environment = environment

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._drift_loads())
            group.create_task(self._run_actions())

    async def _drift_loads(self) -> None:
        while True:
            await asyncio.sleep(_LOAD_DRIFT_SECONDS)
            await self._environment.vcenter.churn_stats(_LOAD_DRIFT)

    async def _run_actions(self) -> None:
        vcenter = self._environment.vcenter
        actions: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: self._call_api_server("DELETE", f"{_POD_PATH}?gracePeriodSeconds=0"),
            self._power_off_replica,
            lambda: self._call_api_server(
                "POST", _POD_PATH.rpartition("/")[0], fixtures.pod_manifest(fixtures.FRIEND_POD)
            ),
            lambda: vcenter.set_maintenance(fixtures.HOSTS[2], True),
            lambda: vcenter.set_maintenance(fixtures.HOSTS[2], False),
        )
        for action in cycle(actions):
            await asyncio.sleep(_ACTION_SECONDS)
            await try_action(action)

    async def _power_off_replica(self) -> None:
        """Powers off a VM of vg-1; the manager powers it on again."""
        replicas = [
            entity["name"]
            for entity in await self._environment.vcenter.entities()
            if entity["name"].startswith("vg-1-replica-")
        ]
        if replicas:
            await self._environment.vcenter.set_power(replicas[0], False)

    async def _call_api_server(self, verb: str, path: str, body: Any = None) -> None:
        def call() -> None:
            with self._environment.control_plane.apiserver.admin_client() as https:
                https.call(verb, path, body)

        await asyncio.to_thread(call)
