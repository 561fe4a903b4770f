"""Runs controllers and webhooks of examples on the real API server, with the permissions that they
declare and no others.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from kubewright import Client, Controller, Manager, Webhook
from kubewright.crd import build_crds
from kubewright.permission import Permission
from kubewright.rbac import build_rules, manager_permissions
from kubewright.selection import declared_kind
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import SERVICE_ACCOUNT, run_operator
from kubewright.webhook.ca_bundle import ca_permissions
from kubewright.webhook.options import WebhookOptions

RunControllers = Callable[..., AbstractAsyncContextManager[Client]]
_RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}


@asynccontextmanager
async def run_components(
    plane: ControlPlane, components: tuple[Controller[Any] | Webhook[Any], ...], *namespaces: str
) -> AsyncIterator[Client]:
    """Run a manager for these namespaces, or for all. Yields the client of an administrator."""
    name = f"example-{uuid.uuid4().hex[:6]}"
    await asyncio.to_thread(_install, plane, name, components)

    def build(manager: Manager, settings: None) -> None:
        for component in components:
            manager.add(component)

    async with run_operator(plane, build, None, *namespaces, name=name) as client:
        yield client


def _install(
    plane: ControlPlane, name: str, components: tuple[Controller[Any] | Webhook[Any], ...]
) -> None:
    """Apply what `kubewright manifests` would generate for a project with these components."""
    controllers = [part for part in components if isinstance(part, Controller)]
    webhooks = [part for part in components if isinstance(part, Webhook)]
    kinds = {declared_kind(part.kind) for part in components if not part.kind.definition.external}
    for_cluster, for_namespace = ca_permissions(webhooks, [], WebhookOptions(), name=name)
    permissions = manager_permissions(controllers, webhooks)
    system = f"{name}-system"
    plane.create_namespace(system)
    documents = [
        *build_crds(kinds),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": system},
        },
        *_bind_role(name, system, [*permissions, *for_cluster], {}),
        *_bind_role(name, system, for_namespace, {"namespace": system}),
    ]
    plane.apply(*map(json.dumps, documents))
    if kinds:
        plane.wait_for_crds()


def _bind_role(
    name: str, system: str, permissions: list[Permission], place: dict[str, str]
) -> list[dict[str, Any]]:
    """A Role in a namespace, or a ClusterRole, and its binding to the service account."""
    kind = "Role" if place else "ClusterRole"
    metadata = {"name": name} | place
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": system}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return [
        _RBAC | {"kind": kind, "metadata": metadata, "rules": build_rules(permissions)},
        _RBAC
        | {
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]
