"""kopf 12: an operator inside another application."""

from __future__ import annotations

import asyncio

from examples.from_kopf.example_kind import Example
from kubewright import Controller, Manager, ObjectMeta, Options, load_config


class EmbeddedController(Controller[Example]):
    finalizer = "examples.kubewright.dev/embedded"

    def __init__(self, greeting: str, farewell: str) -> None:
        self.greeting, self.farewell = greeting, farewell
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    async def reconcile(self, example: Example) -> None:
        await self.messages.put(self.greeting.format(name=example.metadata.name))

    async def finalize(self, example: Example) -> None:
        await self.messages.put(self.farewell.format(name=example.metadata.name))


async def main(namespace: str = "default", steps: int = 3) -> None:
    manager = Manager(await asyncio.to_thread(load_config), Options(metrics_bind_address="0"))
    manager.add(controller := EmbeddedController("Hello, {name}!", "Good bye, {name}!"))
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        for step in range(steps):
            metadata = ObjectMeta(namespace=namespace, name=f"example-{step}")
            await manager.client.create(Example(metadata=metadata))
            print(await controller.messages.get())
            await manager.client.delete(Example, metadata.key)
            print(await controller.messages.get())
        stop.set()


if __name__ == "__main__":
    asyncio.run(main())
