"""The changes of the model as Server-Sent Events, to many clients at once.

What does an idle client cost?  Its connection and one task. Nothing is queued for a client, and
    clients at the same revision share the bytes of an event (store.py).
What if a client does not read?  Its write waits until the connection takes more. After 10 s the
    connection is closed. Others do not wait for it.
Why does a stream end after 10 minutes?  The token is checked when a request begins. The client
    connects again, and a revoked permission takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from kubewright.endpoint import busy_response
from kubewright.log import Log

from .metrics import TopologyMetrics
from .store import TopologyStore

MAX_CLIENTS = 224
_HEARTBEAT_SECONDS = 10.0
_MIN_INTERVAL_SECONDS = 0.2
_WRITE_TIMEOUT_SECONDS = 10.0
_MAX_STREAM_SECONDS = 600.0
_RETRY_AFTER_SECONDS = 30


class EventStreams:
    """The clients of /topology/events."""

    def __init__(
        self,
        store: TopologyStore,
        metrics: TopologyMetrics,
        log: Log,
        *,
        max_clients: int = MAX_CLIENTS,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
        write_timeout_seconds: float = _WRITE_TIMEOUT_SECONDS,
    ) -> None:
        self._store, self._log, self._max_clients = store, log, max_clients
        self._heartbeat_seconds = heartbeat_seconds
        self._write_timeout_seconds = write_timeout_seconds
        self._tasks: set[asyncio.Task[object]] = set()
        self._dropped = metrics.dropped_clients
        metrics.clients.set_function(lambda: len(self._tasks))
        metrics.omitted_vms.set_function(lambda: len(store.omitted_vms))

    async def handle(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """`headers` are those that each response of the server has."""
        if len(self._tasks) >= self._max_clients:
            return busy_response(
                f"{self._max_clients} clients receive changes already, which is the limit",
                _RETRY_AFTER_SECONDS,
            )
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await self._send_events(request, headers)
        finally:
            self._tasks.discard(task)

    async def _send_events(
        self, request: web.Request, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **headers,
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                # Proxies such as nginx would hold events back.
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        since = request.query.get("since") or request.headers.get("Last-Event-ID", "")
        number = self._store.parse_revision(since) if since else self._store.number
        try:
            if number is None:
                await self._write(response, self._store.encode_event("reset", self._store.number))
            else:
                async with asyncio.timeout(_MAX_STREAM_SECONDS):
                    await self._follow(response, number)
        except _SlowClient:
            self._dropped.inc()
            self._log.info("disconnected a client of the topology that does not read")
            if request.transport is not None:
                # Not closed in an orderly way: that would wait for the client to read.
                request.transport.abort()
        except (TimeoutError, ConnectionError):
            # _MAX_STREAM_SECONDS have passed, or the client has closed the connection.
            pass
        return response

    async def _follow(self, response: web.StreamResponse, number: int) -> None:
        changed = asyncio.Event()
        self._store.connect(changed.set)
        try:
            while True:
                if not self._store.knows_changes_after(number):
                    event_data = self._store.encode_event("reset", self._store.number)
                    await self._write(response, event_data)
                    return
                if number < self._store.number:
                    event = self._store.encode_changes(number)
                    await self._write(response, event.data)
                    number = event.number
                    await asyncio.sleep(_MIN_INTERVAL_SECONDS)
                    continue
                changed.clear()
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        await changed.wait()
                except TimeoutError:
                    await self._write(response, self._store.encode_heartbeat())
        finally:
            self._store.disconnect(changed.set)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_seconds):
                await response.write(data)
        except TimeoutError:
            raise _SlowClient from None

    async def close(self) -> None:
        """End all streams: the server waits for the responses in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _SlowClient(Exception):
    """The client did not read an event in time."""
