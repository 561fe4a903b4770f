"""config/webhook and config/certmanager as documents: whom the API server asks, how it reaches us, and who signs."""

from __future__ import annotations

from typing import Any

from ...webhook import WebhookClientConfig, build_configurations
from ..project import Declarations, Project
from .deployment import build_metadata, manager_labels
from .rbac import WEBHOOK_OPTIONS

Document = dict[str, Any]
CERTIFICATE_DIR = "/etc/webhook-certificates"


def build_client_config(project: Project) -> WebhookClientConfig:
    """How the API server reaches the manager: through its Service."""
    return WebhookClientConfig(
        namespace=project.namespace, service=WEBHOOK_OPTIONS.service_name(project.name)
    )


def build_webhook_configurations(project: Project, declared: Declarations) -> list[Document]:
    """Whom the API server asks before it stores."""
    return build_configurations(declared.webhooks, build_client_config(project), name=project.name)


def build_webhook_files(project: Project, declared: Declarations) -> dict[str, list[Document]]:
    """Every file of config/webhook."""
    files = {
        "manifests.yaml": build_webhook_configurations(project, declared),
        "service.yaml": [build_webhook_service(project)],
    }
    return {name: documents for name, documents in files.items() if documents}


def build_webhook_service(project: Project) -> Document:
    """Where the API server finds the webhooks."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(project, "webhook-service"),
        "spec": {
            "selector": manager_labels(project),
            "ports": [{"port": 443, "targetPort": "webhook", "protocol": "TCP"}],
        },
    }


def certificate_reference(project: Project) -> str:
    """How cert-manager's annotation names the certificate."""
    return f"{project.namespace}/{project.name}-serving-cert"


def build_certificate_files(project: Project) -> dict[str, list[Document]]:
    """Every file of config/certmanager."""
    api = {"apiVersion": "cert-manager.io/v1"}
    issuer = api | {
        "kind": "Issuer",
        "metadata": build_metadata(project, "selfsigned-issuer"),
        "spec": {"selfSigned": {}},
    }
    spec = {
        "dnsNames": WEBHOOK_OPTIONS.certificate_hosts(project.name, project.namespace),
        "issuerRef": {"kind": "Issuer", "name": f"{project.name}-selfsigned-issuer"},
        "secretName": f"{project.name}-webhook-server-cert",
    }
    certificate = api | {
        "kind": "Certificate",
        "metadata": build_metadata(project, "serving-cert"),
        "spec": spec,
    }
    return {"issuer.yaml": [issuer], "certificate.yaml": [certificate]}


def build_ca_bundle_targets(project: Project, declared: Declarations) -> list[Document]:
    """What carries a caBundle: the configurations, and the CRDs of kinds that are converted."""
    converted = sorted({each.hub.definition.group_resource for each in declared.conversions})
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return [
        *build_webhook_configurations(project, declared),
        *(crd | {"metadata": {"name": name}} for name in converted),
    ]


def build_certificate_patch(project: Project) -> Document:
    """The certificate, mounted into the manager."""
    mount = {"name": "webhook-certificates", "mountPath": CERTIFICATE_DIR, "readOnly": True}
    volume = {
        "name": "webhook-certificates",
        "secret": {"secretName": f"{project.name}-webhook-server-cert"},
    }
    name = {"name": f"{project.name}-controller-manager", "namespace": project.namespace}
    pod = {"containers": [{"name": "manager", "volumeMounts": [mount]}], "volumes": [volume]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": name,
        "spec": {"template": {"spec": pod}},
    }
