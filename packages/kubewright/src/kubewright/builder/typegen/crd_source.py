"""CRDs from YAML or JSON, checked as far as the generator relies on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from ...errors import ConfigError
from ...yaml_text import parse_documents

_NAME = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?")
_V1BETA1 = "apiextensions.k8s.io/v1beta1"


class CrdNames(Struct, kw_only=True):
    kind: str
    plural: str
    singular: str = ""
    listKind: str = ""
    shortNames: list[str] = []
    categories: list[str] = []


class CrdColumn(Struct, kw_only=True):
    name: str
    jsonPath: str
    type: str
    format: str = ""
    description: str = ""
    priority: int = 0


class CrdScale(Struct, kw_only=True):
    specReplicasPath: str
    statusReplicasPath: str
    labelSelectorPath: str = ""


class CrdSubresources(Struct, kw_only=True):
    status: dict[str, Any] | None = None
    scale: CrdScale | None = None


class CrdSelectableField(Struct, kw_only=True):
    jsonPath: str


class CrdSchema(Struct, kw_only=True):
    openAPIV3Schema: dict[str, Any] = {}


class CrdVersion(Struct, kw_only=True):
    name: str
    served: bool = True
    storage: bool = True
    deprecated: bool = False
    deprecationWarning: str = ""
    schema: CrdSchema = field(default_factory=CrdSchema)
    subresources: CrdSubresources = field(default_factory=CrdSubresources)
    additionalPrinterColumns: list[CrdColumn] = []
    selectableFields: list[CrdSelectableField] = []


class CrdSpec(Struct, kw_only=True):
    group: str
    names: CrdNames
    scope: str = "Namespaced"
    versions: list[CrdVersion]
    conversion: dict[str, Any] = {}


class Crd(Struct, kw_only=True):
    spec: CrdSpec
    document: dict[str, Any] = {}
    """As it was read; empty if it has the API version v1beta1, which no server accepts any more."""

    @property
    def name(self) -> str:
        return f"{self.spec.names.plural}.{self.spec.group}"


def read_crds(text: str, source: str) -> list[Crd]:
    """The CRDs in a manifest, which may have other objects and lists; `source` is for errors."""
    crds = [
        parse_crd(document, source)
        for part in parse_documents(text, source)
        for document in _objects_in(part)
        if document.get("kind") == "CustomResourceDefinition"
    ]
    if not crds:
        raise ConfigError(f"{source} contains no CustomResourceDefinition")
    return crds


def _objects_in(document: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _objects_in(item)
    else:
        yield document


def parse_crd(document: Mapping[str, Any], source: str) -> Crd:
    """The CRD in a JSON object."""
    original = dict(document)
    if document.get("apiVersion") == _V1BETA1:
        original, document = {}, _convert_v1beta1(document)
    try:
        crd = msgspec.convert(_without_nulls(document) | {"document": original}, Crd)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source} has an invalid CustomResourceDefinition: {error}") from None
    if not crd.spec.versions:
        raise ConfigError(f"{source}: {crd.name} has no versions")
    names = crd.spec.names
    versions = (version.name for version in crd.spec.versions)
    for name in (crd.spec.group, names.kind, names.plural, *versions):
        # Also because these names become comments and file names.
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{source} has a CustomResourceDefinition with the name {name!r}")
    for version in crd.spec.versions:
        for key in _list_schema_keys(version.schema.openAPIV3Schema):
            if not isinstance(key, str):
                raise ConfigError(
                    f"{source}: the schema of {crd.name} has the key {key!r}, which is not a "
                    "string; correct the file"
                )
    return crd


def _list_schema_keys(schema: Mapping[Any, Any]) -> Iterator[Any]:
    """The keys of a schema and of those in it; the names of properties are not among them."""
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping):
            continue
        yield from part
        properties = part.get("properties")
        pending += properties.values() if isinstance(properties, Mapping) else ()
        pending += [part.get(key) for key in ("items", "additionalProperties", "not")]
        for key in ("allOf", "anyOf", "oneOf"):
            alternatives = part.get(key)
            pending += alternatives if isinstance(alternatives, list) else ()


def _without_nulls(value: Any) -> Any:
    """Only outside of schemas, in which a null may be a value of an enum or a default."""
    if isinstance(value, Mapping):
        return {
            key: item if key == "openAPIV3Schema" else _without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _convert_v1beta1(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first version of the API had schema, columns and subresources once for all versions."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return document
    versions = spec.get("versions") or [
        {"name": spec.get("version"), "served": True, "storage": True}
    ]
    shared = {key: spec[key] for key in ("subresources",) if key in spec}
    shared["schema"] = spec.get("validation")
    shared["additionalPrinterColumns"] = spec.get("additionalPrinterColumns")
    converted = []
    for version in versions:
        merged = {**shared, **version}
        merged["additionalPrinterColumns"] = [
            {"jsonPath": column.get("JSONPath"), **column}
            for column in merged["additionalPrinterColumns"] or []
        ]
        converted.append(merged)
    return {**document, "spec": {**spec, "versions": converted}}
