"""`kubewright deploy` on a real API server: after other ways to apply, and with overlays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

NAMESPACE, DEPLOYMENT = "greeter-system", "greeter-controller-manager"
HA = "config/overlays/ha"
GOLDEN = Path(__file__).parents[4] / "tests/golden/greeter"
# May deploy, but not list Deployments.
DEPLOYER_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: limited-deploy}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [get, create, patch, update, escalate, bind]}
"""
PROXY = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: a-proxy, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: proxy}}
  template:
    metadata: {labels: {app: proxy}}
    spec: {containers: [{name: proxy, image: example.com/proxy}]}
"""


@dataclass(frozen=True)
class Deployer:
    root: Path
    plane: ControlPlane

    def deploy(self, *arguments: str, image: str = "example.com/greeter:v1") -> int:
        kubectl = str(self.plane.binaries["kubectl"])
        command = ["deploy", "--project", str(self.root), "--kubectl", kubectl]
        return main([*command, *(["--image", image] if image else []), *arguments])

    def read_record(self) -> dict[str, str]:
        where = ("-n", NAMESPACE, f"{DEPLOYMENT}-deployed", "-o", "json")
        return dict(json.loads(self.plane.kubectl("get", "configmap", *where))["data"])

    def get(self, kind: str = "deployment") -> dict[str, Any]:
        where = ("-n", NAMESPACE, "-o", "json", "--show-managed-fields")
        return dict(json.loads(self.plane.kubectl("get", kind, DEPLOYMENT, *where)))

    def field_managers(self) -> set[tuple[str, str]]:
        return {
            (entry["manager"], entry["operation"])
            for entry in self.get()["metadata"]["managedFields"]
        }

    def render(self, overlay: str = "config/default") -> list[dict[str, Any]]:
        text = self.plane.kubectl("kustomize", str(self.root / overlay))
        return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The session's, without the objects of this module at the end."""
    yield control_plane
    control_plane.remove_namespace(NAMESPACE)
    # A CRD of a kind that was never listed may take 5 minutes to go.
    control_plane.wait_for_crds()
    control_plane.kubectl("delete", "--ignore-not-found", "-k", str(GOLDEN / "config/default"))


@pytest.fixture
def deployer(
    plane: ControlPlane, greeter: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployer]:
    monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
    overlay = greeter / HA
    overlay.mkdir(parents=True)
    (overlay / "kustomization.yaml").write_text(
        "resources: [../../default]\ncomponents: [../../components/ha]\n"
    )
    yield Deployer(greeter, plane)
    remove = ("delete", "--ignore-not-found", "-n", NAMESPACE)
    record = f"configmap/{DEPLOYMENT}-deployed"
    plane.kubectl(*remove, f"deployment/{DEPLOYMENT}", f"pdb/{DEPLOYMENT}", record)


