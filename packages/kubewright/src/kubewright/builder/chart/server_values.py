"""The values of the manager's servers and connections: metrics, network policy, webhooks."""

from __future__ import annotations

from collections.abc import Iterator

from ..project import OperatorParts, Project
from .model import (
    BOOLEAN,
    OBJECTS,
    PORTS,
    STRING,
    STRING_MAP,
    ChartExtension,
    EgressRule,
    Json,
    Value,
)

_DURATION: Json = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))*$"}
_ISSUER: Json = {
    "type": "object",
    "properties": {"name": STRING, "kind": STRING, "group": STRING},
    "additionalProperties": False,
}
_ISSUER_EXAMPLE = {"name": "internal-ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}
BUILT_IN_EGRESS = (
    EgressRule("dns", (53,), "name servers", ("UDP", "TCP")),
    # A policy sees the port of the API server's endpoints, not that of its Service.
    EgressRule("apiServer", (443, 6443), "the API server"),
)


def _build_certificate_values(prefix: str, enabled: bool, context: Json) -> Iterator[Value]:
    yield Value(
        f"{prefix}.certManager",
        enabled,
        "Use a certificate of cert-manager.",
        BOOLEAN,
        not enabled,
        context,
    )
    yield Value(
        f"{prefix}.issuerRef",
        {},
        "Issuer of cert-manager to use. If empty, the chart creates a self-signed one.",
        _ISSUER,
        _ISSUER_EXAMPLE,
        context | {f"{prefix}.certManager": True},
    )


def build_metrics_values(project: Project) -> Iterator[Value]:
    yield Value("metrics.enabled", True, "Serve metrics.", BOOLEAN, False)
    yield from _build_certificate_values("metrics", False, {})
    yield Value(
        "metrics.existingSecret",
        "",
        "Secret with your own certificate: tls.crt, tls.key and ca.crt. Without it and without "
        "cert-manager, the manager uses a self-signed certificate.",
        STRING,
        "metrics-certificate",
    )
    enabled = "prometheus" in project.config.components
    certificate = {"metrics.existingSecret": "metrics-certificate"}
    yield Value(
        "metrics.serviceMonitor.enabled",
        enabled,
        "Create a ServiceMonitor of the Prometheus Operator.",
        BOOLEAN,
        not enabled,
        certificate,
    )
    context = certificate | {"metrics.serviceMonitor.enabled": True}
    yield Value(
        "metrics.serviceMonitor.insecureSkipVerify",
        enabled,
        "Let Prometheus accept any certificate. If false, it verifies the certificate of "
        "metrics.certManager or metrics.existingSecret.",
        BOOLEAN,
        not enabled,
        context,
    )
    yield Value(
        "metrics.serviceMonitor.interval",
        "",
        "Interval of scrapes. Defaults to that of Prometheus.",
        _DURATION,
        "30s",
        context,
    )
    yield Value(
        "metrics.serviceMonitor.scrapeTimeout",
        "",
        "Timeout of a scrape. Defaults to that of Prometheus.",
        _DURATION,
        "10s",
        context,
    )
    yield Value(
        "metrics.serviceMonitor.labels",
        {},
        "Labels by which your Prometheus selects the ServiceMonitor.",
        STRING_MAP,
        {"release": "prometheus"},
        context,
    )


def build_network_values(project: Project, extension: ChartExtension) -> Iterator[Value]:
    enabled = "network-policy" in project.config.components
    yield Value(
        "networkPolicy.enabled",
        enabled,
        "Create a NetworkPolicy that restricts connections to the manager.",
        BOOLEAN,
        not enabled,
    )
    context = {"networkPolicy.enabled": True}
    yield Value(
        "networkPolicy.metricsFrom",
        [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
        "Peers that may read metrics, as in a NetworkPolicy. If empty, any.",
        OBJECTS,
        [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        context,
    )
    yield Value(
        "networkPolicy.egress.enabled",
        False,
        "Also restrict connections from the manager, to those that the other egress values allow.",
        BOOLEAN,
        True,
        context,
    )
    context = context | {"networkPolicy.egress.enabled": True}
    api_server = {"networkPolicy.egress.apiServer.to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}
    for rule in (*BUILT_IN_EGRESS, *extension.egress):
        path = f"networkPolicy.egress.{rule.name}"
        description = f"Peers for connections to {rule.description}, as in a NetworkPolicy."
        yield Value(
            f"{path}.to",
            [],
            f"{description} If empty, any."
            + (" Needs apiServer.to, if they share a port." if rule in extension.egress else ""),
            OBJECTS,
            [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            context | (api_server if rule in extension.egress else {}),
        )
        description = f"Ports of {rule.description}."
        yield Value(f"{path}.ports", list(rule.ports), description, PORTS, [8443], context)
    yield Value(
        "networkPolicy.egress.extra",
        [],
        "Additional rules, as in a NetworkPolicy.",
        OBJECTS,
        [{"to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}],
        context,
    )


def build_webhook_values(project: Project, declared: OperatorParts) -> Iterator[Value]:
    if not declared.including_optional_webhooks.has_webhook_server:
        return
    components = project.config.components
    enabled = "without-webhooks" not in components
    if declared.optional_webhooks:
        enabled = "webhooks" in components
    yield Value("webhooks.enabled", enabled, "Enable the webhooks.", BOOLEAN, not enabled)
    context: Json = {"webhooks.enabled": True}
    yield from _build_certificate_values("webhooks", "cert-manager" in components, context)
    yield Value(
        "webhooks.existingSecret",
        "",
        "Secret with your own certificate: tls.crt and tls.key. Without it and without "
        "cert-manager, the manager creates a CA of its own.",
        STRING,
        "webhook-certificate",
        context | {"webhooks.caBundle": "Q0E="},
    )
    yield Value(
        "webhooks.caBundle",
        "",
        "CA of the certificate in existingSecret, PEM in Base64.",
        {"type": "string", "contentEncoding": "base64"},
        "Q0EgMg==",
        context | {"webhooks.existingSecret": "webhook-certificate"},
    )
