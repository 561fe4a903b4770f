"""Watches: the events since a resourceVersion, as a selector sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from ...errors import TimedOut
from ...patch import Json
from ...transport import Request
from .failure import field_cause, invalid
from .object_store import ObjectStore, StoredEvent
from .reading import to_response
from .resource_path import ResourcePath, is_in_collection
from .selectors import Predicate, parse_selectors
from .served_kind import ServedKind
from .shard_selector import parse_shard_selector

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_DEFAULT_TIMEOUT_SECONDS = "1800"


class Watch:
    """One watch request; iterate over `lines` to get its events as plain values."""

    def __init__(
        self,
        store: ObjectStore,
        kind: ServedKind,
        path: ResourcePath,
        query: Mapping[str, str],
        request: Request,
    ) -> None:
        self._store, self._kind, self._request = store, kind, request
        self._collection = path.collection
        self._matches: Predicate = parse_selectors(
            kind, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        self._matches_shards = parse_shard_selector(query.get("shardSelector", ""))
        self._sends_bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._timeout_seconds = float(query.get("timeoutSeconds", _DEFAULT_TIMEOUT_SECONDS))
        self._sends_initial_events = _parse_initial_events(query)
        version = query.get("resourceVersion", "")
        self._since = int(version) if version not in ("", "0") else None

    async def lines(
        self, *, idle_timeout_seconds: float, on_open: Callable[[], None]
    ) -> AsyncIterator[Json]:
        on_open()
        if self._since is not None and self._since < self._store.oldest_revision:
            yield _too_old(self._since, self._store.oldest_revision)
            return
        queue: asyncio.Queue[StoredEvent | None] = asyncio.Queue()
        watcher = (self._collection, queue)
        backlog = [*self._backlog()]
        self._store.watchers.append(watcher)
        try:
            for line in backlog:
                yield line
            async for line in self._follow(queue, idle_timeout_seconds):
                yield line
        finally:
            self._store.watchers.remove(watcher)

    def _backlog(self) -> Iterator[Json]:
        """What the watch sends first: the present objects, or the events since its version."""
        if self._sends_initial_events or (
            self._since is None and self._sends_initial_events is None
        ):
            for obj in self._store.list_collection(self._collection):
                if self._matches(obj) and self._matches_shards(obj):
                    yield self._line("ADDED", obj)
            if self._sends_initial_events and self._sends_bookmarks:
                yield self._bookmark({_INITIAL_EVENTS_END: "true"})
            return
        for event in self._store.history:
            is_new = self._since is not None and event.revision > self._since
            if is_new and is_in_collection(event.key, self._collection):
                yield from self._lines_of(event)

    async def _follow(
        self, queue: asyncio.Queue[StoredEvent | None], idle_timeout_seconds: float
    ) -> AsyncIterator[Json]:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._timeout_seconds
        # As kube-apiserver does for a quiet kind, this sends no bookmarks.
        while True:
            remaining = ends_at - loop.time()
            wait_seconds = min(remaining, idle_timeout_seconds)
            try:
                async with asyncio.timeout(wait_seconds):
                    event = await queue.get()
            except TimeoutError:
                if wait_seconds < remaining:
                    raise TimedOut(f"{self._request.operation}: nothing was received") from None
                return
            if event is None:
                return
            for line in self._lines_of(event):
                yield line

    def _lines_of(self, event: StoredEvent) -> Iterator[Json]:
        """An object that begins or ceases to match the selector is added or deleted."""
        if not self._matches_shards(event.object):
            return
        is_shown = event.type != "DELETED" and self._matches(event.object)
        was_shown = event.previous is not None and self._matches(event.previous)
        if is_shown:
            yield self._line("MODIFIED" if was_shown else "ADDED", event.object)
        elif was_shown and event.previous is not None:
            # The last state that matched, with the version of the event.
            last = event.object if event.type == "DELETED" else event.previous
            version = event.object["metadata"]["resourceVersion"]
            metadata = last["metadata"] | {"resourceVersion": version}
            yield self._line("DELETED", last | {"metadata": metadata})

    def _line(self, type: str, obj: Json) -> Json:
        return {"type": type, "object": to_response(self._kind, obj, self._request.accept)}

    def _bookmark(self, annotations: dict[str, str]) -> Json:
        metadata: dict[str, Any] = {
            "resourceVersion": str(self._store.revision),
            "annotations": annotations,
        }
        obj = {"apiVersion": self._kind.api_version, "kind": self._kind.name, "metadata": metadata}
        return {"type": "BOOKMARK", "object": to_response(self._kind, obj, self._request.accept)}


def _parse_initial_events(query: Mapping[str, str]) -> bool | None:
    requested, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    if requested is None:
        if match:
            text = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents"
            cause = field_cause(
                "FieldValueForbidden", "resourceVersionMatch", f"{text} is provided"
            )
            raise invalid("ListOptions.meta.k8s.io", "", [cause])
        return None
    if match != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        cause = field_cause("FieldValueForbidden", "resourceVersionMatch", text)
        raise invalid("ListOptions.meta.k8s.io", "", [cause])
    return requested == "true"


def _too_old(since: int, oldest: int) -> Json:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {since} ({oldest})",
        "reason": "Expired",
        "code": 410,
    }
    return {"type": "ERROR", "object": status}
