"""Kubernetes Events, which `kubectl describe` shows at its end. Recording one never blocks, never
fails a reconcile and never floods the API server.

An Event that repeats the last equal one within ten minutes raises the count of that one. Of Events
that differ only in their messages, nine are written within ten minutes. From the tenth on they are
combined in one more Event, as in client-go's EventAggregator: it counts them, and has the message
of the last after "(combined from similar events): ". Each object may cause 25 new Events in a row
and one more every five minutes, as in client-go's EventSourceObjectSpamFilter. An Event above that
is combined with similar ones; without any it is dropped and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from msgspec import Struct

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
# client-go's maxEvents of 10 includes the Event that combines the others.
MAX_SEPARATE_EVENTS = 9
_COMBINED_PREFIX = "(combined from similar events): "
MAX_QUEUE_LENGTH = 1000
_MAX_LRU_CACHE_ENTRIES = 4096
# The API server rejects an Event with a longer message.
_MAX_MESSAGE_LENGTH = 1024


class _RecordedEvent(Struct):
    key: Key
    count: int
    recorded_at: float


class _SimilarEvents(Struct):
    """The Events of an object with the same type and reason."""

    recorded_at: float
    # Those with a message of their own.
    separate: int = 0
    combined: _RecordedEvent | None = None


class _TokenBucket(Struct):
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
        may_record: Callable[[], bool] | None = None,
    ) -> None:
        """`may_record` returns whether this replica is the one to record an Event now."""
        self._may_record = may_record
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
        if self._may_record is not None and not self._may_record():
            return
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
        is_recent = recorded is not None and self._is_recent(recorded.recorded_at)
        if recorded is not None and is_recent and await self._repeat(recorded):
            self._recorded_events.move_to_end(event_key)
            return
        similar = self._similar_events.get(event_key[:-1])
        if similar is None or not self._is_recent(similar.recorded_at):
            similar = _SimilarEvents(self._clock())
        if similar.separate >= MAX_SEPARATE_EVENTS or not self._take_token(obj.uid):
            if not similar.separate:
                self._metrics.events_dropped.inc()
                return
            await self._combine(similar, event)
        else:
            recorded = await self._create(event)
            similar.separate += 1
            _put_in_lru(self._recorded_events, event_key, recorded)
        similar.recorded_at = self._clock()
        _put_in_lru(self._similar_events, event_key[:-1], similar)

    def _is_recent(self, recorded_at: float) -> bool:
        return self._clock() - recorded_at < _DEDUPLICATION_SECONDS

    async def _create(self, event: Event) -> _RecordedEvent:
        event.count, event.firstTimestamp, event.lastTimestamp = 1, utc_now(), utc_now()
        # It exists if another process has recorded it for the same version of the object.
        with suppress(AlreadyExists):
            await self._client.create(event)
        return _RecordedEvent(event.key, 1, self._clock())

    async def _combine(self, similar: _SimilarEvents, event: Event) -> None:
        """Write the Event that stands for all further similar ones.

        It needs no token: there is at most one for each Event that took one.
        """
        event.message = f"{_COMBINED_PREFIX}{event.message}"[:_MAX_MESSAGE_LENGTH]
        if similar.combined is None or not await self._repeat(similar.combined, event.message):
            similar.combined = await self._create(event)

    async def _repeat(self, recorded: _RecordedEvent, message: str = "") -> bool:
        """Raise the count of a recorded Event, and replace its message if one is given."""
        changes = {"count": recorded.count + 1, "lastTimestamp": utc_now()}
        if message:
            changes["message"] = message
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
    """Names in the order of the object's versions.

    The times of Events have whole seconds. kubectl shows Events of one second in the order in which
    the API server lists them, which is that of their names.
    """
    revision = f"{int(metadata.resourceVersion):010x}" if metadata.resourceVersion.isdigit() else ""
    return f"{metadata.name[:200]}.{revision}{suffix[:16]}"


def _put_in_lru(cache: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _MAX_LRU_CACHE_ENTRIES:
        cache.popitem(last=False)
