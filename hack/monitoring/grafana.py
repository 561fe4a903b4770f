"""Renders the dashboards as JSON for Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .model import Dashboard, Panel

_COLUMNS = 24
# Newer versions of Grafana migrate an older schema when they load it.
_SCHEMA_VERSION = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def render_dashboard(dashboard: Dashboard) -> str:
    document = {
        "uid": f"vsphere-operators-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["vsphere-operators"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {"list": []},
        "links": [
            {
                "title": "vSphere operators",
                "type": "dashboards",
                "tags": ["vsphere-operators"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": list(_build_variables(dashboard.variables))},
        "panels": list(_build_panels(dashboard)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _build_variables(variables: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    for label, metric in variables.items():
        query = f"label_values({metric}, {label})"
        yield {
            "name": label,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": "variable"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        }


def _build_panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Rows of panels from left to right, below the heading of their section."""
    number, y = 1, 0
    for section in dashboard.sections:
        position = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": section.title,
            "collapsed": False,
            "gridPos": position,
            "panels": [],
        }
        number, x, y, height = number + 1, 0, y + 1, 0
        for panel in section.panels:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            yield _build_panel(panel, number, position)
            number, x, height = number + 1, x + panel.width, max(height, panel.height)
        y += height


def _build_panel(panel: Panel, number: int, position: Mapping[str, int]) -> dict[str, Any]:
    is_instant = panel.type != "timeseries"
    return {
        "id": number,
        "type": panel.type,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": dict(position),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []}
        if panel.unit != "dateTimeFromNow"
        else {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": _build_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "editorMode": "code",
                "instant": is_instant,
                "range": not is_instant,
                "format": "table" if panel.type == "table" else "time_series",
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _build_options(panel: Panel) -> dict[str, Any]:
    if panel.type == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "auto",
        }
    if panel.type == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
