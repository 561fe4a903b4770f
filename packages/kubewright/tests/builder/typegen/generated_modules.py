"""Imports modules that a test has generated."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kubewright.builder.typegen.crd_modules import render_version
from kubewright.builder.typegen.crd_source import Crd, parse_crd
from kubewright.crd import build_crds
from kubewright.kind import Object

# The cache is kept: most of the time, mypy reads kubewright, msgspec and the standard library.
MYPY = (
    *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir"),
    *(str(Path(__file__).parents[5] / ".mypy_cache/generated"), "."),
)
_DOCUMENTATION_KEYS = ("description", "title", "example", "externalDocs")
_numbers = itertools.count()


def load_module(source: str) -> ModuleType:
    """The module, which stays in sys.modules: msgspec resolves annotations there."""
    name = f"generated_module_{next(_numbers)}"
    module = sys.modules[name] = ModuleType(name)
    exec(compile(source, "generated", "exec"), vars(module))
    return module


def load_kinds(crd: Crd, sources: Sequence[str] | None = None) -> list[type[Object]]:
    """The classes of all versions; `sources` are their modules if they are rendered already."""
    if sources is None:
        sources = [render_version(crd, version) for version in crd.spec.versions]
    kinds = []
    for source in sources:
        module = load_module(source)
        kinds += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Object)
            and value.__module__ == module.__name__
        ]
    assert len(kinds) == len(crd.spec.versions)
    return kinds


def regenerate(document: Mapping[str, Any]) -> dict[str, Any]:
    """The CRD that follows from the classes of a CRD."""
    (crd,) = build_crds(load_kinds(parse_crd(document, "a test")))
    return crd


def without_documentation(schema: Any) -> Any:
    """A schema without what the generated classes have as docstrings or not at all."""
    if isinstance(schema, list):
        return [without_documentation(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: without_documentation(field) for name, field in value.items()}
        if key == "properties"
        else value
        if key in ("default", "enum")
        else without_documentation(value)
        for key, value in schema.items()
        if key not in _DOCUMENTATION_KEYS
    }


def schemas_of(crd: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of all versions, without documentation and the order of required fields."""
    return {
        version["name"]: sort_required(without_documentation(version["schema"]["openAPIV3Schema"]))
        for version in crd["spec"]["versions"]
    }


def sort_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [sort_required(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: sorted(value) if key == "required" and _is_names(value) else sort_required(value)
        for key, value in schema.items()
    }


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def new_crd(
    versions: Iterable[Mapping[str, Any]] | None = None,
    *,
    spec_schema: Mapping[str, Any] | None = None,
    kind: str = "Widget",
    **spec: Any,
) -> dict[str, Any]:
    """A CRD with one version, or with these."""
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    if spec_schema is not None:
        properties["spec"] = spec_schema
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {
                "kind": kind,
                "plural": "widgets",
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "scope": "Namespaced",
            "versions": [version] if versions is None else list(versions),
        }
        | spec,
    }
