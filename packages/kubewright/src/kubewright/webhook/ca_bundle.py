"""What carries a caBundle: the two webhook configurations, and CRDs with a conversion webhook."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from ..kind import Object, kind
from ..meta import Key
from ..patch import Json
from .configuration import MUTATING, VALIDATING, configuration_name
from .types import Conversion, Webhook

GROUP = "admissionregistration.k8s.io"


class Configuration(Object, omit_defaults=True):
    """A list of webhooks; each stays as it is but for its caBundle."""

    webhooks: list[dict[str, Any]] = []


@kind(f"{GROUP}/v1", namespaced=False)
class MutatingWebhookConfiguration(Configuration):
    """Whom the API server asks before it stores."""


@kind(f"{GROUP}/v1", namespaced=False)
class ValidatingWebhookConfiguration(Configuration):
    """Whom it asks whether to."""


class DefinitionSpec(Struct, frozen=True, omit_defaults=True):
    """The part that is about conversion; the schemas are passed over."""

    conversion: dict[str, Any] = {}


@kind("apiextensions.k8s.io/v1", namespaced=False)
class CustomResourceDefinition(Object, omit_defaults=True):
    """A CRD."""

    spec: DefinitionSpec = DefinitionSpec()


@kind(f"{GROUP}/v1", name=MUTATING, namespaced=False, metadata_only=True)
class MutatingMetadata(Object):
    """Only which version there is."""


@kind(f"{GROUP}/v1", name=VALIDATING, namespaced=False, metadata_only=True)
class ValidatingMetadata(Object):
    """Only which version there is."""


@kind("apiextensions.k8s.io/v1", name="CustomResourceDefinition", namespaced=False, metadata_only=True)
class DefinitionMetadata(Object):
    """Only which version there is."""


@dataclass(frozen=True)
class Target:
    """One object that has to carry our caBundle."""

    kind: type[Configuration] | type[CustomResourceDefinition]
    metadata: type[Object]
    name: str

    @property
    def key(self) -> Key:
        """All of these are cluster-scoped."""
        return Key("", self.name)

    def __str__(self) -> str:
        return f"{self.kind.definition.name} {self.name}"


def targets_of(webhooks: Iterable[Webhook[Any]], conversions: Iterable[Conversion[Any, Any]], name: str) -> list[Target]:
    """What carries the caBundle for these declarations; `name` is the operator's."""
    hooks = list(webhooks)
    found: list[Target] = []
    if any(hook.defaults for hook in hooks):
        found.append(Target(MutatingWebhookConfiguration, MutatingMetadata, configuration_name(name, MUTATING)))
    if any(hook.validates or hook.validates_deletion for hook in hooks):
        found.append(Target(ValidatingWebhookConfiguration, ValidatingMetadata, configuration_name(name, VALIDATING)))
    converted = sorted({each.hub.definition.resource for each in conversions})
    return found + [Target(CustomResourceDefinition, DefinitionMetadata, resource) for resource in converted]


def can_carry(obj: Configuration | CustomResourceDefinition) -> bool:
    """Whether there is a place for a caBundle."""
    return bool(obj.webhooks) if isinstance(obj, Configuration) else obj.spec.conversion.get("strategy") == "Webhook"


def patch_for(obj: Configuration | CustomResourceDefinition, bundle: bytes) -> Json | None:
    """The patch that puts the bundle in, if nobody wrote since; None where it is in already, or nothing can carry it."""
    encoded = base64.b64encode(bundle).decode()
    revision = {"metadata": {"resourceVersion": obj.metadata.resourceVersion}}
    if isinstance(obj, Configuration):
        hooks = [with_bundle(hook, encoded) for hook in obj.webhooks]
        return None if hooks == obj.webhooks else revision | {"webhooks": hooks}
    webhook = obj.spec.conversion.get("webhook") or {}
    if not can_carry(obj) or (webhook.get("clientConfig") or {}).get("caBundle") == encoded:
        return None
    return revision | {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": encoded}}}}}


def with_bundle(hook: Json, encoded: str) -> Json:
    """One webhook of a configuration, with this caBundle."""
    return hook | {"clientConfig": (hook.get("clientConfig") or {}) | {"caBundle": encoded}}
