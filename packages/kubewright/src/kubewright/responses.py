"""Decodes list pages and watch lines object by object, so that one bad object does not hide the
others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from .condition import Condition
from .definition import KindDefinition
from .errors import Gone, Undecodable, error_from_status
from .kind import Object, ObjectMeta

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
    is_sharded: bool = False
    """Whether the server has applied the shard selector of the request."""


class WatchEvent(Struct, Generic[T]):
    """One line of a watch. A BOOKMARK has no object, only a resourceVersion."""

    type: str
    object: T | UndecodableObject | None
    resource_version: str
    ends_initial_events: bool = False
    """Whether all objects were delivered, in a watch that began with them."""


class _ShardInfo(Struct):
    selector: str = ""


class _ListMeta(Struct):
    resourceVersion: str = ""
    shardInfo: _ShardInfo | None = None
    continue_token: str = msgspec.field(default="", name="continue")


class _ListHead(Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _RawList(_ListHead):
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


class _RemovalMetadata(Struct):
    uid: str = ""
    finalizers: list[str] = []
    deletionGracePeriodSeconds: int = 0


class _StatusDetails(Struct):
    uid: str = ""


class _RemovalResponse(Struct):
    """The response to a DELETE: a Status, or the object."""

    kind: str = ""
    metadata: _RemovalMetadata = msgspec.field(default_factory=_RemovalMetadata)
    details: _StatusDetails = msgspec.field(default_factory=_StatusDetails)


_LIST_DECODER = msgspec.json.Decoder(_RawList)
_WATCH_EVENT_DECODER = msgspec.json.Decoder(_RawWatchEvent)


def decode_page(kind: type[T], body: bytes) -> Page[T]:
    try:
        raw = _decode_json(_LIST_DECODER, body)
    except (msgspec.DecodeError, RecursionError) as error:
        resource = kind.definition.group_resource
        raise Undecodable(f"the list of {resource} cannot be decoded: {error}") from error
    items = [decode_item(kind, item) for item in raw.items or ()]
    metadata = raw.metadata
    is_sharded = metadata.shardInfo is not None
    return Page(items, metadata.resourceVersion, metadata.continue_token, is_sharded)


def decode_continue_token(body: bytes) -> str:
    """Where the next page of a list begins; "" at its end."""
    return msgspec.json.decode(body, type=_ListHead).metadata.continue_token


def decode_item(kind: type[T], raw: bytes | Raw) -> T | UndecodableObject:
    """Decode one object as it is stored, after the transform of a selection."""
    try:
        obj = kind.decode(raw)
        selection = kind.definition.selection
        if selection is None or selection.transform is None:
            return obj
        return _transform(obj, selection.transform)
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


def _transform(obj: T, transform: Callable[[T], T]) -> T:
    metadata, name = obj.metadata, getattr(transform, "__name__", "transform")
    try:
        transformed: object = transform(obj)
    except Exception as error:
        raise Undecodable(f"{name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(transformed, type(obj)):
        raise Undecodable(f"{name} returned {type(transformed).__name__}, not the object")
    kept = transformed.metadata
    if (kept.key, kept.uid, kept.resourceVersion) != (
        metadata.key,
        metadata.uid,
        metadata.resourceVersion,
    ):
        raise Undecodable(f"{name} changed the name, namespace, uid or resourceVersion")
    return transformed


def removed_uid(definition: KindDefinition, raw: bytes) -> str | None:
    """The uid of the object that a request has removed; "" if the object still exists, None if
    the response does not show it.

    An object that has finalizers or a grace period is only marked. For some kinds the server
    returns the removed object, for others a Status.
    """
    try:
        response = msgspec.json.decode(raw, type=_RemovalResponse)
    except msgspec.DecodeError:
        return None
    if response.kind == "Status":
        return response.details.uid or None
    metadata = response.metadata
    # A Namespace has its finalizers in the spec.
    is_namespace = (definition.group, definition.plural) == ("", "namespaces")
    if is_namespace or metadata.finalizers or metadata.deletionGracePeriodSeconds:
        return ""
    return metadata.uid or None


def decode_watch_event(kind: type[T], raw: bytes, operation: str) -> WatchEvent[T]:
    """Decode one line of a watch. An ERROR line raises the error that it describes."""
    try:
        line = _decode_json(_WATCH_EVENT_DECODER, raw)
        if line.type == "BOOKMARK":
            bookmark = msgspec.json.decode(line.object, type=_PartialObject).metadata
            is_end = bookmark.annotations.get("k8s.io/initial-events-end") == "true"
            return WatchEvent(line.type, None, bookmark.resourceVersion, is_end)
        if line.type in ("ADDED", "MODIFIED", "DELETED"):
            item = decode_item(kind, line.object)
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
