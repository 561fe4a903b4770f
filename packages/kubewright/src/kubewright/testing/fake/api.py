"""`FakeApi`: implements the transport, injects faults, and finds the handler of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import yaml

from ...condition import utc_now
from ...crd import build_crds
from ...errors import TimedOut
from ...kind import Object, Resource
from ...patch import Json
from ...transport import Request, do_nothing
from .deletion import ObjectDeleter
from .failure import (
    method_not_allowed,
    no_such_path,
    not_found,
    not_served,
    raise_api_errors,
)
from .object_store import EventType, ObjectStore
from .object_writer import APPLY_PATCH, ObjectWriter, WriteOptions
from .reading import ObjectReader, to_response
from .resource_path import ResourcePath, parse_path
from .served_kind import KindRegistry, ServedKind
from .subresources import SubresourceHandler
from .watching import Watch

_Fault = Callable[[Request], Exception | None]
_VERSION = {"gitVersion": "fake"}
_DELETE_OPTIONS = ("propagationPolicy", "gracePeriodSeconds")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class FakeApi(ObjectStore):
    """Replaces a Transport: `Client(FakeApi())`. A kind that nothing declares accepts any object,
    unless `only_known_kinds` is set.

    `kinds` declares kinds as their CRDs would. So does a CRD that is created through the API.
    """

    def __init__(
        self,
        kinds: Sequence[type[Object]] = (),
        *,
        only_known_kinds: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__()
        self._only_known_kinds = only_known_kinds
        self.requests: list[Request] = []
        self.faults: list[_Fault] = []
        self.are_watches_silent = False
        """Whether new watches are accepted and receive nothing, as behind a buffering proxy."""
        self.selects_shards = False
        """Whether `shardSelector` has an effect. A server without the feature ignores it."""
        self._kinds = KindRegistry()
        self._reader = ObjectReader(self, self._kinds)
        self._writer = ObjectWriter(self, self._kinds, clock)
        self._deleter = ObjectDeleter(self, self._kinds, clock)
        self._subresources = SubresourceHandler(self._reader, self._writer, self._deleter, clock)
        for crd in build_crds(kinds):
            self.create(_CRDS, crd)

    # For tests

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

    def add(self, *objects: Object) -> None:
        """Store objects as they are: with their status, uid, generation and deletionTimestamp.

        What the API server would set is set if it is missing. They are not validated.
        """
        for obj in objects:
            body = obj.encode()
            if isinstance(obj, Resource) and obj.status == obj.status_type():
                body.pop("status", None)
            path, _ = self._find_resource(obj.definition.path(obj.metadata.namespace))
            self._writer.add(path, body)

    def create(self, path: str, body: Json) -> Json:
        """Create an object in the collection with this path."""
        with raise_api_errors(f"create {path}"):
            resource, _ = self._find_resource(path)
            return self._writer.create(resource, body, WriteOptions())

    def update(self, key: str, requested: Json, *, status: bool) -> Json:
        """Replace the status or everything else: the status changes only in its subresource."""
        with raise_api_errors(f"update {key}"):
            path, _ = self._find_resource(f"{key}/status" if status else key)
            return self._writer.replace(path, requested, WriteOptions())

    def delete(self, key: str, options: Json) -> Json:
        """Remove the object, or only mark it while it has finalizers."""
        with raise_api_errors(f"delete {key}"):
            path, _ = self._find_resource(key)
            return self._deleter.delete(path, options)

    def store(self, type: EventType, key: str, obj: Json) -> Json:
        """Store an object as it is; every write ends here."""
        stored = super().store(type, key, obj)
        if key.startswith(f"{_CRDS}/"):
            if type == "DELETED":
                self._remove_custom_resources(stored)
                self._kinds.remove_crd(stored)
            else:
                self._kinds.add_crd(stored)
        return stored

    # The transport

    async def send(self, request: Request) -> bytes:
        await self._begin(request)
        return msgspec.json.encode(self.handle(request))

    async def stream_lines(
        self,
        request: Request,
        *,
        idle_timeout_seconds: float,
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[bytes]:
        """A watch, from the resourceVersion of the request on."""
        await self._begin(request)
        if self.are_watches_silent:
            on_open()
            await asyncio.sleep(idle_timeout_seconds)
            raise TimedOut(f"{request.operation}: nothing was received")
        with raise_api_errors(request.operation):
            path, kind = self._find_resource(request.path)
            watch = Watch(self, kind, path, self._parse_query(request), request)
        async for line in watch.lines(idle_timeout_seconds=idle_timeout_seconds, on_open=on_open):
            yield msgspec.json.encode(line)

    async def _begin(self, request: Request) -> None:
        self.requests.append(request)
        await asyncio.sleep(0)
        for fault in self.faults:
            if (error := fault(request)) is not None:
                raise error

    def without_lease_guard(self) -> FakeApi:
        return self

    async def close(self) -> None:
        """Does nothing: a Transport has connections to close."""

    # Requests

    def handle(self, request: Request) -> Json:
        """The response to a request that is not a watch."""
        with raise_api_errors(request.operation):
            return self._handle(request)

    def _handle(self, request: Request) -> Json:
        if request.path == "/version":
            return _VERSION
        if (resources := self._discover(request.path)) is not None:
            return resources
        path, kind = self._find_resource(request.path)
        query, body = self._parse_query(request), _decode_body(request)
        options = WriteOptions(
            manager=query.get("fieldManager", ""),
            dry_run=query.get("dryRun") == "All",
            force=query.get("force") == "true",
        )
        if path.subresource not in ("", "status", "finalize"):
            return self._subresources.handle(request.method, path, kind, body, options)
        written: Json
        match request.method, bool(path.name):
            case "GET", True:
                return self._reader.get(path, request.accept)
            case "GET", False:
                return self._reader.list_page(path, query, request.accept)
            case "POST", False:
                written = self._writer.create(path, body, options)
            case "PUT", True:
                written = self._writer.replace(path, body, options)
            case "PATCH", True:
                written = self._writer.patch(path, request.content_type, body, options)
            case "DELETE", has_name:
                # With a body, the API server ignores the options in the query.
                delete_options = body or {k: query[k] for k in _DELETE_OPTIONS if k in query}
                dry_run = bool(body.get("dryRun")) if body else options.dry_run
                if has_name:
                    return self._deleter.delete(path, delete_options, dry_run=dry_run)
                return self._deleter.delete_collection(path, query, delete_options, dry_run=dry_run)
            case _:
                raise method_not_allowed()
        return to_response(kind, written, request.accept)

    def _parse_query(self, request: Request) -> dict[str, str]:
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if not self.selects_shards:
            query.pop("shardSelector", None)
        return query

    def _find_resource(self, text: str) -> tuple[ResourcePath, ServedKind]:
        path = parse_path(text)
        if path is None:
            raise not_served()
        kind = self._kinds.find(path)
        if kind.storage_version != path.version:
            path = replace(path, storage_version=kind.storage_version)
        if kind.is_declared:
            self._check_served(path, kind)
        elif self._only_known_kinds:
            is_group_known = self._kinds.list_served(path.group, path.version)
            raise not_served() if is_group_known else no_such_path()
        return path, kind

    def _check_served(self, path: ResourcePath, kind: ServedKind) -> None:
        if path.subresource and path.subresource not in kind.subresources:
            # For a custom resource, the API server reports that the object does not exist.
            is_custom = kind.is_custom
            raise not_found(kind.group_resource, path.name) if is_custom else not_served()
        is_cluster_wide_list = kind.namespaced and not path.name
        if kind.namespaced != bool(path.namespace) and not is_cluster_wide_list:
            raise no_such_path()

    def _discover(self, path: str) -> Json | None:
        """The resources of a group and version; None for any other path."""
        parts = path.strip("/").split("/")
        if parts[0] not in ("api", "apis") or len(parts) != (2 if parts[0] == "api" else 3):
            return None
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        kinds = self._kinds.list_served(group, version)
        if not kinds:
            raise no_such_path()
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [
                {
                    "name": kind.plural,
                    "kind": kind.name,
                    "namespaced": kind.namespaced,
                    "verbs": sorted(kind.verbs),
                }
                for kind in kinds
            ],
        }

    def _remove_custom_resources(self, crd: Json) -> None:
        """Remove all objects of the kind, as the API server does with its CRD."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in list(self.objects):
            path = parse_path(key)
            if path is not None and (path.group, path.plural) == (group, plural):
                super().store("DELETED", key, self.objects[key])


def _decode_body(request: Request) -> Any:
    if not request.body:
        return None
    if request.content_type == APPLY_PATCH:
        # JSON is YAML too, and its decoder is faster.
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(request.body)
        return yaml.safe_load(request.body)
    return msgspec.json.decode(request.body)
