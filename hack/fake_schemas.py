"""Writes the schemas of built-in kinds for FakeApi, from discovery and OpenAPI of an API server.

`make generate` starts the pinned API server and writes the file. Only what server-side apply
and pruning need is kept: 200 KB of 5 MB. OpenAPI has few of the defaults, so they are recorded
from the responses to `fake_defaults.yaml`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kubewright.testing.binaries import find_binaries
from kubewright.testing.cluster_access import HttpClient
from kubewright.testing.controlplane import ControlPlane, run_in_new_loop
from kubewright.testing.pins import load_pins
from kubewright.version import NEWEST_KUBERNETES

ROOT = Path(__file__).parent.parent
FILE = ROOT / "packages/kubewright/src/kubewright/testing/fake/builtin_kinds.json"
_AGGREGATED_DISCOVERY = {
    "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}
# Set by the API server, but from other fields, or by allocation.
_NOT_DEFAULTS = {
    "clusterIP",
    "clusterIPs",
    "completions",
    "imagePullPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "manualSelector",
    "metadata",
    "policyTypes",
    "selector",
    "status",
    "targetPort",
}
_DESCRIBES_CONTENT = {"$ref", "properties", "additionalProperties", "items", "format"}
_KEPT = (
    "$ref",
    "type",
    "format",
    "default",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
)


def build_document(client: HttpClient) -> dict[str, Any]:
    """The content of the file: resources by group, version and plural, and their definitions."""
    definitions: dict[str, Any] = {}
    names: dict[tuple[str, str, str], str] = {}
    for path, entry in sorted(_read_openapi(client, "/openapi/v3")["paths"].items()):
        if path != "api/v1" and not (path.startswith("apis/") and path.count("/") == 2):
            continue
        document = _read_openapi(client, entry["serverRelativeURL"])
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            definitions[name] = _reduce(schema)
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                names[kind["group"], kind["version"], kind["kind"]] = name
    resources = dict(sorted(_list_resources(client, names)))
    used: set[str] = set()
    for resource in resources.values():
        _collect_references(resource["schema"], definitions, used)
    document = {
        "version": client.call("GET", "/version")["gitVersion"],
        "resources": resources,
        "definitions": {name: definitions[name] for name in sorted(used)},
    }
    _record_defaults(client, document)
    return document


def _record_defaults(client: HttpClient, document: dict[str, Any]) -> None:
    """Add to the definitions what the API server sets in objects that have only few fields."""
    definitions = document["definitions"]
    for sent in yaml.safe_load((Path(__file__).parent / "fake_defaults.yaml").read_text()):
        group, _, version = sent["apiVersion"].rpartition("/")
        key = next(
            key
            for key, resource in document["resources"].items()
            if key.startswith(f"{group}/{version}/") and resource["kind"] == sent["kind"]
        )
        resource, plural = document["resources"][key], key.rpartition("/")[2]
        prefix = f"/apis/{sent['apiVersion']}" if group else f"/api/{version}"
        scope = "/namespaces/default" if resource["namespaced"] else ""
        stored = client.call("POST", f"{prefix}{scope}/{plural}?dryRun=All", sent)
        _record_difference(sent, stored, {"$ref": resource["schema"]}, definitions)


def _record_difference(sent: Any, stored: Any, schema: Any, definitions: dict[str, Any]) -> None:
    schema = definitions[schema["$ref"]] if "$ref" in schema else schema
    if isinstance(sent, list):
        for sent_item, stored_item in zip(sent, stored, strict=False):
            _record_difference(sent_item, stored_item, schema["items"], definitions)
    elif isinstance(sent, dict):
        for name, field in schema.get("properties", {}).items():
            if name in _NOT_DEFAULTS or stored.get(name) is None:
                continue
            if name in sent:
                _record_difference(sent[name], stored[name], field, definitions)
            else:
                field["default"] = stored[name]


def _collect_references(name: str, definitions: dict[str, Any], used: set[str]) -> None:
    if not name or name in used:
        return
    used.add(name)
    schemas = [definitions[name]]
    while schemas:
        schema = schemas.pop()
        _collect_references(schema.get("$ref", ""), definitions, used)
        below = (*schema.get("properties", {}).values(), schema.get("items"))
        below += (schema.get("additionalProperties"),)
        schemas += [child for child in below if isinstance(child, dict)]


def _read_openapi(client: HttpClient, path: str) -> Any:
    # It is JSON with the content type text/plain.
    document = client.call("GET", path)
    return json.loads(document) if isinstance(document, str) else document


def _list_resources(
    client: HttpClient, names: dict[tuple[str, str, str], str]
) -> list[tuple[str, Any]]:
    resources = []
    for root in ("/api", "/apis"):
        for group in client.call("GET", root, headers=_AGGREGATED_DISCOVERY)["items"]:
            group_name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for resource in version.get("resources", ()):
                    kind = resource["responseKind"]["kind"]
                    key = f"{group_name}/{version['version']}/{resource['resource']}"
                    subresources = [s["subresource"] for s in resource.get("subresources", ())]
                    entry = {
                        "kind": kind,
                        "namespaced": resource["scope"] == "Namespaced",
                        "verbs": sorted(resource["verbs"]),
                        "subresources": sorted(subresources),
                        "schema": names.get((group_name, version["version"], kind), ""),
                    }
                    resources.append((key, entry))
    return resources


def _reduce(schema: dict[str, Any]) -> dict[str, Any]:
    # A reference with a default or a description is wrapped in allOf.
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema, **schema["allOf"][0]}
    reduced = {key: schema[key] for key in _KEPT if key in schema}
    if not reduced.get("default", True):
        # The zero value of a Go type: a field that is absent stays absent.
        del reduced["default"]
    if "$ref" in reduced:
        reduced["$ref"] = reduced["$ref"].rpartition("/")[2]
    if "properties" in schema:
        reduced["properties"] = {k: _reduce(v) for k, v in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            reduced[key] = _reduce(schema[key]) if isinstance(schema[key], dict) else schema[key]
    if not reduced.keys() & _DESCRIBES_CONTENT and schema.get("type", "object") == "object":
        # A place for arbitrary JSON, such as RawExtension.
        reduced["x-kubernetes-preserve-unknown-fields"] = True
    return reduced


def render(document: dict[str, Any]) -> str:
    """One line per resource and per definition, so that a change is readable."""
    parts = [f'"version": {json.dumps(document["version"])}']
    for part in ("resources", "definitions"):
        entries = (
            f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'), sort_keys=True)}"
            for name, entry in document[part].items()
        )
        parts.append(f'"{part}": {{\n' + ",\n".join(entries) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


async def _main() -> None:
    folder = ROOT / ".testenv" / "bin"
    async with ControlPlane(
        find_binaries(folders=[folder], pins=load_pins(NEWEST_KUBERNETES))
    ) as plane:
        with plane.apiserver.admin_client() as client:
            FILE.write_text(render(build_document(client)))


if __name__ == "__main__":
    run_in_new_loop(_main())
