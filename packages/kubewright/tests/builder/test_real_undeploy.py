"""`kubewright undeploy` on a real API server with controllers, which remove the namespace."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

OVERLAY = "config/overlays/production"
NAMESPACE = "greeter-system"
# Cluster-scoped: the removal of the namespace leaves it.
ONLY_IN_OVERLAY = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-in-the-overlay}
rules: []
"""


def test_removes_the_overlay_that_was_deployed(
    greeter: Path,
    control_plane_with_controllers: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plane = control_plane_with_controllers
    monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
    folder = greeter / OVERLAY
    folder.mkdir(parents=True)
    (folder / "role.yaml").write_text(ONLY_IN_OVERLAY)
    (folder / "kustomization.yaml").write_text("resources: [../../default, role.yaml]\n")
    options = ["--project", str(greeter), "--kubectl", str(plane.binaries["kubectl"])]
    assert main(["deploy", *options, "--overlay", OVERLAY]) == 0
    rendered = plane.kubectl("kustomize", str(folder))
    capfd.readouterr()

    (folder / "kustomization.yaml").rename(folder / "moved.yaml")
    assert main(["undeploy", *options]) == 1
    assert "make undeploy OVERLAY=config/default" in capfd.readouterr().err
    assert NAMESPACE in plane.kubectl("get", "namespaces")
    (folder / "moved.yaml").rename(folder / "kustomization.yaml")

    assert main(["undeploy", *options]) == 0
    output = capfd.readouterr()
    assert output.err.startswith(f"removing {OVERLAY}\n")
    deleted = [line for line in output.out.splitlines() if " deleted" in line]
    assert deleted[0].startswith("customresourcedefinition.apiextensions.k8s.io ")
    assert len(deleted) == len([item for item in yaml.safe_load_all(rendered) if item])
    left = plane.kubectl("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=rendered)
    assert left == ""
    # Again, with nothing left.
    assert main(["undeploy", *options]) == 0
