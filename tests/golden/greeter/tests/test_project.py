"""What must hold of the project itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubewright import command
from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

from greeter.main import Settings, build

ROOT = Path(__file__).parents[1]
SAMPLES = [path for path in sorted((ROOT / "config/samples").glob("*.yaml")) if path.name != "kustomization.yaml"]


def test_generated_files_are_current() -> None:
    assert main(["manifests", "--check", "--allow-breaking", "--project", str(ROOT)]) == 0


def test_the_manager_tells_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(Settings, build, name="greeter", argv=["-help"]) == 0
    assert "-leader-elect" in capsys.readouterr().out


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_admitted(installed: ControlPlane, namespace: str, sample: Path) -> None:
    installed.kubectl("-n", namespace, "apply", "--dry-run=server", "--validate=strict", "-f", str(sample))


def test_all_that_is_deployed_is_admitted(installed: ControlPlane) -> None:
    applied = installed.kubectl("apply", "--dry-run=server", "-k", str(ROOT / "config/default"))
    assert "deployment.apps/greeter-controller-manager" in applied
