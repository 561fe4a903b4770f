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
from .kind import Kind, Object, plain
from .meta import Key
from .overlay import overlay
from .responses import Change, Page, Undecoded, change_of, page_of
from .transport import Request, Sender, nothing

T = TypeVar("T", bound=Object)
PatchKind = Literal["merge", "json", "apply"]
Json = dict[str, Any]

PAGE = 500
PLAIN = re.compile("[A-Za-z0-9._-]*").fullmatch
CONTENT_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Bookmarks come about once a minute (kube-apiserver's own timer, with up to 2.5 s of slack); silence beyond that is a dead watch.
SILENCE_SECONDS = 70.0


class ScaleReplicas(Struct):
    """The one number of the scale subresource."""

    replicas: int = 0


class ScaleBody(Struct):
    """The scale subresource."""

    spec: ScaleReplicas = msgspec.field(default_factory=ScaleReplicas)


ENCODER = msgspec.json.Encoder()


def request_for(
    method: str,
    kind: Kind,
    key: Key,
    *,
    subresource: str = "",
    query: dict[str, str] | None = None,
    body: Any = None,
    content_type: str = "application/json",
) -> Request:
    """The request for one kind and key; an empty name means the collection. Names are quoted, never pasted."""
    namespace, name = quoted(key.namespace), quoted(key.name)
    accept = (
        "application/json"
        if not kind.metadata_only
        else METADATA_ONLY
        if name or "watch" in (query or {})
        else METADATA_ONLY_LIST
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
        query="&".join(f"{k}={quoted(v)}" for k, v in query.items() if v) if query else "",
        body=None if body is None else ENCODER.encode(body),
        content_type="" if body is None else content_type,
        accept=accept,
        doing=f"{verb} {kind.resource} {what}".rstrip(),
    )


def quoted(text: str) -> str:
    """The text as one part of an address. Names are plain in practice, and then this is ten times as fast as quoting."""
    return text if PLAIN(text) else quote(text, safe="")


class Client:
    """Reads and writes objects of any declared kind."""

    def __init__(
        self,
        sender: Sender,
        *,
        field_manager: str = "kubewright",
        wrote: Callable[[Object], None] | None = None,
    ) -> None:
        self.sender = sender
        self.field_manager = field_manager
        self.wrote = wrote

    async def get(self, kind: type[T], key: Key) -> T:
        """The object, as the API server has it now."""
        return kind.decode(await self.sender.send(request_for("GET", kind.definition, key)))

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[T]:
        """All objects of the kind (in the namespace), read page by page; one that does not decode raises."""
        found: list[T] = []
        async for page in self.pages(kind, namespace, labels=labels, fields=fields):
            for item in page.items:
                if isinstance(item, Undecoded):
                    raise Undecodable(f"{kind.definition.name} {item.metadata.key}: {item.why}")
                found.append(item)
        return found

    async def pages(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
    ) -> AsyncIterator[Page[T]]:
        """The list in pages of one consistent moment (a quorum read). A page too large to hold is asked for again in smaller ones."""
        rest = ""
        while True:
            query = {
                "limit": str(limit),
                "continue": rest,
                "labelSelector": labels,
                "fieldSelector": fields,
            }
            try:
                body = await self.sender.send(
                    request_for("GET", kind.definition, Key(namespace, ""), query=query)
                )
            except TooMuch:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            page = page_of(kind, body)
            yield page
            if not page.rest:
                return
            rest = page.rest

    async def watch(
        self,
        kind: type[T],
        revision: str,
        namespace: str = "",
        *,
        timeout_seconds: int = 300,
        labels: str = "",
        fields: str = "",
        opened: Callable[[], None] = nothing,
    ) -> AsyncIterator[Change[T]]:
        """Changes since the revision, until the server ends the watch; silence, 410 and every error line raise.

        `opened` is called when the server has taken the watch, which may be a minute before the first line.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": revision,
            "timeoutSeconds": str(timeout_seconds),
        }
        query |= {"labelSelector": labels, "fieldSelector": fields}
        # The server ends a watch after timeoutSeconds; one that goes on past that and a bookmark's time is not to be trusted.
        request = replace(
            request_for("GET", kind.definition, Key(namespace, ""), query=query),
            timeout_seconds=timeout_seconds + SILENCE_SECONDS,
        )
        async for line in self.sender.lines(
            request, silence_seconds=SILENCE_SECONDS, opened=opened
        ):
            yield change_of(kind, line, request.doing)

    async def create(self, obj: T) -> T:
        """Store a new object."""
        key = Key(obj.metadata.namespace, "")
        return await self.write(
            type(obj),
            request_for("POST", obj.definition, key, query=self.query(), body=obj.encode()),
        )

    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: Any,
        *,
        how: PatchKind = "merge",
        subresource: str = "",
        force: bool = False,
    ) -> T:
        """Change part of an object: a merge patch (dict), a JSON patch (list) or server-side apply (dict with apiVersion and kind)."""
        query = self.query() | ({"force": "true"} if force else {})
        request = request_for(
            "PATCH",
            kind.definition,
            key,
            subresource=subresource,
            query=query,
            body=patch,
            content_type=CONTENT_TYPES[how],
        )
        return await self.write(kind, request)

    async def replace(self, obj: T, *, subresource: str = "") -> T:
        """Put the object in the place of the stored one, if that is still the version we read.

        Fields that our class does not know would be lost by a plain PUT, so ours are laid over what is stored now.
        """
        stored: Json = msgspec.json.decode(
            await self.sender.send(request_for("GET", obj.definition, obj.key))
        )
        body = overlay(stored, obj)
        body["metadata"]["resourceVersion"] = (
            obj.metadata.resourceVersion or stored["metadata"]["resourceVersion"]
        )
        request = request_for(
            "PUT", obj.definition, obj.key, subresource=subresource, query=self.query(), body=body
        )
        return await self.write(type(obj), request)

    async def patch_status(self, kind: type[T], key: Key, status: Json, *, revision: str = "") -> T:
        """Merge into the status; with `revision` only if nobody wrote since.

        A uid would not do: on the status subresource the API server ignores all other metadata (seen on 1.36).
        """
        patch = (
            {"metadata": {"resourceVersion": revision}, "status": status}
            if revision
            else {"status": status}
        )
        return await self.patch(kind, key, patch, subresource="status")

    async def write(self, kind: type[T], request: Request) -> T:
        """Send a write and tell whoever keeps a cache of its answer, so that the next read sees it."""
        written = kind.decode(await self.sender.send(request))
        if self.wrote is not None:
            self.wrote(written)
        return written

    async def delete(
        self,
        kind: type[T],
        key: Key,
        *,
        uid: str = "",
        revision: str = "",
        propagation: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete the object; with `uid` or `revision` only if it is still that one. Already gone is fine."""
        preconditions = {
            name: value for name, value in (("uid", uid), ("resourceVersion", revision)) if value
        }
        options = {
            "preconditions": preconditions or None,
            "propagationPolicy": propagation or None,
            "gracePeriodSeconds": grace_seconds,
        }
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | plain(options)
        try:
            await self.sender.send(request_for("DELETE", kind.definition, key, body=body))
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
                content_type=CONTENT_TYPES["merge"],
            )
        return msgspec.json.decode(await self.sender.send(request), type=ScaleBody).spec.replicas

    async def serves(self, kind: type[T]) -> bool:
        """Whether the server knows the kind in this version (discovery)."""
        about = kind.definition
        path = f"/apis/{about.group}/{about.version}" if about.group else f"/api/{about.version}"
        try:
            body = msgspec.json.decode(
                await self.sender.send(Request("GET", path, doing=f"discover {about.resource}"))
            )
        except NotFound:
            return False
        return any(resource["name"] == about.plural for resource in body.get("resources", ()))

    async def review(self, path: str, body: Json) -> Json:
        """Post one of the review resources (TokenReview, SubjectAccessReview...), which are questions, not objects."""
        request = Request(
            "POST",
            path,
            body=ENCODER.encode(body),
            content_type="application/json",
            doing=f"ask {body.get('kind', path)}",
        )
        answer: Json = msgspec.json.decode(await self.sender.send(request))
        return answer

    def query(self) -> dict[str, str]:
        """What every write says: who is responsible for the fields in it."""
        return {"fieldManager": self.field_manager}
