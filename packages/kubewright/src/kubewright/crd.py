"""CustomResourceDefinition manifests from kinds; the same classes give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import NODEFAULT

from .condition import UNOBSERVED_GENERATION
from .definition import KindDefinition
from .errors import SchemaError
from .kind import Object, Status
from .markers import Column, EmptyObject
from .schema import (
    OpenApi,
    annotation_schema,
    apply_class_markers,
    docstring_description,
    struct_fields,
    unwrap_annotation,
)

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
    if not stored and all(definition.external for definition in versions):
        # Of another operator's CRD, only some versions may have been imported.
        stored = [replace(versions[0], storage=True)]
        versions = [*stored, *versions[1:]]
    if len(stored) != 1:
        names = ", ".join(definition.version for definition in versions)
        raise SchemaError(
            versions[0].type.__name__,
            f"exactly one of the versions {names} must have storage=True, not {len(stored)}",
        )
    definition = stored[0]
    for other in versions:
        if (other.name, other.namespaced) != (definition.name, definition.namespaced):
            raise SchemaError(
                other.type.__name__,
                f"{other.version} and {definition.version} disagree on the kind's name or scope",
            )
    crd_names: dict[str, Any] = {
        "kind": definition.name,
        "listKind": definition.list_kind,
        "plural": definition.plural,
        "singular": definition.singular,
    }
    if definition.short_names:
        crd_names["shortNames"] = list(definition.short_names)
    if definition.categories:
        crd_names["categories"] = list(definition.categories)
    spec: dict[str, Any] = {
        "group": definition.group,
        "names": crd_names,
        "scope": "Namespaced" if definition.namespaced else "Cluster",
        "versions": [
            _build_version(definition)
            for definition in sorted(versions, key=lambda item: item.version)
        ],
    }
    if definition.conversion:
        spec["conversion"] = dict(definition.conversion)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.group_resource},
        "spec": spec,
    }


def _build_version(definition: KindDefinition) -> dict[str, Any]:
    schema = _build_object_schema(definition)
    version: dict[str, Any] = {
        "name": definition.version,
        "served": definition.served,
        "storage": definition.storage,
    }
    if definition.deprecated:
        version["deprecated"] = True
    if definition.deprecation_warning:
        version["deprecationWarning"] = definition.deprecation_warning
    version["schema"] = {"openAPIV3Schema": schema}
    subresources: dict[str, Any] = {}
    has_status = definition.status_subresource
    if "status" in schema["properties"] if has_status is None else has_status:
        subresources["status"] = {}
    if definition.scale:
        subresources["scale"] = _build_scale(definition, schema)
    if subresources:
        version["subresources"] = subresources
    if definition.columns:
        version["additionalPrinterColumns"] = [
            _build_printer_column(definition, column, schema) for column in definition.columns
        ]
    for path in definition.selectable_fields:
        # The API server rejects such a path.
        if not definition.external and _find_field(path, schema) is None:
            raise SchemaError(
                f"{definition.type.__name__} selectable_fields",
                f"{path} is not a field of the kind",
            )
        version.setdefault("selectableFields", []).append({"jsonPath": path})
    return version


def _build_object_schema(definition: KindDefinition) -> OpenApi:
    kind, required = definition.type, []
    properties: OpenApi = {
        "apiVersion": {"type": "string", "description": _API_VERSION_DESCRIPTION},
        "kind": {"type": "string", "description": _KIND_DESCRIPTION},
    }
    for name, (hint, default) in struct_fields(kind).items():
        location = f"{kind.__name__}.{name}"
        if name == "metadata":
            # The API server has its own schema for metadata; a CRD can only add to it.
            _, markers = unwrap_annotation(hint, location)
            hint = Annotated[(EmptyObject, *markers)] if markers else EmptyObject
        properties[name] = annotation_schema(hint, location, (kind,), defaults=name != "status")
        if default is NODEFAULT and not definition.external:
            required.append(name)
    if not definition.external and issubclass(getattr(kind, "status_type", object), Status):
        properties["status"]["default"] = {}
        observed = properties["status"]["properties"]["observedGeneration"]
        observed["default"] = UNOBSERVED_GENERATION
    require_spec = definition.require_spec
    # A generated class also has required fields where its CRD does not require a spec.
    if require_spec is None and not definition.external:
        require_spec = "required" in properties.get("spec", {})
    if require_spec and "spec" not in required:
        required.append("spec")
    schema: OpenApi = {"type": "object"} | docstring_description(kind) | {"properties": properties}
    if required:
        schema["required"] = sorted(required)
    apply_class_markers(schema, kind, kind.__name__)
    return schema


def _build_scale(definition: KindDefinition, schema: OpenApi) -> dict[str, str]:
    assert definition.scale is not None
    paths = {
        "specReplicasPath": definition.scale.spec_replicas_path,
        "statusReplicasPath": definition.scale.status_replicas_path,
    }
    if definition.scale.label_selector_path:
        paths["labelSelectorPath"] = definition.scale.label_selector_path
    for name, path in () if definition.external else paths.items():
        required_type = "string" if name == "labelSelectorPath" else "integer"
        field = _find_field(path, schema)
        if field is None or field.get("type") != required_type:
            raise SchemaError(
                f"{definition.type.__name__} scale",
                f"{name} {path} must name a field of type {required_type}",
            )
    return paths


def _build_printer_column(
    definition: KindDefinition, column: Column, schema: OpenApi
) -> dict[str, Any]:
    location = f"{definition.type.__name__} column {column.name}"
    field = {} if definition.external else _find_field(column.path, schema)
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
    if column.format:
        entry["format"] = column.format
    elif field.get("format") in ("int32", "int64") and type_ == "integer":
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
