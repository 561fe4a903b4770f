"""Removes a namespace also without its controller: otherwise it stays Terminating forever.

Most tests leave objects of a few kinds. The keys in etcd show which, with one request; lists of all
kinds, more than 40, cost 0.13 s of CPU, and most of the time of a small test.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from .cluster_access import HttpClient, HttpError
from .etcd import Etcd

_AGGREGATED_DISCOVERY_HEADERS = {
    "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}
_MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
_GONE_STATUSES = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}
_ETCD_PREFIX = "/registry/"
# Resources that the API server stores under another name.
_STORED_NAMES = {"ingresses": "ingress", "replicationcontrollers": "controllers"}


def remove_namespace(client: HttpClient, etcd: Etcd, name: str) -> None:
    # Deleting it first keeps other clients from creating new objects in it.
    try:
        client.call("DELETE", f"/api/v1/namespaces/{name}")
    except HttpError as error:
        # It is being removed already.
        if error.status != HTTPStatus.CONFLICT:
            raise
    stored_types = _list_stored_types(etcd, name)
    if stored_types:
        for collection in _select_collections(_list_collections(client, name), stored_types):
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


def _list_stored_types(etcd: Etcd, namespace: str) -> set[tuple[str, ...]]:
    """The parts of the keys before the namespace, such as (pods) or (example.com, widgets)."""
    keys = (key.removeprefix(_ETCD_PREFIX).split("/") for key in etcd.list_keys(_ETCD_PREFIX))
    return {tuple(key[:-2]) for key in keys if len(key) > 2 and key[-2] == namespace}


def _select_collections(
    collections: Iterator[str], stored_types: set[tuple[str, ...]]
) -> list[str]:
    """The collections that may contain these types; all, if the name of a type is unknown."""
    selected, matched = list[str](), set[tuple[str, ...]]()
    everything = list(collections)
    for collection in everything:
        resource = collection.rpartition("/")[2]
        matches = {
            parts for parts in stored_types if _STORED_NAMES.get(resource, resource) in parts
        }
        if matches:
            selected.append(collection)
            matched |= matches
    return selected if matched == stored_types else everything


def _remove_object(client: HttpClient, path: str, metadata: dict[str, Any]) -> None:
    try:
        # The controller that set the finalizer is not running any more.
        if metadata.get("finalizers"):
            client.call("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE_PATCH_HEADERS)
        # In the background: the default of some kinds waits for the garbage collector.
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
        }
        client.call("DELETE", path, options)
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
