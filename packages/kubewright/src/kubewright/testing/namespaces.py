"""Removes a namespace also without its controller: otherwise it stays Terminating forever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cluster_access import HttpClient, HttpError

_AGGREGATED_DISCOVERY_HEADERS = {
    "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}
_MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
_GONE_STATUSES = {404, 409}


def remove_namespace(client: HttpClient, name: str) -> None:
    # Deleting it first keeps other clients from creating new objects in it.
    client.call("DELETE", f"/api/v1/namespaces/{name}")
    for collection in _list_collections(client, name):
        for item in client.call("GET", collection)["items"]:
            _remove_object(client, f"{collection}/{item['metadata']['name']}", item["metadata"])
    try:
        namespace = client.call("GET", f"/api/v1/namespaces/{name}")
        namespace["spec"]["finalizers"] = []
        client.call("PUT", f"/api/v1/namespaces/{name}/finalize", namespace)
    except HttpError as error:
        # If the namespace controller runs, it may be faster.
        if error.status not in _GONE_STATUSES:
            raise


def _remove_object(client: HttpClient, path: str, metadata: dict[str, Any]) -> None:
    try:
        # The controller that set the finalizer is not running any more.
        if metadata.get("finalizers"):
            client.call("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE_PATCH_HEADERS)
        client.call(
            "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        )
    except HttpError as error:
        if error.status not in _GONE_STATUSES:
            raise


def _list_collections(client: HttpClient, namespace: str) -> Iterator[str]:
    """The paths of all deletable collections of a namespace, in their preferred version."""
    for root in ("/api", "/apis"):
        for group in client.call("GET", root, headers=_AGGREGATED_DISCOVERY_HEADERS)["items"]:
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
