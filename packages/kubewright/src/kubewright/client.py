"""Verbs with the type first: `await client.get(HostInfo, key)`. A client ALWAYS asks the API server; for memory there is the cache.

`request_for` builds each request without a network, and the methods send it and decode the answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from .errors import KindMissing, NotFound, TooMuch, Undecodable
from .kind import KindDefinition, Object, drop_nulls
from .meta import Key
from .overlay import overlay
from .responses import Page, UndecodableObject, WatchEvent, decode_page, decode_watch_event
from .transport import ApiTransport, Request, do_nothing

T = TypeVar("T", bound=Object)
PatchType = Literal["merge", "json", "apply"]
Json = dict[str, Any]

_PAGE_SIZE = 500
_NEEDS_NO_QUOTING = re.compile("[A-Za-z0-9._-]*").fullmatch
_PATCH_CONTENT_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Bookmarks come about once a minute (kube-apiserver's own timer, with up to 2.5 s of slack); silence beyond that is a dead watch.
_WATCH_IDLE_TIMEOUT_SECONDS = 70.0


class ScaleSpec(Struct):
    """The one number of the scale subresource."""

    replicas: int = 0


class ScaleSubresource(Struct):
    """The scale subresource."""

    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)


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
    """The request for one kind and key; an empty name means the collection. Names are quoted, never pasted."""
    namespace, name = _percent_encode(key.namespace), _percent_encode(key.name)
    accept = (
        "application/json"
        if not kind.metadata_only
        else _METADATA_ONLY
        if name or "watch" in (query or {})
        else _METADATA_ONLY_LIST
    )
    what = "/".join(part for part in (*key, subresource) if part)
    verb = (
        "watch"
        if "watch" in (query or {})
        else {"GET": "get" if name else "list", "POST": "create", "PUT": "replace"}.get(
            method, method.lower()
        )
    )
    return Request(
        method=method,
        path=kind.path(namespace, name, subresource),
        query="&".join(f"{k}={_percent_encode(v)}" for k, v in query.items() if v) if query else "",
        body=None if body is None else _ENCODER.encode(body),
        content_type="" if body is None else content_type,
        accept=accept,
        operation=f"{verb} {kind.group_resource} {what}".rstrip(),
    )


def _percent_encode(text: str) -> str:
    """The text as one part of an address. Names are plain in practice, and then this is ten times as fast as quoting."""
    return text if _NEEDS_NO_QUOTING(text) else quote(text, safe="")


class Client:
    """Reads and writes objects of any declared kind."""

    def __init__(
        self,
        sender: ApiTransport,
        *,
        field_manager: str = "kubewright",
        on_write: Callable[[Object], None] | None = None,
    ) -> None:
        self.transport = sender
        self.field_manager = field_manager
        self.on_write = on_write

    async def get(self, kind: type[T], key: Key) -> T:
        """The object, as the API server has it now."""
        return kind.decode(await self.transport.send(request_for("GET", kind.definition, key)))

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """All objects of the kind (in the namespace), read page by page; one that does not decode raises."""
        found: list[T] = []
        async for page in self.list_pages(
            kind, namespace, label_selector=label_selector, field_selector=field_selector
        ):
            for item in page.items:
                if isinstance(item, UndecodableObject):
                    raise Undecodable(f"{kind.definition.name} {item.metadata.key}: {item.message}")
                found.append(item)
        return found

    async def list_pages(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = _PAGE_SIZE,
    ) -> AsyncIterator[Page[T]]:
        """The list in pages of one consistent moment (a quorum read). A page too large to hold is asked for again in smaller ones."""
        rest = ""
        while True:
            query = {
                "limit": str(limit),
                "continue": rest,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
            }
            try:
                body = await self.transport.send(
                    request_for("GET", kind.definition, Key(namespace, ""), query=query)
                )
            except TooMuch:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            page = decode_page(kind, body)
            yield page
            if not page.continue_token:
                return
            rest = page.continue_token

    async def watch(
        self,
        kind: type[T],
        resource_version: str,
        namespace: str = "",
        *,
        timeout_seconds: int = 300,
        label_selector: str = "",
        field_selector: str = "",
        on_open: Callable[[], None] = do_nothing,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes since the revision, until the server ends the watch; silence, 410 and every error line raise.

        `opened` is called when the server has taken the watch, which may be a minute before the first line.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        query |= {"labelSelector": label_selector, "fieldSelector": field_selector}
        # The server ends a watch after timeoutSeconds; one that goes on past that and a bookmark's time is not to be trusted.
        request = replace(
            request_for("GET", kind.definition, Key(namespace, ""), query=query),
            timeout_seconds=timeout_seconds + _WATCH_IDLE_TIMEOUT_SECONDS,
        )
        async for line in self.transport.stream_lines(
            request, idle_timeout_seconds=_WATCH_IDLE_TIMEOUT_SECONDS, on_open=on_open
        ):
            yield decode_watch_event(kind, line, request.operation)

    async def create(self, obj: T) -> T:
        """Store a new object."""
        key = Key(obj.metadata.namespace, "")
        return await self._send_write(
            type(obj),
            request_for("POST", obj.definition, key, query=self._write_query(), body=obj.encode()),
        )

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
        """Change part of an object: a merge patch (dict), a JSON patch (list) or server-side apply (dict with apiVersion and kind)."""
        query = self._write_query() | ({"force": "true"} if force else {})
        request = request_for(
            "PATCH",
            kind.definition,
            key,
            subresource=subresource,
            query=query,
            body=patch,
            content_type=_PATCH_CONTENT_TYPES[patch_type],
        )
        return await self._send_write(kind, request)

    async def update(self, obj: T, *, subresource: str = "") -> T:
        """Put the object in the place of the stored one, if that is still the version we read.

        Fields that our class does not know would be lost by a plain PUT, so ours are laid over what is stored now.
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
            query=self._write_query(),
            body=body,
        )
        return await self._send_write(type(obj), request)

    async def patch_status(
        self, kind: type[T], key: Key, status: Json, *, resource_version: str = ""
    ) -> T:
        """Merge into the status; with `revision` only if nobody wrote since.

        A uid would not do: on the status subresource the API server ignores all other metadata (seen on 1.36).
        """
        patch = (
            {"metadata": {"resourceVersion": resource_version}, "status": status}
            if resource_version
            else {"status": status}
        )
        return await self.patch(kind, key, patch, subresource="status")

    async def _send_write(self, kind: type[T], request: Request) -> T:
        """Send a write and tell whoever keeps a cache of its answer, so that the next read sees it."""
        written = kind.decode(await self.transport.send(request))
        if self.on_write is not None:
            self.on_write(written)
        return written

    async def delete(
        self,
        kind: type[T],
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete the object; with `uid` or `revision` only if it is still that one. Already gone is fine."""
        preconditions = {
            name: value
            for name, value in (("uid", uid), ("resourceVersion", resource_version))
            if value
        }
        options = {
            "preconditions": preconditions or None,
            "propagationPolicy": propagation_policy or None,
            "gracePeriodSeconds": grace_period_seconds,
        }
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | drop_nulls(options)
        try:
            await self.transport.send(request_for("DELETE", kind.definition, key, body=body))
        except KindMissing:
            raise
        except NotFound:
            return

    async def scale(self, kind: type[T], key: Key, replicas: int | None = None) -> int:
        """The wanted number of replicas through the scale subresource, set first when `replicas` is given."""
        if replicas is None:
            request = request_for("GET", kind.definition, key, subresource="scale")
        else:
            request = request_for(
                "PATCH",
                kind.definition,
                key,
                subresource="scale",
                body={"spec": {"replicas": replicas}},
                content_type=_PATCH_CONTENT_TYPES["merge"],
            )
        return msgspec.json.decode(
            await self.transport.send(request), type=ScaleSubresource
        ).spec.replicas

    async def is_served(self, kind: type[T]) -> bool:
        """Whether the server knows the kind in this version (discovery)."""
        about = kind.definition
        path = f"/apis/{about.group}/{about.version}" if about.group else f"/api/{about.version}"
        try:
            body = msgspec.json.decode(
                await self.transport.send(
                    Request("GET", path, operation=f"discover {about.group_resource}")
                )
            )
        except NotFound:
            return False
        return any(resource["name"] == about.plural for resource in body.get("resources", ()))

    async def create_review(self, path: str, body: Json) -> Json:
        """Post one of the review resources (TokenReview, SubjectAccessReview...), which are questions, not objects."""
        request = Request(
            "POST",
            path,
            body=_ENCODER.encode(body),
            content_type="application/json",
            operation=f"ask {body.get('kind', path)}",
        )
        answer: Json = msgspec.json.decode(await self.transport.send(request))
        return answer

    def _write_query(self) -> dict[str, str]:
        """What every write says: who is responsible for the fields in it."""
        return {"fieldManager": self.field_manager}
