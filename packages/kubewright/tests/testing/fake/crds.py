"""The CRDs of the scenarios, as a user would write them."""

from __future__ import annotations

from typing import Any

from .transcript import GROUP

Json = dict[str, Any]
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def make_crd(kind: str, schema: Json, *, scope: str = "Namespaced", **version: Any) -> Json:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def with_spec(spec: Json, status: Json | None = None) -> Json:
    properties = {"spec": {"type": "object", **spec}}
    if status is not None:
        properties["status"] = {"type": "object", "properties": status}
    return {"type": "object", "properties": properties}


PORT = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": STRING,
        "protocol": {"type": "string", "default": "TCP"},
        "number": INTEGER,
        "note": STRING,
    },
}
GADGET_SPEC = {
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "title": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
        "enabled": {"type": "boolean"},
        "replicas": INTEGER,
        "ratio": {
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": 1,
            "multipleOf": 0.25,
        },
        "until": {"type": "string", "format": "date-time"},
        "limit": {"x-kubernetes-int-or-string": True},
        "ports": {
            "type": "array",
            "maxItems": 3,
            "items": PORT,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "protocol"],
        },
        "tags": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "order": {"type": "array", "items": STRING, "minItems": 1},
        "env": {"type": "object", "additionalProperties": STRING, "maxProperties": 3},
        "place": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"x": INTEGER, "y": INTEGER},
        },
        "window": {
            "type": "object",
            "required": ["low"],
            "properties": {
                "low": INTEGER,
                "high": {"type": "integer", "default": 10},
                "unit": {"type": "string", "nullable": True},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
}
GADGET_STATUS = {
    "replicas": INTEGER,
    "text": STRING,
    "conditions": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": STRING, "status": STRING},
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    },
}
GADGET = make_crd(
    "Gadget",
    with_spec(GADGET_SPEC, GADGET_STATUS),
    subresources={
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    },
    selectableFields=[{"jsonPath": ".spec.title"}, {"jsonPath": ".spec.size"}],
)
# Without a status subresource, and with fields that no schema describes.
PLAIN = make_crd("Plain", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
