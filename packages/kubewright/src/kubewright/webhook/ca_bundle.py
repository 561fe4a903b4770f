"""What carries a caBundle: the two webhook configurations, and CRDs with a conversion webhook."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from ..builtin import Secret
from ..controller import Permission
from ..kind import Key, Object, kind
from ..overlay import Json
from .configuration import MUTATING, VALIDATING, configuration_name
from .options import WebhookOptions
from .types import Conversion, Webhook

GROUP = "admissionregistration.k8s.io"


class WebhookConfiguration(Object, omit_defaults=True):
    """A list of webhooks; each stays as it is but for its caBundle."""

    webhooks: list[dict[str, Any]] = []


@kind(f"{GROUP}/v1", namespaced=False)
class MutatingWebhookConfiguration(WebhookConfiguration):
    """Whom the API server asks before it stores."""


@kind(f"{GROUP}/v1", namespaced=False)
class ValidatingWebhookConfiguration(WebhookConfiguration):
    """Whom it asks whether to."""


class CustomResourceDefinitionSpec(Struct, frozen=True, omit_defaults=True):
    """The part that is about conversion; the schemas are passed over."""

    conversion: dict[str, Any] = {}


@kind("apiextensions.k8s.io/v1", namespaced=False)
class CustomResourceDefinition(Object, omit_defaults=True):
    """A CRD."""

    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()


@kind(f"{GROUP}/v1", name=MUTATING, namespaced=False, metadata_only=True)
class MutatingWebhookConfigurationMetadata(Object):
    """Only which version there is."""


@kind(f"{GROUP}/v1", name=VALIDATING, namespaced=False, metadata_only=True)
class ValidatingWebhookConfigurationMetadata(Object):
    """Only which version there is."""


@kind(
    "apiextensions.k8s.io/v1", name="CustomResourceDefinition", namespaced=False, metadata_only=True
)
class CustomResourceDefinitionMetadata(Object):
    """Only which version there is."""


@dataclass(frozen=True)
class CaBundleTarget:
    """One object that has to carry our caBundle."""

    kind: type[WebhookConfiguration] | type[CustomResourceDefinition]
    metadata_kind: type[Object]
    name: str

    @property
    def key(self) -> Key:
        """All of these are cluster-scoped."""
        return Key("", self.name)

    def __str__(self) -> str:
        return f"{self.kind.definition.name} {self.name}"


def find_ca_bundle_targets(
    webhooks: Iterable[Webhook[Any]], conversions: Iterable[Conversion[Any, Any]], name: str
) -> list[CaBundleTarget]:
    """What carries the caBundle for these declarations; `name` is the operator's."""
    hooks = list(webhooks)
    found: list[CaBundleTarget] = []
    if any(hook.has_default for hook in hooks):
        found.append(
            CaBundleTarget(
                MutatingWebhookConfiguration,
                MutatingWebhookConfigurationMetadata,
                configuration_name(name, MUTATING),
            )
        )
    if any(hook.has_validate or hook.has_validate_deletion for hook in hooks):
        found.append(
            CaBundleTarget(
                ValidatingWebhookConfiguration,
                ValidatingWebhookConfigurationMetadata,
                configuration_name(name, VALIDATING),
            )
        )
    converted = sorted({each.hub.definition.group_resource for each in conversions})
    return found + [
        CaBundleTarget(CustomResourceDefinition, CustomResourceDefinitionMetadata, resource)
        for resource in converted
    ]


def has_webhook_client(obj: WebhookConfiguration | CustomResourceDefinition) -> bool:
    """Whether there is a place for a caBundle."""
    return (
        bool(obj.webhooks)
        if isinstance(obj, WebhookConfiguration)
        else obj.spec.conversion.get("strategy") == "Webhook"
    )


def build_ca_bundle_patch(
    obj: WebhookConfiguration | CustomResourceDefinition, bundle: bytes
) -> Json | None:
    """The patch that puts the bundle in, if nobody wrote since; None where it is in already, or nothing can carry it."""
    encoded = base64.b64encode(bundle).decode()
    revision = {"metadata": {"resourceVersion": obj.metadata.resourceVersion}}
    if isinstance(obj, WebhookConfiguration):
        hooks = [_with_ca_bundle(hook, encoded) for hook in obj.webhooks]
        return None if hooks == obj.webhooks else revision | {"webhooks": hooks}
    webhook = obj.spec.conversion.get("webhook") or {}
    if (
        not has_webhook_client(obj)
        or (webhook.get("clientConfig") or {}).get("caBundle") == encoded
    ):
        return None
    return revision | {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": encoded}}}}}


def _with_ca_bundle(hook: Json, encoded: str) -> Json:
    """One webhook of a configuration, with this caBundle."""
    return hook | {"clientConfig": (hook.get("clientConfig") or {}) | {"caBundle": encoded}}


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
