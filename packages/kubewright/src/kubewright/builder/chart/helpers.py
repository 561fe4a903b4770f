"""templates/_helpers.tpl: what several templates use, and the checks of the values."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .metadata import METADATA_HELPER
from .model import Check

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
{{/*
Not empty if two rules of the NetworkPolicy have a port in common: (list VALUES VALUES).
*/}}
{{- define "NAME.common-port" -}}
{{- range $port := (index . 0).ports }}
{{- range (index $ 1).ports }}
{{- if eq (int $port) (int .) }}{{ $port }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
"""


def render_helpers(name: str, checks: Iterable[Check]) -> str:
    lines = [
        f"{{{{- if {check.condition} }}}}\n"
        f"{{{{- fail {json.dumps(check.message)} }}}}\n"
        "{{- end }}\n"
        for check in checks
    ]
    body = f'{{{{- define "{name}.checks" -}}}}\n{"".join(lines)}{{{{- end }}}}\n'
    helpers = METADATA_HELPER + _IMAGE_HELPER + _EGRESS_HELPER
    return helpers.replace('"NAME.', f'"{name}.').replace("/NAME", f"/{name}") + body
