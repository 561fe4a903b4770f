"""JSON schemas for kubeconform, from the OpenAPI documents of the pinned API server and our CRDs.

All objects are closed: an unknown field is an error, as with `kubectl apply --validate=strict`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]
_OPENAPI = _ROOT / "packages/kubewright-api/openapi.json.gz"
_CRDS = _ROOT / "config/crd/bases"
Json = dict[str, Any]

_STRINGS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Json = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{name: {"type": "string"} for name in ("name", "namespace", "generateName")},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": {"type": "string"}},
    },
}
_MACHINERY = "io.k8s.apimachinery.pkg"
# The documents are committed without the types that kubewright defines by hand.
_SHARED: Json = {
    f"{_MACHINERY}.apis.meta.v1.ObjectMeta": _METADATA,
    f"{_MACHINERY}.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
    f"{_MACHINERY}.apis.meta.v1.MicroTime": {"type": "string", "format": "date-time"},
    f"{_MACHINERY}.apis.meta.v1.Condition": {"type": "object"},
    f"{_MACHINERY}.api.resource.Quantity": {"type": ["string", "number"]},
    f"{_MACHINERY}.util.intstr.IntOrString": {"type": ["string", "integer"]},
    f"{_MACHINERY}.runtime.RawExtension": {"type": "object"},
}


def write_schemas(folder: Path) -> None:
    """Writes `kind-group-version.json` for every kind. kubeconform calls the core group "v1"."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.loads(gzip.decompress(_OPENAPI.read_bytes()))
    definitions = _SHARED | {
        name: _close(schema) for name, schema in document["schemas"].items() if name not in _SHARED
    }
    for name, kind in document["kinds"].items():
        schema: Json = {"$ref": f"#/$defs/{name}", "$defs": _select(name, definitions)}
        _write(folder, kind["kind"], kind["group"] or kind["version"], kind["version"], schema)
    for path in sorted(_CRDS.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = _close(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = _METADATA
            _write(folder, spec["names"]["kind"], spec["group"], version["name"], schema)


def _write(folder: Path, kind: str, group: str, version: str, schema: Json) -> None:
    (folder / f"{kind.lower()}-{group}-{version}.json").write_text(json.dumps(schema))


def _close(schema: Json) -> Json:
    """The schema with references of JSON Schema, which forbids unknown fields."""
    closed: Json = {}
    for keyword, value in schema.items():
        match keyword:
            case "properties":
                closed[keyword] = {name: _close(field) for name, field in value.items()}
            case "items" | "additionalProperties" if isinstance(value, dict):
                closed[keyword] = _close(value)
            case "$ref":
                closed[keyword] = f"#/$defs/{value}"
            case "default" if value == {}:
                # The API server fills it in after the check.
                continue
            case _:
                closed[keyword] = value
    if schema.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in closed and "additionalProperties" not in closed and not is_open:
        closed["additionalProperties"] = False
    return closed


def _select(name: str, definitions: Json) -> Json:
    """The definition and those that it refers to."""
    selected: Json = {}
    missing = [name]
    while missing:
        name = missing.pop()
        if name not in selected:
            selected[name] = definitions[name]
            missing += _references(definitions[name])
    return selected


def _references(value: object) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    if not isinstance(value, dict):
        return []
    reference = value.get("$ref")
    # Not text if it is a field: JSONSchemaProps has one with this name.
    own = [reference.removeprefix("#/$defs/")] if isinstance(reference, str) else []
    return own + [name for item in value.values() for name in _references(item)]
