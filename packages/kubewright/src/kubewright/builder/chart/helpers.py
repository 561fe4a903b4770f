"""templates/_helpers.tpl: what several templates use, and the checks of the values."""

from __future__ import annotations

import json

from .conditions import SEVERAL_REPLICAS
from .metadata import METADATA_HELPER
from .model import ChartExtension, Check

_IMAGE_HELPER = """\
{{- define "NAME.image" -}}
{{- $image := .Values.image }}
{{- required "image.repository is not set. Set it to your image without its tag: \
--set image.repository=example.com/NAME" $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}
{{- else }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
"""
_EGRESS_HELPER = """\
{{/*
A rule of the NetworkPolicy as JSON: (list VALUES PROTOCOLS).
*/}}
{{- define "NAME.egress" -}}
{{- $rule := index . 0 }}
{{- $ports := list }}
{{- range $port := $rule.ports }}
{{- range $protocol := index $ 1 }}
{{- $ports = append $ports (dict "port" $port "protocol" $protocol) }}
{{- end }}
{{- end }}
{{- $result := dict "ports" $ports }}
{{- if $rule.to }}
{{- $_ := set $result "to" $rule.to }}
{{- end }}
{{- toJson $result }}
{{- end }}
"""
_BUDGET = ".Values.podDisruptionBudget"
_CHECKS = (
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


def render_helpers(name: str, extension: ChartExtension, *, has_webhooks: bool) -> str:
    checks = (*_CHECKS, *(_WEBHOOK_CHECKS if has_webhooks else ()), *extension.checks)
    lines = [
        f"{{{{- if {check.condition} }}}}\n"
        f"{{{{- fail {json.dumps(check.message)} }}}}\n"
        "{{- end }}\n"
        for check in checks
    ]
    body = f'{{{{- define "{name}.checks" -}}}}\n{"".join(lines)}{{{{- end }}}}\n'
    helpers = METADATA_HELPER + _IMAGE_HELPER + _EGRESS_HELPER
    return helpers.replace('"NAME.', f'"{name}.').replace("/NAME", f"/{name}") + body
