"""What a service account was given and what it did: the roles that are bound to it, beside the audit log of the API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from kubewright.testing.controlplane import ControlPlane

FORBIDDEN = 403


class Act(NamedTuple):
    """A verb on a resource, such as patch of `vmgroups/status`."""

    verb: str
    group: str
    resource: str


def granted(plane: ControlPlane, namespace: str, name: str) -> set[Act]:
    """Everything that any role gives to the service account, in the whole cluster or in a namespace."""
    return {act for rule in rules_for(plane, namespace, name) for act in acts_of(rule)}


def rules_for(plane: ControlPlane, namespace: str, name: str) -> Iterator[dict[str, Any]]:
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


def acts_of(rule: dict[str, Any]) -> Iterator[Act]:
    """What one rule allows."""
    return (Act(*each) for each in product(rule["verbs"], rule["apiGroups"], rule["resources"]))


def did(events: Iterable[dict[str, Any]]) -> set[Act]:
    """What these lines of the audit log asked for, of resources."""
    return {
        act_of(event["verb"], event["objectRef"])
        for event in events
        if "resource" in event.get("objectRef", {})
    }


def act_of(verb: str, about: dict[str, Any]) -> Act:
    """What one line asked for."""
    subresource = f"/{about['subresource']}" if about.get("subresource") else ""
    return Act(verb, about.get("apiGroup", ""), about["resource"] + subresource)


def refusals(events: Iterable[dict[str, Any]]) -> list[str]:
    """What the API server answered to those that had no right."""
    return [
        event["responseStatus"].get("message", event["requestURI"])
        for event in events
        if event["responseStatus"]["code"] == FORBIDDEN
    ]
