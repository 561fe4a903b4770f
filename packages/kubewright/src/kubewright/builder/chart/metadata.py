"""The metadata of every object in the chart: labels and annotations of the chart and of values."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..manifests import Document
from .placeholders import encode_block, encode_dict, quote_all

METADATA_HELPER = """\
{{/*
Labels and annotations of an object: (list $ LABELS ANNOTATIONS). Its own take precedence over those
of the values. Its own with an empty value are left out.
*/}}
{{- define "NAME.metadata" -}}
{{- $root := index . 0 }}
{{- $chart := dict
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)
}}
{{- $shared := dict
  "labels" (merge $chart (default dict $root.Values.labels))
  "annotations" (merge (dict) (default dict $root.Values.annotations))
}}
{{- $own := dict "labels" (index . 1) "annotations" (index . 2) }}
{{- range $field, $present := $shared }}
{{- range $key, $value := index $own $field }}
{{- if $value }}
{{- $_ := set $present $key $value }}
{{- end }}
{{- end }}
{{- if $present }}
{{ $field }}:
  {{- toYaml $present | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
"""


def add_metadata(
    project_name: str,
    document: Document,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    more_labels: str = "",
    more_annotations: str = "",
) -> Document:
    """The document with a call of the helper for its labels and annotations.

    Those of `labels` and `annotations` have expressions of Helm as values. `more_labels` and
    `more_annotations` are chart values that hold more of them, such as `.Values.podLabels`.
    """
    own = dict(document["metadata"])
    arguments = [
        _merge(quote_all(own.pop(field, {})) | dict(additions or {}), value)
        for field, additions, value in (
            ("labels", labels, more_labels),
            ("annotations", annotations, more_annotations),
        )
    ]
    helper = json.dumps(f"{project_name}.metadata")
    include = f"{{{{- include {helper} (list $ {' '.join(arguments)}) | trim | nindent 2 }}}}"
    # The key has no meaning: the block replaces the whole line.
    return document | {"metadata": own | {"metadata": encode_block(include)}}


def _merge(items: Mapping[str, str], value: str) -> str:
    return f"(merge {encode_dict(items)} (default dict {value}))" if value else encode_dict(items)
