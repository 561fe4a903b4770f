"""What a service account was given and what it did: the roles that are bound to it, beside the audit log of the API server."""

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
    """Everything that any role gives to the service account, in the whole cluster or in a namespace."""
    return {
        act
        for rule in list_bound_rules(plane, namespace, name)
        for act in permissions_of_rule(rule)
    }


def list_bound_rules(plane: ControlPlane, namespace: str, name: str) -> Iterator[dict[str, Any]]:
    """The rules of all roles that are bound to the account by its name."""
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings"
    found = json.loads(plane.kubectl("get", kinds, "--all-namespaces", "-o", "json"))["items"]
    roles = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for each in found
        if "rules" in each
    }
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    for binding in (each for each in found if account in each.get("subjects", ())):
        role = binding["roleRef"]
        where = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        yield from roles[role["kind"], where, role["name"]]["rules"]


def permissions_of_rule(rule: dict[str, Any]) -> Iterator[Permission]:
    """What one rule allows."""
    return (
        Permission(*each) for each in product(rule["verbs"], rule["apiGroups"], rule["resources"])
    )


def list_used(events: Iterable[dict[str, Any]]) -> set[Permission]:
    """What these lines of the audit log asked for, of resources."""
    return {
        permission_of_event(event["verb"], event["objectRef"])
        for event in events
        if "resource" in event.get("objectRef", {})
    }


def permission_of_event(verb: str, about: dict[str, Any]) -> Permission:
    """What one line asked for."""
    subresource = f"/{about['subresource']}" if about.get("subresource") else ""
    return Permission(verb, about.get("apiGroup", ""), about["resource"] + subresource)


def list_forbidden_messages(events: Iterable[dict[str, Any]]) -> list[str]:
    """What the API server answered to those that had no right."""
    return [
        event["responseStatus"].get("message", event["requestURI"])
        for event in events
        if event["responseStatus"]["code"] == HTTP_FORBIDDEN
    ]
