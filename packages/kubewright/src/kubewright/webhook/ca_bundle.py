"""The objects that hold a caBundle, and the permissions to write it.

These are the two webhook configurations, and the CRDs with a conversion webhook.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from ..builtin import Secret
from ..kind import Key, Object, kind
from ..patch import Json
from ..permission import Permission
from .configuration import MUTATING, VALIDATING, configuration_name
from .options import WebhookOptions
from .types import Conversion, Webhook

_GROUP = "admissionregistration.k8s.io"


class WebhookConfiguration(Object, omit_defaults=True):
    """A list of webhooks, of which only the caBundle is changed."""

    webhooks: list[dict[str, Any]] = []


@kind(f"{_GROUP}/v1", namespaced=False, external=True)
class MutatingWebhookConfiguration(WebhookConfiguration):
    """The webhooks that set defaults."""


@kind(f"{_GROUP}/v1", namespaced=False, external=True)
class ValidatingWebhookConfiguration(WebhookConfiguration):
    """The webhooks that validate."""


class CustomResourceDefinitionSpec(Struct, frozen=True, omit_defaults=True):
    """The conversion of a CRD; its schemas are not decoded."""

    conversion: dict[str, Any] = {}


@kind("apiextensions.k8s.io/v1", namespaced=False, external=True)
class CustomResourceDefinition(Object, omit_defaults=True):
    """A CRD, which may have a conversion webhook."""

    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()


# Only the resourceVersion is read of these, to detect a change cheaply: a CRD can be large.
@kind(f"{_GROUP}/v1", name=MUTATING, namespaced=False, metadata_only=True, external=True)
class MutatingWebhookConfigurationMetadata(Object):
    """The metadata of a MutatingWebhookConfiguration."""


@kind(f"{_GROUP}/v1", name=VALIDATING, namespaced=False, metadata_only=True, external=True)
class ValidatingWebhookConfigurationMetadata(Object):
    """The metadata of a ValidatingWebhookConfiguration."""


@kind(
    "apiextensions.k8s.io/v1",
    name="CustomResourceDefinition",
    namespaced=False,
    metadata_only=True,
    external=True,
)
class CustomResourceDefinitionMetadata(Object):
    """The metadata of a CRD."""


@dataclass(frozen=True)
class CaBundleTarget:
    """An object that has to hold the caBundle of the manager's CA."""

    kind: type[WebhookConfiguration] | type[CustomResourceDefinition]
    metadata_kind: type[Object]
    name: str

    @property
    def key(self) -> Key:
        return Key("", self.name)

    def __str__(self) -> str:
        return f"{self.kind.definition.name} {self.name}"


def find_ca_bundle_targets(
    webhooks: Iterable[Webhook[Any]], conversions: Iterable[Conversion[Any, Any]], name: str
) -> list[CaBundleTarget]:
    """The objects that hold the caBundle for these webhooks; `name` is that of the operator."""
    hooks = list(webhooks)
    targets: list[CaBundleTarget] = []
    if any(hook.has_default for hook in hooks):
        targets.append(
            CaBundleTarget(
                MutatingWebhookConfiguration,
                MutatingWebhookConfigurationMetadata,
                configuration_name(name, MUTATING),
            )
        )
    if any(hook.has_validate or hook.has_validate_deletion for hook in hooks):
        targets.append(
            CaBundleTarget(
                ValidatingWebhookConfiguration,
                ValidatingWebhookConfigurationMetadata,
                configuration_name(name, VALIDATING),
            )
        )
    crd_names = {conversion.hub.definition.group_resource for conversion in conversions}
    return targets + [
        CaBundleTarget(CustomResourceDefinition, CustomResourceDefinitionMetadata, crd_name)
        for crd_name in sorted(crd_names)
    ]


def has_client_config(obj: WebhookConfiguration | CustomResourceDefinition) -> bool:
    """Whether the object has a clientConfig, which holds a caBundle."""
    if isinstance(obj, WebhookConfiguration):
        return bool(obj.webhooks)
    return obj.spec.conversion.get("strategy") == "Webhook"


def build_ca_bundle_patch(
    obj: WebhookConfiguration | CustomResourceDefinition, bundle: bytes
) -> Json | None:
    """The patch that sets the caBundle; None if it is set, or if the object has no clientConfig.

    The patch fails with a conflict if another client has written the object since it was read.
    """
    encoded = base64.b64encode(bundle).decode()
    precondition = {"metadata": {"resourceVersion": obj.metadata.resourceVersion}}
    if isinstance(obj, WebhookConfiguration):
        # A merge patch replaces a list as a whole, so every webhook is repeated.
        hooks = [
            hook | {"clientConfig": (hook.get("clientConfig") or {}) | {"caBundle": encoded}}
            for hook in obj.webhooks
        ]
        return None if hooks == obj.webhooks else precondition | {"webhooks": hooks}
    webhook = obj.spec.conversion.get("webhook") or {}
    current = (webhook.get("clientConfig") or {}).get("caBundle")
    if not has_client_config(obj) or current == encoded:
        return None
    client_config = {"clientConfig": {"caBundle": encoded}}
    return precondition | {"spec": {"conversion": {"webhook": client_config}}}


def ca_permissions(
    webhooks: Iterable[Webhook[Any]],
    conversions: Iterable[Conversion[Any, Any]],
    options: WebhookOptions,
    *,
    name: str,
) -> tuple[list[Permission], list[Permission]]:
    """For the ClusterRole, each object that holds the caBundle, by name; and for the Role in the
    manager's namespace, the Secret of the CA.
    """
    targets = find_ca_bundle_targets(webhooks, conversions, name) if options.has_own_ca else []
    cluster_wide = [
        Permission(target.kind, ("get", "patch"), resource_names=(target.name,))
        for target in targets
    ]
    namespaced = [
        # RBAC cannot limit `create` to a name, but the Role limits it to the namespace.
        Permission(Secret, ("create",)),
        Permission(Secret, ("get", "patch"), resource_names=(options.secret_name(name),)),
    ]
    return cluster_wide, namespaced if targets else []
