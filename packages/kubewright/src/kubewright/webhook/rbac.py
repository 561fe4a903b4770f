"""What webhooks need of the API server, for the generated roles: nothing where the certificate comes from files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..builtin import Secret
from ..controller import Permission
from .ca_bundle import find_ca_bundle_targets
from .options import WebhookOptions
from .types import Conversion, Webhook


def cluster_permissions(
    webhooks: Iterable[Webhook[Any]],
    conversions: Iterable[Conversion[Any, Any]],
    options: WebhookOptions,
    *,
    name: str,
) -> list[Permission]:
    """For a ClusterRole: each configuration and CRD that carries our caBundle, by name."""
    if not options.has_own_ca:
        return []
    return [
        Permission(target.kind, ("get", "patch"), resource_names=(target.name,))
        for target in find_ca_bundle_targets(webhooks, conversions, name)
    ]


def namespace_permissions(
    webhooks: Iterable[Webhook[Any]],
    conversions: Iterable[Conversion[Any, Any]],
    options: WebhookOptions,
    *,
    name: str,
) -> list[Permission]:
    """For a Role in the manager's namespace: the Secret with the CA. `create` cannot be limited to a name; the namespace limits it."""
    if not options.has_own_ca or not find_ca_bundle_targets(webhooks, conversions, name):
        return []
    return [
        Permission(Secret, ("create",)),
        Permission(Secret, ("get", "patch"), resource_names=(options.secret_name(name),)),
    ]
