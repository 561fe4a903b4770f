"""The OpenAPI documents of an API server, reduced to what the generated modules contain."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from .docstrings import first_sentence

Document = Mapping[str, Any]
ReducedInput = dict[str, Any]

_REFERENCE_PREFIX = "#/components/schemas/"
_KEPT_KEYS = ("type", "format", "enum", "default", "required", "additionalProperties")
_MERGE_KEYS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
_COLLECTION_PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v[^/]+/(?P<scope>namespaces/\{namespace\}/)?(?P<plural>[a-z]+)"
)
_SUBRESOURCE_PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v[^/]+/(?P<scope>namespaces/\{namespace\}/)?[a-z]+/\{name\}/[a-z]+"
)
# The bodies of requests and responses that are not objects of their own.
_META_GROUP = ".meta.v1."


def reduce_documents(
    version: str, documents: Iterable[Document], excluded: Collection[str]
) -> ReducedInput:
    """One JSON value: every kind that the documents serve, and the schemas that they use.

    A document is that of one group and version below /openapi/v3. The `excluded` schemas are not
    needed, because they have no class of their own.
    """
    schemas: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for document in documents:
        new = document["components"]["schemas"]
        names = {_kind_key(gvk): name for name in new for gvk in _kinds_of(new[name])}
        schemas |= {name: _reduce_schema(schema) for name, schema in new.items()}
        for path, operations in document["paths"].items():
            for kind, resource in _resources(path, operations):
                name = names.get(kind, "")
                if name and _META_GROUP not in name and not name.endswith("List"):
                    # A list over all namespaces has the path of a cluster-scoped kind.
                    resource["namespaced"] |= kinds.get(name, {}).get("namespaced", False)
                    kinds[name] = kinds.get(name, {}) | resource
    used = _reachable(schemas, kinds, excluded)
    return {
        "version": version,
        "kinds": dict(sorted(kinds.items())),
        "schemas": {name: schemas[name] for name in sorted(used)},
    }


def _resources(path: str, operations: Document) -> Iterable[tuple[str, dict[str, Any]]]:
    """The kinds that a path serves, each with its group, version, scope and plural."""
    collection = _COLLECTION_PATH.fullmatch(path)
    match = collection or _SUBRESOURCE_PATH.fullmatch(path)
    if match is None:
        return
    for operation in operations.values():
        if isinstance(operation, Mapping) and (gvk := operation.get(_GROUP_VERSION_KIND)):
            resource = {key: gvk[key] for key in ("group", "version", "kind")}
            resource["namespaced"] = bool(match["scope"])
            if collection:
                resource["plural"] = match["plural"]
            yield _kind_key(gvk), resource


def _kinds_of(schema: Document) -> list[Document]:
    kinds: list[Document] = schema.get(_GROUP_VERSION_KIND, [])
    return kinds


def _kind_key(gvk: Document) -> str:
    return f"{gvk['group']}/{gvk['version']} {gvk['kind']}"


def _reduce_schema(schema: Document) -> dict[str, Any]:
    reduced = {key: schema[key] for key in (*_KEPT_KEYS, *_MERGE_KEYS) if key in schema}
    if text := first_sentence(schema.get("description")):
        reduced["description"] = text
    # A reference with a description or a default of its own is in an allOf.
    for part in (schema, *schema.get("allOf", [])):
        if "$ref" in part:
            reduced["$ref"] = part["$ref"].removeprefix(_REFERENCE_PREFIX)
    if "properties" in schema:
        fields, required = schema["properties"], schema.get("required", [])
        reduced["properties"] = {name: _reduce_schema(fields[name]) for name in sorted(fields)}
        for name, field in reduced["properties"].items():
            # The zero value of a Go type that is always sent is not a default.
            if (not field.get("default") and name in required) or field.get("default") == {}:
                field.pop("default", None)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            reduced[key] = _reduce_schema(schema[key])
            for unused in ("default", "enum"):
                reduced[key].pop(unused, None)
    return reduced


def _reachable(schemas: Document, roots: Iterable[str], excluded: Collection[str]) -> set[str]:
    used: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in used and name not in excluded:
            used.add(name)
            pending += _references(schemas[name])
    return used


def _references(schema: Document) -> Iterable[str]:
    if "$ref" in schema:
        yield schema["$ref"]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from _references(schema[key])
    for field in schema.get("properties", {}).values():
        yield from _references(field)


def write_input(path: Path, reduced: ReducedInput) -> None:
    """The same input gives the same bytes."""
    content = json.dumps(reduced, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(content, mtime=0))


def read_input(path: Path) -> ReducedInput:
    reduced: ReducedInput = json.loads(gzip.decompress(path.read_bytes()))
    return reduced
