"""The record of `kubewright deploy` on a real API server, and the checks that protect objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from .undeployer import MANAGER, NAMESPACE, OVERLAY, Undeployer, finish_removals

ROLE = "only-in-the-overlay"
RECORD = f"{MANAGER}-deployed"
SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: of-the-user, namespace: greeter-system}
"""
INVALID = """
apiVersion: v1
kind: Service
metadata: {name: invalid, namespace: greeter-system}
spec: {ports: [{port: -1}]}
"""
KUBERC = """
apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
defaults:
  - command: delete
    options: [{name: interactive, default: "true"}]
"""
TOKEN = """
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: NAME, annotations: {kubernetes.io/service-account.name: default}}
"""
UNSERVED = "ServiceMonitor.monitoring.coreos.com greeter-system/greeter"


@pytest.mark.parametrize("has_record", [True, False])
def test_secret_that_was_never_applied_is_kept(
    undeployer: Undeployer, has_record: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, folder = undeployer.plane, undeployer.root / OVERLAY
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    (folder / "secret.yaml").write_text(SECRET)
    kustomization = "resources: [../../default, role.yaml, secret.yaml]\n"
    (folder / "kustomization.yaml").write_text(kustomization)
    plane.kubectl("-n", NAMESPACE, "create", "secret", "generic", "of-the-user")
    arguments: tuple[str, ...] = ()
    if not has_record:
        # As an earlier version, or kubectl apply -k.
        plane.kubectl("-n", NAMESPACE, "delete", "configmap", RECORD)
        arguments = ("--overlay", OVERLAY)
    assert undeployer.run("undeploy", *arguments) == 0
    assert undeployer.has("-n", NAMESPACE, "secret", "of-the-user")
    assert not undeployer.has("clusterrole", ROLE)
    assert not undeployer.has("-n", NAMESPACE, "configmap", RECORD)
    kept = f"because kubectl apply did not create them: Secret {NAMESPACE}/of-the-user"
    assert (f"{kept}\n" in capfd.readouterr().err) is not has_record


def test_object_that_an_edit_drops_is_listed_and_removed(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, folder = undeployer.plane, undeployer.root / OVERLAY
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    (folder / "invalid.yaml").write_text(INVALID)
    (folder / "kustomization.yaml").write_text("resources: [../../default, invalid.yaml]\n")
    command = f"\n  kubectl delete ClusterRole.rbac.authorization.k8s.io {ROLE}\n"
    assert undeployer.run("deploy") == 1
    error = capfd.readouterr().err
    assert "not everything was applied, for the reason above. The objects without" in error
    assert command in error
    (folder / "kustomization.yaml").write_text("resources: [../../default]\n")
    # Twice: the record still has the object after the first time.
    for _ in range(2):
        assert undeployer.run("deploy") == 0
        assert command in capfd.readouterr().err
    plane.kubectl("-n", NAMESPACE, "delete", "deployment", MANAGER)
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("clusterrole", ROLE)
    assert not undeployer.has("namespace", NAMESPACE)


def test_objects_of_a_deleted_installation_are_removed(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    other = "config/overlays/other"
    undeployer.write_overlay(other, "resources: [../../default, role.yaml]\nnamespace: other\n")
    try:
        assert undeployer.run("deploy", "--overlay", other) == 0
        plane.kubectl("-n", "other", "delete", "deployment", MANAGER)
        assert undeployer.run("deploy", "--overlay", "config/default") == 0
        error = capfd.readouterr().err
        assert f"ClusterRole.rbac.authorization.k8s.io {ROLE}" in error
        # Its deletion would delete what is in it.
        assert "\n  Namespace other\n" in error
        assert "kubectl delete Namespace" not in error
        plane.kubectl("-n", "other", "create", "configmap", "of-the-user")
        with finish_removals(plane):
            assert undeployer.run("undeploy") == 0
        assert not undeployer.has("-n", "other", "serviceaccounts")
        assert undeployer.has("-n", "other", "configmap", "of-the-user")
        assert not undeployer.has("-n", "other", "configmap", RECORD)
    finally:
        plane.remove_namespace("other")
    assert "kept the namespace other: it also contains ConfigMap other/of-the-user." in (
        capfd.readouterr().err
    )


def test_objects_without_an_installation_are_not_deleted(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    plane.kubectl("apply", "--server-side", "-k", str(undeployer.root / "config/crd"))
    undeployer.create_street()
    try:
        assert undeployer.run("undeploy") == 1
    finally:
        undeployer.release_street()
    error = capfd.readouterr().err
    assert "objects of its kinds: Street default/main-street. Nothing was deleted." in error
    assert "which destroys what they stand for" in error
    crd = plane.kubectl("get", "crd", "roads.demo.example.com", "-o", "yaml")
    assert "deletionTimestamp" not in crd


def test_prefix_in_the_same_namespace_is_another_installation(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    undeployer.write_overlay(OVERLAY, "resources: [../../default]\nnamePrefix: b-\n")
    kustomization = undeployer.root / OVERLAY / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text() + f"namespace: {NAMESPACE}\n")
    assert undeployer.run("deploy") == 0
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 1
    assert f"of another installation: Deployment {NAMESPACE}/{MANAGER}" in capfd.readouterr().err
    flag = "--allow-other-installations"
    try:
        assert undeployer.run("deploy", "--overlay", OVERLAY, flag) == 0
        assert undeployer.run("undeploy", "--overlay", "config/default") == 1
    finally:
        undeployer.plane.kubectl("-n", NAMESPACE, "delete", "deployment", f"b-{MANAGER}")
    assert f"also use them: Deployment {NAMESPACE}/b-{MANAGER}" in capfd.readouterr().err


def test_kuberc_does_not_prevent_the_deletion(
    undeployer: Undeployer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert undeployer.run("deploy") == 0
    (tmp_path / "kuberc").write_text(KUBERC)
    monkeypatch.setenv("KUBERC", str(tmp_path / "kuberc"))
    with finish_removals(undeployer.plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("namespace", NAMESPACE)
    assert not undeployer.has("crd", "roads.demo.example.com")


def test_namespace_of_flux_and_token_of_the_user_are_kept(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, where = undeployer.plane, ("-n", NAMESPACE)
    namespace = str(undeployer.root / "config/rbac/namespace.yaml")
    plane.kubectl("apply", "--server-side", "--field-manager=kustomize-controller", "-f", namespace)
    assert undeployer.run("deploy") == 0
    assert undeployer.run("undeploy") == 0
    message = "it was created or changed by kustomize-controller, not only by kubectl apply"
    assert f"kept the namespace {NAMESPACE}: {message}" in capfd.readouterr().err
    plane.remove_namespace(NAMESPACE)

    assert undeployer.run("deploy") == 0
    plane.kubectl(*where, "create", "serviceaccount", "default")
    token = TOKEN.replace("NAME", "of-a-controller")
    by_controller = "--field-manager=kube-controller-manager"
    plane.kubectl(*where, "create", by_controller, "-f", "-", stdin=token)
    plane.kubectl(*where, "create", "-f", "-", stdin=TOKEN.replace("NAME", "of-the-user"))
    assert undeployer.run("undeploy") == 0
    assert f": it also contains Secret {NAMESPACE}/of-the-user. To" in capfd.readouterr().err


def test_stops_if_the_manager_cannot_remove_finalizers(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    """No Pod, no replica, no permission; and when the deletion has begun."""
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    undeployer.create_street()
    try:
        assert undeployer.run("undeploy") == 1
        error = capfd.readouterr().err
        assert "the finalizers of Street default/main-street" in error
        assert f"To find out why: kubectl -n {NAMESPACE} get pods,events\n" in error
        assert "while it runs. This destroys what they stand for" in error

        plane.kubectl("-n", NAMESPACE, "scale", "deployment", MANAGER, "--replicas=0")
        assert undeployer.run("undeploy") == 1
        scale = f"To start it: kubectl -n {NAMESPACE} scale deployment {MANAGER} --replicas=1\n"
        assert scale in capfd.readouterr().err

        undeployer.make_ready()
        binding = ("clusterrolebinding", "greeter-manager-rolebinding")
        # As another installation leaves it.
        patch = '{"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "other"}]}'
        plane.kubectl("patch", *binding, "-p", patch)
        assert undeployer.run("undeploy") == 1
        error = capfd.readouterr().err
        assert "no binding of a role names the ServiceAccount" in error
        assert "To restore the permission: make deploy\n" in error
        assert "Nothing was deleted." in error

        plane.kubectl("delete", "crd", "roads.demo.example.com", "--wait=false")
        assert undeployer.run("undeploy") == 1
        begun = "CustomResourceDefinition roads.demo.example.com"
        assert f"The deletion of {begun} has already begun" in capfd.readouterr().err
        assert undeployer.run("deploy", "--force-conflicts") == 1
        assert f"{begun}: the deletion has begun, and cannot" in capfd.readouterr().err
    finally:
        undeployer.release_street()
        plane.kubectl("wait", "--for=delete", "crd/roads.demo.example.com", "--timeout=60s")
        plane.kubectl("delete", "clusterrolebinding", "greeter-manager-rolebinding")


def test_kind_that_is_not_served_and_namespace_that_is_being_deleted(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    patch = f'{{"data": {{"pending": "{UNSERVED}"}}}}'
    plane.kubectl("-n", NAMESPACE, "patch", "configmap", RECORD, "-p", patch)
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    assert undeployer.run("deploy") == 1
    assert f"Namespace {NAMESPACE}: the deletion has begun" in capfd.readouterr().err
    assert undeployer.run("undeploy") == 0
    error = capfd.readouterr().err
    assert f"the deletion of Namespace {NAMESPACE} has already begun" in error
    assert f"the namespace {NAMESPACE} is already being deleted" in error
    assert "kept" not in error
    assert not undeployer.has("clusterrole", "greeter-manager-role")


def test_uninstall_has_the_checks_of_undeploy(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    assert undeployer.run("uninstall") == 1
    error = capfd.readouterr().err
    assert f"is deployed: Deployment {NAMESPACE}/{MANAGER}" in error
    assert error.rstrip().endswith("make undeploy")
    plane.kubectl("-n", NAMESPACE, "delete", "deployment", MANAGER)
    undeployer.create_street()
    try:
        assert undeployer.run("uninstall") == 1
    finally:
        undeployer.release_street()
    error = capfd.readouterr().err
    assert "only a manager removes the finalizers of Street default/main-street" in error
    crd = plane.kubectl("get", "crd", "roads.demo.example.com", "-o", "yaml")
    assert "deletionTimestamp" not in crd
    assert undeployer.run("uninstall") == 0
    assert "\n  4 CustomResourceDefinition\n" in capfd.readouterr().err
    assert not undeployer.has("crd", "roads.demo.example.com")
    assert undeployer.run("uninstall") == 0
    assert "no CRD of config/crd was found in " in capfd.readouterr().err
