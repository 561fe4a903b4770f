"""kopf 14: a background task for each object, for as long as the object exists."""

from __future__ import annotations

import asyncio

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Key


class DaemonsController(Controller[Example]):
    def __init__(self, interval_seconds: float = 5.0) -> None:
        self.interval_seconds = interval_seconds
        self.tasks: dict[Key, asyncio.Task[None]] = {}

    async def reconcile(self, example: Example) -> None:
        if example.key not in self.tasks:
            self.tasks[example.key] = asyncio.create_task(self.ping(example.key))

    async def reconcile_deleted(self, key: Key) -> None:
        self.tasks.pop(key).cancel()

    async def ping(self, key: Key) -> None:
        while example := self.cache.get(Example, key):
            self.log.info("ping", field=example.spec.field)
            await asyncio.sleep(self.interval_seconds)
