"""`kubewright undeploy` on a real API server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

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


def finish_removal(plane: ControlPlane, ended: threading.Event) -> None:
    """In place of the namespace controller, for which kubectl waits."""
    while not ended.wait(0.1):
        if "Terminating" in plane.kubectl("get", "--ignore-not-found", "namespace", NAMESPACE):
            plane.remove_namespace(NAMESPACE)


def test_removes_the_overlay_that_was_deployed(
    greeter: Path,
    control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plane = control_plane
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

    ended = threading.Event()
    controller = threading.Thread(target=finish_removal, args=(plane, ended))
    controller.start()
    try:
        assert main(["undeploy", *options]) == 0
    finally:
        ended.set()
        controller.join()
    output = capfd.readouterr()
    assert output.err.startswith(f"removing {OVERLAY}\n")
    deleted = [line for line in output.out.splitlines() if " deleted" in line]
    assert deleted[0].startswith("customresourcedefinition.apiextensions.k8s.io ")
    assert 'clusterrole.rbac.authorization.k8s.io "only-in-the-overlay" deleted' in deleted
    left = plane.kubectl("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=rendered)
    assert left == ""
    # Again, with nothing left.
    assert main(["undeploy", *options]) == 0
