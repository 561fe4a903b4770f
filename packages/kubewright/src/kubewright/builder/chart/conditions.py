"""The conditions under which parts of the chart are rendered, as expressions of Helm."""

from __future__ import annotations

from ..project import FeatureEntry, OperatorParts
from .values import to_value_name

SHARED_SHARDS = "gt (int .Values.shards) 1"
SEVERAL_REPLICAS = "gt (int .Values.replicas) 1"
METRICS_CERTIFICATE = (
    "and .Values.metrics.enabled (or .Values.metrics.certManager .Values.metrics.existingSecret)"
)
METRICS_CERT_MANAGER = "and .Values.metrics.enabled .Values.metrics.certManager"
WEBHOOKS_ENABLED = ".Values.webhooks.enabled"
# If it is not set, several replicas have a budget.
DISRUPTION_BUDGET = (
    f"ternary ({SEVERAL_REPLICAS}) .Values.podDisruptionBudget.enabled "
    '(kindIs "invalid" .Values.podDisruptionBudget.enabled)'
)


class ChartConditions:
    """The conditions that depend on which webhooks the operator has."""

    def __init__(self, declared: OperatorParts) -> None:
        self.has_webhooks = declared.including_optional_webhooks.has_webhook_server
        # Conversions are served even if the other webhooks are disabled.
        self.webhook_server = WEBHOOKS_ENABLED if declared.optional_webhooks else "true"

    @property
    def webhook_certificate(self) -> str:
        return (
            f"and {self.webhook_server} (or .Values.webhooks.certManager "
            ".Values.webhooks.existingSecret)"
        )

    @property
    def webhook_cert_manager(self) -> str:
        return f"and {self.webhook_server} .Values.webhooks.certManager"

    @property
    def own_webhook_ca(self) -> str:
        """The manager creates the CA of its webhooks."""
        return (
            f"and {self.webhook_server} (not .Values.webhooks.certManager) "
            "(not .Values.webhooks.existingSecret)"
        )

    @property
    def self_signed_issuer(self) -> str:
        metrics = f"(and ({METRICS_CERT_MANAGER}) (not .Values.metrics.issuerRef))"
        if not self.has_webhooks:
            return f"or {metrics}"
        return f"or {metrics} (and ({self.webhook_cert_manager}) (not .Values.webhooks.issuerRef))"


def feature_condition(feature: FeatureEntry) -> str:
    return f".Values.{to_value_name(feature.name)}.enabled"
