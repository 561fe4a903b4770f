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
from .kind import KindDefinition, Object
from .log import Log
from .meta import Key, ObjectMeta, now
from .metrics import Metrics
from .responses import UndecodableObject

K = TypeVar("K")
V = TypeVar("V")
EventType = Literal["Normal", "Warning"]

_DEDUPLICATION_SECONDS = 600.0
BURST, REFILL_SECONDS = 25, 300.0
MAX_QUEUE_LENGTH = 1000
_MAX_LRU_CACHE_ENTRIES = 4096
MAX_MESSAGE_LENGTH = 1024


@dataclass
class RecordedEvent:
    """An event that is in the cluster already."""

    key: Key
    count: int
    recorded_at: float


@dataclass
class TokenBucket:
    """How many new events an object may still cause."""

    tokens: float
    refilled_at: float


class EventRecorder:
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
        self.queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUE_LENGTH)
        self._recorded_events: OrderedDict[tuple[str, ...], RecordedEvent] = OrderedDict()
        self._token_buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def event(
        self,
        obj: Object | UndecodableObject,
        kind: KindDefinition,
        type: EventType,
        reason: str,
        message: str,
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
            message=message[:MAX_MESSAGE_LENGTH],
            source=EventSource(component=self.component),
            reportingComponent=self.component,
            reportingInstance=self.instance,
        )
        try:
            self.queue.put_nowait(new)
        except asyncio.QueueFull:
            self.metrics.count_dropped_event()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self.queue.get()
            try:
                await self._write_event(event)
            except Exception as error:
                # Whatever an event runs into, the controllers go on.
                self.metrics.count_dropped_event()
                self.log.debug("an event could not be written", error=error, reason=event.reason)
            finally:
                self.queue.task_done()

    async def flush(self) -> None:
        """Wait until everything that was said is written."""
        await self.queue.join()

    async def _write_event(self, event: Event) -> None:
        """Count up the same event, or make a new one."""
        about = event.involvedObject
        same = (about.uid, about.name, about.namespace, event.type, event.reason, event.message)
        known = self._recorded_events.get(same)
        if (
            known is not None
            and self.clock() - known.recorded_at < _DEDUPLICATION_SECONDS
            and await self._increment_count(known)
        ):
            return
        if not self._take_token(about.uid):
            self.metrics.count_dropped_event()
            return
        made = await self.client.create(self._with_metadata(event))
        _put_in_lru(self._recorded_events, same, RecordedEvent(made.key, 1, self.clock()))

    async def _increment_count(self, known: RecordedEvent) -> bool:
        """One more of the same; False when the event has expired in the cluster."""
        try:
            await self.client.patch(
                Event, known.key, {"count": known.count + 1, "lastTimestamp": now()}
            )
        except NotFound:
            return False
        known.count, known.recorded_at = known.count + 1, self.clock()
        return True

    def _with_metadata(self, event: Event) -> Event:
        """The event with name and times; for a cluster-scoped object events live in `default`."""
        about = event.involvedObject
        event.metadata = ObjectMeta(
            name=f"{about.name[:200]}.{uuid.uuid4().hex[:16]}",
            namespace=about.namespace or "default",
        )
        event.count, event.firstTimestamp, event.lastTimestamp = 1, now(), now()
        return event

    def _take_token(self, uid: str) -> bool:
        """A token bucket an object."""
        at = self.clock()
        budget = self._token_buckets.get(uid) or TokenBucket(BURST, at)
        budget.tokens = min(BURST, budget.tokens + (at - budget.refilled_at) / REFILL_SECONDS)
        budget.refilled_at = at
        _put_in_lru(self._token_buckets, uid, budget)
        if budget.tokens < 1:
            return False
        budget.tokens -= 1
        return True


def _put_in_lru(memory: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep the latest, forget the oldest."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _MAX_LRU_CACHE_ENTRIES:
        memory.popitem(last=False)
