"""Running a manager inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kubewright.builtin import Event
from kubewright.client import Client
from kubewright.controller import Controller
from kubewright.kind import Object
from kubewright.kubeconfig import Connection, Identity
from kubewright.manager import Manager, Options
from kubewright.meta import Condition, Key, ObjectMeta
from kubewright.testing import eventually
from kubewright.transport import ManagerTransport

from .widget_kind import Widget, WidgetSpec

FAKE_CONNECTION = Connection(server="https://fake.invalid", identity=Identity(), source="a test")


@dataclass
class ApiHarness:
    """An API server that a test writes to as a user would."""

    pool: ManagerTransport
    client: Client
    namespace: str
    connection: Connection = field(default=FAKE_CONNECTION)

    async def create_widget(self, name: str = "a", **spec: Any) -> Widget:
        return await self.client.create(
            Widget(
                metadata=ObjectMeta(name=name, namespace=self.namespace), spec=WidgetSpec(**spec)
            )
        )

    async def get_widget(self, name: str = "a") -> Widget:
        return await self.client.get(Widget, Key(self.namespace, name))

    async def wait_for_ready(
        self, name: str = "a", *, reason: str = "", within: float = 10
    ) -> Condition:
        """The Ready condition, once it is there (with this reason)."""

        async def there() -> Condition | None:
            condition = (await self.get_widget(name)).status.condition("Ready")
            return condition if condition is not None and reason in ("", condition.reason) else None

        found = await eventually(there, within=within)
        assert found is not None
        return found

    async def list_events(self, name: str = "a") -> list[tuple[str, str]]:
        return [
            (e.type, e.reason)
            for e in await self.client.list(Event, self.namespace)
            if e.involvedObject.name == name
        ]


@asynccontextmanager
async def run_manager(
    api: ApiHarness,
    make: Callable[[Manager], Controller[Any]] | Controller[Any],
    *,
    options: Options | None = None,
) -> AsyncIterator[Manager]:
    """A manager with one controller, confined to the test's namespace."""
    options = options or Options(
        metrics_bind_address="0", watch_namespaces=(api.namespace,), graceful_shutdown_seconds=5
    )
    manager = Manager(
        api.connection,
        options,
        transport=None if api.connection is not FAKE_CONNECTION else api.pool,
    )
    manager.add(make if isinstance(make, Controller) else make(manager))
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield manager
    finally:
        stop.set()
        await task


def name_of(obj: Object) -> str:
    return obj.metadata.name
