"""config/default and its variants: their objects, and that a real API server admits them with Pod
Security level "restricted".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from kubewright.builder.manifests.installer import _run_kustomize
from kubewright.flags import parse_command_line
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from support.manager_process import (
    FREE_PORT_FLAGS,
    MANAGER_USER,
    SYSTEM_NAMESPACE,
    create_resource,
    run_manager,
    wait_for_status,
)
from vsphere_operators.settings.flags import Settings

from .audit_log import list_forbidden_messages
from .gpu_cluster import NEXT_MAINTENANCE_ANNOTATION

NAME_PREFIX = "vsphere-operators"
Json = dict[str, Any]
# An invalid annotation is reported by an Event on the Node, which has no namespace.
ANNOTATED_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "annotated", "annotations": {NEXT_MAINTENANCE_ANNOTATION: "soon"}},
}


@pytest.fixture(scope="module")
def kubectl_path(binaries: dict[str, Path]) -> str:
    return str(binaries["kubectl"])


@pytest.fixture
def overlay(config: Path) -> Iterator[Path]:
    """An overlay in config/, where kustomize lets it use the components; removed at the end."""
    overlays = config / "overlays"
    overlays.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=overlays, prefix="test-") as folder:
        yield Path(folder)
    with suppress(OSError):  # a user may have overlays of their own
        overlays.rmdir()


def render(folder: Path, binary: str) -> dict[tuple[str, str], Json]:
    documents = list(yaml.safe_load_all(_run_kustomize(folder, folder, binary)))
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in documents}
    assert len(objects) == len(documents)
    return objects


def render_with_components(
    overlay: Path, binary: str, *components: str
) -> dict[tuple[str, str], Json]:
    picked = [f"../../components/{name}" for name in components]
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../../default"], "components": picked})
    )
    return render(overlay, binary)


def pod_spec_of(objects: dict[tuple[str, str], Json]) -> Json:
    spec: Json = objects["Deployment", f"{NAME_PREFIX}-controller-manager"]["spec"]["template"][
        "spec"
    ]
    return spec


def test_default_has_the_objects_of_the_contract(config: Path, kubectl_path: str) -> None:
    objects = render(config / "default", kubectl_path)
    kinds = {plural for kind, plural in objects if kind == "CustomResourceDefinition"}
    assert {
        "hostinfoes.topology.corinternal.com",
        "vminfoes.topology.corinternal.com",
        "mycustomresources.poc.test.domain",
    } <= kinds
    assert {
        ("Namespace", SYSTEM_NAMESPACE),
        ("ServiceAccount", "controller-manager"),
        ("Role", f"{NAME_PREFIX}-leader-election-role"),
        ("RoleBinding", f"{NAME_PREFIX}-leader-election-rolebinding"),
        ("ClusterRole", f"{NAME_PREFIX}-manager-role"),
        ("ClusterRoleBinding", f"{NAME_PREFIX}-manager-rolebinding"),
        ("ClusterRole", f"{NAME_PREFIX}-metrics-reader"),
        ("ClusterRole", f"{NAME_PREFIX}-metrics-auth-role"),
        ("Service", f"{NAME_PREFIX}-controller-manager-metrics-service"),
        ("Deployment", f"{NAME_PREFIX}-controller-manager"),
    } <= objects.keys()
    service = objects["Service", f"{NAME_PREFIX}-controller-manager-metrics-service"]
    assert service["spec"]["ports"][0]["port"] == 8443
    container = pod_spec_of(objects)["containers"][0]
    assert {"-leader-elect", "-metrics-secure", "-metrics-bind-address=:8443"} <= set(
        container["args"]
    )


def test_default_is_admitted_with_a_restricted_pod(
    installed: ControlPlane, config: Path, kubectl_path: str
) -> None:
    text = _run_kustomize(config / "default", config / "default", kubectl_path)
    applied = installed.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text
    )
    assert f"deployment.apps/{NAME_PREFIX}-controller-manager" in applied
    labels = json.loads(installed.kubectl("get", "namespace", SYSTEM_NAMESPACE, "-o", "json"))[
        "metadata"
    ]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = pod_spec_of(render(config / "default", kubectl_path))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial", "namespace": SYSTEM_NAMESPACE},
        "spec": spec,
    }
    installed.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    rooted = pod | {
        "spec": spec
        | {"securityContext": {}, "containers": [spec["containers"][0] | {"securityContext": {}}]}
    }
    with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted'):
        installed.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(rooted))


def test_manager_accepts_the_flags_of_the_deployment(config: Path, kubectl_path: str) -> None:
    settings = parse_command_line(
        Settings, pod_spec_of(render(config / "default", kubectl_path))["containers"][0]["args"], {}
    )
    assert settings.leader_election
    assert settings.metrics_secure
    assert settings.credentials_directory == "/etc/vc-creds"
    assert settings.health_probe_bind_address == ":8081"


CREDENTIAL_KEY_SETS = [
    ("GOVMOMI_URL", "GOVMOMI_USERNAME", "GOVMOMI_PASSWORD"),
    ("VC_HOST", "VC_USER", "VC_PASS"),
]


@pytest.mark.parametrize("keys", CREDENTIAL_KEY_SETS)
def test_secret_may_have_either_set_of_keys(
    keys: tuple[str, str, str], config: Path, kubectl_path: str, tmp_path: Path
) -> None:
    volumes = {
        volume["name"]: volume
        for volume in pod_spec_of(render(config / "default", kubectl_path))["volumes"]
    }
    assert volumes["vc-creds"]["secret"] == {"secretName": "vc-creds", "optional": True}
    for key, value in zip(keys, ("vc.example.com", "ann@example.com", "secret\n"), strict=True):
        (tmp_path / key).write_text(value)
    (vcenter,) = Settings(credentials_directory=str(tmp_path)).read_vcenter_configs(
        lambda message: None
    )
    assert vcenter.address.host == "vc.example.com"
    credentials = vcenter.build_credential_source().read()
    assert (credentials.username, credentials.password) == ("ann@example.com", "secret")


def test_missing_secret_does_not_prevent_the_start(tmp_path: Path) -> None:
    assert (
        Settings(credentials_directory=str(tmp_path)).read_vcenter_configs(lambda message: None)
        == ()
    )


def test_two_replicas(overlay: Path, kubectl_path: str) -> None:
    objects = render_with_components(overlay, kubectl_path, "ha")
    assert objects["Deployment", f"{NAME_PREFIX}-controller-manager"]["spec"]["replicas"] == 2
    assert "podAntiAffinity" in pod_spec_of(objects)["affinity"]
    assert ("PodDisruptionBudget", f"{NAME_PREFIX}-controller-manager") in objects


def test_a_network_policy_and_a_monitor(overlay: Path, kubectl_path: str) -> None:
    objects = render_with_components(overlay, kubectl_path, "network-policy", "prometheus")
    policy = objects["NetworkPolicy", f"{NAME_PREFIX}-controller-manager"]["spec"]
    service = objects["Service", f"{NAME_PREFIX}-controller-manager-metrics-service"]
    assert policy["podSelector"]["matchLabels"] == service["spec"]["selector"]
    monitor = objects["ServiceMonitor", f"{NAME_PREFIX}-controller-manager-metrics-monitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_several_vcenters(overlay: Path, kubectl_path: str) -> None:
    objects = render_with_components(overlay, kubectl_path, "several-vcenters")
    spec = pod_spec_of(objects)
    assert "-vcenters=/etc/vcenters/vcenters.yaml" in spec["containers"][0]["args"]
    (projected,) = (
        volume["projected"] for volume in spec["volumes"] if volume["name"] == "vcenters"
    )
    assert ("ConfigMap", projected["sources"][0]["configMap"]["name"]) in objects


async def test_manager_of_one_namespace_has_and_needs_permissions_only_there(
    installed: ControlPlane,
    manager_kubeconfig: Path,
    log_file: Path,
    overlay: Path,
    kubectl_path: str,
) -> None:
    objects = await asyncio.to_thread(render_with_components, overlay, kubectl_path, "namespaced")
    assert ("ClusterRoleBinding", f"{NAME_PREFIX}-manager-rolebinding") not in objects
    env = {variable["name"]: variable for variable in pod_spec_of(objects)["containers"][0]["env"]}
    assert env["WATCH_NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    text = yaml.safe_dump_all([obj for obj in objects.values() if "Role" in obj["kind"]])
    installed.kubectl("delete", "clusterrolebinding", f"{NAME_PREFIX}-manager-rolebinding")
    try:
        installed.kubectl("apply", "-f", "-", stdin=text)
        assert is_allowed(
            installed, "list", "hostinfoes.topology.corinternal.com", SYSTEM_NAMESPACE
        )
        assert not is_allowed(installed, "list", "hostinfoes.topology.corinternal.com", "default")
        assert is_allowed(installed, "list", "nodes", "")
        assert not is_allowed(installed, "list", "pods", "default")
        flags = (
            f"--kubeconfig={manager_kubeconfig}",
            *FREE_PORT_FLAGS,
            "--leader-elect",
            f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        )
        async with run_manager(
            log_file, *flags, environ={"WATCH_NAMESPACE": SYSTEM_NAMESPACE}
        ) as manager:
            create_resource(installed, SYSTEM_NAMESPACE, "nameless")
            await wait_for_status(installed, SYSTEM_NAMESPACE, "nameless", "NameMissing", within=30)
            await eventually(
                lambda: "NameMissing" in installed.kubectl("-n", SYSTEM_NAMESPACE, "get", "events")
            )
            installed.kubectl("apply", "-f", "-", stdin=json.dumps(ANNOTATED_NODE))
            await eventually(
                lambda: "node/annotated" in installed.kubectl("-n", "default", "get", "events")
            )
            await manager.wait_until_ready()
        assert (
            list_forbidden_messages(
                event
                for event in installed.read_audit_events()
                if event.get("userAgent") == manager.user_agent
            )
            == []
        )
    finally:
        installed.kubectl("-n", SYSTEM_NAMESPACE, "delete", "mycustomresource", "--all")
        installed.kubectl("delete", "--ignore-not-found", "node", "annotated")
        for kind, name in objects:
            if name.startswith(
                (f"{NAME_PREFIX}-manager-cluster", f"{NAME_PREFIX}-manager-namespaced")
            ):
                where = ("-n", objects[kind, name]["metadata"].get("namespace", "default"))
                installed.kubectl(*where, "delete", kind, name)
        installed.kubectl("apply", "-k", str(overlay.parents[1] / "rbac"))


def is_allowed(plane: ControlPlane, verb: str, what: str, namespace: str) -> bool:
    where = ("-n", namespace) if namespace else ()
    try:
        return (
            plane.kubectl(*where, "auth", "can-i", verb, what, f"--as={MANAGER_USER}").strip()
            == "yes"
        )
    except KubectlFailed:
        return False
