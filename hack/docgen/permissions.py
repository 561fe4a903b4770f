"""The page of Kubernetes permissions and ports, from the manifests in config/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from . import ROOT
from .page import code, page, table

_CONFIG = ROOT / "config"
# Roles of config/default that the manager has; the others are for users.
_MANAGER_ROLES = ("role.yaml", "leader_election_role.yaml", "metrics_auth_role.yaml")
_USER_ROLE = re.compile(r"vsphere-operators-(\w+)-(viewer|editor|admin)-role")
_AGGREGATION = "rbac.authorization.k8s.io/aggregate-to-"
_INTRODUCTION = """
What the manager and its users can do in Kubernetes, and the ports of the manager. [The security
model](../explanation/security.md) explains it. A test runs the manager with these roles: it fails
if a request is refused, and if a permission is unused without a reason in the test.
"""
_MANAGER_TEXT = """
The service account of the manager. A component or a file adds its rows only if you apply it. With
the component `namespaced`, the first role is bound in the manager's namespace only; what it has
instead in the whole cluster is in the rows of that component.
"""
_USERS_TEXT = """
ClusterRoles for users, with the ClusterRoles of Kubernetes that include them. A role without one
has to be bound. The component `aggregate-editors` adds the roles of VmGroup to `edit` and `admin`.
"""
_PATHS_TEXT = """
`vsphere-operators-metrics-reader` permits `get` on `/metrics`, and
`vsphere-operators-topology-reader` (`config/optional/topology-reader.yaml`) on `/topology`. Bind
them yourself.
"""
_PORTS_TEXT = """
Ports of the Pod. Each address is a flag, so another overlay can differ.
"""
# A port without a description here is an error, so that the page cannot omit one.
_PORT_DESCRIPTIONS = {
    "metrics": "HTTPS; a token with the role `vsphere-operators-metrics-reader`",
    "health": "HTTP; `/healthz` and `/readyz` for the kubelet, without inventory",
    "webhook": "HTTPS; reviews of the API server",
    "page": "HTTP on a loopback address; only by `kubectl port-forward`",
}


def _load(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _manager_sources() -> Iterator[tuple[str, Path]]:
    """What adds a role, and the file that has it."""
    for name in _MANAGER_ROLES:
        yield "`config/default`", _CONFIG / "rbac" / name
    for path in sorted((_CONFIG / "components").glob("*/*.yaml")):
        yield f"component {code(path.parent.name)}", path
    for path in sorted((_CONFIG / "optional").glob("*.yaml")):
        yield code(f"config/optional/{path.name}"), path


def _manager_rows() -> Iterator[tuple[str, ...]]:
    for source, path in _manager_sources():
        for document in _load(path):
            # A patch that deletes a role has no rules; a rule for paths is for users.
            rules = [rule for rule in document.get("rules", ()) if "resources" in rule]
            if rules:
                yield from _rule_rows(source, _scope_of(document), rules)


def _scope_of(role: dict[str, Any]) -> str:
    if role["kind"] == "ClusterRole":
        return "cluster"
    return code(role["metadata"].get("namespace", "")) or "where you apply it"


def _rule_rows(source: str, scope: str, rules: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """One row for all resources of an API group with the same verbs."""
    resources: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        (group,) = rule["apiGroups"]
        only = f" named {code(rule['resourceNames'][0])}" if "resourceNames" in rule else ""
        resources.setdefault((group, ", ".join(rule["verbs"])), []).extend(
            f"{code(resource)}{only}" for resource in rule["resources"]
        )
    for (group, verbs), names in resources.items():
        yield source, scope, code(group) or "core", ", ".join(names), verbs


def _user_rows() -> Iterator[tuple[str, ...]]:
    """Roles of kinds with the same rules share a row."""
    kinds_by_row: dict[tuple[str, ...], list[str]] = {}
    for path in sorted((_CONFIG / "rbac").glob("*_user_roles.yaml")):
        for role in _load(path):
            match = _USER_ROLE.fullmatch(role["metadata"]["name"])
            if match is None:
                raise ValueError(f"{path.name}: {role['metadata']['name']} has no row on the page")
            kind, name = match.groups()
            included_in = [
                code(label.removeprefix(_AGGREGATION))
                for label in role["metadata"].get("labels", {})
                if label.startswith(_AGGREGATION)
            ]
            verbs = "; ".join(
                f"{rule['resources'][0].partition('/')[2] or 'objects'}: {', '.join(rule['verbs'])}"
                for rule in role["rules"]
            )
            row = (
                code(f"vsphere-operators-KIND-{name}-role"),
                ", ".join(included_in) or "none",
                verbs,
            )
            kinds_by_row.setdefault(row, []).append(code(kind))
    for (role_name, roles_of_kubernetes, rules), kinds in kinds_by_row.items():
        yield role_name, ", ".join(kinds), roles_of_kubernetes, rules


def _port_rows() -> Iterator[tuple[str, ...]]:
    (deployment,) = _load(_CONFIG / "manager/manager.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for port in container["ports"]:
        yield str(port["containerPort"]), "`config/default`", _PORT_DESCRIPTIONS[port["name"]]
    for path in sorted((_CONFIG / "components").glob("*/kustomization.yaml")):
        text = path.read_text()
        for name, number in re.findall(
            r'"name": "(\w+)", "containerPort": (\d+)', " ".join(text.split())
        ):
            yield number, f"component {code(path.parent.name)}", _PORT_DESCRIPTIONS[name]
        for number in re.findall(r"-ui-bind-address=[\d.]+:(\d+)", text):
            yield number, f"component {code(path.parent.name)}", _PORT_DESCRIPTIONS["page"]


def render() -> str:
    return page(
        "Permissions and ports",
        _INTRODUCTION,
        "## The manager",
        _MANAGER_TEXT,
        table(("added by", "scope", "API group", "resources", "verbs"), _manager_rows()),
        "## Users",
        _USERS_TEXT,
        table(("role", "KIND", "included in", "verbs"), _user_rows()),
        _PATHS_TEXT,
        "## Ports",
        _PORTS_TEXT,
        table(("port", "added by", "serves"), _port_rows()),
    )
