"""Permissions that a service account has by its roles, and those it used by the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from kubewright.testing.controlplane import ControlPlane

HTTP_FORBIDDEN = 403


class Permission(NamedTuple):
    """A verb on a resource, such as patch of `vmgroups/status`."""

    verb: str
    group: str
    resource: str


def list_granted(plane: ControlPlane, namespace: str, name: str) -> set[Permission]:
    """The permissions of all roles of the service account, in the cluster or in a namespace."""
    return {
        permission
        for rule in list_bound_rules(plane, namespace, name)
        for permission in permissions_of_rule(rule)
    }


def list_bound_rules(plane: ControlPlane, namespace: str, name: str) -> Iterator[dict[str, Any]]:
    """The rules of all roles that are bound to the account."""
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings"
    objects = json.loads(plane.kubectl("get", kinds, "--all-namespaces", "-o", "json"))["items"]
    roles = {
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj
        for obj in objects
        if "rules" in obj
    }
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    for binding in (obj for obj in objects if account in obj.get("subjects", ())):
        role = binding["roleRef"]
        role_namespace = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        yield from roles[role["kind"], role_namespace, role["name"]]["rules"]


def permissions_of_rule(rule: dict[str, Any]) -> Iterator[Permission]:
    combinations = product(rule["verbs"], rule["apiGroups"], rule["resources"])
    return (Permission(*combination) for combination in combinations)


def list_used(events: Iterable[dict[str, Any]]) -> set[Permission]:
    """The permissions that these audit events required."""
    return {
        permission_of_event(event["verb"], event["objectRef"])
        for event in events
        if "resource" in event.get("objectRef", {})
    }


def permission_of_event(verb: str, involved: dict[str, Any]) -> Permission:
    subresource = f"/{involved['subresource']}" if involved.get("subresource") else ""
    return Permission(verb, involved.get("apiGroup", ""), involved["resource"] + subresource)


def list_forbidden_messages(events: Iterable[dict[str, Any]]) -> list[str]:
    """The messages of requests that the API server denied."""
    return [
        event["responseStatus"].get("message", event["requestURI"])
        for event in events
        if event["responseStatus"]["code"] == HTTP_FORBIDDEN
    ]
