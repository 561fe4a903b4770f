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
NAMESPACE, MANAGER = "greeter-system", "greeter-controller-manager"
GOLDEN = Path(__file__).parents[4] / "tests/golden/greeter"
# Cluster-scoped: the removal of the namespace leaves it.
ONLY_IN_OVERLAY = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-in-the-overlay}
rules: []
"""
# The greeter has no webhook for this kind, so that it can be created without a manager.
STREET = """
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
# May read everything, but delete only Deployments.
LIMITED_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: limited-undeploy}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}
  - {apiGroups: [apps], resources: [deployments], verbs: [delete]}
"""
# One object of the manager, one of an operator that is not listed.
OWNED = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: of-the-manager
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: OWNER, uid: UID}]
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: of-a-database
  ownerReferences: [{apiVersion: example.com/v1, kind: Database, name: db, uid: "1"}]
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


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The session's, at the end without what may affect other tests.

    Not without all objects: kubectl deletes five in a second.
    """
    yield control_plane
    for folder in ("config/crd", "config/webhook"):
        control_plane.kubectl("delete", "--ignore-not-found", "-k", str(GOLDEN / folder))


@pytest.fixture
def undeployer(
    greeter: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Undeployer]:
    monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
    yield Undeployer(greeter, plane)
    # The other objects stay for the next test: kubectl deletes five in a second.
    if plane.kubectl("get", "--ignore-not-found", "namespace", NAMESPACE):
        plane.remove_namespace(NAMESPACE)
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=ONLY_IN_OVERLAY)


@contextmanager
def finish_removals(plane: ControlPlane) -> Iterator[None]:
    """In place of the namespace controller, for which kubectl waits."""
    ended = threading.Event()

    def finish() -> None:
        with plane.apiserver.admin_client() as client:
            while not ended.wait(0.1):
                for item in client.call("GET", "/api/v1/namespaces")["items"]:
                    if (item["metadata"]["name"], item["status"]["phase"]) == (
                        NAMESPACE,
                        "Terminating",
                    ):
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


@pytest.mark.parametrize("release", ["mine", ""])
def test_stops_at_another_installation(
    undeployer: Undeployer, release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The CRDs and cluster roles are those of both."""
    plane = undeployer.plane
    removal = "helm uninstall mine -n other" if release else "make undeploy OVERLAY="
    plane.create_namespace("other")
    try:
        plane.kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("NAMESPACE", "other"))
        if release:
            annotation = f"meta.helm.sh/release-name={release}"
            plane.kubectl("-n", "other", "annotate", f"deployment/{MANAGER}", annotation)
        assert undeployer.run("deploy") == 1
        error = capfd.readouterr().err
        assert f"Deployment other/{MANAGER}, which " in error
        assert f"Nothing was deployed. To remove that installation, run: {removal}" in error
        assert not undeployer.has("-n", NAMESPACE, "deployment")

        assert undeployer.run("deploy", "--allow-others") == 0
        # An update of what is installed needs no flag.
        assert undeployer.run("deploy") == 0
        capfd.readouterr()
        assert undeployer.run("undeploy") == 1
    finally:
        plane.remove_namespace("other")
    error = capfd.readouterr().err
    assert f"Nothing was deleted. To remove that installation, run: {removal}" in error
    assert f"kubectl delete namespace {NAMESPACE}" in error
    assert undeployer.has("crd", "greetings.demo.example.com")
    assert undeployer.has("clusterrole", "greeter-manager-role")


def test_deploy_stops_at_a_release_in_its_namespace(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    plane.create_namespace(NAMESPACE)
    plane.kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("NAMESPACE", NAMESPACE))
    annotation = "meta.helm.sh/release-name=mine"
    plane.kubectl("-n", NAMESPACE, "annotate", f"deployment/{MANAGER}", annotation)
    assert undeployer.run("deploy") == 1
    # Not both: the Deployment has the same name.
    assert capfd.readouterr().err.rstrip().endswith(f"run: helm uninstall mine -n {NAMESPACE}")


def test_stops_if_finalizers_would_wait_for_a_manager(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    plane.kubectl("apply", "--server-side", "-k", str(undeployer.root / "config/crd"))
    plane.wait_for_crds("roads.demo.example.com")
    plane.kubectl("apply", "-f", "-", stdin=STREET)
    try:
        assert undeployer.run("undeploy") == 1
    finally:
        patch = '{"metadata":{"finalizers":null}}'
        street = ("roads.demo.example.com", "main-street")
        plane.kubectl("patch", *street, "--type=merge", "-p", patch)
        plane.kubectl("delete", *street)
    error = capfd.readouterr().err
    assert "finalizers of Street default/main-street" in error
    assert "To run one, use: make deploy" in error
    crd = plane.kubectl("get", "crd", "roads.demo.example.com", "-o", "yaml")
    assert "deletionTimestamp" not in crd


def test_keeps_and_reports_what_is_not_of_the_overlay(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, where = undeployer.plane, ("-n", NAMESPACE)
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    # Named in a role of the manager, which creates it.
    plane.kubectl(*where, "create", "secret", "generic", "greeter-webhook-ca")
    plane.kubectl(*where, "create", "secret", "generic", "database")
    # The manifests have a container of this name, but no Deployment.
    plane.kubectl(*where, "create", "deployment", "manager", "--image=example.com/other")
    uid = plane.kubectl(*where, "get", "deployment", MANAGER, "-o", "jsonpath={.metadata.uid}")
    owned = OWNED.replace("UID", uid).replace("OWNER", MANAGER)
    plane.kubectl(*where, "apply", "-f", "-", stdin=owned)
    capfd.readouterr()

    assert undeployer.run("undeploy", "--overlay", "config/default") == 0
    error = capfd.readouterr().err
    command = "kubectl delete ClusterRole only-in-the-overlay"
    assert f"To remove the objects that only {OVERLAY} has, run:\n  {command}\n" in error
    assert f"kept the namespace {NAMESPACE} " in error
    _, _, foreign = error.partition("it also contains ")
    foreign, _, _ = foreign.partition(". To delete it")
    assert set(foreign.split(", ")) == {
        f"Deployment {NAMESPACE}/manager",
        f"ConfigMap {NAMESPACE}/of-a-database",
        f"Secret {NAMESPACE}/database",
    }
    assert undeployer.has(*where, "secret", "database")
    assert not undeployer.has(*where, "deployment", MANAGER)


def test_names_the_overlay_for_the_next_try_if_objects_are_left(
    project: Path,
    plane: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With the Deployment, the record of the overlay is gone. Without kinds, there are no CRDs."""
    monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
    undeployer = Undeployer(project, plane)
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
    with finish_removals(plane):
        assert undeployer.run("undeploy", "--overlay", OVERLAY) == 0
    assert not undeployer.has("clusterrole", "only-in-the-overlay")
    assert not undeployer.has("namespace", NAMESPACE)
    # Again, with nothing left.
    assert undeployer.run("undeploy") == 0
