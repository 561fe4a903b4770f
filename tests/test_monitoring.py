"""The alerts, dashboards and runbooks that hack.monitoring generates."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana

from hack.docgen.metrics import list_metric_names
from hack.monitoring.__main__ import ALERTS, DASHBOARDS, ROOT, generate_files, main
from hack.monitoring.grafana import render_dashboard
from hack.monitoring.model import JOB, Alert, Dashboard
from hack.monitoring.rules import build_groups, render_promtool_tests
from hack.monitoring.runbooks import render_page
from support.helm import Helm, Json

# Metrics that Prometheus adds.
_OTHER_METRICS = {"up"}
_METRIC_NAME = re.compile(
    r"\b(up|(?:vsphere|kubewright|controller_runtime|workqueue|rest_client|leader_election|process)"
    r"_\w+)\b"
)


@pytest.fixture(scope="module")
def promtool(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / ".testenv/bin/promtool"


@pytest.fixture(scope="module")
def rules() -> Json:
    """The rules of the generated PrometheusRule, as Prometheus reads them."""
    text = (ROOT / "config/components/alerts/prometheus_rule.yaml").read_text()
    spec: Json = yaml.safe_load(text)["spec"]
    return spec


@pytest.fixture(scope="module")
def alert_results(
    promtool: Path, rules: Json, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ElementTree.Element]:
    """The test suite of each alert in the report of promtool, which tests all in one process.

    Each alert has a file with only its rule: promtool evaluates all rules of a file for every
    minute of a scenario, and some scenarios last a day.
    """
    folder = tmp_path_factory.mktemp("alerts")
    [group] = rules["groups"]
    for alert in ALERTS:
        [rule] = [rule for rule in group["rules"] if rule["alert"] == alert.name]
        rule_file = folder / f"{alert.name}-rule.yaml"
        rule_file.write_text(yaml.safe_dump({"groups": [{**group, "rules": [rule]}]}))
        text = render_promtool_tests([alert], str(rule_file))
        (folder / f"{alert.name}.yaml").write_text(text)
    files = [folder / f"{alert.name}.yaml" for alert in ALERTS]
    report = folder / "report.xml"
    # It fails if any alert fails; the report has the result of each.
    subprocess.run([promtool, "test", f"--junit={report}", "rules", *files], timeout=300)
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    return {Path(suite.attrib["name"]).stem: suite for suite in suites}


def run_promtool(promtool: Path, *arguments: str | Path) -> str:
    process = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_promtool_accepts_the_rules(promtool: Path, rules: Json, tmp_path: Path) -> None:
    rule_file = tmp_path / "rules.yaml"
    rule_file.write_text(yaml.safe_dump(rules))
    output = run_promtool(promtool, "check", "rules", "--lint=all", "--lint-fatal", rule_file)
    assert f"{len(ALERTS)} rules found" in output


def test_promtool_accepts_the_documented_scrape(promtool: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/monitor.md").read_text()
    [text] = re.findall(r"```yaml prometheus.yaml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "prometheus.yaml"
    file.write_text(text)
    run_promtool(promtool, "check", "config", "--syntax-only", file)
    [job] = yaml.safe_load(text)["scrape_configs"]
    # The alerts select this job. A static target would reach one of two replicas.
    assert job["job_name"] == JOB
    assert "static_configs" not in job


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_fires_and_resolves(
    alert: Alert, alert_results: dict[str, ElementTree.Element]
) -> None:
    suite = alert_results[alert.name]
    counts = [int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == [len(alert.scenarios), 0, 0, 0], "".join(suite.itertext())


def test_alert_that_does_not_fire_fails_its_test(promtool: Path, tmp_path: Path) -> None:
    alert = ALERTS[0]
    rules = build_groups([alert])
    rules["groups"][0]["rules"][0]["expr"] = "vector(1) == 0"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    test_file = tmp_path / "test.yaml"
    test_file.write_text(render_promtool_tests([alert], str(tmp_path / "rules.yaml")))
    with pytest.raises(AssertionError, match="FAILED"):
        run_promtool(promtool, "test", "rules", test_file)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_runbook_has_every_section_and_a_command(alert: Alert) -> None:
    page = render_page(alert)
    for heading in ("Meaning", "Impact", "Diagnosis", "Fix"):
        assert f"\n## {heading}\n\n" in page
    assert "```sh\nkubectl " in page
    assert alert.summary.endswith(".")
    assert alert.description.endswith(".")


def test_the_site_lists_every_runbook() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in generate_files():
        if path.startswith("docs/runbooks/"):
            assert f"{path}\n" in navigation, path


def test_every_metric_of_a_query_exists() -> None:
    queries = [alert.expr for alert in ALERTS]
    queries += [
        query.expr
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for query in panel.queries
    ]
    queries += [metric for dashboard in DASHBOARDS for metric in dashboard.variables.values()]
    exposed = list_metric_names()
    used = {
        re.sub(r"_(bucket|count|sum)$", "", name) if name not in exposed else name
        for query in queries
        # Not the names of labels and their values.
        for name in _METRIC_NAME.findall(re.sub(r'"[^"]*"', "", query))
    }
    assert len(used) > 30
    assert used - exposed - _OTHER_METRICS == set()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_dashboard_is_well_formed(dashboard: Dashboard) -> None:
    document = json.loads(render_dashboard(dashboard))
    panels = document["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids) > 5
    variables = {variable["name"] for variable in document["templating"]["list"]}
    assert "datasource" in variables
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    assert len(set(titles)) == len(titles)
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            used = set(re.findall(r"\$(?:\{)?(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, target["expr"]
    assert not [
        (one["title"], other["title"])
        for one, other in combinations(panels, 2)
        if overlap(one["gridPos"], other["gridPos"])
    ]
    assert all(0 <= p["gridPos"]["x"] <= 24 - p["gridPos"]["w"] for p in panels)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_dashboard_matches_the_schema_of_grafana(dashboard: Dashboard) -> None:
    """Grafana's types drop a field that they do not have, so all must survive a round trip."""
    register_default_plugins()
    document = json.loads(render_dashboard(dashboard))
    decoded = grafana.Dashboard.from_json(document)
    encoded = json.loads(JSONEncoder().encode(decoded))
    assert list(find_missing(document, encoded)) == []


