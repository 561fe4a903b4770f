"""kopf 99: most of the other examples in one operator."""

from __future__ import annotations

import asyncio
import time

from examples.from_kopf.example_kind import Example, ExampleStatus
from kubewright import Controller, Done, Manager, ObjectMeta, Retry, Waiting, command
from kubewright.api.core_v1 import Container, Pod, PodSpec
from kubewright.log import Log

LOG = Log("all-at-once")


class Startup:
    async def run(self) -> None:
        LOG.info("starting")
        try:
            await asyncio.Event().wait()
        finally:
            LOG.info("cleaned up")


class AllController(Controller[Example]):
    finalizer = "examples.kubewright.dev/all"

    def __init__(self) -> None:
        self.owns(Pod)

    async def reconcile(self, example: Example) -> Done | Waiting:
        if example.status.message is None:
            example.status.message = await asyncio.to_thread(wait_for_something)
            raise Retry("FirstAttempt", "The first attempt always fails.", requeue_after_seconds=0)
        if example.status.field != example.spec.field:
            self.log.info("changed", old=example.status.field, new=example.spec.field)
        container = Container(name="the-only-one", image="busybox", command=["sleep", "1"])
        metadata = ObjectMeta(name=example.metadata.name, labels={"application": "all-at-once"})
        pod = Pod(metadata=metadata, spec=PodSpec(containers=[container]))
        children = await self.apply(example, pod)
        self.event(children.live(pod), "Normal", "Created", "Created as a part of an Example.")
        example.status = ExampleStatus(message="done", field=example.spec.field)
        return children.outcome()

    async def finalize(self, example: Example) -> None:
        self.log.info("deleted")


def wait_for_something() -> str:
    time.sleep(0.1)
    return "waited"


def build(manager: Manager, flags: command.ManagerFlags) -> None:
    manager.add_runnable(Startup())
    manager.add(AllController())
