"""Get and list: pages, selectors, and responses with metadata only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...patch import Json
from .failure import bad_request, gone, not_found
from .object_store import ObjectStore
from .resource_path import ResourcePath
from .selectors import parse_selectors
from .served_kind import KindRegistry, ServedKind
from .shard_selector import parse_shard_selector

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def _wants_metadata_only(accept: str) -> bool:
    return "as=PartialObjectMetadata" in accept


def to_response(kind: ServedKind, obj: Json, accept: str = "") -> Json:
    """The object in the version of the request, or only its metadata."""
    if _wants_metadata_only(accept):
        meta_version = "meta.k8s.io/v1"
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": meta_version,
            "metadata": obj["metadata"],
        }
    if kind.is_custom and obj.get("apiVersion") != kind.api_version:
        return obj | {"apiVersion": kind.api_version}
    return obj


@dataclass
class ObjectReader:
    """Reads objects; remembers the remainder of lists that are read in pages."""

    _store: ObjectStore
    _kinds: KindRegistry
    _remainders: dict[str, tuple[int, list[Json]]] = field(default_factory=dict)

    def get(self, path: ResourcePath, accept: str) -> Json:
        kind, obj = self._kinds.find(path), self._store.objects.get(path.key)
        if obj is None:
            raise not_found(kind.group_resource, path.name)
        return to_response(kind, obj, accept)

    def list_page(self, path: ResourcePath, query: Mapping[str, str], accept: str) -> Json:
        kind = self._kinds.find(path)
        matches = parse_selectors(
            kind, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        shard_selector = query.get("shardSelector", "")
        is_in_shards = parse_shard_selector(shard_selector)
        token = query.get("continue", "")
        if token:
            revision, items = self._continue(token)
        else:
            revision, items = self._store.revision, self._store.list_collection(path.collection)
        limit = int(query.get("limit", "0")) or len(items)
        # A page ends after `limit` matches, although no object after it may match.
        page: list[Json] = []
        remainder = iter(items)
        for obj in remainder:
            if matches(obj) and is_in_shards(obj):
                page.append(obj)
            if len(page) == limit:
                break
        rest = list(remainder)
        metadata: Json = {"resourceVersion": str(revision)}
        if kind.is_custom:
            metadata["continue"] = ""
        if rest:
            token = f"{revision}-{len(rest)}"
            self._remainders[token] = (revision, rest)
            metadata["continue"] = token
            if "labelSelector" not in query and "fieldSelector" not in query:
                metadata["remainingItemCount"] = len(rest)
        if shard_selector:
            metadata["shardInfo"] = {"selector": shard_selector}
        partial = _wants_metadata_only(accept)
        return {
            "kind": "PartialObjectMetadataList" if partial else f"{kind.name}List",
            "apiVersion": "meta.k8s.io/v1" if partial else kind.api_version,
            "metadata": metadata,
            "items": [self._item_to_response(kind, obj, accept) for obj in page],
        }

    def _continue(self, token: str) -> tuple[int, list[Json]]:
        if token not in self._remainders:
            raise bad_request("continue key is not valid: illegal base64 data at input byte 0")
        revision, items = self._remainders[token]
        if revision < self._store.oldest_revision:
            raise gone(_TOO_OLD)
        return revision, items

    def _item_to_response(self, kind: ServedKind, obj: Json, accept: str) -> Json:
        item = to_response(kind, obj, accept)
        if kind.is_declared and not kind.is_custom and not _wants_metadata_only(accept):
            # Items of built-in kinds have no type of their own.
            return {k: v for k, v in item.items() if k not in ("apiVersion", "kind")}
        return item
