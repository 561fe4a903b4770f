"""What an alert, its runbook and a dashboard consist of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# The Prometheus Operator sets the label `job` to the name of the Service. Metrics with names of
# controller-runtime exist in other operators too, so queries for them select this job.
JOB = "vsphere-operators-controller-manager-metrics-service"
JOB_SELECTOR = f'job="{JOB}"'

Severity = Literal["critical", "warning", "info"]
Unit = Literal["short", "s", "bytes", "hertz", "percentunit", "ops", "reqps", "dateTimeFromNow"]
PanelType = Literal["timeseries", "stat", "table"]


@dataclass(frozen=True)
class Scenario:
    """Series with which an alert fires and later resolves, one sample a minute.

    Without `fires_at_minute` the alert must never fire.
    """

    # Values in the notation of promtool, such as `0+0x30 1+0x30`, by series.
    series: Mapping[str, str]
    fires_at_minute: int | None
    resolves_at_minute: int
    # Of the alert, in addition to alertname and severity.
    labels: Mapping[str, str] = field(default_factory=dict)
    # How the annotations show the value.
    value: str = ""


@dataclass(frozen=True)
class Runbook:
    meaning: str
    impact: str
    # Numbered steps. A line that starts with `$ ` is a command.
    diagnosis: tuple[str, ...]
    fix: tuple[str, ...]


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    for_minutes: int
    severity: Severity
    # Templates may use `{{ $labels.NAME }}` and `{{ $value | FUNCTION }}`.
    summary: str
    description: str
    runbook: Runbook
    scenarios: tuple[Scenario, ...]


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    type: PanelType = "timeseries"
    # Of 24 columns.
    width: int = 8
    height: int = 8


@dataclass(frozen=True)
class Section:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    # Also the name of its file and, with a prefix, its id in Grafana.
    name: str
    title: str
    description: str
    sections: tuple[Section, ...]
    # Labels that a user can select, each with a metric that has it.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def panels(self) -> list[Panel]:
        return [panel for section in self.sections for panel in section.panels]
