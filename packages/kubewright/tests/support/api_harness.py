"""Running a manager inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kubewright.builtin import Event
from kubewright.client import Client
from kubewright.condition import Condition
from kubewright.controller import Controller
from kubewright.kind import Key, ObjectMeta
from kubewright.kubeconfig import Connection, Identity
from kubewright.manager import Manager, Options
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import ManagerTransport

from .widget_kind import Widget, WidgetSpec

FAKE_CONNECTION = Connection(server="https://fake.invalid", identity=Identity(), source="a test")


@dataclass
class ApiHarness:
    """An API server that a test writes to as a user would."""

    transport: ManagerTransport
    client: Client
    namespace: str
    connection: Connection = field(default=FAKE_CONNECTION)

    @property
    def is_real(self) -> bool:
        return self.connection is not FAKE_CONNECTION

    @property
    def fake(self) -> FakeApi:
        assert isinstance(self.transport, FakeApi)
        return self.transport

    async def create_widget(self, name: str = "a", **spec: Any) -> Widget:
        return await self.client.create(
            Widget(
                metadata=ObjectMeta(name=name, namespace=self.namespace), spec=WidgetSpec(**spec)
            )
        )

    async def get_widget(self, name: str = "a") -> Widget:
        return await self.client.get(Widget, Key(self.namespace, name))

    async def wait_for_ready(
        self, name: str = "a", *, reason: str = "", within: float = 30
    ) -> Condition:
        """The Ready condition, as soon as it exists (with this reason)."""

        async def find_condition() -> Condition | None:
            condition = (await self.get_widget(name)).status.condition("Ready")
            return condition if condition is not None and reason in ("", condition.reason) else None

        condition = await eventually(find_condition, within=within)
        assert condition is not None
        return condition

    async def list_events(self, name: str = "a") -> list[tuple[str, str]]:
        return [
            (e.type, e.reason)
            for e in await self.client.list(Event, self.namespace)
            if e.involvedObject.name == name
        ]


@asynccontextmanager
async def run_manager(
    api: ApiHarness,
    *controllers: Callable[[Manager], Controller[Any]] | Controller[Any],
    options: Options | None = None,
) -> AsyncIterator[Manager]:
    """A manager with these controllers, limited to the namespace of the test."""
    options = options or Options(
        metrics_bind_address="0", watch_namespaces=(api.namespace,), graceful_shutdown_seconds=5
    )
    manager = Manager(
        api.connection,
        options,
        transport=None if api.is_real else api.transport,
    )
    for controller in controllers:
        manager.add(controller if isinstance(controller, Controller) else controller(manager))
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield manager
    finally:
        stop.set()
        await task
