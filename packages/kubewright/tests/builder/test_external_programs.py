"""Programs that the builder runs: one that hangs is stopped. Make reports a missing cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kubewright.builder import git
from kubewright.builder.cli import main
from kubewright.builder.manifests import installer


def write_hanging_program(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    return program


def test_hanging_kustomize_is_stopped(
    tmp_path: Path,
    greeter: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(installer, "_KUSTOMIZE_TIMEOUT_SECONDS", 0.2)
    kubectl = write_hanging_program(tmp_path, "kubectl")
    assert main(["build-installer", "--project", str(greeter), "--kubectl", str(kubectl)]) == 1
    error = capsys.readouterr().err
    assert f"`{kubectl} kustomize {greeter / 'config/default'}` did not end within 0.2 s" in error
    assert "Run it by hand to find out" in error


def test_hanging_git_is_stopped(
    tmp_path: Path,
    greeter: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(git, "_GIT_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setenv("PATH", str(write_hanging_program(tmp_path, "git").parent), prepend=":")
    assert main(["manifests", "--project", str(greeter), "--check"]) == 1
    error = capsys.readouterr().err
    assert f"`git -C {greeter} rev-parse" in error
    assert "did not end within 0.2 s" in error
    assert "Run it by hand to find out" in error


def run_make(project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run make in a shell without a cluster; testenv and manifests count as up to date."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KUBERNETES_SERVICE_HOST", "MAKEFLAGS", "MAKELEVEL")
    }
    command = ["make", "--no-print-directory", "-o", "testenv", "-o", "manifests", *arguments]
    return subprocess.run(
        command, cwd=project, env={**clean, **environ}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("target", ["install", "uninstall", "deploy", "undeploy"])
def test_make_reports_that_no_cluster_is_configured(
    tmp_path: Path, greeter: Path, target: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        '#!/bin/sh\ntest -e "$KUBECONFIG" || { echo current-context is not set >&2; exit 1; }\n'
    )
    kubectl.chmod(0o755)
    process = run_make(greeter, target, f"KUBECTL={kubectl}", KUBECONFIG=str(tmp_path / "none"))
    assert process.returncode
    assert process.stdout == ""
    assert (
        process.stderr.splitlines()[0]
        == "No Kubernetes cluster is configured: set KUBECONFIG to your kubeconfig file"
    )
    (tmp_path / "config").touch()
    assert (
        run_make(
            greeter, "cluster", f"KUBECTL={kubectl}", KUBECONFIG=str(tmp_path / "config")
        ).returncode
        == 0
    )
    assert (
        run_make(
            greeter,
            "cluster",
            f"KUBECTL={kubectl}",
            KUBECONFIG="",
            KUBERNETES_SERVICE_HOST="10.0.0.1",
        ).returncode
        == 0
    )
