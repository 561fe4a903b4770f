"""Pages for operations agree with the code: support matrix, security model, checklist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from hack.docgen import permissions
from hack.docgen.markdown import fenced_blocks
from kubewright.version import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from support.chart_values import read_values
from support.helm import Helm

ROOT = Path(__file__).parents[1]


def read_page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def read_versions_row(title: str) -> list[str]:
    """The cells of one row of the support matrix."""
    (row,) = re.findall(rf"^\| {title} \|(.+)\|$", read_page("reference/support.md"), re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def test_support_matrix_has_the_range_of_kubernetes() -> None:
    supported, tested, _ = read_versions_row("Kubernetes")
    assert supported == f"{OLDEST_KUBERNETES} to {NEWEST_KUBERNETES}"
    assert tested.startswith(f"{OLDEST_KUBERNETES} and {NEWEST_KUBERNETES}:")


def test_support_matrix_has_the_python_versions_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)'", str(project["classifiers"]))
    assert read_versions_row("Python")[0] == f"{versions[0]} to {versions[-1]}"
    assert project["requires-python"] == f">={versions[0]}"


def test_support_matrix_has_the_python_versions_of_the_workflow() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    every, without_api_server = (
        " and ".join(job["strategy"]["matrix"]["python"])
        for job in jobs.values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    )
    page = " ".join(read_page("reference/support.md").split())
    assert f"runs all tests on {every}, and" in page
    assert f"that need no API server on {without_api_server}" in page


def test_support_matrix_has_the_helm_that_tests_use() -> None:
    pinned = re.search(
        r"helm\.sh/helm/v4 v(\d+\.\d+)\.", (ROOT / "testenv/helm/go.mod").read_text()
    )
    assert pinned is not None
    assert read_versions_row("Helm")[1].startswith(f"{pinned[1]}: install to uninstall;")


def test_every_threat_has_a_mitigation_and_a_test() -> None:
    table = read_page("explanation/security.md").partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [row.split("</td><td>") for row in table.split("</tr>") if row.strip()]
    assert len(rows) > 10
    assert [row[0] for row in rows if len(row) != 3 or not row[1].strip()] == []
    assert [row[0] for row in rows if not re.search(r"^- \[`test_\w+`\]\[", row[2], re.M)] == []


@pytest.mark.parametrize("page", ["howto/production.md", "howto/install.md", "howto/backup.md"])
def test_values_of_the_chart_exist(page: str) -> None:
    """Names in code with the form of a value, such as `networkPolicy.egress.enabled`."""
    values = read_values(ROOT)
    roots = {path.partition(".")[0] for path in values}
    named = {
        name
        for name in re.findall(r"[`( ]([a-z][A-Za-z]+(?:\.[A-Za-z-]+)+)[`=:]", read_page(page))
        if name.partition(".")[0] in roots
    }
    assert {name for name in named if not any(path.startswith(name) for path in values)} == set()


def test_files_of_values_render_the_chart(tmp_path: Path) -> None:
    """The schema of the chart rejects misspelled values."""
    files = [
        (page.name, yaml.safe_load(block.text))
        for page in sorted(ROOT.glob("docs/howto/*.md"))
        for block in fenced_blocks(page.read_text())
        if block.argument in ("values.yaml", "production.yaml")
    ]
    assert [name for name, _ in files] == ["install.md", "several-vcenters.md"]
    for _, values in files:
        values = {"image": {"repository": "example.com/vsphere-operators"}} | values
        objects = Helm(tmp_path).template(
            ROOT / "charts/vsphere-operators", "vsphere-operators-system", values
        )
        assert len(objects) > 20


def test_alerts_of_the_checklist_have_runbooks() -> None:
    named = set(re.findall(r"VSphere\w+", read_page("howto/production.md")))
    assert len(named) > 3
    assert {name for name in named if not (ROOT / f"docs/runbooks/{name}.md").is_file()} == set()


def test_reasons_of_the_recovery_page_exist() -> None:
    conditions = read_page("reference/conditions.md")
    named = set(re.findall(r"`((?=\w*[a-z])[A-Z]\w*[A-Z]\w+)`", read_page("howto/backup.md")))
    assert {"VMMissing", "FolderTaken", "VCenterChanged", "VCenterLoginFailed"} <= named
    assert {name for name in named if f"`{name}`" not in conditions} == set()


def test_page_of_permissions_has_every_role_of_the_manager() -> None:
    page = permissions.render()
    components = {path.parent.name for path in ROOT.glob("config/components/*/*.yaml")}
    with_roles = {
        component
        for component in components
        if any(
            "\nrules:" in path.read_text()
            for path in (ROOT / "config/components" / component).glob("*.yaml")
        )
    }
    assert {"label-nodes", "namespaced", "page", "webhooks"} <= with_roles
    assert {name for name in with_roles if f"| component `{name}` |" not in page} == set()
    assert "| 8443 | `config/default` |" in page


@pytest.mark.parametrize(
    ("source", "measured", "figures"),
    [
        ("docs/designs/image.md", "| 75 MB; requested 128Mi, limit 256Mi |", ["75 MB", "256Mi"]),
        ("bench/README.md", "| peak memory | 65 MiB |", ["| 65 MiB |"]),
        ("bench/README.md", "| kubewright | 565 | 0.65 ms | 79 MiB |", ["| 79 MiB |", "0.65 ms"]),
        ("bench/README.md", "At rest the manager uses 0.01 % of a core", ["0.01 % of a core"]),
        ("docs/designs/topology.md", "1.21 x (117 to 141 MiB)", ["117 MiB", "141 MiB"]),
        ("docs/designs/topology.md", "(7.0 to 8.2 % of a core)", ["7.0 %", "8.2 %"]),
        ("docs/designs/topology.md", "that receive events | 2.5 MiB |", ["2.5 MiB"]),
        ("docs/designs/api-server.md", "| 10,000 | 64.1 MiB | 16.9 MiB |", ["[17 MiB]"]),
        ("docs/designs/inventory.md", "and 200 tasks: 0.49 s of CPU", ["0.49 s"]),
        ("docs/designs/monitoring.md", "| 0.025 s for each scrape |", ["0.025 s"]),
        ("docs/designs/vmgroup.md", "(ideal 8.33 s) | 10.6, 10.8 s", ["10.6 s"]),
        ("docs/designs/vmgroup.md", "(ideal 2.50 s) | 4.1, 4.4 s", ["4.1 s"]),
        ("src/vsphere_operators/topology/store.py", "_MAX_VMS = 20_000", ["| 20,000 |"]),
        ("src/vsphere_operators/kinds/vmgroup/clone_blocker.py", "REPLICAS = 1000", ["| 1,000 |"]),
    ],
)
def test_figures_of_the_size_page_are_those_of_their_source(
    source: str, measured: str, figures: list[str]
) -> None:
    """A new measurement changes both."""
    assert measured in (ROOT / source).read_text()
    page = " ".join(read_page("howto/size.md").split())
    assert [figure for figure in figures if figure not in page] == []
