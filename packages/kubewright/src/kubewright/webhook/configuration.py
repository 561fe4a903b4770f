"""The objects that register webhooks with the API server; `kubewright manifests` writes them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..errors import ConfigError
from ..patch import Json
from .admission import AdmissionHandler, DefaultingHandler, ValidatingHandler
from .conversion import CONVERSION_PATH
from .types import Conversion, Webhook

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
# The stored object decides whether it is being deleted. The deletionTimestamp of the new object is
# not reliable: server-side apply passes on that of the client. Only an update has an old object,
# and has() on null would be an error, to which the API server applies the failurePolicy.
_NOT_TERMINATING = {
    "name": "not-while-deleting",
    "expression": "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp)",
}


@dataclass(frozen=True)
class WebhookClientConfig:
    """How the API server reaches the webhooks: a Service, or a URL outside the cluster."""

    namespace: str = ""
    service: str = ""
    port: int = 443
    url: str = ""
    ca_bundle: bytes = b""
    """PEM; empty if the manager's own CA or cert-manager sets it later."""

    def _to_json(self, path: str) -> Json:
        config: Json
        if self.url:
            config = {"url": f"{self.url}{path}"}
        else:
            service = {
                "namespace": self.namespace,
                "name": self.service,
                "path": path,
                "port": self.port,
            }
            config = {"service": service}
        if self.ca_bundle:
            config["caBundle"] = base64.b64encode(self.ca_bundle).decode()
        return config


def configuration_name(name: str, kind: str) -> str:
    # <operator>-mutating-webhook-configuration, the name in kubebuilder's kustomization.
    return f"{name}-{kind.removesuffix('WebhookConfiguration').lower()}-webhook-configuration"


def build_configurations(
    webhooks: Iterable[Webhook[Any]],
    client_config: WebhookClientConfig,
    *,
    name: str,
    annotations: dict[str, str] | None = None,
) -> list[Json]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, unless empty.

    `name` must be the name in the manager's options, by which its own CA finds the objects.
    `annotations` are for cert-manager (`cert-manager.io/inject-ca-from`).
    """
    hooks = sort_webhooks(webhooks)
    entries: dict[str, list[Json]] = {
        MUTATING: [
            _build_webhook_entry(DefaultingHandler(hook), client_config)
            for hook in hooks
            if hook.has_default
        ],
        VALIDATING: [
            _build_webhook_entry(ValidatingHandler(hook), client_config)
            for hook in hooks
            if hook.has_validate or hook.has_validate_deletion
        ],
    }
    return [
        _build_configuration(kind, name, webhook_entries, annotations or {})
        for kind, webhook_entries in entries.items()
        if webhook_entries
    ]


def sort_webhooks(webhooks: Iterable[Webhook[Any]]) -> list[Webhook[Any]]:
    """The webhooks by kind. Raises if a kind has a second one."""
    # With matchPolicy Equivalent, one webhook gets the objects of every version.
    hooks = sorted(webhooks, key=lambda hook: hook.kind.definition.group_resource)
    for first, second in pairwise(hooks):
        resource = first.kind.definition.group_resource
        if resource == second.kind.definition.group_resource:
            names = f"{type(first).__name__} and {type(second).__name__}"
            raise ConfigError(
                f"there are two webhooks for {resource}, {names}; "
                "a kind has one webhook, for one of its versions"
            )
    return hooks


def _build_configuration(
    kind: str, name: str, entries: Sequence[Json], annotations: dict[str, str]
) -> Json:
    metadata: Json = {"name": configuration_name(name, kind)} | (
        {"annotations": annotations} if annotations else {}
    )
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": list(entries),
    }


def _build_webhook_entry(handler: AdmissionHandler, client_config: WebhookClientConfig) -> Json:
    hook, definition = handler.webhook, handler.kind.definition
    entry: Json = {
        "name": f"{handler.verb}.{definition.plural}.{definition.group or 'core'}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config._to_json(handler.path),
        "failurePolicy": hook.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": hook.side_effects,
        "timeoutSeconds": hook.timeout_seconds,
        "rules": [_build_rule(handler)],
    }
    if isinstance(handler, DefaultingHandler):
        # A field that a later webhook changes may need a default again.
        entry["reinvocationPolicy"] = "IfNeeded"
    if not hook.include_terminating:
        entry["matchConditions"] = [_NOT_TERMINATING]
    for key, selector in (
        ("namespaceSelector", _build_namespace_selector(hook, client_config.namespace)),
        ("objectSelector", hook.object_selector),
    ):
        if selector:
            entry[key] = selector
    return entry


def _build_rule(handler: AdmissionHandler) -> Json:
    hook, definition = handler.webhook, handler.kind.definition
    validating = isinstance(handler, ValidatingHandler)
    writes = ["CREATE", "UPDATE"] if not validating or hook.has_validate else []
    return {
        "apiGroups": [definition.group],
        "apiVersions": [definition.version],
        "operations": [*writes, *(["DELETE"] if validating and hook.has_validate_deletion else [])],
        "resources": [
            definition.plural,
            *([f"{definition.plural}/status"] if hook.include_status else []),
        ],
        "scope": "Namespaced" if definition.namespaced else "Cluster",
    }


def _build_namespace_selector(hook: Webhook[Any], own_namespace: str) -> Json | None:
    definition = hook.kind.definition
    # The groups of Kubernetes have no dot, or end in k8s.io.
    built_in = "." not in definition.group or definition.group.endswith(".k8s.io")
    if hook.namespace_selector is not None or not definition.namespaced or not built_in:
        return hook.namespace_selector
    # A webhook for Pods, for example, must not block the Pods that it needs itself to start.
    excluded = ["kube-system", *([own_namespace] if own_namespace else [])]
    return {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}
        ]
    }


def build_conversion(client_config: WebhookClientConfig) -> Json:
    """The `spec.conversion` of a CRD with a conversion webhook."""
    return {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": client_config._to_json(CONVERSION_PATH),
            "conversionReviewVersions": ["v1"],
        },
    }


def with_conversions(
    crds: Iterable[Json],
    conversions: Iterable[Conversion[Any, Any]],
    client_config: WebhookClientConfig,
) -> list[Json]:
    """Add `spec.conversion` to the CRDs of these conversions."""
    converted = {conversion.hub.definition.group_resource for conversion in conversions}
    return [
        crd | {"spec": crd["spec"] | {"conversion": build_conversion(client_config)}}
        if crd["metadata"]["name"] in converted
        else crd
        for crd in crds
    ]
