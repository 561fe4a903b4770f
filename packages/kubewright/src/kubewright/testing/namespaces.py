"""Removing a namespace where no controller does it: the API server alone leaves it Terminating for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .http import HttpClient, HttpError

_AGGREGATED_DISCOVERY_HEADERS = {
    "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}
_MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
_GONE_STATUSES = {404, 409}


def remove_namespace(https: HttpClient, name: str) -> None:
    """Delete the namespace, so that nothing new can be created in it, then all it holds, then let it go."""
    https.call("DELETE", f"/api/v1/namespaces/{name}")
    for collection in _list_collections(https, name):
        for item in https.call("GET", collection)["items"]:
            _remove_object(https, f"{collection}/{item['metadata']['name']}", item["metadata"])
    left = https.call("GET", f"/api/v1/namespaces/{name}")
    left["spec"]["finalizers"] = []
    https.call("PUT", f"/api/v1/namespaces/{name}/finalize", left)


def _remove_object(https: HttpClient, path: str, metadata: dict[str, Any]) -> None:
    """Delete one object at once; whoever waited for its finalizer is no longer there."""
    try:
        if metadata.get("finalizers"):
            https.call("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE_PATCH_HEADERS)
        https.call(
            "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        )
    except HttpError as refused:
        if refused.status not in _GONE_STATUSES:
            raise


def _list_collections(https: HttpClient, namespace: str) -> Iterator[str]:
    """The paths of all collections of a namespace that can be listed and deleted from, in their preferred version."""
    for root in ("/api", "/apis"):
        for group in https.call("GET", root, headers=_AGGREGATED_DISCOVERY_HEADERS)["items"]:
            version = group["versions"][0]
            prefix = "/".join(
                part
                for part in (root, group["metadata"].get("name", ""), version["version"])
                if part
            )
            for resource in version.get("resources", []):
                if resource["scope"] == "Namespaced" and {"list", "delete"} <= set(
                    resource["verbs"]
                ):
                    yield f"{prefix}/namespaces/{namespace}/{resource['resource']}"
