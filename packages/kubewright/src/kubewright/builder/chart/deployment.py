"""The Deployment of the chart: that of config/manager, with values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from ...yaml_text import dump_yaml
from ..manifests import Document
from ..manifests.deployment import (
    build_anti_affinity,
    build_deployment,
    build_namespace_variable,
    build_webhook_port,
    manager_labels,
)
from ..manifests.webhooks import CERTIFICATE_DIR
from ..project import OperatorParts, Project
from .conditions import (
    METRICS_CERTIFICATE,
    SEVERAL_REPLICAS,
    SHARED_SHARDS,
    ChartConditions,
    feature_condition,
)
from .model import ChartExtension
from .placeholders import (
    encode_block,
    encode_dict,
    encode_if_block,
    encode_inline,
    encode_optional_item,
    encode_value,
    quote_all,
)

_METRICS_CERTIFICATE_DIR = "/etc/metrics-certificates"
_METRICS_FLAGS = ("-metrics-bind-address", "-metrics-secure")


def build_deployment_template(
    project: Project, declared: OperatorParts, extension: ChartExtension
) -> Document:
    deployment = build_deployment(project, declared)
    spec = deployment["spec"]
    spec["replicas"] = encode_inline(".Values.replicas")
    # Without an election, two managers must never run at the same time.
    spec["strategy"] = encode_if_block(
        "not .Values.leaderElection.enabled", "strategy:", "  type: Recreate"
    )
    limit = ".Values.revisionHistoryLimit"
    spec["revisionHistoryLimit"] = encode_if_block(
        f'not (kindIs "invalid" {limit})', f"revisionHistoryLimit: {{{{ {limit} }}}}"
    )
    _add_pod_metadata(spec["template"]["metadata"])
    pod = spec["template"]["spec"]
    _add_pod_values(project, pod)
    container = pod["containers"][0]
    _add_container_values(project, declared, extension, container)
    pod["volumes"] += [
        *_build_certificate_items(project, declared, "volumes"),
        *_encode_items(extension.volumes),
        _encode_list(".Values.extraVolumes"),
    ]
    container["volumeMounts"] += [
        *_build_certificate_items(project, declared, "mounts"),
        *_encode_items(extension.volume_mounts),
        _encode_list(".Values.extraVolumeMounts"),
    ]
    return deployment


def _add_pod_metadata(metadata: Document) -> None:
    for field, value in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        merged = f"merge {encode_dict(quote_all(metadata[field]))} (default dict .Values.{value})"
        metadata[field] = encode_block(f"{field}:", f"  {{{{- toYaml ({merged}) | nindent 8 }}}}")


def _add_pod_values(project: Project, pod: Document) -> None:
    pod["serviceAccountName"] = encode_inline(".Values.serviceAccount.name | quote")
    pod["securityContext"] = encode_inline("toJson .Values.podSecurityContext")
    pod["terminationGracePeriodSeconds"] = encode_inline(".Values.terminationGracePeriodSeconds")
    for field in (
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "hostAliases",
        "dnsConfig",
    ):
        pod[field] = encode_value(field, f".Values.{field}")
    anti_affinity = dump_yaml({"affinity": build_anti_affinity(project)}).splitlines()
    pod["affinity"] = encode_block(
        "{{- if .Values.affinity }}",
        "affinity: {{ toJson .Values.affinity }}",
        f"{{{{- else if {SEVERAL_REPLICAS} }}}}",
        *anti_affinity,
        "{{- end }}",
    )
    selector = encode_dict({"matchLabels": encode_dict(quote_all(manager_labels(project)))})
    pod["topologySpreadConstraints"] = encode_block(
        "{{- with .Values.topologySpreadConstraints }}",
        "topologySpreadConstraints:",
        "{{- range . }}",
        f'- {{{{ toJson (merge (dict) . (dict "labelSelector" {selector})) }}}}',
        "{{- end }}",
        "{{- end }}",
    )
    for volume in pod["volumes"]:
        if "secret" in volume:
            name = json.dumps(volume["name"])
            volume["secret"]["secretName"] = encode_inline(f"index .Values.secrets {name} | quote")


def _add_container_values(
    project: Project, declared: OperatorParts, extension: ChartExtension, container: Document
) -> None:
    container["image"] = encode_inline(f'include "{project.name}.image" . | quote')
    container["imagePullPolicy"] = encode_value("imagePullPolicy", ".Values.image.pullPolicy")
    container["resources"] = encode_inline("toJson .Values.resources")
    container["securityContext"] = encode_inline("toJson .Values.securityContext")
    container["envFrom"] = encode_value("envFrom", ".Values.envFrom")
    container["env"] += [
        encode_optional_item(".Values.namespaced", build_namespace_variable("WATCH_NAMESPACE")),
        _encode_list(".Values.env"),
    ]
    args = _build_flags(container["args"])
    args.append(
        encode_optional_item(
            SHARED_SHARDS, encode_inline('printf "-shards=%d" (int .Values.shards)')
        )
    )
    args += _encode_items(extension.args)
    args += [
        encode_optional_item(feature_condition(feature), feature.flag)
        for feature in project.config.optional_features
    ]
    if declared.optional_webhooks:
        condition = ChartConditions(declared).webhook_server
        args.append(encode_optional_item(condition, project.config.optional_webhooks))
        container["ports"].append(encode_optional_item(condition, build_webhook_port()))
    args += _build_certificate_items(project, declared, "flags")
    # Last, so that they take precedence: a user can switch a feature off and keep its permissions.
    args.append(_encode_list(".Values.flags"))
    container["args"] = args


def _build_flags(flags: Sequence[str]) -> list[str]:
    """The flags of config/manager; values switch those of the election and of metrics."""
    metrics_flags = [flag for flag in flags if flag.startswith(_METRICS_FLAGS)]
    metrics = encode_block(
        "{{- if .Values.metrics.enabled }}",
        *(f"- {flag}" for flag in metrics_flags),
        "{{- else }}",
        '- "-metrics-bind-address=0"',
        "{{- end }}",
    )
    built = list[str]()
    for flag in flags:
        if flag == "-leader-elect":
            built.append(encode_optional_item(".Values.leaderElection.enabled", flag))
        elif flag == metrics_flags[0]:
            built.append(metrics)
        elif flag not in metrics_flags:
            built.append(flag)
    return built


def _build_certificate_items(
    project: Project, declared: OperatorParts, part: Literal["flags", "mounts", "volumes"]
) -> list[str]:
    """The items of one list in the Deployment for the certificates of metrics and webhooks."""
    certificates = [("metrics", METRICS_CERTIFICATE, "cert-path", _METRICS_CERTIFICATE_DIR)]
    conditions = ChartConditions(declared)
    if conditions.has_webhooks:
        certificates.append(
            ("webhook", conditions.webhook_certificate, "cert-dir", CERTIFICATE_DIR)
        )
    items = list[str]()
    for server, condition, flag, folder in certificates:
        name = f"{server}-certificates"
        value = ".Values.metrics" if server == "metrics" else ".Values.webhooks"
        secret = json.dumps(f"{project.name}-{server}-server-cert")
        secret_name = encode_inline(f"{value}.existingSecret | default {secret} | quote")
        item: object = {
            "flags": f"-{server}-{flag}={folder}",
            "mounts": {"name": name, "mountPath": folder, "readOnly": True},
            "volumes": {"name": name, "secret": {"secretName": secret_name}},
        }[part]
        items.append(encode_optional_item(condition, item))
    return items


def _encode_items(text: str) -> list[str]:
    return [encode_block(*text.splitlines())] if text else []


def _encode_list(value: str) -> str:
    """All items of a value at the end of a list."""
    return encode_block(f"{{{{- range {value} }}}}", "- {{ toJson . }}", "{{- end }}")
