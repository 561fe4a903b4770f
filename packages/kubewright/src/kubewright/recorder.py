"""Kubernetes Events: what `kubectl describe` shows at its end. They never block, never fail a reconcile, never flood.

The same thing said again within ten minutes raises the count of the event that is there; each object may say 25 new things
at once and one more every five minutes, client-go's own figures. What is over that is dropped and counted.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from .builtin import Event, EventSource, ObjectReference
from .client import Client
from .errors import NotFound
from .kind import Kind, Object
from .log import Log
from .meta import Key, ObjectMeta, now
from .metrics import Metrics
from .responses import Undecoded

K = TypeVar("K")
V = TypeVar("V")
EventType = Literal["Normal", "Warning"]

SAME_FOR_SECONDS = 600.0
BURST, REFILL_SECONDS = 25, 300.0
LONGEST_QUEUE = 1000
MOST_REMEMBERED = 4096
LONGEST_MESSAGE = 1024


@dataclass
class Said:
    """An event that is in the cluster already."""

    key: Key
    count: int
    at: float


@dataclass
class Budget:
    """How many new events an object may still cause."""

    left: float
    at: float


class Recorder:
    """Queues events and writes them one after the other."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        log: Log,
        *,
        component: str,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.metrics, self.log = client, metrics, log
        self.component, self.instance, self.clock = component, instance, clock
        self.queue: asyncio.Queue[Event] = asyncio.Queue(LONGEST_QUEUE)
        self.said: OrderedDict[tuple[str, ...], Said] = OrderedDict()
        self.budgets: OrderedDict[str, Budget] = OrderedDict()

    def event(
        self, obj: Object | Undecoded, kind: Kind, type: EventType, reason: str, message: str
    ) -> None:
        """Say something about an object. Returns at once."""
        about = ObjectReference(
            apiVersion=kind.api_version,
            kind=kind.name,
            namespace=obj.metadata.namespace,
            name=obj.metadata.name,
            uid=obj.metadata.uid,
            resourceVersion=obj.metadata.resourceVersion,
        )
        new = Event(
            involvedObject=about,
            type=type,
            reason=reason,
            message=message[:LONGEST_MESSAGE],
            source=EventSource(component=self.component),
            reportingComponent=self.component,
            reportingInstance=self.instance,
        )
        try:
            self.queue.put_nowait(new)
        except asyncio.QueueFull:
            self.metrics.event_dropped()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self.queue.get()
            try:
                await self.write(event)
            except Exception as error:
                # Whatever an event runs into, the controllers go on.
                self.metrics.event_dropped()
                self.log.debug("an event could not be written", error=error, reason=event.reason)
            finally:
                self.queue.task_done()

    async def flush(self) -> None:
        """Wait until everything that was said is written."""
        await self.queue.join()

    async def write(self, event: Event) -> None:
        """Count up the same event, or make a new one."""
        about = event.involvedObject
        same = (about.uid, about.name, about.namespace, event.type, event.reason, event.message)
        known = self.said.get(same)
        if (
            known is not None
            and self.clock() - known.at < SAME_FOR_SECONDS
            and await self.count_up(known)
        ):
            return
        if not self.may_say_more(about.uid):
            self.metrics.event_dropped()
            return
        made = await self.client.create(self.named(event))
        remember(self.said, same, Said(made.key, 1, self.clock()))

    async def count_up(self, known: Said) -> bool:
        """One more of the same; False when the event has expired in the cluster."""
        try:
            await self.client.patch(
                Event, known.key, {"count": known.count + 1, "lastTimestamp": now()}
            )
        except NotFound:
            return False
        known.count, known.at = known.count + 1, self.clock()
        return True

    def named(self, event: Event) -> Event:
        """The event with name and times; for a cluster-scoped object events live in `default`."""
        about = event.involvedObject
        event.metadata = ObjectMeta(
            name=f"{about.name[:200]}.{uuid.uuid4().hex[:16]}",
            namespace=about.namespace or "default",
        )
        event.count, event.firstTimestamp, event.lastTimestamp = 1, now(), now()
        return event

    def may_say_more(self, uid: str) -> bool:
        """A token bucket an object."""
        at = self.clock()
        budget = self.budgets.get(uid) or Budget(BURST, at)
        budget.left = min(BURST, budget.left + (at - budget.at) / REFILL_SECONDS)
        budget.at = at
        remember(self.budgets, uid, budget)
        if budget.left < 1:
            return False
        budget.left -= 1
        return True


def remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep the latest, forget the oldest."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MOST_REMEMBERED:
        memory.popitem(last=False)
