"""`kubewright undeploy` on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kubewright.testing.controlplane import ControlPlane

from .undeployer import MANAGER, NAMESPACE, OVERLAY, STREET, Undeployer, finish_removals

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: greeter-controller-manager
  namespace: NAMESPACE
  labels: {control-plane: controller-manager}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec:
      serviceAccountName: old
      containers: [{name: manager, image: example.com/greeter}]
"""
# Of another operator that serves one of the kinds.
OLD_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: old-manager}
rules:
  - {apiGroups: [demo.example.com], resources: [roads/status], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: old-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: old-manager}
subjects: [{kind: ServiceAccount, name: old, namespace: other}]
"""
# Also with other labels, as kustomize sets them for all objects and selectors.
OTHER_OVERLAY = "config/overlays/other"
OTHER_KUSTOMIZATION = """
resources: [../../default]
namespace: other
labels:
  - {pairs: {team: a}, includeSelectors: true}
"""
DOWN_API = """
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec:
  group: down.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {name: none, namespace: default}
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
LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: greeter-leader}
spec: {holderIdentity: greeter-1}
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


def test_removes_the_overlay_that_was_deployed(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    undeployer.write_overlay()
    folder = undeployer.root / OVERLAY
    assert undeployer.run("deploy", "--overlay", f"{OVERLAY}/") == 0
    rendered = plane.kubectl("kustomize", str(folder))
    capfd.readouterr()

    # The record is enough: another clone may not have the overlay.
    (folder / "kustomization.yaml").unlink()
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    output = capfd.readouterr()
    subject = f"Deployment {NAMESPACE}/{MANAGER} (the overlay {OVERLAY})"
    assert output.err.startswith(f"removing {subject} from {plane.url} (context ")
    assert "\n  4 CustomResourceDefinition\n" in output.err
    deleted = [line for line in output.out.splitlines() if " deleted" in line]
    assert deleted[0].startswith("customresourcedefinition.apiextensions.k8s.io ")
    assert 'clusterrole.rbac.authorization.k8s.io "only-in-the-overlay" deleted' in deleted
    left = plane.kubectl("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=rendered)
    assert left == ""


def test_other_installations_are_updated_or_named(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    """The CRDs and cluster roles are those of all."""
    plane, default = undeployer.plane, ("--overlay", "config/default")
    undeployer.write_overlay(OTHER_OVERLAY, OTHER_KUSTOMIZATION)
    update = f"make deploy OVERLAY={OTHER_OVERLAY}"
    other = f"Deployment other/{MANAGER} (the overlay {OTHER_OVERLAY})"
    own = f"Deployment {NAMESPACE}/{MANAGER} (the overlay config/default)"
    try:
        assert undeployer.run("deploy", "--overlay", OTHER_OVERLAY) == 0
        # The record is in another namespace than that of config/default.
        assert undeployer.run("deploy") == 0
        assert not undeployer.has("-n", NAMESPACE, "deployment")
        capfd.readouterr()
        assert undeployer.run("deploy", *default) == 1
        error = capfd.readouterr().err
        assert f"cluster roles of another installation: {other}. Nothing was deployed" in error
        assert f"\nTo update {other}: run: {update}\n" in error
        assert f"first run: kubectl -n other delete deployment {MANAGER}\n" in error
        assert "ARGS=--allow-other-installations. The other installation then loses its" in error

        assert undeployer.run("deploy", *default, "--allow-other-installations") == 0
        # An update of what is installed needs no flag.
        assert undeployer.run("deploy", *default) == 0
        for command in ("deploy", "undeploy"):
            capfd.readouterr()
            assert undeployer.run(command) == 1
            error = capfd.readouterr().err
            assert own in error
            assert other in error
            assert f"make {command} OVERLAY=config/default or make {command} OVERLAY=" in error
        assert undeployer.run("undeploy", *default) == 1
    finally:
        plane.remove_namespace("other")
    error = capfd.readouterr().err
    assert f"these also use them: {other}. Nothing was deleted." in error
    assert "removing" not in error
    command = f"run: kubectl -n {NAMESPACE} delete deployment {MANAGER}"
    assert f"To remove only {own}, and to keep the CRDs: {command}\n" in error
    assert undeployer.has("crd", "greetings.demo.example.com")
    assert undeployer.has("clusterrole", "greeter-manager-role")


TOOLS = {
    "annotations/meta.helm.sh/release-name": "the Helm release mine",
    "labels/app.kubernetes.io/managed-by": "Helm",
    "annotations/argocd.argoproj.io/tracking-id": "the application mine of Argo CD",
    "labels/kustomize.toolkit.fluxcd.io/name": "the Kustomization /mine of Flux",
    "labels/helm.toolkit.fluxcd.io/name": "the HelmRelease /mine of Flux",
}


@pytest.mark.parametrize("namespace", [NAMESPACE, "other"])
def test_stops_at_what_another_tool_manages(
    undeployer: Undeployer, namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    plane.create_namespace(namespace)
    try:
        for path, tool in TOOLS.items():
            deployment = yaml.safe_load(DEPLOYMENT.replace("NAMESPACE", namespace))
            # More replicas than config/default: the tool is the reason that helps.
            deployment["spec"]["replicas"] = 3
            field, _, name = path.partition("/")
            value = {"Helm": "Helm", "argocd.argoproj.io/tracking-id": "mine:apps/Deployment:a/b"}
            deployment["metadata"].setdefault(field, {})[name] = value.get(
                tool, value.get(name, "mine")
            )
            plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment))
            for command in ("deploy", "undeploy"):
                assert undeployer.run(command) == 1
                error = capfd.readouterr().err
                assert f"Deployment {namespace}/{MANAGER} ({tool})" in error
                advice = (
                    f"run: helm uninstall mine -n {namespace}"
                    if "Helm release" in tool
                    else f"remove it with {tool}"
                )
                assert advice in error
                assert "Nothing was de" in error
            plane.kubectl("-n", namespace, "delete", "deployment", MANAGER)
    finally:
        plane.remove_namespace(namespace)


@pytest.mark.parametrize("role", ["ClusterRole", "Role"])
def test_stops_at_another_operator_for_the_same_kinds(
    undeployer: Undeployer, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, old_role = undeployer.plane, OLD_ROLE
    if role == "Role":
        old_role = OLD_ROLE.replace("ClusterRole", "Role").replace("[get, update]", '["*"]')
        old_role = old_role.replace("{name: old-manager}", "{name: old-manager, namespace: other}")
    assert undeployer.run("deploy") == 0
    plane.create_namespace("other")
    old = DEPLOYMENT.replace("NAMESPACE", "other").replace(MANAGER, "old-controller-manager")
    try:
        plane.kubectl("apply", "-f", "-", stdin=old)
        plane.kubectl("apply", "-f", "-", stdin=old_role)
        assert undeployer.run("undeploy") == 1
    finally:
        plane.kubectl("delete", "-f", "-", stdin=old_role)
        plane.remove_namespace("other")
    error = capfd.readouterr().err
    assert "also use them: Deployment other/old-controller-manager (no recorded overlay)." in error
    assert "run: kubectl -n other delete deployment old-controller-manager" in error
    assert undeployer.has("crd", "roads.demo.example.com")


def test_deletion_that_does_not_end_names_the_finalizers(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    assert undeployer.run("deploy") == 0
    undeployer.create_street()
    undeployer.make_ready()
    capfd.readouterr()
    try:
        assert undeployer.run("undeploy", "--timeout", "3") == 1
    finally:
        undeployer.release_street()
    error = capfd.readouterr().err
    assert "Still being deleted:\n  Street default/main-street: example.com/cleanup\n" in error
    assert f"kubectl -n {NAMESPACE} logs deployment/{MANAGER}" in error
    assert error.rstrip().endswith("make undeploy OVERLAY=config/default ARGS=--timeout=1800")
    assert "1 Street with finalizers: the manager deletes what they stand for" in error
    # The manager still runs, and can remove the finalizers.
    assert undeployer.has("-n", NAMESPACE, "deployment", MANAGER)
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0


def test_keeps_and_reports_what_is_not_of_the_overlay(
    undeployer: Undeployer, capfd: pytest.CaptureFixture[str]
) -> None:
    plane, where = undeployer.plane, ("-n", NAMESPACE)
    undeployer.write_overlay()
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    by_manager = "--field-manager=greeter"
    for secret in ("greeter-webhook-ca", "generated"):
        plane.kubectl(*where, "create", "secret", "generic", secret, by_manager)
    plane.kubectl(*where, "create", by_manager, "-f", "-", stdin=LEASE)
    # The manifests name it, but the user has created it.
    plane.kubectl(*where, "create", "secret", "generic", "greeter-webhook-server-cert")
    # The manifests have a container of this name, but no Deployment.
    plane.kubectl(*where, "create", "deployment", "manager", "--image=example.com/other")
    plane.kubectl(*where, "create", "quota", "team")
    uid = plane.kubectl(*where, "get", "deployment", MANAGER, "-o", "jsonpath={.metadata.uid}")
    owned = OWNED.replace("UID", uid).replace("OWNER", MANAGER)
    plane.kubectl(*where, "apply", "-f", "-", stdin=owned)
    capfd.readouterr()

    assert undeployer.run("undeploy", "--overlay", "config/default") == 0
    error = capfd.readouterr().err
    assert not undeployer.has("clusterrole", "only-in-the-overlay")
    _, _, others = error.partition(f"kept the namespace {NAMESPACE}: it also contains ")
    others, _, command = others.partition(". To delete it with everything in it, run: ")
    assert command == f"kubectl delete namespace {NAMESPACE}\n"
    assert set(others.split(", ")) == {
        f"Deployment {NAMESPACE}/manager",
        f"ConfigMap {NAMESPACE}/of-a-database",
        f"Secret {NAMESPACE}/generated",
        f"Secret {NAMESPACE}/greeter-webhook-server-cert",
        f"ResourceQuota {NAMESPACE}/team",
    }
    assert undeployer.has(*where, "secret", "greeter-webhook-server-cert")
    assert not undeployer.has(*where, "deployment", MANAGER)


def test_namespace_with_only_own_objects_is_deleted(undeployer: Undeployer) -> None:
    plane, where = undeployer.plane, ("-n", NAMESPACE)
    assert undeployer.run("deploy") == 0
    # The overlay has an object of one of the kinds: it is deleted with the CRD.
    plane.wait_for_crds("roads.demo.example.com")
    undeployer.write_overlay(OVERLAY, "resources: [../../default, street.yaml]\n")
    street = STREET.replace(", finalizers: [example.com/cleanup]", "")
    (undeployer.root / OVERLAY / "street.yaml").write_text(street)
    assert undeployer.run("deploy", "--overlay", OVERLAY) == 0
    plane.kubectl(*where, "create", "--field-manager=greeter", "-f", "-", stdin=LEASE)
    plane.kubectl(
        *(*where, "create", "secret", "generic", "greeter-webhook-ca", "--field-manager=greeter")
    )
    plane.kubectl(*where, "create", "configmap", "kube-root-ca.crt")
    plane.kubectl(*where, "create", "serviceaccount", "default")
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("namespace", NAMESPACE)
    # Again, when kubectl no longer knows the kind.
    assert undeployer.run("undeploy", "--overlay", OVERLAY) == 0


@pytest.mark.parametrize("reason", ["created", "unknown"])
def test_namespace_of_others_or_with_unknown_content_is_kept(
    undeployer: Undeployer, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plane = undeployer.plane
    if reason == "created":
        plane.kubectl("create", "namespace", NAMESPACE)
        message = "it was created or changed by kubectl-create, not only by kubectl apply. "
    else:
        plane.kubectl("apply", "-f", "-", stdin=DOWN_API)
        service = "apiservice/v1.down.example.com"
        plane.kubectl("wait", "--for=condition=Available=False", service)
        message = "its content is unknown: APIService v1.down.example.com is not available. "
    try:
        assert undeployer.run("deploy") == 0
        assert undeployer.run("undeploy") == 0
    finally:
        plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=DOWN_API)
    assert f"kept the namespace {NAMESPACE}: {message}" in capfd.readouterr().err
    assert undeployer.has("namespace", NAMESPACE)
    assert not undeployer.has("clusterrole", "greeter-manager-role")


def test_continues_after_a_failure(
    project: Path,
    cleaned_plane: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without kinds, there are no CRDs."""
    plane = cleaned_plane
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
    assert error.rstrip().endswith("run: make undeploy OVERLAY=config/overlays/production")
    assert "Still being deleted" not in error
    assert not undeployer.has("-n", NAMESPACE, "deployment")
    assert undeployer.has("clusterrole", "only-in-the-overlay")
    with finish_removals(plane):
        assert undeployer.run("undeploy") == 0
    assert not undeployer.has("clusterrole", "only-in-the-overlay")
    assert not undeployer.has("namespace", NAMESPACE)
    # Again, with nothing left.
    assert undeployer.run("undeploy") == 0
    assert "nothing of config/default was found in " in capfd.readouterr().err