def test_unknown_field_does_not_match_the_schema_of_grafana() -> None:
    document = {"title": "x", "panels": [{"type": "stat", "gridPosition": {"x": 1}}]}
    register_default_plugins()
    encoded = json.loads(JSONEncoder().encode(grafana.Dashboard.from_json(document)))
    assert list(find_missing(document, encoded)) == ["/panels/0/gridPosition"]


def find_missing(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """The paths of values that `actual` does not have."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            yield from find_missing(value, actual.get(key), f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from find_missing(value, actual[index], f"{path}/{index}")
    elif expected != actual:
        yield path


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def _find_query(dashboard_name: str, panel_title: str) -> str:
    [panel] = [
        panel
        for dashboard in DASHBOARDS
        if dashboard.name == dashboard_name
        for panel in dashboard.panels
        if panel.title == panel_title
    ]
    return panel.queries[0].expr.replace("$vcenter", ".*")


@pytest.mark.parametrize(
    ("dashboard", "panel", "values"),
    [
        # Of the first cluster 100 - 30, of the second 200 - 50 and 400 - 60.
        ("hosts-and-nodes", "Free memory of clusters", [70, 490]),
        ("hosts-and-nodes", "Hosts of clusters", [1, 2]),
        ("vmgroups", "Replicas by host", [1, 1, 1]),
    ],
)
def test_objects_of_one_name_are_not_merged(
    dashboard: str, panel: str, values: list[int], promtool: Path, tmp_path: Path
) -> None:
    """Two datacenters have a cluster C0, with hosts of one name. A standby served metrics before.

    The values are those of one host in the first cluster and of two in the second.
    """
    series: dict[str, str] = {}
    hosts = ((1, 1, 100, 30), (2, 2, 200, 50), (3, 2, 400, 60))
    for number, cluster, capacity, usage in hosts:
        for instance in ("a", "b"):
            labels = f'vcenter="vc",host="esxi",host_id="host-{number}",instance="{instance}"'
            info = f'{labels},cluster="C0",cluster_id="domain-c{cluster}"'
            series |= {
                f"vsphere_host_info{{{info}}}": "1x5",
                f"vsphere_host_memory_capacity_bytes{{{labels}}}": f"{capacity}x5",
                f"vsphere_host_memory_usage_bytes{{{labels}}}": f"{usage}x5",
                f'vsphere_vm_info{{{labels},vm_id="vm-{number}",vmgroup="n/web"}}': "1x5",
            }
    for cluster in (1, 2):
        labels = f'vcenter="vc",cluster="C0",cluster_id="domain-c{cluster}"'
        series[f"vsphere_cluster_hosts{{{labels}}}"] = f"{cluster}x5"
    assert _query_values(promtool, tmp_path, series, _find_query(dashboard, panel)) == values


def _query_values(promtool: Path, folder: Path, series: dict[str, str], expr: str) -> list[float]:
    """The values of a query, in ascending order: promtool reports those that it got."""
    test_file = folder / "test.yaml"
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "2m", "exp_samples": []}],
    }
    test_file.write_text(yaml.safe_dump({"tests": [test]}))
    process = subprocess.run(
        [promtool, "test", "rules", test_file], capture_output=True, text=True, timeout=60
    )
    (got,) = re.findall(r"got:\s*(.*)", process.stdout + process.stderr)
    return sorted(float(value) for value in re.findall(r"} (\S+?)(?:,|\]|$)", got))


def test_dashboards_have_different_ids() -> None:
    ids = [json.loads(render_dashboard(dashboard))["uid"] for dashboard in DASHBOARDS]
    assert len(set(ids)) == len(ids) == 4
    # The limit of Grafana.
    assert all(len(uid) <= 40 for uid in ids)


def render_chart(tmp_path: Path, kind: str, values: Json) -> list[Json]:
    """The objects of a kind."""
    image = {"image": {"repository": "controller"}}
    chart = ROOT / "charts/vsphere-operators"
    objects = Helm(tmp_path).template(chart, "team-a", image | values)
    return [item for (item_kind, _, _), item in objects.items() if item_kind == kind]


def test_chart_has_the_alerts_on_request(tmp_path: Path) -> None:
    assert render_chart(tmp_path, "PrometheusRule", {}) == []
    values = {"manifests": {"prometheusRule": True}}
    [rule] = render_chart(tmp_path, "PrometheusRule", values)
    assert rule["metadata"]["namespace"] == "team-a"
    # Helm must not fill in the templates of Prometheus.
    assert rule["spec"] == build_groups(ALERTS)


@pytest.mark.parametrize(
    ("more_values", "labels", "annotations"),
    [
        ({}, {"grafana_dashboard": "1"}, None),
        (
            {"label": "board", "labelValue": "yes", "folder": "vSphere", "folderAnnotation": "in"},
            {"board": "yes"},
            {"in": "vSphere"},
        ),
    ],
)
def test_chart_has_the_dashboards_on_request(
    more_values: dict[str, str],
    labels: dict[str, str],
    annotations: dict[str, str] | None,
    tmp_path: Path,
) -> None:
    assert render_chart(tmp_path, "ConfigMap", {}) == []
    values = {"dashboards": {"enabled": True, **more_values}}
    config_maps = render_chart(tmp_path, "ConfigMap", values)
    assert [item["metadata"]["name"] for item in config_maps] == sorted(
        f"vsphere-operators-dashboard-{dashboard.name}" for dashboard in DASHBOARDS
    )
    for item in config_maps:
        metadata = item["metadata"]
        assert metadata["namespace"] == "team-a"
        assert labels.items() <= metadata["labels"].items()
        assert metadata.get("annotations") == annotations
    texts = {name: text for item in config_maps for name, text in item["data"].items()}
    # Helm must not fill in the legends of Grafana.
    assert {name: json.loads(text) for name, text in texts.items()} == {
        f"{dashboard.name}.json": json.loads(render_dashboard(dashboard))
        for dashboard in DASHBOARDS
    }


def test_components_render(binaries: dict[str, Path], tmp_path: Path) -> None:
    """kustomize adds the flag, the rules and a ConfigMap for each dashboard."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    overlay = tmp_path / "config/overlays/monitored"
    overlay.mkdir(parents=True)
    names = ("inventory-metrics", "prometheus", "alerts", "dashboards")
    components = [f"../../components/{name}" for name in names]
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../../default"], "components": components})
    )
    output = subprocess.run(
        [binaries["kubectl"], "kustomize", overlay], check=True, capture_output=True, text=True
    ).stdout
    documents = list(yaml.safe_load_all(output))
    [deployment] = [document for document in documents if document["kind"] == "Deployment"]
    assert "-inventory-metrics" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    config_maps = [
        document
        for document in documents
        if document["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    titles = {json.loads(text)["title"] for item in config_maps for text in item["data"].values()}
    assert titles == {dashboard.title for dashboard in DASHBOARDS}
    # The limit of the API server for the annotation of `kubectl apply`.
    assert all(len(json.dumps(item)) < 262_144 for item in config_maps)
