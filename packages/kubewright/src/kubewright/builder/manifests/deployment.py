"""config/manager as documents: the Deployment, its Services, and what components add to it."""

from __future__ import annotations

from ..project import OperatorParts, Project
from . import Document
from .rbac import SERVICE_ACCOUNT

# The ports of kubebuilder's projects, so that existing dashboards and policies match.
_METRICS_PORT = 8443
_HEALTH_PORT = 8081
_WEBHOOK_PORT = 9443
# The manager waits 30 s for running reconciles, then releases the lease and its connections.
TERMINATION_GRACE_SECONDS = 40
# These satisfy the Pod Security level "restricted".
POD_SECURITY_CONTEXT: Document = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SECURITY_CONTEXT: Document = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}


def manager_labels(project: Project) -> dict[str, str]:
    return {"app.kubernetes.io/name": project.name, "control-plane": "controller-manager"}


def build_metadata(project: Project, name: str) -> Document:
    return {
        "name": f"{project.name}-{name}",
        "namespace": project.namespace,
        "labels": manager_labels(project),
    }


def build_deployment(project: Project, declared: OperatorParts) -> Document:
    """The manager; its Pod satisfies the Pod Security level "restricted"."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(project, "controller-manager"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": manager_labels(project)},
            "template": {
                "metadata": {
                    "labels": manager_labels(project),
                    "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                },
                "spec": _build_pod_spec(project, declared),
            },
        },
    }


def _build_pod_spec(project: Project, declared: OperatorParts) -> Document:
    secrets = [
        {"name": secret.name, "secret": {"secretName": secret.name, "optional": True}}
        for secret in project.config.manager.secrets
    ]
    # The root file system is read-only, but libraries of an operator may need a writable /tmp.
    tmp = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    return {
        "serviceAccountName": SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        "securityContext": POD_SECURITY_CONTEXT,
        "containers": [_build_container(project, declared)],
        "volumes": [tmp, *secrets],
    }


def _build_container(project: Project, declared: OperatorParts) -> Document:
    mounts = [
        {"name": secret.name, "mountPath": secret.mount, "readOnly": True}
        for secret in project.config.manager.secrets
    ]
    return {
        "name": "manager",
        "image": project.config.image,
        "args": [
            "-leader-elect",
            f"-health-probe-bind-address=:{_HEALTH_PORT}",
            f"-metrics-bind-address=:{_METRICS_PORT}",
            "-metrics-secure",
            *project.config.manager.args,
        ],
        "env": [build_namespace_variable("POD_NAMESPACE")],
        "ports": [
            {"name": "metrics", "containerPort": _METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": _HEALTH_PORT, "protocol": "TCP"},
            *([build_webhook_port()] if declared.has_webhook_server else []),
        ],
        "livenessProbe": _build_probe("/healthz", 15, 20),
        "readinessProbe": _build_probe("/readyz", 5, 10),
        "resources": project.config.manager.resources,
        "securityContext": SECURITY_CONTEXT,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
    }


def build_namespace_variable(name: str) -> Document:
    """An environment variable with the namespace of the Pod."""
    # With the default apiVersion: without it, the API server stores another fieldRef than the one
    # that is applied, and two ways to apply conflict.
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {"name": name, "valueFrom": {"fieldRef": reference}}


def build_webhook_port() -> Document:
    # The Service refers to the port by its name.
    return {"name": "webhook", "containerPort": _WEBHOOK_PORT, "protocol": "TCP"}


def _build_probe(path: str, delay_seconds: int, period_seconds: int) -> Document:
    return {
        "httpGet": {"path": path, "port": "health"},
        "initialDelaySeconds": delay_seconds,
        "periodSeconds": period_seconds,
    }


def build_metrics_service(project: Project) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(project, "controller-manager-metrics-service"),
        "spec": {
            "selector": manager_labels(project),
            "ports": [
                {"name": "https", "port": _METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
            ],
        },
    }


def build_service_monitor(project: Project) -> Document:
    """The scrape configuration for the Prometheus Operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": build_metadata(project, "controller-manager-metrics-monitor"),
        "spec": {
            "endpoints": [
                {
                    "path": "/metrics",
                    "port": "https",
                    "scheme": "https",
                    "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                    # The manager's certificate is self-signed, so there is no CA to verify it.
                    "tlsConfig": {"insecureSkipVerify": True},
                }
            ],
            "selector": {"matchLabels": manager_labels(project)},
        },
    }


def build_network_policy(project: Project, declared: OperatorParts) -> Document:
    """Allows /metrics from namespaces labeled `metrics: enabled`, and webhooks from anywhere.

    The kubelet needs no rule: a NetworkPolicy does not apply to traffic of the Pod's own node.
    """
    metrics = {
        "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
        "ports": [{"port": _METRICS_PORT, "protocol": "TCP"}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(project, "controller-manager"),
        "spec": {
            "podSelector": {"matchLabels": manager_labels(project)},
            "policyTypes": ["Ingress"],
            "ingress": [
                metrics,
                *([build_webhook_ingress()] if declared.has_webhook_server else []),
            ],
        },
    }


def build_webhook_ingress() -> Document:
    # No `from`: the API server is outside of all namespaces, so no selector matches it.
    return {"ports": [{"port": _WEBHOOK_PORT, "protocol": "TCP"}]}


def build_disruption_budget(project: Project) -> Document:
    # Not minAvailable: with one replica, it would block every drain of its Node.
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(project, "controller-manager"),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": manager_labels(project)}},
    }


def build_anti_affinity(project: Project) -> Document:
    # Preferred, not required: a cluster with one node must still run both managers.
    term = {
        "labelSelector": {"matchLabels": manager_labels(project)},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }
    }


def build_deployment_patch(project: Project, spec: Document) -> Document:
    """A strategic merge patch of the Deployment."""
    metadata = {"name": f"{project.name}-controller-manager", "namespace": project.namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
