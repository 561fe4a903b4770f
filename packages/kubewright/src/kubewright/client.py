"""The Kubernetes verbs, with the kind as first argument: `await client.get(HostInfo, key)`. A
client always asks the API server; the cache answers from memory.

`request_for` builds each request without a network. The methods send it and decode the response.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec

from .errors import ConfigError, KindMissing, NotFound, TimedOut, TooMuch, Undecodable
from .kind import Key, KindDefinition, Object, drop_nulls
from .overlay import overlay
from .patch import Json
from .responses import Page, UndecodableObject, WatchEvent, decode_page, decode_watch_event
from .transport import ApiTransport, Request, do_nothing

T = TypeVar("T", bound=Object)
PatchType = Literal["merge", "json", "apply"]

_PAGE_SIZE = 500
# What the next page of a list should measure. A page is decoded without a break; this much takes
# about 10 ms.
_PAGE_BYTES = 4 * 1024 * 1024
_UNRESERVED = re.compile("[A-Za-z0-9._-]*")
_PATCH_CONTENT_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# The kube-apiserver sends a bookmark about once a minute, up to 2.5 s late. A watch that is silent
# for longer is dead.
WATCH_IDLE_TIMEOUT_SECONDS = 70.0
_ENCODER = msgspec.json.Encoder()


def request_for(
    method: str,
    kind: KindDefinition,
    key: Key,
    *,
    subresource: str = "",
    query: dict[str, str] | None = None,
    body: Any = None,
    content_type: str = "application/json",
) -> Request:
    """The request for one kind and key; a key without a name means the collection."""
    namespace, name = _percent_encode(key.namespace), _percent_encode(key.name)
    is_watch = query is not None and "watch" in query
    accept = "application/json"
    if kind.metadata_only:
        accept = _METADATA_ONLY if name or is_watch else _METADATA_ONLY_LIST
    verbs = {"GET": "get" if name else "list", "POST": "create", "PUT": "replace"}
    verb = "watch" if is_watch else verbs.get(method, method.lower())
    target = "/".join(part for part in (*key, subresource) if part)
    return Request(
        method=method,
        path=kind.path(namespace, name, subresource),
        query="&".join(f"{k}={_percent_encode(v)}" for k, v in query.items() if v) if query else "",
        body=None if body is None else _ENCODER.encode(body),
        content_type="" if body is None else content_type,
        accept=accept,
        operation=f"{verb} {kind.group_resource} {target}".rstrip(),
    )


def _percent_encode(text: str) -> str:
    # Names of objects need no encoding in practice; the check is ten times as fast as quote().
    return text if _UNRESERVED.fullmatch(text) else quote(text, safe="")


class Client:
    def __init__(
        self,
        transport: ApiTransport,
        *,
        field_manager: str = "kubewright",
        on_write: Callable[[Object], None] | None = None,
    ) -> None:
        """`on_write` is called with the stored object of each write, to update a cache."""
        self.transport = transport
        self._write_query = {"fieldManager": field_manager}
        self._on_write = on_write
        self._decode_turn = asyncio.Lock()
        # By resource: how many objects fit into a page, from the last list.
        self._page_limits: dict[str, int] = {}

    async def get(self, kind: type[T], key: Key) -> T:
        return kind.decode(await self.transport.send(request_for("GET", kind.definition, key)))

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """All objects of the kind (in the namespace). Raises if one of them cannot be decoded."""
        objects: list[T] = []
        async for page in self.list_pages(
            kind, namespace, label_selector=label_selector, field_selector=field_selector
        ):
            for item in page.items:
                if isinstance(item, UndecodableObject):
                    raise Undecodable(f"{kind.definition.name} {item.metadata.key}: {item.message}")
                objects.append(item)
        return objects

    async def list_pages(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = _PAGE_SIZE,
    ) -> AsyncIterator[Page[T]]:
        """The list in pages. All pages have the same resourceVersion (a consistent read).

        A page has fewer objects than `limit` after a page with large ones.
        """
        name, continue_token, max_limit = kind.definition.group_resource, "", limit
        limit = min(limit, self._page_limits.get(name, limit))
        while True:
            query = {
                "limit": str(limit),
                "continue": continue_token,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
            }
            try:
                body = await self.transport.send(
                    request_for("GET", kind.definition, Key(namespace, ""), query=query)
                )
            except (TooMuch, TimedOut) as error:
                # Objects may be up to 1.5 MB. After a timeout the next list begins with less.
                smaller = self._page_limits[name] = max(1, limit // 8)
                if limit == 1 or isinstance(error, TimedOut):
                    raise
                limit = smaller
                continue
            async with self._decode_turn:
                page = decode_page(kind, body)
                # The next page, perhaps of another kind, is decoded in another turn of the loop.
                await asyncio.sleep(0)
            if page.items:
                fitting = self._page_limits[name] = max(
                    1, _PAGE_BYTES * len(page.items) // len(body)
                )
                limit = min(max_limit, fitting)
            yield page
            if not page.continue_token:
                return
            continue_token = page.continue_token

    async def watch(
        self,
        kind: type[T],
        resource_version: str,
        namespace: str = "",
        *,
        timeout_seconds: int = 300,
        idle_timeout_seconds: float = WATCH_IDLE_TIMEOUT_SECONDS,
        label_selector: str = "",
        field_selector: str = "",
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[WatchEvent[T]]:
        """The changes since a resourceVersion, until the server ends the watch.

        Silence, 410 and every ERROR line raise. `on_open` is called when the server has accepted
        the watch, which may be a minute before the first line.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        # The server ends a watch after timeoutSeconds. One that goes on for longer than that and
        # a bookmark interval is not served by a working API server.
        request = replace(
            request_for("GET", kind.definition, Key(namespace, ""), query=query),
            timeout_seconds=timeout_seconds + idle_timeout_seconds,
        )
        async for line in self.transport.stream_lines(
            request, idle_timeout_seconds=idle_timeout_seconds, on_open=on_open
        ):
            yield decode_watch_event(kind, line, request.operation)

    async def create(self, obj: T) -> T:
        key = Key(obj.metadata.namespace, "")
        request = request_for(
            "POST", obj.definition, key, query=self._write_query, body=obj.encode()
        )
        return await self._send_write(type(obj), request)

    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: Any,
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        force: bool = False,
    ) -> T:
        """Send a merge patch (dict), a JSON patch (list) or a server-side apply (dict with
        apiVersion and kind).
        """
        request = request_for(
            "PATCH",
            kind.definition,
            key,
            subresource=subresource,
            query=self._write_query | {"force": "true"} if force else self._write_query,
            body=patch,
            content_type=_PATCH_CONTENT_TYPES[patch_type],
        )
        return await self._send_write(kind, request)

    async def update(self, obj: T, *, subresource: str = "") -> T:
        """Replace the stored object, if it is still the version that we read.

        Fields that our class does not declare are kept: the stored object is read first, and ours
        is laid over it.
        """
        stored: Json = msgspec.json.decode(
            await self.transport.send(request_for("GET", obj.definition, obj.key))
        )
        body = overlay(stored, obj)
        body["metadata"]["resourceVersion"] = (
            obj.metadata.resourceVersion or stored["metadata"]["resourceVersion"]
        )
        request = request_for(
            "PUT",
            obj.definition,
            obj.key,
            subresource=subresource,
            query=self._write_query,
            body=body,
        )
        return await self._send_write(type(obj), request)

    async def patch_status(
        self, kind: type[T], key: Key, status: Json, *, resource_version: str = ""
    ) -> T:
        """Merge into the status; with `resource_version` only if the object is still that version.

        A uid as precondition has no effect: on the status subresource the API server ignores all
        other metadata (seen in 1.36).
        """
        patch: Json = {"status": status}
        if resource_version:
            patch["metadata"] = {"resourceVersion": resource_version}
        return await self.patch(kind, key, patch, subresource="status")

    async def _send_write(self, kind: type[T], request: Request) -> T:
        written = kind.decode(await self.transport.send(request))
        if self._on_write is not None:
            self._on_write(written)
        return written

    async def delete(
        self,
        kind: type[T],
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        """Delete the object; with `uid` or `resource_version` only if it is still that one.

        An object that does not exist is not an error.
        """
        preconditions = {"uid": uid or None, "resourceVersion": resource_version or None}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": drop_nulls(preconditions) or None,
        }
        request = request_for("DELETE", kind.definition, key, body=drop_nulls(options))
        try:
            await self.transport.send(request)
        except NotFound:
            return

    async def is_served(self, kind: type[T]) -> bool:
        """Whether the server serves the kind in this version, by discovery."""
        definition = kind.definition
        prefix = "/apis" if definition.group else "/api"
        request = Request(
            "GET",
            f"{prefix}/{definition.api_version}",
            operation=f"discover {definition.group_resource}",
        )
        try:
            body = msgspec.json.decode(await self.transport.send(request))
        except (KindMissing, NotFound):
            return False
        return any(resource["name"] == definition.plural for resource in body.get("resources", ()))

    async def server_version(self) -> str:
        """The gitVersion of the API server, such as v1.36.3."""
        request = Request("GET", "/version", operation="reach the API server", timeout_seconds=10)
        body = await self.transport.send(request)
        try:
            return str(msgspec.json.decode(body, type=Json)["gitVersion"])
        except (msgspec.DecodeError, KeyError):
            raise ConfigError(
                "the server at this address is not a Kubernetes API server: check the server in "
                "the kubeconfig"
            ) from None

    async def create_review(self, path: str, body: Json) -> Json:
        """Post a review (TokenReview, SubjectAccessReview...), which the server answers but does
        not store.
        """
        request = Request(
            "POST",
            path,
            body=_ENCODER.encode(body),
            content_type="application/json",
            operation=f"create {body.get('kind', path)}",
        )
        response: Json = msgspec.json.decode(await self.transport.send(request))
        return response
