"""config/manager and what goes with it, as documents: the Deployment, its Service, and what variants add."""

from __future__ import annotations

from typing import Any

from ..project import Declarations, Project
from .rbac import SERVICE_ACCOUNT

Document = dict[str, Any]
_METRICS_PORT = 8443
_HEALTH_PORT = 8081
_WEBHOOK_PORT = 9443
# The manager's own 30 s for what is in work, and some for the lease and the connections.
_TERMINATION_GRACE_SECONDS = 40


def manager_labels(project: Project) -> dict[str, str]:
    """What every object of the manager carries, and what finds its Pods."""
    return {"app.kubernetes.io/name": project.name, "control-plane": "controller-manager"}


def build_metadata(project: Project, name: str) -> Document:
    """The metadata of an object in the manager's namespace."""
    return {
        "name": f"{project.name}-{name}",
        "namespace": project.namespace,
        "labels": manager_labels(project),
    }


def _manager_flags(project: Project) -> list[str]:
    """The manager's flags."""
    return [
        "-leader-elect",
        f"-health-probe-bind-address=:{_HEALTH_PORT}",
        f"-metrics-bind-address=:{_METRICS_PORT}",
        "-metrics-secure",
        *project.config.manager.args,
    ]


def build_deployment(project: Project, declared: Declarations) -> Document:
    """The manager, able to run where only "restricted" Pods may."""
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


def _build_pod_spec(project: Project, declared: Declarations) -> Document:
    """The Pod's spec; /tmp is where a self-signed certificate lies for a moment."""
    secrets = project.config.manager.secrets
    volumes = [
        {"name": each.name, "secret": {"secretName": each.name, "optional": True}}
        for each in secrets
    ]
    return {
        "serviceAccountName": SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": _TERMINATION_GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_build_container(project, declared)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            *volumes,
        ],
    }


def _build_container(project: Project, declared: Declarations) -> Document:
    """The container."""
    mounts = [
        {"name": each.name, "mountPath": each.mount, "readOnly": True}
        for each in project.config.manager.secrets
    ]
    return {
        "name": "manager",
        "image": project.config.image,
        "args": _manager_flags(project),
        "env": [
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            }
        ],
        "ports": [
            {"name": "metrics", "containerPort": _METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": _HEALTH_PORT, "protocol": "TCP"},
            *([build_webhook_port()] if declared.has_webhook_server else []),
        ],
        "livenessProbe": _build_probe("/healthz", 15, 20),
        "readinessProbe": _build_probe("/readyz", 5, 10),
        "resources": project.config.manager.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
    }


def build_webhook_port() -> Document:
    """Where the container is asked; the Service finds it by its name."""
    return {"name": "webhook", "containerPort": _WEBHOOK_PORT, "protocol": "TCP"}


def _build_probe(path: str, delay_seconds: int, period_seconds: int) -> Document:
    """A question that kubelet asks."""
    return {
        "httpGet": {"path": path, "port": "health"},
        "initialDelaySeconds": delay_seconds,
        "periodSeconds": period_seconds,
    }


def build_metrics_service(project: Project) -> Document:
    """Where /metrics is found."""
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
    """What tells the Prometheus operator to scrape; the certificate is self-signed, so it cannot be verified."""
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
                    "tlsConfig": {"insecureSkipVerify": True},
                }
            ],
            "selector": {"matchLabels": manager_labels(project)},
        },
    }


def build_network_policy(project: Project, declared: Declarations) -> Document:
    """Who may speak to the manager: /metrics from namespaces labelled `metrics: enabled`, webhooks from anywhere; kubelet always may."""
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
    """Webhooks from anywhere: the API server is in no namespace, so no selector names it."""
    return {"ports": [{"port": _WEBHOOK_PORT, "protocol": "TCP"}]}


def build_disruption_budget(project: Project) -> Document:
    """One of two stays while nodes are drained."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(project, "controller-manager"),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": manager_labels(project)}},
    }


def build_anti_affinity(project: Project) -> Document:
    """Two managers on two nodes, where there are two."""
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
