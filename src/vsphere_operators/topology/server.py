"""The HTTP interface of the topology: docs/designs/topology.md has its paths.

On a loopback address no token is needed: only processes in the Pod and `kubectl port-forward` reach
it. The Host header is checked, so that a web site cannot read it through the browser that the
port is forwarded to (DNS rebinding). On any other address the endpoint has TLS and bearer tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

import msgspec
from aiohttp import web

from kubewright import Key
from kubewright.authorization import Authorizer
from kubewright.endpoint import Endpoint, Handler, choose_certificate, text_response
from kubewright.listen import parse_address
from kubewright.log import Log

from . import model
from .builder import TopologyBuilder
from .changes import ChangeLog
from .cluster_objects import ClusterObjects
from .object_details import ObjectReader
from .pods import MAX_SEARCH_LENGTH, build_pod_row, search_pods
from .store import TopologyStore
from .streams import MAX_CLIENTS, EventStreams
from .what_if import Inventory, find_affected

_UI_FOLDER = Path(__file__).parent.parent / "ui"
# More than the requests and streams together: one more connection ends an idle one, never a stream.
_MAX_CONNECTIONS = 256
_MAX_REQUESTS = 24
# Clients of events, and some that are being authorized or rejected.
_MAX_STREAMS = MAX_CLIENTS + 4
_ADVICE = "Choose another address with -ui-bind-address, or 0 to disable the page"
_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_encoder = msgspec.json.Encoder()


class _StaticFile(msgspec.Struct, frozen=True):
    body: bytes
    content_type: str
    etag: str


def _is_loopback(bind_address: str) -> bool:
    """Whether only processes on this machine, or in this Pod, can connect to the address."""
    address = parse_address(bind_address)
    return address is not None and _is_loopback_host(address.host)


def _is_loopback_host(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_static_files(folder: Path) -> dict[str, _StaticFile]:
    """The files of the page by their path. Read once: a path in a request opens no file."""
    files = {}
    for path in sorted(folder.rglob("*")):
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is not None and path.is_file():
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            files[f"/{path.relative_to(folder).as_posix()}"] = _StaticFile(body, content_type, etag)
    if "/index.html" in files:
        files["/"] = files["/index.html"]
    return files


class TopologyServer:
    """Serves the model and the page; a runnable of the manager."""

    def __init__(
        self,
        bind_address: str,
        *,
        store: TopologyStore,
        builder: TopologyBuilder,
        streams: EventStreams,
        changes: ChangeLog,
        cluster_objects: ClusterObjects,
        objects: ObjectReader,
        authorizer: Authorizer,
        certificate_dir: str = "",
        log: Log,
        ui_folder: Path = _UI_FOLDER,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._builder, self._streams = store, builder, streams
        self._changes, self._cluster_objects, self._objects = changes, cluster_objects, objects
        self._ui_folder, self._clock = ui_folder, clock
        self._files: Mapping[str, _StaticFile] = {}
        self._is_local_only = _is_loopback(bind_address)
        self.endpoint = endpoint = Endpoint(
            "the page",
            bind_address,
            advice=_ADVICE,
            max_connections=_MAX_CONNECTIONS,
            max_in_flight=_MAX_REQUESTS,
            max_streams=_MAX_STREAMS,
            certificate=None if self._is_local_only else choose_certificate(certificate_dir, log),
            authorizer=None if self._is_local_only else authorizer,
            middlewares=[self._protect],
            log=log,
        )
        endpoint.add_get("/topology", self._handle_topology)
        endpoint.add_get("/topology/events", self._handle_events, is_stream=True)
        endpoint.add_get("/topology/changes", self._handle_changes)
        endpoint.add_get("/topology/nodes/{name}/pods", self._handle_pods)
        endpoint.add_get("/topology/pods", self._handle_pod_search)
        endpoint.add_get("/topology/what-if/hosts/{id:.+}", self._handle_what_if)
        endpoint.add_get("/topology/objects/{plural:nodes}/{name}", self._handle_object)
        endpoint.add_get("/topology/objects/{plural}/{namespace}/{name}", self._handle_object)
        endpoint.add_get("/{path:.*}", self._handle_static, public=True)

    async def run(self) -> NoReturn:
        """Serve until cancelled."""
        self._files = await asyncio.to_thread(_read_static_files, self._ui_folder)
        try:
            await self.endpoint.start()
            await self._builder.follow_pods()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")
        finally:
            await self._streams.close()
            await self.endpoint.stop()
            await self._builder.close()

    @web.middleware
    async def _protect(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Checks that apply to each request, and headers that each response has."""
        response = self._reject(request)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = text_response(error.status, error.reason)
        if not response.prepared:
            response.headers.update(_SECURITY_HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _reject(self, request: web.Request) -> web.StreamResponse | None:
        if request.method not in ("GET", "HEAD"):
            return text_response(
                405, "Method not allowed: the topology is read-only", {"Allow": "GET, HEAD"}
            )
        host = request.headers.get("Host", "")
        name, _, port = host.rpartition(":")
        if self._is_local_only and not _is_loopback_host(name if port.isdigit() and name else host):
            return text_response(
                403,
                "Forbidden: the Host header must be localhost or a loopback address. To reach the "
                "page from elsewhere, use kubectl port-forward",
            )
        # Browsers send it. A web site must not open streams, even if it cannot read them.
        if request.path != "/" and request.headers.get("Sec-Fetch-Site") in (
            "cross-site",
            "same-site",
        ):
            return text_response(403, "Forbidden: requests of other web sites are not served")
        return None

    async def _handle_topology(self, request: web.Request) -> web.StreamResponse:
        await self._builder.build_all()
        body = self._store.encode_snapshot()
        etag = f'"{self._store.revision}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _handle_events(self, request: web.Request) -> web.StreamResponse:
        await self._builder.build_all()
        return await self._streams.handle(request, _SECURITY_HEADERS)

    async def _handle_changes(self, request: web.Request) -> web.StreamResponse:
        return _json_response(self._changes.read())

    async def _handle_pods(self, request: web.Request) -> web.StreamResponse:
        await self._builder.build_all()
        name = request.match_info["name"]
        if name not in self._store.items(model.Node):
            return text_response(404, "Not found: no Node has this name")
        pods = [build_pod_row(pod) for pod in self._cluster_objects.pods_of(name)]
        problems = self._cluster_objects.problems()
        return _json_response({"node": name, "pods": pods, "problems": problems})

    async def _handle_pod_search(self, request: web.Request) -> web.StreamResponse:
        text = request.query.get("search", "").strip()
        if not text or len(text) > MAX_SEARCH_LENGTH:
            return text_response(
                400, f"Bad request: `search` must have 1 to {MAX_SEARCH_LENGTH} characters"
            )
        pods = self._cluster_objects
        return _json_response(await search_pods(pods.all_pods(), text, pods.problems()))

    async def _handle_what_if(self, request: web.Request) -> web.StreamResponse:
        await self._builder.build_all()
        store = self._store
        host = store.items(model.Host).get(request.match_info["id"])
        if host is None:
            return text_response(404, "Not found: no host has this id")
        inventory = Inventory(
            vcenters=store.items(model.VCenter).values(),
            vms=store.items(model.VM),
            nodes=store.items(model.Node),
            disks=store.items(model.Disk).values(),
            datastores=store.items(model.Datastore),
            groups=store.items(model.VmGroup),
            limits=store.limits,
        )
        return _json_response(
            find_affected(
                host,
                inventory,
                self._cluster_objects.all_pods(),
                self._cluster_objects.all_budgets(),
                self._clock(),
                self._cluster_objects.problems(),
            )
        )

    async def _handle_object(self, request: web.Request) -> web.StreamResponse:
        match = request.match_info
        key = Key(match.get("namespace", ""), match["name"])
        details = await self._objects.read(match["plural"], key)
        if details is None:
            return text_response(
                404,
                "Not found: only Nodes, Pods and objects of the manager's own kinds can be read "
                "here, and only those that exist",
            )
        return _json_response(details)

    async def _handle_static(self, request: web.Request) -> web.StreamResponse:
        # Compared with the decoded path: an encoded ".." is a name that no file has.
        file = self._files.get(request.path)
        if file is None:
            text = "Not found"
            if request.path == "/":
                text += ": this build has no page; /topology has the model as JSON"
            return text_response(404, text)
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if file.etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, headers={"Content-Type": file.content_type, **headers})


def _json_response(value: object) -> web.Response:
    return web.Response(body=_encoder.encode(value), content_type="application/json")
