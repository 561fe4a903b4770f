"""Serves the page and a synthetic topology, with faults and changes by script.

It has the paths and headers of docs/designs/topology.md, so that the page is tested without a
cluster, with any model and any fault. tests/real/test_page.py has the page on the real manager.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from .model import Json, build_changes, build_model, find_pods, pods_of, what_stops

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGE_FOLDER = Path(__file__).parents[2] / "src/vsphere_operators/ui"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
CONTENT_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
KINDS = {
    "vmgroups": "VmGroup",
    "gpuinfoes": "GPUInfo",
    "hostinfoes": "HostInfo",
    "vminfoes": "VMInfo",
    "datastoreinfoes": "DatastoreInfo",
    "clusterinfoes": "ClusterInfo",
    "nodes": "Node",
    "pods": "Pod",
}


class PageServer:
    """`token` and `is_forbidden` can be changed at any time, and apply to the next request."""

    def __init__(self, model: Json | None = None) -> None:
        self.model = build_model() if model is None else model
        self.changes = build_changes(self.model)
        self.token = ""
        self.is_forbidden = False
        self.sends_heartbeats = True
        self.heartbeat_seconds = 10.0
        # Requests are accepted and never answered.
        self.hangs = False
        self.requests: list[str] = []
        self.searches: list[str] = []
        self.page_bytes: dict[str, int] = {}
        self._epoch, self._number = uuid.uuid4().hex[:4], 1
        self._clients: set[asyncio.Queue[bytes | None]] = set()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    @property
    def revision(self) -> str:
        return f"{self._epoch}-{self._number}"

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/topology", self._handle_topology)
        app.router.add_get("/topology/events", self._handle_events)
        app.router.add_get("/topology/changes", self._handle_changes)
        app.router.add_get("/topology/nodes/{name}/pods", self._handle_pods)
        app.router.add_get("/topology/pods", self._handle_pod_search)
        app.router.add_get("/topology/what-if/hosts/{id:.+}", self._handle_what_if)
        app.router.add_get("/topology/objects/{plural}/{namespace}/{name}", self._handle_object)
        app.router.add_get("/topology/objects/nodes/{name}", self._handle_object)
        app.router.add_get("/{path:.*}", self._handle_file)
        app.middlewares.append(self._authorize)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.end_streams()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        """As another process: revisions have another epoch."""
        await self.stop()
        self.switch_epoch()
        await self.start()

    def switch_epoch(self) -> None:
        """As a proxy that passes open connections on to another process."""
        self._epoch, self._number = uuid.uuid4().hex[:4], 1

    def end_streams(self) -> None:
        """As the manager does after some minutes."""
        for client in self._clients:
            client.put_nowait(None)

    def change(
        self, changed: Json | None = None, removed: dict[str, list[str]] | None = None
    ) -> None:
        """Apply a change to the model and send it to all clients."""
        for name, objects in (changed or {}).items():
            ids = {item["id"] for item in objects}
            kept = [item for item in self.model[name] if item["id"] not in ids]
            self.model[name] = sorted([*kept, *objects], key=lambda item: str(item["id"]))
        for name, removed_ids in (removed or {}).items():
            self.model[name] = [i for i in self.model[name] if i["id"] not in removed_ids]
        self._number += 1
        data = {
            "revision": self.revision,
            "time": self.model["time"],
            "changed": changed or {},
            "removed": removed or {},
        }
        event = f"event: change\nid: {self.revision}\ndata: {json.dumps(data)}\n\n"
        for client in self._clients:
            client.put_nowait(event.encode())

    def find(self, collection: str, object_id: str) -> Json:
        return dict(next(i for i in self.model[collection] if i["id"] == object_id))

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append(request.path)
        if request.path.startswith("/topology"):
            if self.hangs:
                await asyncio.Event().wait()
            if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
                return web.Response(status=401, text="Unauthorized: a bearer token is required")
            if self.is_forbidden:
                return web.Response(status=403, text='Forbidden: user "eve" cannot get /topology')
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _handle_file(self, request: web.Request) -> web.Response:
        path = request.match_info["path"] or "index.html"
        file = (PAGE_FOLDER / path).resolve()
        if not file.is_relative_to(PAGE_FOLDER) or file.suffix not in CONTENT_TYPES:
            return web.Response(status=404)
        body = await asyncio.to_thread(file.read_bytes)
        self.page_bytes[path] = len(body)
        return web.Response(body=body, content_type=CONTENT_TYPES[file.suffix])

    async def _handle_topology(self, request: web.Request) -> web.Response:
        return web.json_response(
            {**self.model, "revision": self.revision}, headers={"ETag": f'"{self.revision}"'}
        )

    async def _handle_changes(self, request: web.Request) -> web.Response:
        return web.json_response(self.changes)

    async def _handle_pods(self, request: web.Request) -> web.Response:
        node = request.match_info["name"]
        return web.json_response({"node": node, "pods": pods_of(self.model, node), "problems": []})

    async def _handle_what_if(self, request: web.Request) -> web.Response:
        result = what_stops(self.model, request.match_info["id"])
        if result is None:
            return web.Response(status=404, text="Not found: no host has this id")
        return web.json_response(result)

    async def _handle_pod_search(self, request: web.Request) -> web.Response:
        text = request.query.get("search", "")
        self.searches.append(text)
        return web.json_response(find_pods(self.model, text))

    async def _handle_object(self, request: web.Request) -> web.Response:
        name, namespace = request.match_info["name"], request.match_info.get("namespace", "")
        kind = KINDS.get(request.match_info.get("plural", "nodes"))
        if kind is None:
            return web.Response(status=404, text="Not found: objects of this kind cannot be read")
        return web.json_response(
            {
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "isPartial": kind in ("Node", "Pod"),
                "omittedEvents": 3,
                "yaml": f"kind: {kind}\nmetadata:\n  name: {name}\n  namespace: {namespace}\n",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "False",
                        "reason": "Cloning",
                        "message": "2/4 replicas ready; cloning 2",
                        "lastTransitionTime": self.model["time"],
                    }
                ],
                "events": [
                    {
                        "time": self.model["time"],
                        "type": "Normal",
                        "reason": "CloneStarted",
                        "message": 'Cloning VM "web-2" from template "ubuntu-24.04".',
                        "count": 1,
                    }
                ],
            }
        )

    async def _handle_events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        if request.query.get("since") != self.revision:
            await response.write(b"event: reset\ndata: {}\n\n")
            return response
        client: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._clients.add(client)
        try:
            await response.write(b": connected\n\n")
            while (event := await self._next_event(client)) is not None:
                await response.write(event)
        except ConnectionResetError:
            pass
        finally:
            self._clients.discard(client)
        return response

    async def _next_event(self, client: asyncio.Queue[bytes | None]) -> bytes | None:
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(client.get(), self.heartbeat_seconds)
            if self.sends_heartbeats:
                data = {
                    "revision": self.revision,
                    "time": self.model["time"],
                    "manager": self.model["manager"],
                }
                return f"event: heartbeat\ndata: {json.dumps(data)}\n\n".encode()


@asynccontextmanager
async def run_server(model: Json | None = None) -> AsyncIterator[PageServer]:
    server = PageServer(model)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
