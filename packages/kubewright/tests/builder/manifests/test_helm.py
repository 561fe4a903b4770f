"""The chart, rendered by Helm: it has the objects that kustomize renders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.chart.files import to_semantic_version
from kubewright.builder.chart.placeholders import fill_placeholders
from kubewright.builder.cli import main
from kubewright.builder.manifests.installer import _run_kustomize
from kubewright.testing.controlplane import ControlPlane
from kubewright.version import OLDEST_KUBERNETES
from support.golden_projects import GOLDEN
from support.helm import Helm, Objects, parse_objects

ROOT = Path(__file__).parents[5]
Json = dict[str, Any]
LISTS_KEYED_BY_NAME = ("volumes", "volumeMounts", "env")
# The chart has these so that `helm uninstall` removes what the manager writes into them.
MANAGER_OBJECTS = ("Lease", "Secret")
CHART_LABELS = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path_factory.mktemp("chart") / "greeter"))
    assert main(["helm", "--project", str(root)]) == 0
    return root


def normalize(value: Any) -> Any:
    """The value with lists that patches append to sorted by name."""
    if isinstance(value, dict):
        return {
            key: sort_by_name(normalize(item))
            if key in LISTS_KEYED_BY_NAME and isinstance(item, list)
            else normalize(item)
            for key, item in value.items()
        }
    return [normalize(item) for item in value] if isinstance(value, list) else value


def sort_by_name(items: list[Json]) -> list[Json]:
    return sorted(items, key=lambda item: str(item["name"]))


def render_like_kustomize(helm: Helm, chart: Path, namespace: str, values: Json) -> Objects:
    """The objects of the chart without what kustomize has no counterpart for."""
    objects = helm.template(chart, namespace, merge(COMMON_VALUES, values))
    for key in [key for key in objects if key[0] in MANAGER_OBJECTS]:
        del objects[key]
    for document in objects.values():
        labels = document["metadata"]["labels"]
        for label in CHART_LABELS:
            del labels[label]
        if not labels:
            del document["metadata"]["labels"]
    return {key: normalize(document) for key, document in objects.items()}


def merge(values: Json, others: Json) -> Json:
    merged = values | others
    for key in values.keys() & others.keys():
        if isinstance(values[key], dict) and isinstance(others[key], dict):
            merged[key] = merge(values[key], others[key])
    return merged


def render_with_kustomize(project: Path, binaries: dict[str, Path], *components: str) -> Objects:
    overlay = project / "config/overlays/test"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = {
        "resources": ["../../default"],
        "components": [f"../../components/{name}" for name in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return render_kustomization(project, overlay, binaries)


def render_kustomization(project: Path, folder: Path, binaries: dict[str, Path]) -> Objects:
    objects = parse_objects(_run_kustomize(project, folder, str(binaries["kubectl"])))
    return {key: normalize(document) for key, document in objects.items()}


IMAGE: Json = {"image": {"repository": "controller", "tag": "latest"}}
COMMON_VALUES: Json = {"createNamespace": True, "crds": {"keep": False}, **IMAGE}
SERVICE_MONITOR: Json = {
    "metrics": {"serviceMonitor": {"enabled": True, "insecureSkipVerify": True}}
}
VARIANTS: list[tuple[list[str], Json]] = [
    ([], {}),
    (["ha"], {"replicas": 2}),
    (["namespaced"], {"namespaced": True}),
    (["network-policy"], {"networkPolicy": {"enabled": True}}),
    (["prometheus"], SERVICE_MONITOR),
    (["without-webhooks"], {"webhooks": {"enabled": False}}),
    (["cert-manager"], {"webhooks": {"certManager": True}}),
    (["without-webhooks", "cert-manager"], {"webhooks": {"enabled": False, "certManager": True}}),
    (
        ["cert-manager", "ha", "network-policy", "prometheus"],
        {
            "webhooks": {"certManager": True},
            "replicas": 2,
            "networkPolicy": {"enabled": True},
            **SERVICE_MONITOR,
        },
    ),
]


@pytest.mark.parametrize(
    ("components", "values"),
    VARIANTS,
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_helm_and_kustomize_render_the_same(
    helm: Helm,
    project: Path,
    binaries: dict[str, Path],
    components: list[str],
    values: Json,
) -> None:
    rendered = render_like_kustomize(helm, project / "dist/chart", "greeter-system", values)
    expected = render_with_kustomize(project, binaries, *components)
    assert rendered.keys() == expected.keys()
    for key, document in expected.items():
        assert rendered[key] == document, key


WEBHOOKS_ENABLED: Json = {"webhooks": {"enabled": True}}
OPTIONAL_WEBHOOK_VARIANTS: list[tuple[list[str], Json]] = [
    ([], {}),
    ([], {"webhooks": {"certManager": True}}),
    (["network-policy"], {"networkPolicy": {"enabled": True}}),
    (["webhooks"], WEBHOOKS_ENABLED),
    (["namespaced", "webhooks"], WEBHOOKS_ENABLED | {"namespaced": True}),
    (["network-policy", "webhooks"], WEBHOOKS_ENABLED | {"networkPolicy": {"enabled": True}}),
    (["webhooks", "cert-manager"], {"webhooks": {"enabled": True, "certManager": True}}),
    (
        ["ha", "network-policy", "prometheus", "webhooks", "cert-manager"],
        {
            "webhooks": {"enabled": True, "certManager": True},
            "replicas": 2,
            "networkPolicy": {"enabled": True},
            **SERVICE_MONITOR,
        },
    ),
]


@pytest.mark.parametrize(
    ("components", "values"),
    OPTIONAL_WEBHOOK_VARIANTS,
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_helm_and_kustomize_render_the_same_with_optional_webhooks(
    helm: Helm,
    optional_webhook_project: Path,
    binaries: dict[str, Path],
    components: list[str],
    values: Json,
) -> None:
    assert main(["helm", "--project", str(optional_webhook_project)]) == 0
    chart = optional_webhook_project / "dist/chart"
    rendered = render_like_kustomize(helm, chart, "greeter-system", values)
    expected = render_with_kustomize(optional_webhook_project, binaries, *components)
    assert rendered.keys() == expected.keys()
    for key, document in expected.items():
        assert rendered[key] == document, key


def test_components_of_pyproject_are_the_default_values(
    helm: Helm, greeter: Path, binaries: dict[str, Path]
) -> None:
    pyproject = greeter / "pyproject.toml"
    components = (
        '["ha", "namespaced", "network-policy", "prometheus", "cert-manager", "without-webhooks"]'
    )
    pyproject.write_text(
        pyproject.read_text().replace("components = []", f"components = {components}")
    )
    assert main(["manifests", "--project", str(greeter)]) == 0
    assert main(["helm", "--project", str(greeter)]) == 0
    rendered = render_like_kustomize(helm, greeter / "dist/chart", "greeter-system", {})
    assert rendered == render_kustomization(greeter, greeter / "config/default", binaries)


def test_chart_of_this_repository_renders_the_same_as_kustomize(
    helm: Helm, binaries: dict[str, Path], tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    assert main(["helm", "--project", str(ROOT), "--output", str(chart)]) == 0
    rendered = render_like_kustomize(helm, chart, "vsphere-operators-system", {})
    assert rendered == render_kustomization(ROOT, ROOT / "config/default", binaries)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    editors: tuple[list[str], Json] = (["aggregate-editors"], {"rbac": {"aggregateEditors": True}})
    for components, values in (*OPTIONAL_WEBHOOK_VARIANTS, editors):
        rendered = render_like_kustomize(helm, chart, "vsphere-operators-system", values)
        assert rendered == render_with_kustomize(tmp_path, binaries, *components), components


def test_chart_has_the_oldest_supported_version_of_kubernetes(project: Path) -> None:
    chart = yaml.safe_load((project / "dist/chart/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST_KUBERNETES}.0-0"


def test_crds_are_kept_on_uninstall(helm: Helm, project: Path, tmp_path: Path) -> None:
    objects = helm.template(project / "dist/chart", "greeter-system", IMAGE)
    crds = [crd for (kind, _, _), crd in objects.items() if kind == "CustomResourceDefinition"]
    assert len(crds) == 4
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_api_server_accepts_the_rendered_chart(
    helm: Helm, project: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    objects = helm.template(project / "dist/chart", "greeter-system", COMMON_VALUES)
    control_plane.kubectl(
        "apply", "-f", "-", stdin=yaml.safe_dump(objects.pop(("Namespace", "", "greeter-system")))
    )
    output = control_plane.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(objects.values())
    )
    assert len(output.splitlines()) == len(objects)


def test_stale_template_is_removed(project: Path, tmp_path: Path) -> None:
    templates = project / "dist/chart/templates"
    (templates / "old.yaml").write_text((templates / "manager.yaml").read_text())
    (templates / "custom.yaml").write_text("# by hand\n")
    assert main(["helm", "--project", str(project)]) == 0
    assert not (templates / "old.yaml").exists()
    assert (templates / "custom.yaml").read_text() == "# by hand\n"
    (templates / "custom.yaml").unlink()


def test_dashboards_are_files_of_the_chart(project: Path, tmp_path: Path, helm: Helm) -> None:
    copy = tmp_path / "project"
    shutil.copytree(project, copy)
    config = (copy / "pyproject.toml").read_text()
    entry = '[tool.kubewright]\nchart_dashboards = "boards"\n'
    (copy / "pyproject.toml").write_text(config.replace("[tool.kubewright]\n", entry))
    assert main(["helm", "--project", str(copy)]) == 1
    dashboard = '{"legendFormat": "{{host}}"}\n'
    (copy / "boards").mkdir()
    for name in ("a", "b"):
        (copy / f"boards/{name}.json").write_text(dashboard)
        assert main(["helm", "--project", str(copy)]) == 0
    chart = copy / "dist/chart"
    objects = helm.template(chart, "n", IMAGE | {"dashboards": {"enabled": True}})
    texts = [value["data"] for key, value in objects.items() if "dashboard" in str(key)]
    assert texts == [{"a.json": dashboard}, {"b.json": dashboard}]
    (copy / "boards/a.json").unlink()
    assert main(["helm", "--project", str(copy)]) == 0
    assert [path.name for path in (chart / "dashboards").iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    ("python", "helm"),
    [
        ("0.1.0", "0.1.0"),
        ("1.2", "1.2.0"),
        ("1.2rc1", "1.2.0-rc1"),
        ("2.0.1.dev3+g12", "2.0.1-dev3.g12"),
        ("1.0.0+g12", "1.0.0-g12"),
    ],
)
def test_python_version_becomes_a_semantic_version(python: str, helm: str) -> None:
    assert to_semantic_version(python) == helm


def test_braces_in_a_description_are_escaped() -> None:
    assert fill_placeholders("description: as {{ x }}\n") == "description: as {{ `{{` }} x }}\n"
