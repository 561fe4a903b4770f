"""What the API server answers: lists in pages and watches in lines, taken apart so that one bad object stops nobody."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from .errors import Gone, Undecodable, error_from_status
from .kind import Object
from .meta import Condition, ObjectMeta

T = TypeVar("T", bound=Object)
B = TypeVar("B", bound=Struct)

# msgspec follows nesting by calling itself, and gives up near Python's recursion limit; nothing honest is as deep as this.
_MAX_NESTING = 100
_JSON_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]')


class UndecodableObject(Struct, frozen=True):
    """An object that does not fit its class: what of it could be read, and why the rest could not."""

    metadata: ObjectMeta
    message: str
    conditions: list[Condition] = []


class Page(Struct, Generic[T]):
    """Part of a list, all of one moment: the revision that a watch continues from."""

    items: list[T | UndecodableObject]
    resource_version: str
    continue_token: str = ""


class WatchEvent(Struct, Generic[T]):
    """One line of a watch. A BOOKMARK carries no object, only how far the watch has come."""

    type: str
    object: T | UndecodableObject | None
    resource_version: str


class ListMeta(Struct):
    """Where a list stands, and where it goes on."""

    resourceVersion: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class RawList(Struct):
    """A list, its items not yet decoded."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[Raw] | None = None


class RawWatchEvent(Struct):
    """One line of a watch, its object not yet decoded."""

    type: str
    object: Raw


class PartialStatus(Struct):
    """What is the same in the status of every kind."""

    conditions: list[Condition] = []


class PartialObject(Struct):
    """What is the same in every kind."""

    metadata: ObjectMeta
    status: PartialStatus = msgspec.field(default_factory=PartialStatus)


class PartialObjectMetadata(Struct):
    """An object of which only the metadata matters."""

    metadata: ObjectMeta


class MinimalMetadata(Struct):
    """The least that tells which object it is."""

    name: str
    resourceVersion: str
    namespace: str = ""
    uid: str = ""


class MinimalObject(Struct):
    """An object that is broken beyond its name."""

    metadata: MinimalMetadata


_LIST_DECODER = msgspec.json.Decoder(RawList)
WATCH_EVENT_DECODER = msgspec.json.Decoder(RawWatchEvent)


def decode_page(kind: type[T], body: bytes) -> Page[T]:
    """The list in this answer, each item decoded by itself so that one bad object stops nobody."""
    try:
        listed = _decode_json(_LIST_DECODER, body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Undecodable(
            f"the list of {kind.definition.group_resource} is not one: {error}"
        ) from error
    items = [_decode_item(kind, raw) for raw in listed.items or ()]
    return Page(items, listed.metadata.resourceVersion, listed.metadata.continue_token)


def _decode_item(kind: type[T], raw: Raw) -> T | UndecodableObject:
    """The object, or what could be read of it."""
    try:
        return kind.decode(raw)
    except Undecodable as error:
        return _decode_partially(raw, str(error))


def _decode_partially(raw: Raw, why: str) -> UndecodableObject:
    """Metadata and conditions of an object that does not decode, or at least its name."""
    try:
        partial = msgspec.json.decode(raw, type=PartialObject)
        return UndecodableObject(partial.metadata, why, partial.status.conditions)
    except msgspec.DecodeError:
        bare = msgspec.json.decode(raw, type=MinimalObject).metadata
        return UndecodableObject(
            ObjectMeta(
                name=bare.name,
                namespace=bare.namespace,
                resourceVersion=bare.resourceVersion,
                uid=bare.uid,
            ),
            why,
        )


def decode_watch_event(kind: type[T], raw: bytes, operation: str) -> WatchEvent[T]:
    """The change in one line of a watch."""
    try:
        line = _decode_json(WATCH_EVENT_DECODER, raw)
        if line.type == "BOOKMARK":
            return WatchEvent(
                line.type,
                None,
                msgspec.json.decode(
                    line.object, type=PartialObjectMetadata
                ).metadata.resourceVersion,
            )
        if line.type in ("ADDED", "MODIFIED", "DELETED"):
            item = _decode_item(kind, line.object)
            if not item.metadata.name or (
                kind.definition.namespaced and not item.metadata.namespace
            ):
                raise Undecodable(f"{operation}: an object without a name or namespace")
            return WatchEvent(line.type, item, item.metadata.resourceVersion)
        if line.type != "ERROR":
            raise Undecodable(f"{operation}: a line of the unknown type {line.type[:40]!r}")
        status = msgspec.json.decode(line.object, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Undecodable(f"{operation}: a line that is no watch event: {error}") from error
    if status.get("code") == Gone.code or status.get("reason") in ("Expired", "Gone"):
        raise Gone(
            f"{operation}: {status.get('message', '')}", reason=str(status.get("reason", ""))
        )
    raise error_from_status(int(status.get("code") or 500), status, operation=operation)


def _decode_json(decoder: msgspec.json.Decoder[B], body: bytes) -> B:
    """The body, without what is nested too deep to follow: an object that holds it must not hide all others."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_drop_deep_nesting(body))


def _drop_deep_nesting(body: bytes) -> bytes:
    """The same JSON, with null in the place of whatever is nested deeper than DEEPEST."""
    kept, depth, start = [], 0, 0
    for token in _JSON_TOKEN.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _MAX_NESTING + 1:
                kept += [body[start : token.start()], b"null"]
        elif token[0] in (b"]", b"}"):
            if depth == _MAX_NESTING + 1:
                start = token.end()
            depth -= 1
    return b"".join([*kept, body[start:]]) if depth == 0 else body
