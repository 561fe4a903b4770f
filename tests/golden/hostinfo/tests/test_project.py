"""Tests of the project itself: generated files, flags, samples and the deployment."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubewright import command
from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

from hostinfo.main import Settings, build

ROOT = Path(__file__).parents[1]
SAMPLES = sorted((ROOT / "config/samples").glob("*.yaml"))


def test_generated_files_are_up_to_date() -> None:
    assert main(["manifests", "--check", "--allow-breaking", "--project", str(ROOT)]) == 0


def test_help_lists_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(Settings, build, name="hostinfo", argv=["-help"]) == 0
    assert "-leader-elect" in capsys.readouterr().out


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_valid(installed: ControlPlane, namespace: str, sample: Path) -> None:
    options = ("--dry-run=server", "--validate=strict")
    installed.kubectl("-n", namespace, "apply", *options, "-f", str(sample))


def test_deployment_is_valid(installed: ControlPlane) -> None:
    output = installed.kubectl("apply", "--dry-run=server", "-k", str(ROOT / "config/default"))
    assert "deployment.apps/hostinfo-controller-manager" in output
