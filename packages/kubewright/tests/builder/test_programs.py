"""Programs that commands start and that do not end: they are stopped, and it is said what hung and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.builder import baseline, installer
from kubewright.builder.main import main


def hanging(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    return program


def test_a_kustomize_that_hangs(tmp_path: Path, greeter: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(installer, "WITHIN_SECONDS", 0.2)
    kubectl = hanging(tmp_path, "kubectl")
    assert main(["build-installer", "--project", str(greeter), "--kubectl", str(kubectl)]) == 1
    said = capsys.readouterr().err
    assert f"`{kubectl} kustomize {greeter / 'config/default'}` had not ended after 0.2 s" in said
    assert "Run it by hand to see" in said


def test_a_git_that_hangs(tmp_path: Path, greeter: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(baseline, "WITHIN_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(hanging(tmp_path, "git").parent), prepend=":")
    assert main(["manifests", "--project", str(greeter), "--check"]) == 1
    said = capsys.readouterr().err
    assert f"`git -C {greeter} rev-parse" in said
    assert "had not ended after 0.2 s" in said
    assert "Run it by hand to see" in said
