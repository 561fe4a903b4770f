"""The templates of the chart: the documents of config/, with values for an installation."""

from __future__ import annotations

import json

from ..manifests import Document, Files
from ..manifests.components import build_namespaced_roles
from ..manifests.deployment import (
    build_disruption_budget,
    build_metadata,
    build_metrics_service,
    build_network_policy,
    build_service_monitor,
    build_webhook_ingress,
)
from ..manifests.rbac import (
    WEBHOOK_OPTIONS,
    build_aggregation_patches,
    build_ca_roles,
    build_feature_role,
    build_namespace,
    build_role_files,
    build_webhook_role,
)
from ..manifests.webhooks import (
    build_certificate_files,
    build_crds_with_conversions,
    build_webhook_configurations,
    build_webhook_service,
)
from ..project import OperatorParts, Project
from .conditions import (
    DISRUPTION_BUDGET,
    METRICS_CERT_MANAGER,
    WEBHOOKS_ENABLED,
    ChartConditions,
    feature_condition,
)
from .dashboards import render_dashboards
from .deployment import build_deployment_template
from .extra_manifests import read_manifests
from .metadata import add_metadata
from .model import ChartExtension
from .placeholders import (
    encode_block,
    encode_dict,
    encode_if_block,
    encode_inline,
    encode_optional_item,
    encode_value,
    quote_all,
    render_documents,
    render_if,
    wrap_if,
)
from .server_values import BUILT_IN_EGRESS

_AGGREGATION_PREFIX = "rbac.authorization.k8s.io/aggregate-to-"


