"""config/webhook and config/certmanager as documents: whom the API server asks, how it reaches us, and who signs."""

from __future__ import annotations

from typing import Any

from ...webhook import Reach, configurations
from ..project import Declared, Project
from .deployment import labels, metadata
from .rbac import OPTIONS

Document = dict[str, Any]
CERTIFICATES = "/etc/webhook-certificates"


def reach(project: Project) -> Reach:
    """How the API server reaches the manager: through its Service."""
    return Reach(namespace=project.namespace, service=OPTIONS.service_name(project.name))


def webhook_configurations(project: Project, declared: Declared) -> list[Document]:
    """Whom the API server asks before it stores."""
    return configurations(declared.webhooks, reach(project), name=project.name)


def webhook_documents(project: Project, declared: Declared) -> dict[str, list[Document]]:
    """Every file of config/webhook."""
    files = {"manifests.yaml": webhook_configurations(project, declared), "service.yaml": [service(project)]}
    return {name: documents for name, documents in files.items() if documents}


def service(project: Project) -> Document:
    """Where the API server finds the webhooks."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(project, "webhook-service"),
        "spec": {"selector": labels(project), "ports": [{"port": 443, "targetPort": "webhook", "protocol": "TCP"}]},
    }


def certificate_of(project: Project) -> str:
    """How cert-manager's annotation names the certificate."""
    return f"{project.namespace}/{project.name}-serving-cert"


def certificate_documents(project: Project) -> dict[str, list[Document]]:
    """Every file of config/certmanager."""
    api = {"apiVersion": "cert-manager.io/v1"}
    issuer = api | {"kind": "Issuer", "metadata": metadata(project, "selfsigned-issuer"), "spec": {"selfSigned": {}}}
    spec = {
        "dnsNames": OPTIONS.all_hosts(project.name, project.namespace),
        "issuerRef": {"kind": "Issuer", "name": f"{project.name}-selfsigned-issuer"},
        "secretName": f"{project.name}-webhook-server-cert",
    }
    certificate = api | {"kind": "Certificate", "metadata": metadata(project, "serving-cert"), "spec": spec}
    return {"issuer.yaml": [issuer], "certificate.yaml": [certificate]}


def carrying(project: Project, declared: Declared) -> list[Document]:
    """What carries a caBundle: the configurations, and the CRDs of kinds that are converted."""
    converted = sorted({each.hub.definition.resource for each in declared.conversions})
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return [*webhook_configurations(project, declared), *(crd | {"metadata": {"name": name}} for name in converted)]


def certificate_patch(project: Project) -> Document:
    """The certificate, mounted into the manager."""
    mount = {"name": "webhook-certificates", "mountPath": CERTIFICATES, "readOnly": True}
    volume = {"name": "webhook-certificates", "secret": {"secretName": f"{project.name}-webhook-server-cert"}}
    name = {"name": f"{project.name}-controller-manager", "namespace": project.namespace}
    pod = {"containers": [{"name": "manager", "volumeMounts": [mount]}], "volumes": [volume]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name, "spec": {"template": {"spec": pod}}}
