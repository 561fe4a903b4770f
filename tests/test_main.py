"""The output of the `manager` command before anything runs."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest

from kubewright.metrics import Metrics
from vsphere_operators.main import main
from vsphere_operators.version import VERSIONS, register_build_info


def test_help_names_the_doctor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "-help"])
    assert main() == 0
    assert "run `manager doctor`" in capsys.readouterr().out


def test_unknown_command_is_rejected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", "docter"])
    assert main() == 2
    assert 'unknown command "docter"' in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["version", "-version", "--version"])
def test_version_is_that_of_pyproject(
    argument: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["manager", argument])
    assert main() == 0
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    version = project["project"]["version"]
    output = capsys.readouterr().out
    assert output.startswith(f"vsphere-operators {version} (kubewright ")
    assert output.endswith(f", Python {platform.python_version()})\n")


def test_build_info_has_the_versions_as_labels() -> None:
    metrics = Metrics()
    register_build_info(metrics)
    text = metrics.exposition()[0].decode()
    assert (
        f'vsphere_operators_build_info{{kubewright_version="{VERSIONS.kubewright}",'
        f'python_version="{VERSIONS.python}",version="{VERSIONS.version}"}} 1.0'
    ) in text
