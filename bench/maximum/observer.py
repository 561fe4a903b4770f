"""What a user sees: a watch of the statuses, with the time at which each version arrived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from kubewright import Client, Object
from kubewright.testing import eventually
from kubewright.transport import Request, Transport


class _Metadata(Struct):
    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""
    generation: int = 0


class ObservedStatus(Struct):
    observedGeneration: int = -1
    host: str = ""
    maintenanceMode: bool | None = None


class ObservedObject(Struct):
    metadata: _Metadata
    status: ObservedStatus = msgspec.field(default_factory=ObservedStatus)


class _Event(Struct):
    type: str
    object: ObservedObject


_DECODER = msgspec.json.Decoder(_Event)


class Observer:
    """Calls `on_change` with each new version of an object of a kind, and when it arrived."""

    def __init__(
        self,
        kind: type[Object],
        client: Client,
        transport: Transport,
        on_change: Callable[[ObservedObject, float], None],
    ) -> None:
        self._kind, self._client, self._transport = kind, client, transport
        self._on_change = on_change
        self.started = asyncio.Event()

    async def run(self) -> None:
        revision = await anext(
            page.resource_version async for page in self._client.list_pages(self._kind, limit=1)
        )
        self.started.set()
        request = Request(
            "GET",
            self._kind.definition.path(),
            query=f"watch=1&resourceVersion={revision}&timeoutSeconds=7200",
            operation="watch",
            timeout_seconds=7200,
        )
        async for line in self._transport.stream_lines(request, idle_timeout_seconds=7200):
            event = _DECODER.decode(line)
            self._on_change(event.object, time.monotonic())


class Expectations:
    """Statuses that are expected, and how many seconds it took until each was seen."""

    def __init__(self, read: Callable[[ObservedObject], Any]) -> None:
        self._read = read
        self._expected: dict[tuple[str, str], tuple[Any, float]] = {}
        self._seen: dict[tuple[str, str], tuple[Any, float]] = {}
        self.seconds: list[float] = []
        # How many expectations were replaced by a newer one before the status was seen.
        self.replaced = 0

    def expect(self, namespace: str, name: str, value: Any, since: float) -> None:
        key = (namespace, name)
        seen = self._seen.get(key)
        if seen is not None and seen[0] == value and seen[1] >= since:
            # The event arrived before the response that led to this call.
            self.seconds.append(seen[1] - since)
            return
        self.replaced += key in self._expected
        self._expected[key] = (value, since)

    def on_change(self, obj: ObservedObject, now: float) -> None:
        key, value = (obj.metadata.namespace, obj.metadata.name), self._read(obj)
        self._seen[key] = (value, now)
        expected = self._expected.get(key)
        if expected is not None and value == expected[0]:
            del self._expected[key]
            self.seconds.append(now - expected[1])

    @property
    def missing(self) -> int:
        return len(self._expected)

    async def wait(self, within: float) -> None:
        """Wait until nothing is missing, at most this long."""
        with suppress(AssertionError):
            await eventually(lambda: not self._expected, within=within)
