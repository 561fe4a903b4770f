"""Optional features: a component and a value of the chart, with exactly the permissions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.builder.manifests.installer import _run_kustomize
from kubewright.builder.project import Project
from kubewright.errors import ConfigError
from kubewright.testing.go_module import build_module

ROOT = Path(__file__).parents[5]
FEATURE = 'optional_features = [{ name = "read-secrets", flag = "-read-secrets" }]'
MAIN = '''
from dataclasses import dataclass
from kubewright import Manager, command
from kubewright.builtin import ConfigMap, Secret
from kubewright.flags import flag
from .kinds.house import HouseController

@dataclass(frozen=True)
class Settings(command.ManagerFlags):
    """The flags."""
    read_secrets: bool = flag("read-secrets", False, "Read Secrets.")

def build(manager: Manager, settings: Settings) -> None:
    """Add a kind that may read Secrets."""
    controller = HouseController()
    controller.needs(ConfigMap, "get")
    if settings.read_secrets:
        controller.needs(ConfigMap, "get", "list")
        controller.needs(Secret, "get")
    manager.add(controller)
'''


@pytest.fixture
def project(greeter: Path) -> Path:
    """A project with the feature read-secrets."""
    package = f"feature_{greeter.parent.name.replace('-', '_')}"
    (greeter / "src/greeter").rename(greeter / "src" / package)
    (greeter / "src" / package / "main.py").write_text(MAIN)
    pyproject = greeter / "pyproject.toml"
    head, _, _ = pyproject.read_text().partition("[[tool.kubewright.resources]]")
    pyproject.write_text(
        head.replace('"greeter.', f'"{package}.').replace(
            "components = []", f"components = []\n{FEATURE}"
        )
    )
    return greeter


def render(project: Path, kubectl: Path, components: list[str]) -> list[Any]:
    overlay = project / "config/overlays/test"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = {
        "resources": ["../../default"],
        "components": [f"../../components/{name}" for name in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return list(yaml.safe_load_all(_run_kustomize(project, overlay, str(kubectl))))


def read_flags_and_rules(documents: list[Any]) -> tuple[list[str], list[Any]]:
    """The flags of the manager, and the rules of the role of the feature."""
    (deployment,) = (item for item in documents if item and item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    rules = [
        item["rules"]
        for item in documents
        if item and item["metadata"]["name"] == "greeter-read-secrets-role"
    ]
    return container["args"], rules


RULES = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
]


def test_component_has_the_flag_and_the_permissions_that_it_adds(
    project: Path, binaries: dict[str, Path]
) -> None:
    assert main(["manifests", "--project", str(project)]) == 0
    flags, rules = read_flags_and_rules(render(project, binaries["kubectl"], []))
    assert "-read-secrets" not in flags
    assert rules == []
    flags, rules = read_flags_and_rules(render(project, binaries["kubectl"], ["read-secrets"]))
    assert flags[-1] == "-read-secrets"
    assert rules == [RULES]


@pytest.mark.parametrize("enabled", [False, True])
def test_value_of_the_chart_has_the_same_effect(
    project: Path, tmp_path: Path, enabled: bool
) -> None:
    (helm,) = build_module(ROOT / "testenv/helmtemplate", ROOT / ".testenv/bin", build=False)
    assert main(["helm", "--project", str(project)]) == 0
    values = tmp_path / "values.yaml"
    # A flag of the user comes last, so that it can switch the feature off.
    values.write_text(
        yaml.safe_dump({"readSecrets": {"enabled": enabled}, "flags": ["-read-secrets=false"]})
    )
    chart = str(project / "dist/chart")
    process = subprocess.run(
        [str(helm), chart, "release", "greeter-system", str(values)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    flags, rules = read_flags_and_rules(list(yaml.safe_load_all(process.stdout)))
    assert ("-read-secrets" in flags, rules) == (enabled, [RULES] if enabled else [])
    assert flags[-1] == "-read-secrets=false"


def test_feature_can_be_selected_for_config_default(
    project: Path, binaries: dict[str, Path]
) -> None:
    pyproject = project / "pyproject.toml"
    text = pyproject.read_text().replace("components = []", 'components = ["read-secrets", "ha"]')
    pyproject.write_text(text)
    assert main(["manifests", "--project", str(project)]) == 0
    flags, rules = read_flags_and_rules(render(project, binaries["kubectl"], []))
    assert flags[-1] == "-read-secrets"
    assert rules == [RULES]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("ha", "another component has this name"), ("Read_Secrets", "must be lower-case letters")],
)
def test_invalid_names_are_rejected(project: Path, name: str, reason: str) -> None:
    pyproject = project / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('"read-secrets"', f'"{name}"'))
    with pytest.raises(ConfigError, match=f'optional_features: name "{name}": {reason}'):
        Project.read(project)
