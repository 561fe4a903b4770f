"""An API server in memory, at the transport's place: fast tests of controllers, with the same answers as the real one.

It knows objects of any kind, resourceVersion preconditions, merge patches, the status subresource, generation, finalizers,
pages and watches. It knows no schemas, no RBAC and no admission: those need the real one. The tests of
kubewright run on both, so that the two cannot drift apart.
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
from ..kind import Object, now
from ..overlay import apply_merge_patch
from ..transport import Request, do_nothing

Json = dict[str, Any]
Fault = Callable[[Request], Exception | None]
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
    """Stands where a Transport stands: `Client(FakeApi())`."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        """Stored objects by their path."""
        self.revision = 1000
        self.oldest_revision = 0
        self._watchers: list[tuple[str, asyncio.Queue[Json | None]]] = []
        self.history: list[tuple[int, str, Json]] = []
        self.requests: list[Request] = []
        self.faults: list[Fault] = []

    def fail_next(self, method: str, part: str, error: Exception, times: int = 1) -> None:
        """Let the next calls of this method whose path contains `part` fail."""
        left = [times]

        def fault(request: Request) -> Exception | None:
            if left[0] and request.method == method and part in request.path:
                left[0] -= 1
                return error
            return None

        self.faults.append(fault)

    def writes(self) -> list[Request]:
        """Every mutating call so far."""
        return [request for request in self.requests if request.method != "GET"]

    def add(self, obj: Object) -> None:
        """Store an object as if a user had created it."""
        self.create(obj.definition.path(obj.metadata.namespace), obj.encode())

    async def send(self, request: Request) -> bytes:
        """Answer one call."""
        self.requests.append(request)
        await asyncio.sleep(0)
        for fault in self.faults:
            if (error := fault(request)) is not None:
                raise error
        body = msgspec.json.decode(request.body) if request.body else None
        return msgspec.json.encode(self.handle(request, body))

    def handle(self, request: Request, body: Any) -> Json:
        """What the API server would say."""
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
        """One page of the collection."""
        found = [self.objects[key] for key in sorted(self.objects) if _is_in_collection(key, path)]
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        rest = str(start + limit) if start + limit < len(found) else ""
        return {
            "metadata": {"resourceVersion": str(self.revision), "continue": rest},
            "items": found[start : start + limit],
        }

    def create(self, path: str, body: Json) -> Json:
        """A new object."""
        key = f"{path}/{body['metadata']['name']}"
        if key in self.objects:
            raise AlreadyExists(f"{key} already exists", reason="AlreadyExists")
        metadata = body["metadata"] | {
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "creationTimestamp": now().isoformat(),
        }
        return self.store(
            "ADDED", key, {k: v for k, v in body.items() if k != "status"} | {"metadata": metadata}
        )

    def update(self, key: str, wanted: Json, *, status: bool) -> Json:
        """A changed object: the status through its subresource alone, everything else not through it."""
        old = self.objects[key]
        if (expected := wanted["metadata"].get("resourceVersion")) not in (
            None,
            "",
            old["metadata"]["resourceVersion"],
        ):
            raise Conflict(
                f"{key}: the resourceVersion is not {expected} any more", reason="Conflict"
            )
        if status:
            new = {k: v for k, v in old.items() if k != "status"} | (
                {"status": wanted["status"]} if "status" in wanted else {}
            )
        else:
            new = {k: v for k, v in wanted.items() if k != "status"} | (
                {"status": old["status"]} if "status" in old else {}
            )
            served = {
                k: old["metadata"][k] for k in _SERVER_METADATA_FIELDS if k in old["metadata"]
            }
            new["metadata"] = wanted["metadata"] | served
            new["metadata"]["generation"] += new.get("spec") != old.get("spec")
        if new == old:
            return old
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self.store("DELETED", key, new)
        return self.store("MODIFIED", key, new)

    def delete(self, key: str, options: Json) -> Json:
        """Gone at once, or marked while a finalizer holds it."""
        old = self.objects[key]
        for name, value in options.get("preconditions", {}).items():
            if old["metadata"][name] != value:
                raise Conflict(
                    f"{key}: the {name} in the precondition is {value}", reason="Conflict"
                )
        if not old["metadata"].get("finalizers"):
            return self.store("DELETED", key, old)
        if old["metadata"].get("deletionTimestamp"):
            return old
        marked = old["metadata"] | {
            "deletionTimestamp": now().isoformat(),
            "generation": old["metadata"]["generation"] + 1,
        }
        return self.store("MODIFIED", key, old | {"metadata": marked})

    def store(self, type: str, key: str, obj: Json) -> Json:
        """Give it the next resourceVersion, keep or drop it, tell the watchers."""
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
        """A watch from the given revision on."""
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
            while (told := await queue.get()) is not None:
                yield msgspec.json.encode(told)
        finally:
            self._watchers.remove(watcher)

    def unguarded(self) -> FakeApi:
        """The same."""
        return self

    async def close(self) -> None:
        """Nothing to close."""

    def close_watches(self) -> None:
        """Close every watch, as a server does that restarts."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    def compact(self) -> None:
        """Forget the past: a watch from before now is 410."""
        self.oldest_revision = self.revision
        self.history.clear()


def _is_in_collection(key: str, path: str) -> bool:
    """Whether the object at `key` belongs to the collection at `path`, which may span all namespaces."""
    folder, _, _ = key.rpartition("/")
    if folder == path:
        return True
    prefix, _, plural = path.rpartition("/")
    return (
        folder.startswith(f"{prefix}/namespaces/")
        and folder.endswith(f"/{plural}")
        and "/namespaces/" not in path
    )
