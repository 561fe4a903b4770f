"""Kubernetes Events, which `kubectl describe` shows at its end. Recording one never blocks, never
fails a reconcile and never floods the API server.

An Event that repeats the last equal one within ten minutes raises the count of that one. Of Events
that differ only in their messages, ten are written within ten minutes, as in client-go's
EventAggregator. Each further one raises the count of the last, with its own message after
"(combined from similar events): ". Each object may cause 25 new Events in a row and one more every
five minutes, as in client-go's EventSourceObjectSpamFilter. An Event above that is combined with
a similar one; without one it is dropped and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from .builtin import Event, EventSource, ObjectReference
from .client import Client
from .condition import utc_now
from .definition import KindDefinition
from .errors import AlreadyExists, NotFound
from .kind import Key, Object, ObjectMeta
from .log import Log
from .metrics import Metrics

_K = TypeVar("_K")
_V = TypeVar("_V")
EventType = Literal["Normal", "Warning"]

_DEDUPLICATION_SECONDS = 600.0
BURST, _REFILL_SECONDS = 25, 300.0
MAX_SIMILAR_EVENTS = 10
_COMBINED_PREFIX = "(combined from similar events): "
MAX_QUEUE_LENGTH = 1000
_MAX_LRU_CACHE_ENTRIES = 4096
# The API server rejects an Event with a longer message.
_MAX_MESSAGE_LENGTH = 1024


@dataclass
class _RecordedEvent:
    key: Key
    count: int
    recorded_at: float


@dataclass
class _SimilarEvents:
    """The Events of an object with the same type and reason."""

    last: _RecordedEvent
    count: int


@dataclass
class _TokenBucket:
    tokens: float
    refilled_at: float


class EventRecorder:
    """Queues Events and writes them one after the other."""

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
        self._client, self._metrics, self._log = client, metrics, log
        self._component, self._instance, self._clock = component, instance, clock
        self.queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUE_LENGTH)
        self._recorded_events: OrderedDict[tuple[str, ...], _RecordedEvent] = OrderedDict()
        self._similar_events: OrderedDict[tuple[str, ...], _SimilarEvents] = OrderedDict()
        self._token_buckets: OrderedDict[str, _TokenBucket] = OrderedDict()

    def event(
        self,
        obj: Object,
        type: EventType,
        reason: str,
        message: str,
        *,
        once_per_version: bool = False,
    ) -> None:
        """Record an Event about an object. Returns immediately; `run` writes it.

        With `once_per_version`, it is about this version of the object (its resourceVersion). If
        another process records it as well, such as the next leader, it is written once.
        """
        name = _name_of_version(obj.metadata, type, reason, message) if once_per_version else ""
        self.event_about(obj.metadata, obj.definition, type, reason, message, name)

    def event_about(
        self,
        metadata: ObjectMeta,
        definition: KindDefinition,
        type: EventType,
        reason: str,
        message: str,
        name: str = "",
    ) -> None:
        """Record an Event about an object of which only the metadata could be decoded.

        The default is a random name.
        """
        reference = ObjectReference(
            apiVersion=definition.api_version,
            kind=definition.name,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resourceVersion=metadata.resourceVersion,
        )
        event = Event(
            involvedObject=reference,
            type=type,
            reason=reason,
            message=message[:_MAX_MESSAGE_LENGTH],
            source=EventSource(component=self._component),
            reportingComponent=self._component,
            reportingInstance=self._instance,
        )
        event.metadata = ObjectMeta(
            name=name or _format_name(metadata, uuid.uuid4().hex),
            # Events about cluster-scoped objects are stored in `default`, as client-go does.
            namespace=metadata.namespace or "default",
        )
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self._metrics.events_dropped.inc()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            event = await self.queue.get()
            try:
                await self._write_event(event)
            except Exception as error:
                # Events are best effort: a failure must not end the process.
                self._metrics.events_dropped.inc()
                self._log.debug("an event could not be written", error=error, reason=event.reason)
            finally:
                self.queue.task_done()

    async def flush(self) -> None:
        """Wait until all recorded Events are written."""
        await self.queue.join()

    async def _write_event(self, event: Event) -> None:
        obj = event.involvedObject
        event_key = (
            obj.uid,
            obj.name,
            obj.namespace,
            event.type,
            event.reason,
            event.message,
        )
        recorded = self._recorded_events.get(event_key)
        if recorded is not None and self._is_recent(recorded) and await self._repeat(recorded):
            self._recorded_events.move_to_end(event_key)
            return
        similar_key = event_key[:-1]
        similar = self._similar_events.get(similar_key)
        if similar is not None and not self._is_recent(similar.last):
            similar = None
        if similar is not None and similar.count >= MAX_SIMILAR_EVENTS:
            if await self._repeat(similar.last, event):
                self._similar_events.move_to_end(similar_key)
                return
            similar = None
        if not self._take_token(obj.uid):
            if similar is None or not await self._repeat(similar.last, event):
                self._metrics.events_dropped.inc()
            return
        event.count, event.firstTimestamp, event.lastTimestamp = 1, utc_now(), utc_now()
        # It exists if another process has recorded it for the same version of the object.
        with suppress(AlreadyExists):
            await self._client.create(event)
        recorded = _RecordedEvent(event.key, 1, self._clock())
        _put_in_lru(self._recorded_events, event_key, recorded)
        count = similar.count + 1 if similar is not None else 1
        _put_in_lru(self._similar_events, similar_key, _SimilarEvents(recorded, count))

    def _is_recent(self, recorded: _RecordedEvent) -> bool:
        return self._clock() - recorded.recorded_at < _DEDUPLICATION_SECONDS

    async def _repeat(self, recorded: _RecordedEvent, similar: Event | None = None) -> bool:
        """Raise the count of a recorded Event, with the message of a similar one if given."""
        changes = {"count": recorded.count + 1, "lastTimestamp": utc_now()}
        if similar is not None:
            changes["message"] = f"{_COMBINED_PREFIX}{similar.message}"[:_MAX_MESSAGE_LENGTH]
        try:
            await self._client.patch(Event, recorded.key, changes)
        except NotFound:
            # The API server removes Events after an hour (--event-ttl): record a new one.
            return False
        recorded.count, recorded.recorded_at = recorded.count + 1, self._clock()
        return True

    def _take_token(self, uid: str) -> bool:
        now = self._clock()
        bucket = self._token_buckets.get(uid) or _TokenBucket(BURST, now)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.refilled_at) / _REFILL_SECONDS)
        bucket.refilled_at = now
        _put_in_lru(self._token_buckets, uid, bucket)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _name_of_version(metadata: ObjectMeta, type: EventType, reason: str, message: str) -> str:
    identity = "\0".join([metadata.uid, metadata.resourceVersion, type, reason, message])
    return _format_name(metadata, hashlib.sha256(identity.encode()).hexdigest())


def _format_name(metadata: ObjectMeta, suffix: str) -> str:
    return f"{metadata.name[:200]}.{suffix[:16]}"


def _put_in_lru(cache: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _MAX_LRU_CACHE_ENTRIES:
        cache.popitem(last=False)
