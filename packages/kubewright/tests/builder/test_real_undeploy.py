"""`kubewright undeploy` on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


# The greeter has no webhook for this kind, so that it can be created without a manager.
ROAD = """
apiVersion: demo.example.com/v1
kind: Street
metadata: {name: main-street, namespace: default, finalizers: [example.com/cleanup]}
spec: {}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: greeter-controller-manager
  namespace: NAMESPACE
  labels: {app.kubernetes.io/name: greeter, control-plane: controller-manager}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: manager, image: example.com/greeter}]}
"""
# May read everything, but delete only CRDs and Deployments.
LIMITED_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: limited-undeploy}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}
  - apiGroups: [apps, apiextensions.k8s.io]
    resources: [deployments, customresourcedefinitions]
    verbs: [delete]
"""


@dataclass(frozen=True)
class Undeployer:
    root: Path
    plane: ControlPlane

    def run(self, command: str, *arguments: str) -> int:
        kubectl = str(self.plane.binaries["kubectl"])
        return main([command, "--project", str(self.root), "--kubectl", kubectl, *arguments])

    def write_overlay(self) -> None:
        folder = self.root / OVERLAY
        folder.mkdir(parents=True)
        (folder / "role.yaml").write_text(ONLY_IN_OVERLAY)
        (folder / "kustomization.yaml").write_text("resources: [../../default, role.yaml]\n")

    def has(self, *objects: str) -> bool:
        return bool(self.plane.kubectl("get", "--ignore-not-found", "-o", "name", *objects))


@pytest.fixture
def undeployer(
    greeter: Path, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Undeployer]:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.admin_kubeconfig))
    rendered = control_plane.kubectl("kustomize", str(greeter / "config/default"))
    yield Undeployer(greeter, control_plane)
    with finish_removals(control_plane):
        control_plane.kubectl(
            "delete", "--ignore-not-found", "-f", "-", stdin=rendered + "\n---" + ONLY_IN_OVERLAY
        )


@contextmanager
def finish_removals(plane: ControlPlane) -> Iterator[None]:
    """In place of the namespace controller, for which kubectl waits."""
    ended = threading.Event()

    def finish() -> None:
        while not ended.wait(0.1):
            if "Terminating" in plane.kubectl("get", "--ignore-not-found", "namespace", NAMESPACE):
                plane.remove_namespace(NAMESPACE)

    controller = threading.Thread(target=finish)
    controller.start()
    try:
        yield
    finally:
        ended.set()
        controller.join()


