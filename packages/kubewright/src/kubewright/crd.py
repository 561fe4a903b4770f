"""CustomResourceDefinition manifests from kinds; the same classes give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from .errors import SchemaError
from .kind import KindDefinition, Object
from .schema import Column, OpenApi, docstring_description, struct_schema

_API_VERSION_DESCRIPTION = (
    "The group and version of the API this object is written in, as `group/version`."
)
_KIND_DESCRIPTION = "The kind of object this is."
_COLUMN_TYPES = {"string", "integer", "number", "boolean", "date"}


def build_crds(kinds: Iterable[type[Object]]) -> list[dict[str, Any]]:
    """One CRD per kind, with all its versions, sorted by name."""
    grouped: dict[str, list[KindDefinition]] = {}
    for cls in kinds:
        grouped.setdefault(cls.definition.group_resource, []).append(cls.definition)
    return [_build_crd(versions) for _, versions in sorted(grouped.items())]


def _build_crd(versions: Sequence[KindDefinition]) -> dict[str, Any]:
    """The CRD of a kind from the classes of its versions, of which one is the storage version."""
    stored = [definition for definition in versions if definition.storage]
    if len(stored) != 1:
        names = ", ".join(definition.version for definition in versions)
        raise SchemaError(
            versions[0].type.__name__,
            f"exactly one of the versions {names} must have storage=True, not {len(stored)}",
        )
    kind = stored[0]
    for other in versions:
        if (other.name, other.namespaced) != (kind.name, kind.namespaced):
            raise SchemaError(
                other.type.__name__,
                f"{other.version} and {kind.version} disagree on the kind's name or scope",
            )
    crd_names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short_names:
        crd_names["shortNames"] = list(kind.short_names)
    if kind.categories:
        crd_names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "names": crd_names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                _build_version(definition)
                for definition in sorted(versions, key=lambda item: item.version)
            ],
        },
    }


def _build_version(kind: KindDefinition) -> dict[str, Any]:
    schema = _build_object_schema(kind)
    version: dict[str, Any] = {"name": kind.version, "served": kind.served, "storage": kind.storage}
    if kind.deprecation_warning:
        version |= {"deprecated": True, "deprecationWarning": kind.deprecation_warning}
    version["schema"] = {"openAPIV3Schema": schema}
    subresources: dict[str, Any] = {}
    if "status" in schema["properties"]:
        subresources["status"] = {}
    if kind.scale:
        subresources["scale"] = _build_scale(kind, schema)
    if subresources:
        version["subresources"] = subresources
    if kind.columns:
        version["additionalPrinterColumns"] = [
            _build_printer_column(kind, column, schema) for column in kind.columns
        ]
    return version


def _build_object_schema(kind: KindDefinition) -> OpenApi:
    properties: OpenApi = {
        "apiVersion": {"type": "string", "description": _API_VERSION_DESCRIPTION},
        "kind": {"type": "string", "description": _KIND_DESCRIPTION},
        # The API server has its own schema for metadata.
        "metadata": {"type": "object"},
    }
    parts: tuple[tuple[str, type[Struct] | None, bool], ...] = (
        ("spec", getattr(kind.type, "spec_type", None), True),
        ("status", getattr(kind.type, "status_type", None), False),
    )
    for name, struct, defaults in parts:
        if struct is not None:
            properties[name] = struct_schema(struct, defaults=defaults)
    rules = [rule.to_openapi() for rule in getattr(kind.type, "rules", ())]
    extra = {"x-kubernetes-validations": rules} if rules else {}
    return (
        {"type": "object"} | docstring_description(kind.type) | {"properties": properties} | extra
    )


def _build_scale(kind: KindDefinition, schema: OpenApi) -> dict[str, str]:
    assert kind.scale is not None
    paths = {
        "specReplicasPath": kind.scale.spec_replicas_path,
        "statusReplicasPath": kind.scale.status_replicas_path,
    }
    if kind.scale.label_selector_path:
        paths["labelSelectorPath"] = kind.scale.label_selector_path
    for name, path in paths.items():
        required_type = "string" if name == "labelSelectorPath" else "integer"
        field = _find_field(path, schema)
        if field is None or field.get("type") != required_type:
            raise SchemaError(
                f"{kind.type.__name__} scale",
                f"{name} {path} must name a field of type {required_type}",
            )
    return paths


def _build_printer_column(kind: KindDefinition, column: Column, schema: OpenApi) -> dict[str, Any]:
    location = f"{kind.type.__name__} column {column.name}"
    field = _find_field(column.path, schema)
    # The API server accepts such a path, and kubectl shows an empty column.
    if field is None:
        raise SchemaError(location, f"{column.path} is not a field of the kind")
    type_ = column.type or (
        "date" if field.get("format") == "date-time" else field.get("type", "string")
    )
    if type_ not in _COLUMN_TYPES:
        raise SchemaError(location, f"a column cannot show a value of type {type_}")
    entry: dict[str, Any] = {"name": column.name, "type": type_, "jsonPath": column.path}
    if description := column.description or field.get("description", ""):
        entry["description"] = description
    if field.get("format") in ("int32", "int64") and type_ == "integer":
        entry["format"] = field["format"]
    if column.priority:
        entry["priority"] = column.priority
    return entry


def _find_field(path: str, schema: OpenApi) -> OpenApi | None:
    """The schema at a simple JSON path; None if the path has no field."""
    # The API server's own schema applies to metadata.
    if path.startswith(".metadata."):
        return {"type": "string"}
    field: OpenApi | None = schema
    for name in re.sub(r"\[[^]]*\]", ".[]", path).strip(".").split("."):
        if field is None or field.get("x-kubernetes-preserve-unknown-fields"):
            return field
        field = (
            field.get("items")
            if name == "[]"
            else field.get("properties", {}).get(name) or field.get("additionalProperties")
        )
    return field
