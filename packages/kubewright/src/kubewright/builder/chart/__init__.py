"""`kubewright helm`: a chart with the objects of config/, and values for the installation.

model            what a value is, and what a project adds to the chart
values           the values of every chart
pod_values       those of the manager's container and of its Pods
server_values    those of metrics, network policy and webhooks
placeholders     expressions of Helm inside documents
conditions       when parts of the chart are rendered
metadata         labels and annotations of every object
deployment       the template of the Deployment
extra_manifests  files of the project that values add
templates        all other templates
helpers          named templates
checks           the checks of values that a schema cannot express
dashboards       dashboards for Grafana
files            Chart.yaml, values.yaml, values.schema.json, README.md and NOTES.txt
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ...errors import ConfigError
from ..project import OperatorParts, Project
from .checks import build_checks
from .dashboards import read_dashboards
from .files import (
    CHART_HEADER,
    render_chart_yaml,
    render_notes,
    render_readme,
    render_schema,
    render_values,
)
from .helpers import render_helpers
from .model import ChartExtension
from .placeholders import NAMESPACE_PLACEHOLDER
from .templates import TemplateBuilder
from .values import build_values

__all__ = ["CHART_HEADER", "build_chart", "load_extension"]


def build_chart(project: Project, declared: OperatorParts) -> dict[str, str]:
    """Every file of the chart, by its path in the folder of the chart."""
    extension = load_extension(project)
    values = build_values(project, declared, extension)
    config = msgspec.structs.replace(project.config, namespace=NAMESPACE_PLACEHOLDER)
    templates = TemplateBuilder(replace(project, config=config), declared, extension).build()
    for name, text in extension.templates.items():
        if templates.get(name):
            raise ConfigError(f'{project.config.chart}: the chart already has a template "{name}"')
        templates[name] = text
    kinds = sorted({kind.definition.plural for kind in declared.kinds})
    helpers = render_helpers(project.name, build_checks(project, declared, extension))
    return {
        "Chart.yaml": render_chart_yaml(project, declared, extension),
        "values.yaml": render_values(values),
        "values.schema.json": render_schema(values),
        "README.md": render_readme(project, values, extension),
        "templates/NOTES.txt": render_notes(project, kinds, extension),
        "templates/_helpers.tpl": helpers,
        **{
            f"templates/{name}.yaml": CHART_HEADER + text
            for name, text in templates.items()
            if text
        },
        **read_dashboards(project),
    }


def load_extension(project: Project) -> ChartExtension:
    """What the project adds to its chart."""
    if not project.config.chart:
        return ChartExtension()
    extension = project.load_object(project.config.chart)
    if not isinstance(extension, ChartExtension):
        raise ConfigError(
            f'"{project.config.chart}" of [tool.kubewright] is not a ChartExtension of '
            "kubewright.builder.chart.model"
        )
    return extension