def test_removes_the_overlay_that_was_deployed(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    undeployer.write_overlay()
    folder = undeployer.root / OVERLAY
    assert undeployer.run("deploy", "--overlay", f"{OVERLAY}/") == 0
    rendered = plane.kubectl("kustomize", str(folder))
    capfd.readouterr()

    (folder / "kustomization.yaml").rename(folder / "moved.yaml")
    assert undeployer.run("undeploy") == 1
    assert "make undeploy OVERLAY=config/default" in capfd.readouterr().err
    assert NAMESPACE in plane.kubectl("get", "namespaces")
    (folder / "moved.yaml").rename(folder / "kustomization.yaml")

    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    output = capfd.readouterr()
    assert output.err.startswith(f"removing {OVERLAY}\n")
    deleted = [line for line in output.out.splitlines() if " deleted" in line]
    assert deleted[0].startswith("customresourcedefinition.apiextensions.k8s.io ")
    assert 'clusterrole.rbac.authorization.k8s.io "only-in-the-overlay" deleted' in deleted
    left = plane.kubectl("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=rendered)
    assert left == ""
    # Again, with nothing left.
    assert undeployer.run("undeploy") == 0


def test_reports_what_only_the_deployed_overlay_has(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    with finish_removals(undeployer.plane):
        assert undeployer.run("undeploy", "--overlay", "config/default") == 0
    error = capfd.readouterr().err
    assert f"To remove the objects that only {OVERLAY} has, run:" in error
    assert error.rstrip().endswith("kubectl delete ClusterRole only-in-the-overlay")


@pytest.mark.parametrize("release", ["mine", ""])
def test_stops_at_another_installation(
    undeployer: Undeployer, release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The CRDs and cluster roles are those of both."""
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    plane.create_namespace("other")
    try:
        plane.kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("NAMESPACE", "other"))
        if release:
            annotation = f"meta.helm.sh/release-name={release}"
            deployment = "deployment/greeter-controller-manager"
            plane.kubectl("-n", "other", "annotate", deployment, annotation)
        assert undeployer.run("undeploy") == 1
    finally:
        plane.remove_namespace("other")
    error = capfd.readouterr().err
    assert "Deployment other/greeter-controller-manager was installed by " in error
    assert ("helm uninstall mine -n other" if release else "make undeploy OVERLAY=") in error
    assert f"kubectl delete namespace {NAMESPACE}" in error
    assert undeployer.has("crd", "greetings.demo.example.com")
    assert undeployer.has("clusterrole", "greeter-manager-role")


def test_stops_if_finalizers_would_wait_for_a_manager(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    plane.kubectl("apply", "--server-side", "-k", str(undeployer.root / "config/crd"))
    plane.wait_for_crds("roads.demo.example.com")
    plane.kubectl("apply", "-f", "-", stdin=ROAD)
    try:
        assert undeployer.run("undeploy") == 1
        error = capfd.readouterr().err
        assert "finalizers of Street default/main-street" in error
        assert "To run one, use: make deploy" in error
        crd = plane.kubectl("get", "crd", "roads.demo.example.com", "-o", "yaml")
        assert "deletionTimestamp" not in crd
    finally:
        patch = '{"metadata":{"finalizers":null}}'
        plane.kubectl("patch", "road", "main-street", "--type=merge", "-p", patch)
    # Without a finalizer, nothing has to wait.
    assert undeployer.run("undeploy") == 0
    assert not undeployer.has("crd", "roads.demo.example.com")


def test_keeps_a_namespace_with_objects_of_other_programs(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    where = ("-n", NAMESPACE)
    # Named in a role of the manager, which creates it.
    plane.kubectl(*where, "create", "secret", "generic", "greeter-webhook-ca")
    plane.kubectl(*where, "create", "secret", "generic", "database")
    assert undeployer.run("undeploy") == 0
    error = capfd.readouterr().err
    assert f"kept the namespace {NAMESPACE} " in error
    assert f"also contains Secret {NAMESPACE}/database. " in error
    assert undeployer.has(*where, "secret", "database")
    assert not undeployer.has(*where, "deployment")

    plane.kubectl(*where, "delete", "secret", "database")
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("namespace", NAMESPACE)


def test_names_the_overlay_for_the_next_try_if_objects_are_left(
    undeployer: Undeployer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With the Deployment, the record of the overlay is gone."""
    plane = undeployer.plane
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    plane.kubectl("apply", "-f", "-", stdin=LIMITED_ROLE)
    grant = ("clusterrolebinding", "limited-undeploy")
    plane.kubectl("create", *grant, "--clusterrole=limited-undeploy", "--user=limited")
    limited = plane.write_kubeconfig(tmp_path / "limited", "limited")
    try:
        monkeypatch.setenv("KUBECONFIG", str(limited))
        assert undeployer.run("undeploy") == 1
    finally:
        monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
        plane.kubectl("delete", *grant)
        plane.kubectl("delete", "clusterrole", "limited-undeploy")
    error = capfd.readouterr().err
    assert "forbidden" in error
    assert error.rstrip().endswith(f"run: make undeploy OVERLAY={OVERLAY}")
    assert not undeployer.has("-n", NAMESPACE, "deployment")
    assert undeployer.has("clusterrole", "only-in-the-overlay")


def test_without_kinds_there_are_no_crds_to_delete(
    project: Path, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.admin_kubeconfig))
    undeployer = Undeployer(project, control_plane)
    assert undeployer.run("deploy") == 0
    with finish_removals(control_plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("namespace", NAMESPACE)
