"""kopf 13: start and end of the process, readiness, metrics, and a task for each Pod."""

from __future__ import annotations

import asyncio
import random

from kubewright import Controller, Key, Manager, Pod, command
from kubewright.log import Log

LOG = Log("hooks")


class Background:
    def __init__(self) -> None:
        self.is_started = False
        self.tasks: dict[Key, asyncio.Task[None]] = {}

    async def run(self) -> None:
        for seconds in (3, 2, 1):
            LOG.info("starting", seconds=seconds)
            await asyncio.sleep(0.1)
        self.is_started = True
        try:
            await asyncio.Event().wait()
        finally:
            for task in self.tasks.values():
                task.cancel()
            LOG.info("cleaned up")

    async def serve(self) -> None:
        while True:
            LOG.info("served by the background task")
            await asyncio.sleep(random.uniform(1, 10))


class PodTaskController(Controller[Pod]):
    def __init__(self, background: Background) -> None:
        self.background = background

    async def reconcile(self, pod: Pod) -> None:
        if pod.key not in self.background.tasks:
            self.background.tasks[pod.key] = asyncio.create_task(self.background.serve())


def build(manager: Manager, flags: command.ManagerFlags) -> None:
    background = Background()
    manager.add_runnable(background)
    manager.add(PodTaskController(background))
    manager.add_readyz_check("start", lambda: None if background.is_started else "not started yet")
    tasks = manager.metrics.new_gauge("example_tasks", "Tasks in the background.")
    tasks.labels().set_function(lambda: len(background.tasks))