def test_deploys_over_what_was_applied_client_side(deployer: Deployer) -> None:
    """As `make deploy` of earlier versions did: with kubectl apply, and no apiVersion."""
    documents = deployer.render()
    (deployment,) = (item for item in documents if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        del variable["valueFrom"]["fieldRef"]["apiVersion"]
    container["args"].append("-removed-since")
    container["resources"]["limits"]["memory"] = "200Mi"
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    deployer.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert ("kubectl-client-side-apply", "Update") in deployer.field_managers()

    assert deployer.deploy(image="example.com/greeter:v2") == 0
    # kubectl keeps its annotation as a manager of its own, for those that go back.
    assert deployer.field_managers() == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    (container,) = deployer.get()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/greeter:v2"
    assert "-removed-since" not in container["args"]
    assert container["resources"]["limits"]["memory"] != "200Mi"
    # A field that this version no longer sets has its default again.
    assert container["terminationMessagePolicy"] == "File"


def test_budget_that_was_applied_client_side_has_to_be_deleted(
    deployer: Deployer, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in docs/howto/upgrade.md: server-side apply keeps the minAvailable of another manager."""
    documents = deployer.render(HA)
    (budget,) = (item for item in documents if item["kind"] == "PodDisruptionBudget")
    del budget["spec"]["maxUnavailable"]
    budget["spec"]["minAvailable"] = 1
    deployer.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert deployer.deploy("--overlay", HA) == 1
    assert "minAvailable and maxUnavailable cannot be both set" in capfd.readouterr().err
    deployer.plane.kubectl("-n", NAMESPACE, "delete", "pdb", DEPLOYMENT)
    assert deployer.deploy("--overlay", HA) == 0


def test_pages_and_commands_do_not_conflict(deployer: Deployer) -> None:
    apply = ("apply", "--server-side", "-k")
    deployer.plane.kubectl(*apply, str(deployer.root / "config/crd"))
    assert deployer.deploy() == 0
    deployer.plane.kubectl(*apply, str(deployer.root / "config/crd"))
    deployer.plane.kubectl(*apply, str(deployer.root / "config/default"))
    assert deployer.deploy("--overlay", HA) == 0
    deployer.plane.kubectl("apply", "-k", str(deployer.root / "config/rbac"))
    assert deployer.deploy(image="example.com/greeter:v2") == 0


def test_overlay_is_deployed_again_until_another_is_named(
    deployer: Deployer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deployer.deploy("--overlay", HA) == 0
    # The same overlay, as a shell completes its name.
    assert deployer.deploy("--overlay", f"{HA}/") == 0
    assert "earlier deploy" not in capsys.readouterr().err
    assert deployer.deploy(image="example.com/greeter:v2") == 0
    assert "deploying config/overlays/ha\n" in capsys.readouterr().err
    deployment = deployer.get()
    assert deployment["spec"]["replicas"] == 2
    assert deployer.read_record()["overlay"] == HA
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/greeter:v2"

    assert deployer.deploy("--overlay", "config/default") == 0
    assert deployer.get()["spec"]["replicas"] == 1
    assert deployer.read_record()["overlay"] == "config/default"
    error = capsys.readouterr().err
    assert "config/default does not have these objects of an earlier deploy." in error
    command = f"kubectl delete PodDisruptionBudget.policy {DEPLOYMENT} -n {NAMESPACE}"
    assert error.rstrip().endswith(command)
    # Until then it blocks no drain, also with one replica.
    assert deployer.get("pdb")["spec"]["maxUnavailable"] == 1
    deployer.plane.kubectl(*command.split()[1:])
    assert deployer.deploy() == 0
    assert deployer.get()["spec"]["replicas"] == 1


def test_unknown_overlay_and_unexplained_replicas_are_refused(
    deployer: Deployer, capsys: pytest.CaptureFixture[str]
) -> None:
    # As an earlier version did, which kept no record.
    deployer.plane.kubectl("apply", "--server-side", "-k", str(deployer.root / HA))
    assert deployer.deploy() == 1
    error = capsys.readouterr().err
    assert "the Deployment in the cluster has 2 replicas, and config/default has 1" in error
    assert deployer.deploy("--overlay", HA) == 0
    (deployer.root / HA / "kustomization.yaml").unlink()
    assert deployer.deploy() == 1
    error = capsys.readouterr().err
    assert f"the overlay {HA} is not in {deployer.root}" in error
    assert "make deploy OVERLAY=config/default" in error
    assert deployer.get()["spec"]["replicas"] == 2
    assert deployer.deploy("--overlay", "config/default") == 0
    assert deployer.get()["spec"]["replicas"] == 1


def test_record_that_cannot_be_rendered_names_the_way_on(
    deployer: Deployer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deployer.deploy("--overlay", HA) == 0
    (deployer.root / HA / "kustomization.yaml").write_text("resources: [missing.yaml]\n")
    assert deployer.deploy() == 1
    error = capsys.readouterr().err
    assert "missing.yaml" in error
    assert f"(the overlay {HA}) was deployed with this overlay. Fix it, or name another" in error
    assert error.rstrip().endswith("make deploy OVERLAY=config/default")
    assert "deploying" not in error


def test_manager_is_found_among_other_deployments(deployer: Deployer) -> None:
    """Kustomize keeps the order of the resources, so the first Deployment may be another one."""
    folder = deployer.root / "config/overlays/proxied"
    folder.mkdir()
    proxy = PROXY.replace("NAMESPACE", NAMESPACE)
    (folder / "proxy.yaml").write_text(proxy)
    (folder / "kustomization.yaml").write_text("resources: [proxy.yaml, ../../default]\n")
    try:
        # An absolute path, as a shell completes it; the record is the path in the project.
        assert deployer.deploy("--overlay", f"{folder}/") == 0
        assert deployer.read_record()["overlay"] == "config/overlays/proxied"
    finally:
        deployer.plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=proxy)


def test_overlay_outside_of_the_project_is_refused(
    deployer: Deployer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for overlay in (str(tmp_path), "../other", "."):
        assert deployer.deploy("--overlay", overlay) == 1
        error = capsys.readouterr().err
        assert f"the overlay {overlay} is not in the project {deployer.root}" in error


def test_change_of_another_program_is_a_conflict(
    deployer: Deployer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert deployer.deploy() == 0
    deployer.plane.kubectl(
        "-n", NAMESPACE, "set", "image", f"deployment/{DEPLOYMENT}", "manager=example.com/other"
    )
    assert deployer.deploy() != 0
    error = capfd.readouterr().err
    assert "The objects without an error were applied." in error
    command = "make deploy OVERLAY=config/default IMG=example.com/greeter:v1 ARGS=--force-conflicts"
    assert error.rstrip().endswith(
        f"To overwrite the fields that another program has set, run: {command}"
    )
    assert deployer.deploy("--force-conflicts") == 0
    (container,) = deployer.get()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/greeter:v1"


def test_without_an_image_the_image_of_the_deployment_is_kept(
    deployer: Deployer, capfd: pytest.CaptureFixture[str]
) -> None:
    assert deployer.deploy(image="") == 1
    error = capfd.readouterr().err
    assert error == "kubewright: IMG is not set: make deploy IMG=example.com/greeter:v1\n"
    assert deployer.deploy(image="example.com/greeter:v7") == 0
    assert deployer.deploy(image="") == 0
    (container,) = deployer.get()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/greeter:v7"
    assert deployer.deploy(image="controller:latest") == 0


@pytest.mark.parametrize("name", ["kustomization.yml", "Kustomization"])
def test_deployment_without_a_namespace(deployer: Deployer, name: str) -> None:
    """It is created in the namespace of the kubeconfig."""
    folder = deployer.root / "config/overlays/bare"
    folder.mkdir()
    (folder / name).write_text(
        """
resources: [../../default]
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: remove, path: /metadata/namespace}
"""
    )
    try:
        assert deployer.deploy("--overlay", "config/overlays/bare") == 0
        record = deployer.plane.kubectl("get", "configmap", f"{DEPLOYMENT}-deployed", "-o", "yaml")
        assert f"Deployment.apps default/{DEPLOYMENT}\n" in record
    finally:
        names = (f"deployment/{DEPLOYMENT}", f"configmap/{DEPLOYMENT}-deployed")
        deployer.plane.kubectl("delete", "--ignore-not-found", *names)


def test_permission_to_list_deployments_is_optional(
    deployer: Deployer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plane, grant = deployer.plane, ("clusterrolebinding", "limited-deploy")
    plane.kubectl("apply", "-f", "-", stdin=DEPLOYER_ROLE)
    plane.kubectl("create", *grant, "--clusterrole=limited-deploy", "--user=limited")
    monkeypatch.setenv("KUBECONFIG", str(plane.write_kubeconfig(tmp_path / "limited", "limited")))
    try:
        assert deployer.deploy() == 0
    finally:
        plane.kubectl("delete", *grant)
        plane.kubectl("delete", "clusterrole", "limited-deploy")
    error = capsys.readouterr().err
    assert error.startswith("kubewright: other installations were not checked: the Deployments of ")
    assert deployer.get()["spec"]["replicas"] == 1


def test_cluster_that_does_not_respond_is_an_error(
    greeter: Path,
    binaries: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    command = ["deploy", "--project", str(greeter), "--kubectl", str(binaries["kubectl"])]
    assert main(command) == 1
    # Without the log of client-go, which has the same error five times.
    assert capsys.readouterr().err.startswith(
        "kubewright: the Deployments of all namespaces cannot be read: The connection to the "
    )