class TemplateBuilder:
    """The templates of one project; its namespace is a placeholder."""

    def __init__(
        self, project: Project, declared: OperatorParts, extension: ChartExtension
    ) -> None:
        self._project, self._declared, self._extension = project, declared, extension
        self._all_declared = declared.including_optional_webhooks
        self._conditions = ChartConditions(declared)
        self._optional_labels = {
            patch["metadata"]["name"]: patch["metadata"]["labels"]
            for patch in _flatten(build_aggregation_patches(project))
        }

    def build(self) -> dict[str, str]:
        """Every template, by its file name without the extension; some may be empty."""
        project, declared = self._project, self._declared
        manager = build_deployment_template(project, declared, self._extension)
        return {
            "namespace": self._render_if(".Values.createNamespace", build_namespace(project)),
            **self._build_access(),
            "manager": f'{{{{- include "{project.name}.checks" . }}}}\n'
            + render_documents(self._add_metadata(manager)),
            "leader-lease": self._render_if(".Values.leaderElection.enabled", self._build_lease()),
            "disruption": self._render_if(DISRUPTION_BUDGET, self._build_disruption_budget()),
            "metrics": self._render_if(".Values.metrics.enabled", build_metrics_service(project)),
            "monitor": render_if(
                "and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled",
                add_metadata(
                    project.name,
                    self._build_service_monitor(),
                    more_labels=".Values.metrics.serviceMonitor.labels",
                ),
            ),
            "network-policy": self._render_if(
                ".Values.networkPolicy.enabled", self._build_network_policy()
            ),
            "crds": wrap_if(".Values.crds.install", render_documents(*self._build_crds())),
            "manifests": "".join(
                self._render_manifests(value, path)
                for value, path in project.config.chart_manifests.items()
            ),
            "dashboards": render_dashboards(project),
            "cert-manager": self._build_certificates(),
            **self._build_webhooks(),
            **{
                feature.name: self._render_if(
                    f"and .Values.rbac.create {feature_condition(feature)}",
                    *build_feature_role(project, declared, feature.name),
                )
                for feature in project.config.optional_features
            },
        }

    def _add_metadata(self, document: Document) -> Document:
        return add_metadata(self._project.name, _set_subjects(document))

    def _render_if(self, condition: str, *documents: Document) -> str:
        return render_if(condition, *(self._add_metadata(document) for document in documents))

    def _render_manifests(self, value: str, path: str) -> str:
        labels = f".Values.manifests.{value}Labels"
        documents = (
            add_metadata(self._project.name, _set_subjects(document), more_labels=labels)
            for document in read_manifests(self._project, path)
        )
        return render_if(f".Values.manifests.{value}", *documents)

    def _build_access(self) -> dict[str, str]:
        files = build_role_files(self._project, self._declared)
        # These have templates of their own, because other values decide whether they are rendered.
        for name in ("webhook_ca_roles.yaml", "namespace.yaml"):
            files.pop(name, None)
        cluster_wide = files.pop("role_binding.yaml")
        (account,) = files.pop("service_account.yaml")
        account["metadata"]["name"] = encode_inline(".Values.serviceAccount.name | quote")
        election = [files.pop(name)[0] for name in list(files) if name.startswith("leader_")]
        users = {name: files.pop(name) for name in list(files) if name.endswith("_user_roles.yaml")}
        namespaced = _flatten(build_namespaced_roles(self._project, self._declared))
        return {
            "service-account": render_if(
                ".Values.serviceAccount.create",
                add_metadata(
                    self._project.name,
                    account,
                    more_annotations=".Values.serviceAccount.annotations",
                ),
            ),
            "rbac": self._render_if(".Values.rbac.create", *_flatten(files))
            + self._render_if("and .Values.rbac.create .Values.leaderElection.enabled", *election),
            "scope": self._render_if(
                "and .Values.rbac.create (not .Values.namespaced)", *cluster_wide
            )
            + self._render_if("and .Values.rbac.create .Values.namespaced", *namespaced),
            "user-roles": render_if(
                ".Values.rbac.userRoles", *map(self._add_aggregation, _flatten(users))
            ),
        }

    def _add_aggregation(self, role: Document) -> Document:
        """The role with labels that aggregate it to ClusterRoles of Kubernetes, by values."""
        metadata = dict(role["metadata"])
        labels = metadata.pop("labels", {})
        optional = self._optional_labels.get(metadata["name"], {})
        switches = {}
        for label, value in (labels | optional).items():
            target = label.removeprefix(_AGGREGATION_PREFIX).capitalize()
            switch = f".Values.rbac.aggregateTo{target}"
            if optional:
                switch = f"(and {switch} .Values.rbac.aggregateEditors)"
            switches[label] = f'(ternary "{value}" "" {switch})'
        return add_metadata(self._project.name, role | {"metadata": metadata}, switches)

    def _build_lease(self) -> Document:
        """The Lease of the managers, so that `helm uninstall` removes it; they fill it in."""
        metadata = {"name": f"{self._project.name}-leader", "namespace": self._project.namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}

    def _build_disruption_budget(self) -> Document:
        budget = build_disruption_budget(self._project)
        minimum = ".Values.podDisruptionBudget.minAvailable"
        budget["spec"]["maxUnavailable"] = encode_block(
            f'{{{{- if kindIs "invalid" {minimum} }}}}',
            "maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}",
            "{{- else }}",
            f"minAvailable: {{{{ {minimum} }}}}",
            "{{- end }}",
        )
        return budget

    def _build_service_monitor(self) -> Document:
        monitor = build_service_monitor(self._project)
        (endpoint,) = monitor["spec"]["endpoints"]
        service = build_metrics_service(self._project)["metadata"]["name"]
        secret = f".Values.metrics.existingSecret | default {json.dumps(self._metrics_secret)}"
        endpoint["tlsConfig"] = encode_block(
            "tlsConfig:",
            "{{- if .Values.metrics.serviceMonitor.insecureSkipVerify }}",
            "  insecureSkipVerify: true",
            "{{- else }}",
            f"  serverName: {service}.{{{{ .Release.Namespace }}}}.svc",
            "  ca:",
            "    secret:",
            f"      name: {{{{ {secret} | quote }}}}",
            "      key: ca.crt",
            "{{- end }}",
        )
        for field in ("interval", "scrapeTimeout"):
            endpoint[field] = encode_value(field, f".Values.metrics.serviceMonitor.{field}")
        return monitor

    @property
    def _metrics_secret(self) -> str:
        return f"{self._project.name}-metrics-server-cert"

    def _build_network_policy(self) -> Document:
        policy = build_network_policy(self._project, self._declared)
        spec = policy["spec"]
        spec["ingress"][0]["from"] = encode_inline("toJson .Values.networkPolicy.metricsFrom")
        if self._declared.optional_webhooks:
            spec["ingress"].append(encode_optional_item(WEBHOOKS_ENABLED, build_webhook_ingress()))
        egress = ".Values.networkPolicy.egress"
        spec["policyTypes"].append(encode_optional_item(f"{egress}.enabled", "Egress"))
        helper, lines = f"{self._project.name}.egress", list[str]()
        for rule in (*BUILT_IN_EGRESS, *self._extension.egress):
            protocols = " ".join(json.dumps(protocol) for protocol in rule.protocols)
            arguments = f"(list {egress}.{rule.name} (list {protocols}))"
            lines.append(f'- {{{{ include "{helper}" {arguments} }}}}')
        extra = (f"{{{{- range {egress}.extra }}}}", "- {{ toJson . }}", "{{- end }}")
        spec["egress"] = encode_if_block(f"{egress}.enabled", "egress:", *lines, *extra)
        return policy

    def _build_crds(self) -> list[Document]:
        conversions = self._declared.conversions
        converted = {conversion.hub.definition.group_resource for conversion in conversions}
        crds = []
        for crd in build_crds_with_conversions(self._project, self._declared):
            annotations = {"helm.sh/resource-policy": '(ternary "keep" "" .Values.crds.keep)'}
            if crd["metadata"]["name"] in converted:
                annotations |= self._ca_annotations
                _add_ca_bundle(crd["spec"]["conversion"]["webhook"]["clientConfig"])
            crds.append(add_metadata(self._project.name, crd, {}, annotations))
        return crds

    @property
    def _ca_annotations(self) -> dict[str, str]:
        """The annotation by which cert-manager writes a caBundle."""
        certificate = f'(printf "%s/{self._project.name}-serving-cert" .Release.Namespace)'
        return {
            "cert-manager.io/inject-ca-from": f'(ternary {certificate} "" '
            ".Values.webhooks.certManager)"
        }

    def _build_certificates(self) -> str:
        files = build_certificate_files(self._project)
        (issuer,), (webhook_certificate,) = files["issuer.yaml"], files["certificate.yaml"]
        service = build_metrics_service(self._project)["metadata"]["name"]
        host = f"{service}.{self._project.namespace}.svc"
        metrics_certificate = webhook_certificate | {
            "metadata": build_metadata(self._project, "metrics-cert"),
            "spec": webhook_certificate["spec"]
            | {"dnsNames": [host, f"{host}.cluster.local"], "secretName": self._metrics_secret},
        }
        text = self._render_if(self._conditions.self_signed_issuer, issuer)
        text += self._render_if(
            METRICS_CERT_MANAGER, self._set_issuer(metrics_certificate, "metrics")
        )
        if self._conditions.has_webhooks:
            condition = self._conditions.webhook_cert_manager
            text += self._render_if(condition, self._set_issuer(webhook_certificate, "webhooks"))
        return text

    def _set_issuer(self, certificate: Document, server: str) -> Document:
        default = encode_dict(quote_all(certificate["spec"]["issuerRef"]))
        issuer = encode_inline(f"toJson (.Values.{server}.issuerRef | default {default})")
        return certificate | {"spec": certificate["spec"] | {"issuerRef": issuer}}

    def _build_webhooks(self) -> dict[str, str]:
        if not self._conditions.has_webhooks:
            return {}
        project, server = self._project, self._conditions.webhook_server
        configurations = build_webhook_configurations(project, self._all_declared)
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                _add_ca_bundle(webhook["clientConfig"])
        annotated = [
            add_metadata(project.name, configuration, {}, self._ca_annotations)
            for configuration in configurations
        ]
        # The Secret of the CA is here so that `helm uninstall` removes it; the manager fills it in.
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": WEBHOOK_OPTIONS.secret_name(project.name),
                "namespace": project.namespace,
            },
            "type": "Opaque",
        }
        own_ca = self._conditions.own_webhook_ca
        roles = build_ca_roles(project, self._all_declared)
        templates = {
            "webhook": render_if(WEBHOOKS_ENABLED, *annotated)
            + self._render_if(server, build_webhook_service(project)),
            "webhook-ca": self._render_if(own_ca, secret)
            + self._render_if(f"and .Values.rbac.create ({own_ca})", *roles),
        }
        if self._declared.optional_webhooks:
            templates["webhook"] += self._render_if(
                f"and .Values.rbac.create {server}",
                *build_webhook_role(project, self._all_declared),
            )
        return templates


def _add_ca_bundle(client_config: Document) -> None:
    client_config["caBundle"] = encode_value("caBundle", ".Values.webhooks.caBundle")


def _set_subjects(document: Document) -> Document:
    """A binding gets the ServiceAccount of the values; other documents are unchanged."""
    if "subjects" not in document:
        return document
    name = encode_inline(".Values.serviceAccount.name | quote")
    return document | {"subjects": [subject | {"name": name} for subject in document["subjects"]]}


def _flatten(files: Files) -> list[Document]:
    return [document for documents in files.values() for document in documents]
