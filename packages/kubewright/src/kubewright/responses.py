"""Decodes list pages and watch lines object by object, so that one bad object does not hide the
others.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from .errors import Gone, Undecodable, error_from_status
from .kind import Condition, Object, ObjectMeta

T = TypeVar("T", bound=Object)
_StructT = TypeVar("_StructT", bound=Struct)

# msgspec decodes nested values by recursion and fails near Python's recursion limit. No real
# object is nested as deep as this.
_MAX_NESTING = 100
_JSON_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]')


class UndecodableObject(Struct, frozen=True):
    """An object that does not match its class: the parts that could be read, and the reason."""

    metadata: ObjectMeta
    message: str
    conditions: list[Condition] = []


class Page(Struct, Generic[T]):
    """Part of a list. All pages of a list have the same resourceVersion, where a watch starts."""

    items: list[T | UndecodableObject]
    resource_version: str
    continue_token: str = ""


class WatchEvent(Struct, Generic[T]):
    """One line of a watch. A BOOKMARK has no object, only a resourceVersion."""

    type: str
    object: T | UndecodableObject | None
    resource_version: str


class _ListMeta(Struct):
    resourceVersion: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _RawList(Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[Raw] | None = None


class _RawWatchEvent(Struct):
    type: str
    object: Raw


class _PartialStatus(Struct):
    conditions: list[Condition] = []


class _PartialObject(Struct):
    """What all kinds have in common."""

    metadata: ObjectMeta
    status: _PartialStatus = msgspec.field(default_factory=_PartialStatus)


class _MinimalMetadata(Struct):
    """Identifies an object although other metadata cannot be decoded."""

    name: str
    resourceVersion: str
    namespace: str = ""
    uid: str = ""


class _MinimalObject(Struct):
    metadata: _MinimalMetadata


_LIST_DECODER = msgspec.json.Decoder(_RawList)
_WATCH_EVENT_DECODER = msgspec.json.Decoder(_RawWatchEvent)


def decode_page(kind: type[T], body: bytes) -> Page[T]:
    try:
        raw = _decode_json(_LIST_DECODER, body)
    except (msgspec.DecodeError, RecursionError) as error:
        resource = kind.definition.group_resource
        raise Undecodable(f"the list of {resource} cannot be decoded: {error}") from error
    items = [_decode_item(kind, item) for item in raw.items or ()]
    return Page(items, raw.metadata.resourceVersion, raw.metadata.continue_token)


def _decode_item(kind: type[T], raw: Raw) -> T | UndecodableObject:
    try:
        return kind.decode(raw)
    except Undecodable as error:
        reason = str(error)
    try:
        partial = msgspec.json.decode(raw, type=_PartialObject)
        return UndecodableObject(partial.metadata, reason, partial.status.conditions)
    except msgspec.DecodeError:
        minimal = msgspec.json.decode(raw, type=_MinimalObject).metadata
        metadata = ObjectMeta(
            name=minimal.name,
            namespace=minimal.namespace,
            resourceVersion=minimal.resourceVersion,
            uid=minimal.uid,
        )
        return UndecodableObject(metadata, reason)


def decode_watch_event(kind: type[T], raw: bytes, operation: str) -> WatchEvent[T]:
    """Decode one line of a watch. An ERROR line raises the error that it describes."""
    try:
        line = _decode_json(_WATCH_EVENT_DECODER, raw)
        if line.type == "BOOKMARK":
            bookmark = msgspec.json.decode(line.object, type=_PartialObject)
            return WatchEvent(line.type, None, bookmark.metadata.resourceVersion)
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
        raise Undecodable(f"{operation}: a line that is not a watch event: {error}") from error
    if status.get("code") == Gone.code or status.get("reason") in ("Expired", "Gone"):
        raise Gone(
            f"{operation}: {status.get('message', '')}", reason=str(status.get("reason", ""))
        )
    raise error_from_status(int(status.get("code") or 500), status, operation=operation)


def _decode_json(decoder: msgspec.json.Decoder[_StructT], body: bytes) -> _StructT:
    try:
        return decoder.decode(body)
    except RecursionError:
        # Drop the values that are nested too deeply, so that only the object with them fails.
        return decoder.decode(_drop_deep_nesting(body))


def _drop_deep_nesting(body: bytes) -> bytes:
    """The same JSON with null in place of every value nested deeper than _MAX_NESTING."""
    parts, depth, start = [], 0, 0
    for token in _JSON_TOKEN.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _MAX_NESTING + 1:
                parts += [body[start : token.start()], b"null"]
        elif token[0] in (b"]", b"}"):
            if depth == _MAX_NESTING + 1:
                start = token.end()
            depth -= 1
    return b"".join([*parts, body[start:]]) if depth == 0 else body
