"""Renders the alerts as a PrometheusRule, and as the unit tests of promtool."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kubewright.yaml_text import dump_yaml

from .model import Alert, Scenario

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
        "tests": [_build_test(alert, scenario) for alert in alerts for scenario in alert.scenarios],
    }
    return dump_yaml(tests)


def _build_test(alert: Alert, scenario: Scenario) -> dict[str, Any]:
    checks = [_build_check(alert, 0), _build_check(alert, scenario.resolves_at_minute)]
    if scenario.fires_at_minute is None:
        checks += [_build_check(alert, minute) for minute in range(scenario.resolves_at_minute)]
    else:
        expected = {
            "exp_labels": {"severity": alert.severity, **scenario.labels},
            "exp_annotations": {
                key: _fill_template(text, scenario)
                for key, text in _build_annotations(alert).items()
            },
        }
        checks.append(_build_check(alert, scenario.fires_at_minute, expected))
    return {
        "name": alert.name,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in scenario.series.items()
        ],
        "alert_rule_test": checks,
    }


def _build_check(alert: Alert, minute: int, *expected: dict[str, Any]) -> dict[str, Any]:
    return {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": list(expected)}


def _fill_template(text: str, scenario: Scenario) -> str:
    """What Prometheus makes of the template, by the labels and the value of the scenario."""
    text = _LABEL.sub(lambda match: scenario.labels[match[1]], text)
    return _VALUE.sub(lambda _: scenario.value, text)
