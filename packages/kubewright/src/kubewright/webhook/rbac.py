"""What webhooks need of the API server, for the generated roles: nothing where the certificate comes from files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..builtin import Secret
from ..controller import Right
from .ca_bundle import targets_of
from .options import WebhookOptions
from .types import Conversion, Webhook


def cluster_rights(
    webhooks: Iterable[Webhook[Any]], conversions: Iterable[Conversion[Any, Any]], options: WebhookOptions, *, name: str
) -> list[Right]:
    """For a ClusterRole: each configuration and CRD that carries our caBundle, by name."""
    if not options.own_authority:
        return []
    return [Right(target.kind, ("get", "patch"), names=(target.name,)) for target in targets_of(webhooks, conversions, name)]


def namespace_rights(
    webhooks: Iterable[Webhook[Any]], conversions: Iterable[Conversion[Any, Any]], options: WebhookOptions, *, name: str
) -> list[Right]:
    """For a Role in the manager's namespace: the Secret with the CA. `create` cannot be limited to a name; the namespace limits it."""
    if not options.own_authority or not targets_of(webhooks, conversions, name):
        return []
    return [Right(Secret, ("create",)), Right(Secret, ("get", "patch"), names=(options.secret_name(name),))]
