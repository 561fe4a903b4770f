"""The objects that tell the API server when to ask whom: pure, from the declarations; what `kubewright manifests` writes as files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..errors import ConfigError
from ..kind import KindDefinition
from ..overlay import Json
from .admission import AdmissionHandler, DefaultingHandler, ValidatingHandler
from .conversion import CONVERSION_PATH
from .types import Conversion, Webhook

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
# What is stored says whether an object is going. What is sent may lie: an object that server-side apply creates brings its own
# deletionTimestamp as far as here. Only an update has both, and has() on null would be an error, which goes by failurePolicy.
_NOT_TERMINATING = {
    "name": "not-while-deleting",
    "expression": "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp)",
}


@dataclass(frozen=True)
class WebhookClientConfig:
    """How the API server reaches us: through a Service, or by an address (for a manager outside the cluster)."""

    namespace: str = ""
    service: str = ""
    port: int = 443
    url: str = ""
    ca_bundle: bytes = b""
    """PEM; empty where somebody else fills it in: our own CA, or cert-manager."""

    def _for_path(self, path: str) -> Json:
        """The clientConfig for one path."""
        where: Json = (
            {"url": f"{self.url}{path}"}
            if self.url
            else {
                "service": {
                    "namespace": self.namespace,
                    "name": self.service,
                    "path": path,
                    "port": self.port,
                }
            }
        )
        return where | (
            {"caBundle": base64.b64encode(self.ca_bundle).decode()} if self.ca_bundle else {}
        )


def build_service(
    reach: WebhookClientConfig, *, target_port: int = 9443, selector: dict[str, str]
) -> Json:
    """The Service in front of the manager's Pods."""
    port = {"name": "webhook", "port": reach.port, "protocol": "TCP", "targetPort": target_port}
    metadata = {"name": reach.service, "namespace": reach.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [port], "selector": selector},
    }


def configuration_name(name: str, kind: str) -> str:
    """`<operator>-mutating-webhook-configuration`, as kubebuilder's default kustomization names it."""
    return f"{name}-{kind.removesuffix('WebhookConfiguration').lower()}-webhook-configuration"


def build_configurations(
    webhooks: Iterable[Webhook[Any]],
    reach: WebhookClientConfig,
    *,
    name: str,
    annotations: dict[str, str] | None = None,
) -> list[Json]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, as far as there is something to put in.

    `name` is the operator's, as the manager has it in its options: our own CA looks for these names. `annotations` are for
    cert-manager (`cert-manager.io/inject-ca-from`).
    """
    hooks = check_webhooks(webhooks)
    entries: dict[str, list[Json]] = {
        MUTATING: [
            _build_webhook_entry(DefaultingHandler(hook), reach)
            for hook in hooks
            if hook.has_default
        ],
        VALIDATING: [
            _build_webhook_entry(ValidatingHandler(hook), reach)
            for hook in hooks
            if hook.has_validate or hook.has_validate_deletion
        ],
    }
    return [
        _build_configuration(kind, name, listed, annotations or {})
        for kind, listed in entries.items()
        if listed
    ]


def check_webhooks(webhooks: Iterable[Webhook[Any]]) -> list[Webhook[Any]]:
    """The webhooks in the order of their kinds. One a kind: matchPolicy Equivalent brings every version to it."""
    hooks = sorted(webhooks, key=lambda hook: hook.kind.definition.group_resource)
    for one, other in pairwise(hooks):
        if one.kind.definition.group_resource == other.kind.definition.group_resource:
            names = f"{type(one).__name__} and {type(other).__name__}"
            raise ConfigError(
                f"there are two webhooks for {one.kind.definition.group_resource}, {names}; one kind has one, in one of its versions"
            )
    return hooks


def _build_configuration(
    kind: str, name: str, entries: Sequence[Json], annotations: dict[str, str]
) -> Json:
    """One of the two objects."""
    metadata: Json = {"name": configuration_name(name, kind)} | (
        {"annotations": annotations} if annotations else {}
    )
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": list(entries),
    }


def _build_webhook_entry(handler: AdmissionHandler, reach: WebhookClientConfig) -> Json:
    """One webhook of a configuration."""
    hook, kind = handler.webhook, handler.kind.definition
    made: Json = {
        "name": f"{handler.verb}.{kind.plural}.{kind.group or 'core'}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": reach._for_path(handler.path),
        "failurePolicy": hook.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": hook.side_effects,
        "timeoutSeconds": hook.timeout_seconds,
        "rules": [_build_rule(handler)],
    }
    if isinstance(handler, DefaultingHandler):
        # What a later webhook changes may need a default of ours again.
        made["reinvocationPolicy"] = "IfNeeded"
    if not hook.include_terminating:
        made["matchConditions"] = [_NOT_TERMINATING]
    for key, selector in (
        ("namespaceSelector", _build_namespace_selector(hook, reach.namespace)),
        ("objectSelector", hook.object_selector),
    ):
        if selector:
            made[key] = selector
    return made


def _build_rule(handler: AdmissionHandler) -> Json:
    """Which requests: never DELETE, never a subresource, unless the webhook asked."""
    hook, kind = handler.webhook, handler.kind.definition
    validating = isinstance(handler, ValidatingHandler)
    writes = ["CREATE", "UPDATE"] if not validating or hook.has_validate else []
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": [*writes, *(["DELETE"] if validating and hook.has_validate_deletion else [])],
        "resources": [kind.plural, *([f"{kind.plural}/status"] if hook.include_status else [])],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }


def _build_namespace_selector(hook: Webhook[Any], own_namespace: str) -> Json | None:
    """The namespaces: all for a kind of our own; for a built-in one not those that we need ourselves to come up."""
    kind = hook.kind.definition
    if hook.namespace_selector is not None or not kind.namespaced or not _is_built_in(kind):
        return hook.namespace_selector
    kept_out = ["kube-system", *([own_namespace] if own_namespace else [])]
    return {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": kept_out}
        ]
    }


def _is_built_in(kind: KindDefinition) -> bool:
    """Whether the kind is Kubernetes' own: those groups have no dot, or end in k8s.io."""
    return "." not in kind.group or kind.group.endswith(".k8s.io")


def build_conversion(reach: WebhookClientConfig) -> Json:
    """The `spec.conversion` of a CRD whose versions we convert."""
    return {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": reach._for_path(CONVERSION_PATH),
            "conversionReviewVersions": ["v1"],
        },
    }


def with_conversions(
    crds: Iterable[Json], conversions: Iterable[Conversion[Any, Any]], reach: WebhookClientConfig
) -> list[Json]:
    """The CRDs, those of kinds that we convert with their `spec.conversion`."""
    converted = {each.hub.definition.group_resource for each in conversions}
    return [
        crd | {"spec": crd["spec"] | {"conversion": build_conversion(reach)}}
        if crd["metadata"]["name"] in converted
        else crd
        for crd in crds
    ]
