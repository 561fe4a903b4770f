"""One place in an OpenAPI schema, and what apply, pruning, defaults and validation ask about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...patch import Json

ListType = Literal["atomic", "set", "map"]
PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED_RESOURCE = "x-kubernetes-embedded-resource"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TYPE_META: Json = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


class SchemaNode:
    """The schema of one value; `$ref` is resolved in `definitions`."""

    __slots__ = ("_children", "_definitions", "raw")

    def __init__(self, raw: Json, definitions: Mapping[str, Json] | None = None) -> None:
        self._definitions = definitions or {}
        reference = raw.get("$ref")
        # Next to a reference are only a default and a description.
        self.raw = {**self._definitions[reference], **raw} if reference else raw
        if self.raw.get(_EMBEDDED_RESOURCE):
            self.raw = _with_object_meta(self.raw)
        self._children: dict[str, SchemaNode] = {}

    def _child(self, name: str, raw: Json) -> SchemaNode:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = SchemaNode(raw, self._definitions)
        return child

    @property
    def type(self) -> str:
        return str(self.raw.get("type", ""))

    @property
    def preserves_unknown(self) -> bool:
        return bool(self.raw.get(PRESERVE_UNKNOWN))

    @property
    def has_object_meta(self) -> bool:
        """Whether `metadata` is that of an object: at the root, and in an embedded resource."""
        return bool(self.raw.get(_EMBEDDED_RESOURCE))

    @property
    def is_int_or_string(self) -> bool:
        return bool(self.raw.get("x-kubernetes-int-or-string")) or (
            self.raw.get("format") == "int-or-string"
        )

    @property
    def is_atomic_map(self) -> bool:
        return self.raw.get("x-kubernetes-map-type") == "atomic"

    @property
    def list_type(self) -> ListType:
        declared = self.raw.get("x-kubernetes-list-type")
        if declared in ("set", "map"):
            return declared  # type: ignore[no-any-return]
        if declared is None and "merge" in self.raw.get("x-kubernetes-patch-strategy", ""):
            # Fields of built-in kinds from before list types.
            return "map" if "x-kubernetes-patch-merge-key" in self.raw else "set"
        return "atomic"

    @property
    def list_map_keys(self) -> list[str]:
        keys: list[str] = self.raw.get("x-kubernetes-list-map-keys") or [
            self.raw["x-kubernetes-patch-merge-key"]
        ]
        return keys

    def field(self, name: str) -> SchemaNode | None:
        """The schema of a declared field."""
        properties = self.raw.get("properties")
        if properties and name in properties:
            return self._child(name, properties[name])
        return None

    def value(self, name: str) -> SchemaNode | None:
        """The schema of a field or of a map's value; None if the schema does not allow it."""
        declared = self.field(name)
        if declared is not None:
            return declared
        additional = self.raw.get("additionalProperties")
        if isinstance(additional, dict):
            return self._child("{}", additional)
        return ANY if additional is True or self.preserves_unknown else None

    @property
    def items(self) -> SchemaNode:
        items = self.raw.get("items")
        return self._child("[]", items) if isinstance(items, dict) else ANY


MISSING: Any = object()
"""Stands for an old value that does not exist; None is a value."""
ANY = SchemaNode({PRESERVE_UNKNOWN: True})
"""A value that no schema describes: maps merge by key, lists are replaced as a whole."""


def find_old_item(node: SchemaNode, item: Any, old: Any) -> Any:
    """The item of the old list that this one replaces, or MISSING: only lists of type `map` have
    one.
    """
    if not isinstance(old, list) or node.list_type != "map" or not isinstance(item, dict):
        return MISSING
    keys = node.list_map_keys
    return next(
        (
            before
            for before in old
            if isinstance(before, dict) and all(before.get(key) == item.get(key) for key in keys)
        ),
        MISSING,
    )


def complete_resource_schema(raw: Any, definitions: Mapping[str, Json]) -> SchemaNode:
    """The schema of a custom resource: a CRD declares metadata only as an object."""
    raw = raw if isinstance(raw, dict) else {PRESERVE_UNKNOWN: True}
    return SchemaNode(raw | {_EMBEDDED_RESOURCE: True}, definitions)


def _with_object_meta(raw: Json) -> Json:
    metadata = {"$ref": _OBJECT_META}
    return {**raw, "properties": {**raw.get("properties", {}), **_TYPE_META, "metadata": metadata}}
