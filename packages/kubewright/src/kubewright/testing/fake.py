"""An API server in memory that replaces the transport, for fast tests of controllers.

It has objects of any kind, resourceVersion preconditions, merge patches, the status subresource,
generations, finalizers, pages and watches. It has no schemas, no RBAC and no admission: test those
on the real API server. The tests of kubewright run on both, so that they behave the same.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from ..errors import AlreadyExists, Conflict, Gone, NotFound
from ..kind import Object, utc_now
from ..patch import Json, apply_merge_patch
from ..transport import Request, do_nothing

_Fault = Callable[[Request], Exception | None]
_SERVER_METADATA_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "name",
    "namespace",
)


class FakeApi:
    """Replaces a Transport: `Client(FakeApi())`."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        """Stored objects by their path."""
        # Not 0: a resourceVersion of "0" means "any" in a request.
        self.revision = 1000
        self.oldest_revision = 0
        self._watchers: list[tuple[str, asyncio.Queue[Json | None]]] = []
        self.history: list[tuple[int, str, Json]] = []
        self.requests: list[Request] = []
        self.faults: list[_Fault] = []

    def fail_next(self, method: str, path_part: str, error: Exception, times: int = 1) -> None:
        """Raise `error` for the next requests with this method and `path_part` in their path."""
        remaining = times

        def fault(request: Request) -> Exception | None:
            nonlocal remaining
            if remaining and request.method == method and path_part in request.path:
                remaining -= 1
                return error
            return None

        self.faults.append(fault)

    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def add(self, obj: Object) -> None:
        """Store an object, as if a user had created it."""
        self.create(obj.definition.path(obj.metadata.namespace), obj.encode())

    async def send(self, request: Request) -> bytes:
        self.requests.append(request)
        await asyncio.sleep(0)
        for fault in self.faults:
            if (error := fault(request)) is not None:
                raise error
        body = msgspec.json.decode(request.body) if request.body else None
        return msgspec.json.encode(self.handle(request, body))

    def handle(self, request: Request, body: Any) -> Json:
        path = request.path
        if path == "/version":
            return {"gitVersion": "fake"}
        if request.method == "POST":
            return self.create(path, body)
        if request.method == "GET" and path not in self.objects and "limit=" in request.query:
            return self._list_page(path, parse_qs(request.query))
        base, status = (
            (path.removesuffix("/status"), True) if path.endswith("/status") else (path, False)
        )
        if base not in self.objects:
            raise NotFound(f"{request.operation}: not found", status_code=404)
        if request.method == "GET":
            return self.objects[base]
        if request.method == "DELETE":
            return self.delete(base, body or {})
        patched = body if request.method == "PUT" else apply_merge_patch(self.objects[base], body)
        return self.update(base, patched, status=status)

    def _list_page(self, path: str, query: dict[str, list[str]]) -> Json:
        items = [self.objects[key] for key in sorted(self.objects) if _is_in_collection(key, path)]
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = start + limit
        token = str(end) if end < len(items) else ""
        return {
            "metadata": {"resourceVersion": str(self.revision), "continue": token},
            "items": items[start:end],
        }

    def create(self, path: str, body: Json) -> Json:
        key = f"{path}/{body['metadata']['name']}"
        if key in self.objects:
            raise AlreadyExists(f"{key} already exists", reason="AlreadyExists")
        metadata = body["metadata"] | {
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "creationTimestamp": utc_now().isoformat(),
        }
        return self.store(
            "ADDED", key, {k: v for k, v in body.items() if k != "status"} | {"metadata": metadata}
        )

    def update(self, key: str, requested: Json, *, status: bool) -> Json:
        """Replace the status or everything else: the status changes only in its subresource."""
        old = self.objects[key]
        expected = requested["metadata"].get("resourceVersion")
        if expected and expected != old["metadata"]["resourceVersion"]:
            raise Conflict(f"{key}: the resourceVersion is no longer {expected}", reason="Conflict")
        if status:
            new = {k: v for k, v in old.items() if k != "status"} | (
                {"status": requested["status"]} if "status" in requested else {}
            )
        else:
            new = {k: v for k, v in requested.items() if k != "status"} | (
                {"status": old["status"]} if "status" in old else {}
            )
            # Clients cannot change these fields: the API server keeps its own values.
            kept = {k: old["metadata"][k] for k in _SERVER_METADATA_FIELDS if k in old["metadata"]}
            new["metadata"] = requested["metadata"] | kept
            new["metadata"]["generation"] += new.get("spec") != old.get("spec")
        if new == old:
            return old
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self.store("DELETED", key, new)
        return self.store("MODIFIED", key, new)

    def delete(self, key: str, options: Json) -> Json:
        """Remove the object, or only set its deletionTimestamp while it has finalizers."""
        old = self.objects[key]
        for name, value in options.get("preconditions", {}).items():
            if old["metadata"][name] != value:
                raise Conflict(f"{key}: precondition failed: {name} {value}", reason="Conflict")
        if not old["metadata"].get("finalizers"):
            return self.store("DELETED", key, old)
        if old["metadata"].get("deletionTimestamp"):
            return old
        marked = old["metadata"] | {
            "deletionTimestamp": utc_now().isoformat(),
            "generation": old["metadata"]["generation"] + 1,
        }
        return self.store("MODIFIED", key, old | {"metadata": marked})

    def store(self, type: str, key: str, obj: Json) -> Json:
        """Give the object the next resourceVersion, store or remove it, and notify the watches."""
        self.revision += 1
        obj = copy.deepcopy(
            obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.revision)}}
        )
        if type == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
        event = {"type": type, "object": obj}
        self.history.append((self.revision, key, event))
        for path, queue in self._watchers:
            if _is_in_collection(key, path):
                queue.put_nowait(event)
        return obj

    async def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        """A watch, from the resourceVersion of the request on."""
        self.requests.append(request)
        for fault in self.faults:
            if (error := fault(request)) is not None:
                raise error
        since = int(parse_qs(request.query)["resourceVersion"][0])
        if since < self.oldest_revision:
            raise Gone("too old resource version", reason="Expired")
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        for revision, key, event in self.history:
            if revision > since and _is_in_collection(key, request.path):
                queue.put_nowait(event)
        watcher = (request.path, queue)
        self._watchers.append(watcher)
        on_open()
        try:
            while (event_or_end := await queue.get()) is not None:
                yield msgspec.json.encode(event_or_end)
        finally:
            self._watchers.remove(watcher)

    def without_lease_guard(self) -> FakeApi:
        return self

    async def close(self) -> None:
        """Does nothing: a Transport has connections to close."""

    def close_watches(self) -> None:
        """Close every watch, as a restarting API server does."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    def compact(self) -> None:
        """Discard all past events: a watch from an earlier resourceVersion gets 410."""
        self.oldest_revision = self.revision
        self.history.clear()


def _is_in_collection(key: str, path: str) -> bool:
    """Whether the object is in the collection, which may span all namespaces."""
    folder, _, _ = key.rpartition("/")
    if folder == path:
        return True
    prefix, _, plural = path.rpartition("/")
    return (
        folder.startswith(f"{prefix}/namespaces/")
        and folder.endswith(f"/{plural}")
        and "/namespaces/" not in path
    )
