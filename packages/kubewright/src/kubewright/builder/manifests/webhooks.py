"""config/webhook and config/certmanager as documents: webhook configurations and certificates."""

from __future__ import annotations

from ...crd import build_crds
from ...webhook import WebhookClientConfig, build_configurations, with_conversions
from ..project import OperatorParts, Project
from . import Document, Files
from .deployment import build_deployment_patch, build_metadata, manager_labels
from .rbac import WEBHOOK_OPTIONS

# Where the Secret of cert-manager is mounted.
CERTIFICATE_DIR = "/etc/webhook-certificates"


def _build_client_config(project: Project) -> WebhookClientConfig:
    service = WEBHOOK_OPTIONS.service_name(project.name)
    return WebhookClientConfig(namespace=project.namespace, service=service)


def build_webhook_configurations(project: Project, declared: OperatorParts) -> list[Document]:
    return build_configurations(declared.webhooks, _build_client_config(project), name=project.name)


def build_crds_with_conversions(project: Project, declared: OperatorParts) -> list[Document]:
    """All CRDs; those of kinds with several versions name the conversion webhook."""
    crds = build_crds(declared.kinds)
    return with_conversions(crds, declared.conversions, _build_client_config(project))


def build_webhook_files(project: Project, declared: OperatorParts) -> Files:
    """Every file of config/webhook; conversions alone need no webhook configuration."""
    configurations = build_webhook_configurations(project, declared)
    files = {"manifests.yaml": configurations} if configurations else {}
    return files | {"service.yaml": [build_webhook_service(project)]}


def build_webhook_service(project: Project) -> Document:
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
    """The certificate as the annotation cert-manager.io/inject-ca-from names it."""
    return f"{project.namespace}/{project.name}-serving-cert"


def build_certificate_files(project: Project) -> Files:
    """Every file of config/certmanager."""
    api_version = {"apiVersion": "cert-manager.io/v1"}
    issuer = api_version | {
        "kind": "Issuer",
        "metadata": build_metadata(project, "selfsigned-issuer"),
        "spec": {"selfSigned": {}},
    }
    certificate = api_version | {
        "kind": "Certificate",
        "metadata": build_metadata(project, "serving-cert"),
        "spec": {
            "dnsNames": WEBHOOK_OPTIONS.certificate_hosts(project.name, project.namespace),
            "issuerRef": {"kind": "Issuer", "name": f"{project.name}-selfsigned-issuer"},
            "secretName": f"{project.name}-webhook-server-cert",
        },
    }
    return {"issuer.yaml": [issuer], "certificate.yaml": [certificate]}


def build_ca_bundle_targets(project: Project, declared: OperatorParts) -> list[Document]:
    """What has a caBundle: webhook configurations, and the CRDs of converted kinds."""
    converted = sorted({entry.hub.definition.group_resource for entry in declared.conversions})
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return [
        *build_webhook_configurations(project, declared),
        *(crd | {"metadata": {"name": name}} for name in converted),
    ]


def build_certificate_patch(project: Project) -> Document:
    """A patch that mounts the certificate into the manager."""
    mount = {"name": "webhook-certificates", "mountPath": CERTIFICATE_DIR, "readOnly": True}
    volume = {
        "name": "webhook-certificates",
        "secret": {"secretName": f"{project.name}-webhook-server-cert"},
    }
    pod = {"containers": [{"name": "manager", "volumeMounts": [mount]}], "volumes": [volume]}
    return build_deployment_patch(project, {"template": {"spec": pod}})
