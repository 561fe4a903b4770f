"""Renders the alerts as a PrometheusRule, and as the unit tests of promtool."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kubewright.yaml_text import dump_yaml

from .model import Alert

GROUP_NAME = "vsphere-operators"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ \$value[^}]*\}\}")


def build_groups(alerts: Iterable[Alert]) -> dict[str, Any]:
    """A file of rules as Prometheus reads it."""
    return {"groups": [{"name": GROUP_NAME, "rules": [_build_rule(alert) for alert in alerts]}]}


def _build_rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": f"{alert.for_minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": _build_annotations(alert),
    }


def _build_annotations(alert: Alert) -> dict[str, str]:
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook": f"docs/runbooks/{alert.name}.md",
    }


def build_prometheus_rule(alerts: Iterable[Alert]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "vsphere-operators-alerts",
            "namespace": "vsphere-operators-system",
            "labels": {"app.kubernetes.io/name": "vsphere-operators"},
        },
        "spec": build_groups(alerts),
    }


def render_promtool_tests(alerts: Iterable[Alert], rule_file: str) -> str:
    """A test file: each alert does not fire at first, then fires, then is resolved."""
    tests = {
        "rule_files": [rule_file],
        "evaluation_interval": "1m",
        "tests": [_build_test(alert) for alert in alerts],
    }
    return dump_yaml(tests)


def _build_test(alert: Alert) -> dict[str, Any]:
    scenario = alert.scenario
    expected = {
        "exp_labels": {"severity": alert.severity, **scenario.labels},
        "exp_annotations": {
            key: _fill_template(text, alert) for key, text in _build_annotations(alert).items()
        },
    }
    return {
        "name": alert.name,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in scenario.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": alert.name, "exp_alerts": []},
            {
                "eval_time": f"{scenario.fires_at_minute}m",
                "alertname": alert.name,
                "exp_alerts": [expected],
            },
            {
                "eval_time": f"{scenario.resolves_at_minute}m",
                "alertname": alert.name,
                "exp_alerts": [],
            },
        ],
    }


def _fill_template(text: str, alert: Alert) -> str:
    """What Prometheus makes of the template, by the labels and the value of the scenario."""
    scenario = alert.scenario
    text = _LABEL.sub(lambda match: scenario.labels[match[1]], text)
    return _VALUE.sub(lambda _: scenario.value, text)
