"""The chart, rendered by Helm's own engine: it has the objects that kustomize renders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.builder.manifests.helm import _fill_placeholders, _to_semantic_version
from kubewright.builder.manifests.installer import _run_kustomize
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.go_module import build_module
from kubewright.version import OLDEST_KUBERNETES
from support.golden_projects import GOLDEN

ROOT = Path(__file__).parents[5]
Json = dict[str, Any]
Objects = dict[tuple[str, str, str], Json]
LISTS_KEYED_BY_NAME = ("volumes", "volumeMounts", "env")


@pytest.fixture(scope="module")
def helm() -> Path:
    (program,) = build_module(ROOT / "testenv/helmtemplate", ROOT / ".testenv/bin", build=False)
    return program


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path_factory.mktemp("chart") / "greeter"))
    assert main(["helm", "--project", str(root)]) == 0
    return root


def parse_objects(text: str) -> Objects:
    documents = [normalize(document) for document in yaml.safe_load_all(text) if document]
    objects = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in documents
    }
    assert len(objects) == len(documents)
    return objects


def normalize(value: Any) -> Any:
    """The value without nulls, and with lists that patches append to sorted by name.

    An empty value is null in the chart, and absent in the output of kustomize.
    """
    if isinstance(value, dict):
        return {
            key: sort_by_name(normalize(item))
            if key in LISTS_KEYED_BY_NAME and isinstance(item, list)
            else normalize(item)
            for key, item in value.items()
            if item is not None
        }
    return [normalize(item) for item in value] if isinstance(value, list) else value


def sort_by_name(items: list[Json]) -> list[Json]:
    return sorted(items, key=lambda item: str(item["name"]))


def render_chart(helm: Path, chart: Path, namespace: str, tmp_path: Path, **values: Any) -> Objects:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [str(helm), str(chart), "release", namespace, str(file)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return parse_objects(process.stdout)


def render_with_kustomize(project: Path, binaries: dict[str, Path], *components: str) -> Objects:
    overlay = project / "config/overlays/test"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = {
        "resources": ["../../default"],
        "components": [f"../../components/{name}" for name in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return parse_objects(_run_kustomize(project, overlay, str(binaries["kubectl"])))


COMMON_VALUES = {"createNamespace": True, "crds": {"keep": False}}
VARIANTS: list[tuple[list[str], Json]] = [
    ([], {}),
    (["ha"], {"replicas": 2}),
    (["namespaced"], {"namespaced": True}),
    (["network-policy"], {"networkPolicy": {"enabled": True}}),
    (["prometheus"], {"metrics": {"serviceMonitor": True}}),
    (["without-webhooks"], {"webhooks": {"enabled": False}}),
    (["cert-manager"], {"webhooks": {"certManager": True}}),
    (["without-webhooks", "cert-manager"], {"webhooks": {"enabled": False, "certManager": True}}),
    (
        ["cert-manager", "ha", "network-policy", "prometheus"],
        {
            "webhooks": {"certManager": True},
            "replicas": 2,
            "networkPolicy": {"enabled": True},
            "metrics": {"serviceMonitor": True},
        },
    ),
]


@pytest.mark.parametrize(
    ("components", "values"),
    VARIANTS,
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_helm_and_kustomize_render_the_same(
    helm: Path,
    project: Path,
    binaries: dict[str, Path],
    tmp_path: Path,
    components: list[str],
    values: Json,
) -> None:
    rendered = render_chart(
        helm, project / "dist/chart", "greeter-system", tmp_path, **COMMON_VALUES, **values
    )
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
            "metrics": {"serviceMonitor": True},
        },
    ),
]


@pytest.mark.parametrize(
    ("components", "values"),
    OPTIONAL_WEBHOOK_VARIANTS,
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_helm_and_kustomize_render_the_same_with_optional_webhooks(
    helm: Path,
    optional_webhook_project: Path,
    binaries: dict[str, Path],
    tmp_path: Path,
    components: list[str],
    values: Json,
) -> None:
    assert main(["helm", "--project", str(optional_webhook_project)]) == 0
    rendered = render_chart(
        helm,
        optional_webhook_project / "dist/chart",
        "greeter-system",
        tmp_path,
        **COMMON_VALUES,
        **values,
    )
    expected = render_with_kustomize(optional_webhook_project, binaries, *components)
    assert rendered.keys() == expected.keys()
    for key, document in expected.items():
        assert rendered[key] == document, key


def test_components_of_pyproject_are_the_default_values(
    helm: Path, greeter: Path, binaries: dict[str, Path], tmp_path: Path
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
    rendered = render_chart(
        helm, greeter / "dist/chart", "greeter-system", tmp_path, **COMMON_VALUES
    )
    assert rendered == parse_objects(
        _run_kustomize(greeter, greeter / "config/default", str(binaries["kubectl"]))
    )


def test_chart_of_this_repository_renders_the_same_as_kustomize(
    helm: Path, binaries: dict[str, Path], tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    assert main(["helm", "--project", str(ROOT), "--output", str(chart)]) == 0
    rendered = render_chart(helm, chart, "vsphere-operators-system", tmp_path, **COMMON_VALUES)
    assert rendered == parse_objects(
        _run_kustomize(ROOT, ROOT / "config/default", str(binaries["kubectl"]))
    )
    shutil.copytree(ROOT / "config", tmp_path / "config")
    editors: tuple[list[str], Json] = (["aggregate-editors"], {"rbac": {"aggregateEditors": True}})
    for components, values in (*OPTIONAL_WEBHOOK_VARIANTS, editors):
        rendered = render_chart(
            helm, chart, "vsphere-operators-system", tmp_path, **COMMON_VALUES, **values
        )
        assert rendered == render_with_kustomize(tmp_path, binaries, *components), components


def test_chart_has_the_oldest_supported_version_of_kubernetes(project: Path) -> None:
    chart = yaml.safe_load((project / "dist/chart/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST_KUBERNETES}.0-0"


def test_values_are_rendered(helm: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    assert main(["helm", "--project", str(ROOT), "--output", str(chart)]) == 0
    values = {
        "image": "example.com/x:v2",
        "flags": ["-zap-devel", "-stats-interval=30s"],
        "resources": {"limits": {"memory": "1Gi"}},
        "secrets": {"vc-creds": "other"},
        "metrics": {"enabled": False},
        "crds": {"install": False},
    }
    objects = render_chart(helm, chart, "elsewhere", tmp_path, **values)
    pod = objects["Deployment", "elsewhere", "vsphere-operators-controller-manager"]["spec"][
        "template"
    ]["spec"]
    container = pod["containers"][0]
    assert container["image"] == "example.com/x:v2"
    assert container["args"][-2:] == ["-zap-devel", "-stats-interval=30s"]
    assert "-metrics-bind-address=0" in container["args"]
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert pod["volumes"][-1]["secret"]["secretName"] == "other"
    kinds = {kind for kind, _, _ in objects}
    assert not kinds & {"CustomResourceDefinition", "Service", "Namespace"}
    assert {
        subject["namespace"]
        for document in objects.values()
        for subject in document.get("subjects", [])
    } == {"elsewhere"}


def test_crds_are_kept_on_uninstall(helm: Path, project: Path, tmp_path: Path) -> None:
    objects = render_chart(helm, project / "dist/chart", "greeter-system", tmp_path)
    crds = [crd for (kind, _, _), crd in objects.items() if kind == "CustomResourceDefinition"]
    assert len(crds) == 4
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_api_server_accepts_the_rendered_chart(
    helm: Path, project: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    objects = render_chart(
        helm, project / "dist/chart", "greeter-system", tmp_path, **COMMON_VALUES
    )
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
    assert _to_semantic_version(python) == helm


def test_braces_in_a_description_are_escaped() -> None:
    assert _fill_placeholders("description: as {{ x }}\n") == "description: as {{ `{{` }} x }}\n"
