"""Dashboards for Grafana: files in the chart, and a template with a ConfigMap for each."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import ConfigError
from ..project import Project
from .model import BOOLEAN, STRING, Json, Value

_LABEL_KEY: Json = {"type": "string", "minLength": 1}
_FOLDER = "dashboards"
_TEMPLATE = """\
{{- if .Values.dashboards.enabled }}
{{- range $path, $_ := .Files.Glob "FOLDER/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: PROJECT-dashboard-{{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace | quote }}
  {{- $labels := dict $.Values.dashboards.label $.Values.dashboards.labelValue }}
  {{- $annotations := dict $.Values.dashboards.folderAnnotation $.Values.dashboards.folder }}
  {{- include "PROJECT.metadata" (list $ $labels $annotations) | trim | nindent 2 }}
data:
  {{ base $path }}: |
{{ $.Files.Get $path | indent 4 }}
{{- end }}
{{- end }}
"""


def build_dashboard_values(project: Project) -> Iterator[Value]:
    """The values of the ConfigMaps, with the defaults of the sidecar in the chart of Grafana."""
    if not project.config.chart_dashboards:
        return
    yield Value(
        "dashboards.enabled",
        False,
        "Add ConfigMaps with dashboards, which the sidecar of Grafana loads.",
        BOOLEAN,
        True,
    )
    for name, default, description, schema, example in (
        (
            "label",
            "grafana_dashboard",
            "Label by which the sidecar finds the ConfigMaps.",
            _LABEL_KEY,
            "board",
        ),
        ("labelValue", "1", "Value of this label.", STRING, "yes"),
        ("folder", "", "Folder in Grafana. Defaults to that of the sidecar.", STRING, "vSphere"),
        (
            "folderAnnotation",
            "grafana_folder",
            "Annotation by which the sidecar finds the folder.",
            _LABEL_KEY,
            "folder",
        ),
    ):
        context: Json = {"dashboards.enabled": True}
        if name == "folderAnnotation":
            context["dashboards.folder"] = "Operators"
        yield Value(f"dashboards.{name}", default, description, schema, example, context)


def render_dashboards(project: Project) -> str:
    """The template of the ConfigMaps; "" without dashboards."""
    if not project.config.chart_dashboards:
        return ""
    return _TEMPLATE.replace("PROJECT", project.name).replace("FOLDER", _FOLDER)


def read_dashboards(project: Project) -> dict[str, str]:
    """The dashboards, by their path in the chart. Templates of Helm do not change their braces."""
    folder = project.config.chart_dashboards
    if not folder:
        return {}
    names = sorted(path.name for path in (project.root / folder).glob("*.json"))
    if not names:
        raise ConfigError(
            f'chart_dashboards in pyproject.toml is "{folder}", but that folder has no JSON files'
        )
    return {f"{_FOLDER}/{name}": project.read_text(f"{folder}/{name}") for name in names}
