"""Dashboards for Grafana in the chart: files, and a ConfigMap for each that a value adds."""

from __future__ import annotations

from ...errors import ConfigError
from ..project import Project
from . import Document

# The defaults of the sidecar in the chart of Grafana.
DEFAULT_VALUES: Document = {
    "enabled": False,
    "label": "grafana_dashboard",
    "labelValue": "1",
    "folder": "",
    "folderAnnotation": "grafana_folder",
}
VALUES_COMMENT = (
    "Add ConfigMaps that the sidecar of Grafana loads by their label; folder is optional."
)
_FOLDER = "dashboards"
_TEMPLATE = """\
{{- if .Values.dashboards.enabled }}
{{- range $path, $_ := .Files.Glob "FOLDER/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: PROJECT-dashboard-{{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{ $.Values.dashboards.label }}: {{ $.Values.dashboards.labelValue | quote }}
  {{- with $.Values.dashboards.folder }}
  annotations:
    {{ $.Values.dashboards.folderAnnotation }}: {{ . | quote }}
  {{- end }}
data:
  {{ base $path }}: |
{{ $.Files.Get $path | indent 4 }}
{{- end }}
{{- end }}
"""


def render_template(project: Project) -> str:
    """The template of the ConfigMaps; "" without dashboards."""
    if not project.config.chart_dashboards:
        return ""
    return _TEMPLATE.replace("PROJECT", project.name).replace("FOLDER", _FOLDER)


def read_files(project: Project) -> dict[str, str]:
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
