"""The checks of values that a schema cannot express."""

from __future__ import annotations

from collections.abc import Iterator

from ..project import OperatorParts, Project
from .conditions import METRICS_CERT_MANAGER, SEVERAL_REPLICAS, SHARED_SHARDS, ChartConditions
from .extra_manifests import read_manifests
from .model import ChartExtension, Check, EgressRule

_BUDGET = ".Values.podDisruptionBudget"
_CHECKS = (
    Check(
        f"and ({SHARED_SHARDS}) (not .Values.leaderElection.enabled)",
        "shards is greater than 1, but leaderElection.enabled is false: the replicas need the "
        "permissions of the election. Enable it, or set shards=1",
    ),
    Check(
        f"and ({SEVERAL_REPLICAS}) (not .Values.leaderElection.enabled)",
        "replicas is greater than 1, but leaderElection.enabled is false: all replicas would act "
        "at the same time. Enable the election, or set replicas=1",
    ),
    Check(
        f"and {_BUDGET}.enabled (not ({SEVERAL_REPLICAS}))",
        "podDisruptionBudget.enabled is true, but there is only one replica: its Node could not be "
        "drained. Set replicas=2, or podDisruptionBudget.enabled=false",
    ),
    Check(
        f"and ({SEVERAL_REPLICAS}) (ne (toString {_BUDGET}.enabled) "
        f'"false") (not (kindIs "invalid" {_BUDGET}.minAvailable)) '
        f'(not (hasSuffix "%" (toString {_BUDGET}.minAvailable))) '
        f"(ge (int {_BUDGET}.minAvailable) (int .Values.replicas))",
        "podDisruptionBudget.minAvailable is not less than replicas: no Node with a replica could "
        "be drained. Lower it, or set more replicas",
    ),
    Check(
        "and .Values.metrics.certManager .Values.metrics.existingSecret",
        "metrics.certManager and metrics.existingSecret are both set, but there can be only one "
        "certificate. Unset one of them",
    ),
    Check(
        "and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled)",
        "metrics.serviceMonitor.enabled is true, but metrics.enabled is false: there is nothing to "
        "scrape. Set metrics.enabled=true, or disable the ServiceMonitor",
    ),
    Check(
        "and .Values.metrics.serviceMonitor.enabled "
        "(not .Values.metrics.serviceMonitor.insecureSkipVerify) "
        "(not .Values.metrics.certManager) (not .Values.metrics.existingSecret)",
        "metrics.serviceMonitor.enabled is true, but Prometheus cannot verify the self-signed "
        "certificate of the manager. Set metrics.certManager=true or metrics.existingSecret, or "
        "accept any certificate with metrics.serviceMonitor.insecureSkipVerify=true",
    ),
    Check(
        "and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.enabled)",
        "networkPolicy.egress.enabled is true, but networkPolicy.enabled is false. Set "
        "networkPolicy.enabled=true",
    ),
)
_WEBHOOK_CHECKS = (
    Check(
        "and .Values.webhooks.certManager .Values.webhooks.existingSecret",
        "webhooks.certManager and webhooks.existingSecret are both set, but webhooks have only one "
        "CA. Unset one of them",
    ),
    Check(
        "and .Values.webhooks.existingSecret (not .Values.webhooks.caBundle)",
        "webhooks.existingSecret is set, but webhooks.caBundle is not: the API server could not "
        "verify the certificate. Set it to the CA of the certificate, PEM in Base64",
    ),
    Check(
        "and .Values.webhooks.caBundle (not .Values.webhooks.existingSecret)",
        "webhooks.caBundle is set, but webhooks.existingSecret is not. Set it to the Secret with "
        "the certificate of this CA, or unset webhooks.caBundle",
    ),
)
# The projects with CRDs that objects of the chart can need, by API group.
_CRD_PROJECTS = {
    "cert-manager.io": "cert-manager",
    "monitoring.coreos.com": "the Prometheus Operator",
}
_SERVICE_MONITOR = "monitoring.coreos.com/v1/ServiceMonitor"
_CERTIFICATE = "cert-manager.io/v1/Certificate"
# Without a cluster, such as in `helm template`, Helm assumes the APIs of client-go. This one is not
# among them, but every API server has it.
_HAS_CLUSTER = '.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1"'


def build_checks(
    project: Project, declared: OperatorParts, extension: ChartExtension
) -> Iterator[Check]:
    yield from _CHECKS
    conditions = ChartConditions(declared)
    if conditions.has_webhooks:
        yield from _WEBHOOK_CHECKS
    yield from extension.checks
    for rule in extension.egress:
        yield _build_egress_check(project, rule)
    monitor = "metrics.serviceMonitor.enabled"
    yield _build_crd_check(f".Values.{monitor}", monitor, _SERVICE_MONITOR)
    yield _build_crd_check(METRICS_CERT_MANAGER, "metrics.certManager", _CERTIFICATE)
    if conditions.has_webhooks:
        condition = conditions.webhook_cert_manager
        yield _build_crd_check(condition, "webhooks.certManager", _CERTIFICATE)
    for name, path in project.config.chart_manifests.items():
        for document in read_manifests(project, path):
            api = f"{document['apiVersion']}/{document['kind']}"
            if api.partition("/")[0] in _CRD_PROJECTS:
                yield _build_crd_check(f".Values.manifests.{name}", f"manifests.{name}", api)


def _build_egress_check(project: Project, rule: EgressRule) -> Check:
    egress = ".Values.networkPolicy.egress"
    common = f'include "{project.name}.common-port" (list {egress}.{rule.name} {egress}.apiServer)'
    path = f"networkPolicy.egress.{rule.name}.to"
    return Check(
        f"and {egress}.enabled {egress}.{rule.name}.to (not {egress}.apiServer.to) ({common})",
        f"{path} is set, but networkPolicy.egress.apiServer.to is not: its rule allows connections "
        "to any address on the same port. Set networkPolicy.egress.apiServer.to to the addresses "
        "of the API server, which `kubectl get endpointslices kubernetes -n default` shows, or "
        "remove the port from networkPolicy.egress.apiServer.ports",
    )


def _build_crd_check(condition: str, value: str, api: str) -> Check:
    """Fails if the cluster lacks the kind of an API, given as group/version/kind."""
    group, _, kind = api.split("/")
    return Check(
        f'and ({condition}) ({_HAS_CLUSTER}) (not (.Capabilities.APIVersions.Has "{api}"))',
        f"{value} is true, but the cluster has no CRD for {kind} ({group}). Install "
        f"{_CRD_PROJECTS[group]} first, or set {value}=false",
    )
