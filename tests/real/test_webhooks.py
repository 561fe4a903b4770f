"""The manager with -webhooks and config/components/webhooks: kubectl prints warnings."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.manifests.installer import _run_kustomize
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import TOPOLOGY_API_VERSION, InfoClient, write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    UNVERIFIED_TLS,
    ManagerProcess,
    run_manager,
)
from support.vmgroup_client import TEMPLATE

from .audit_log import Permission, list_forbidden_messages, list_granted, list_used
from .crash_run import run_simulator

HOST_NAME, DISK_NAME, NODE_NAME = (
    "esxi-dell-e.rainpole.com",
    "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43",
    "worker-1",
)
LOCALHOST = "127.0.0.1"
WEBHOOK_CONFIGURATION = (
    "validatingwebhookconfiguration/vsphere-operators-validating-webhook-configuration"
)
# The folders that every datacenter has; their names are common nouns.
COMMON_FOLDERS = {"Datacenters", "vm", "host", "datastore", "network", "Resources"}
CA_SECRET = "vsphere-operators-webhook-ca"
Json = dict[str, Any]


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (f"--host-name={HOST_NAME}", f"--fcd={DISK_NAME}", f"--node={NODE_NAME}")
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    ) as simulator:
        yield simulator


@pytest.fixture
def webhooks_component(config: Path, tmp_path: Path, binaries: dict[str, Path]) -> list[Json]:
    """The objects that config/components/webhooks adds to config/default or changes."""
    plain = {
        object_id(document): document for document in render_overlay(config, tmp_path, binaries)
    }
    return [
        document
        for document in render_overlay(config, tmp_path, binaries, "webhooks")
        if plain.get(object_id(document)) != document
    ]


def render_overlay(
    config: Path, tmp_path: Path, binaries: dict[str, Path], *components: str
) -> list[Json]:
    folder = tmp_path / "-".join(["overlay", *components])
    shutil.copytree(config, folder)
    overlay = folder / "overlays/here"
    overlay.mkdir(parents=True)
    paths = [f"../../components/{name}" for name in components]
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../../default"], "components": paths})
    )
    return list(yaml.safe_load_all(_run_kustomize(folder, overlay, str(binaries["kubectl"]))))


def object_id(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_component_adds_exactly_these_objects(webhooks_component: list[Json]) -> None:
    assert sorted(object_id(document) for document in webhooks_component) == [
        ("ClusterRole", "vsphere-operators-webhook-ca-role"),
        ("ClusterRoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Deployment", "vsphere-operators-controller-manager"),
        ("Role", "vsphere-operators-webhook-ca-role"),
        ("RoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Service", "vsphere-operators-webhook-service"),
        ("ValidatingWebhookConfiguration", "vsphere-operators-validating-webhook-configuration"),
    ]
    (deployment,) = (
        document for document in webhooks_component if document["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "-webhooks"
    assert {"name": "webhook", "containerPort": 9443, "protocol": "TCP"} in container["ports"]


def test_api_server_accepts_all_objects(
    installed: ControlPlane, webhooks_component: list[Json]
) -> None:
    output = installed.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(webhooks_component)
    )
    assert len(output.splitlines()) == len(webhooks_component)


def test_cert_manager_replaces_the_own_ca(
    config: Path, tmp_path: Path, binaries: dict[str, Path]
) -> None:
    documents = {
        object_id(document): document
        for document in render_overlay(config, tmp_path, binaries, "webhooks", "cert-manager")
    }
    assert ("Certificate", "vsphere-operators-serving-cert") in documents
    assert not [name for _, name in documents if "webhook-ca" in name]
    annotations = documents[
        "ValidatingWebhookConfiguration", WEBHOOK_CONFIGURATION.partition("/")[2]
    ]["metadata"]["annotations"]
    assert annotations == {
        "cert-manager.io/inject-ca-from": f"{SYSTEM_NAMESPACE}/vsphere-operators-serving-cert"
    }
    (container,) = documents["Deployment", "vsphere-operators-controller-manager"]["spec"][
        "template"
    ]["spec"]["containers"]
    assert container["args"][-2:] == ["-webhooks", "-webhook-cert-dir=/etc/webhook-certificates"]


@pytest.fixture
async def manager(
    installed: ControlPlane,
    namespace: str,
    webhooks_component: list[Json],
    simulator: SimulatedVCenter,
    manager_kubeconfig: Path,
    log_file: Path,
    tmp_path: Path,
) -> AsyncIterator[ManagerProcess]:
    """A manager with webhooks that the API server calls; its extra roles are removed at the end."""
    added = [
        document
        for document in webhooks_component
        if document["kind"] not in ("Deployment", "ValidatingWebhookConfiguration")
    ]
    (configuration,) = (
        document
        for document in webhooks_component
        if document["kind"] == "ValidatingWebhookConfiguration"
    )
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(added))
    try:
        async with run_manager(
            log_file, *make_flags(simulator, manager_kubeconfig, tmp_path)
        ) as manager:
            await manager.wait_for_log("serving webhooks", within=30)
            installed.kubectl(
                "apply",
                "-f",
                "-",
                stdin=json.dumps(with_local_url(configuration, webhook_port(manager))),
            )
            await manager.wait_until_ready(within=40)
            await eventually(
                lambda: asyncio.to_thread(has_warnings, installed, namespace), within=40, every=0.3
            )
            yield manager
    finally:
        installed.kubectl("delete", "--ignore-not-found", WEBHOOK_CONFIGURATION)
        installed.kubectl(
            "-n", SYSTEM_NAMESPACE, "delete", "--ignore-not-found", f"secret/{CA_SECRET}"
        )
        installed.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(added))


def make_flags(vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    """The flags of the component, but with a free port, and without leader election."""
    return (
        f"--kubeconfig={kubeconfig}",
        *FREE_PORT_FLAGS,
        f"--vcenter-credentials={write_credentials(folder / 'vc-creds', vcenter)}",
        f"--vcenter-ca-file={vcenter.certificate}",
        "--zap-log-level=debug",
        f"--leader-election-namespace={SYSTEM_NAMESPACE}",
        "-webhooks",
        "-webhook-port=0",
        f"-webhook-hosts={LOCALHOST}",
    )


def webhook_port(manager: ManagerProcess) -> int:
    return int(
        next(line["port"] for line in manager.log_records if line["msg"] == "serving webhooks")
    )


def with_local_url(configuration: Json, port: int) -> Json:
    """Replace the Service, which needs a cluster network, by a local address."""
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {
            "url": f"https://{LOCALHOST}:{port}{webhook['clientConfig']['service']['path']}"
        }
    return configuration


def has_warnings(plane: ControlPlane, namespace: str) -> bool:
    """Whether warnings arrive: the API server first has to notice the configuration."""
    return bool(
        apply_document(
            plane,
            namespace,
            info_manifest("HostInfo", "trial", hostname="missing"),
            "--dry-run=server",
        )[1]
    )


def apply_document(
    plane: ControlPlane, namespace: str, document: Json, *more: str
) -> tuple[str, list[str]]:
    """The output of kubectl apply, and its warnings."""
    done = plane.run_kubectl("-n", namespace, "apply", *more, "-f", "-", stdin=json.dumps(document))
    return done.stdout.strip(), re.findall(r"^Warning: (.*)$", done.stderr, re.MULTILINE)


def info_manifest(kind: str, name: str, **spec: str) -> Json:
    return {
        "apiVersion": TOPOLOGY_API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def group_manifest(**placement: str) -> Json:
    spec = {
        "cpu": 1,
        "memory": 1,
        "replicas": 1,
        "template": TEMPLATE,
        "placement": placement,
        "paused": True,
    }
    return {
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": "web"},
        "spec": spec,
    }


async def test_kubectl_warns_about_a_mistyped_name_and_the_object_is_stored(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    infos = InfoClient(installed, namespace)

    async def apply(document: Json, *more: str) -> tuple[str, list[str]]:
        return await asyncio.to_thread(apply_document, installed, namespace, document, *more)

    assert await apply(info_manifest("HostInfo", "right", hostname=HOST_NAME)) == (
        "hostinfo.topology.corinternal.com/right created",
        [],
    )
    wrong = info_manifest("HostInfo", "wrong", hostname=HOST_NAME.replace("dell", "del"))
    output, warnings = await apply(wrong)
    assert output == "hostinfo.topology.corinternal.com/wrong created"
    status = await infos.wait_for_status("HostInfo", "wrong", "HostNotFound")
    (ready,) = (document for document in status["conditions"] if document["type"] == "Ready")
    assert f'Did you mean "{HOST_NAME}"?' in ready["message"]
    assert warnings == [
        f'spec.hostname "{wrong["spec"]["hostname"]}": vCenter has no host of that name '
        "(HostNotFound). The condition Ready of the object has the details."
    ]
    assert await apply(wrong) == ("hostinfo.topology.corinternal.com/wrong unchanged", [])
    assert (await apply(wrong | {"metadata": {"name": "wrong", "labels": {"a": "b"}}}))[1] == []
    assert await apply(info_manifest("HostInfo", "wrong", hostname=HOST_NAME)) == (
        "hostinfo.topology.corinternal.com/wrong configured",
        [],
    )
    await infos.wait_for_status("HostInfo", "wrong")
    assert (await apply(wrong, "--dry-run=server"))[1] == warnings
    assert (await infos.get("HostInfo", "wrong"))["spec"] == {"hostname": HOST_NAME}


async def test_stranger_that_reaches_the_port_receives_no_names(
    manager: ManagerProcess, simulator: SimulatedVCenter
) -> None:
    """Without a client certificate, any Pod can send a review in the name of any namespace."""
    names = {
        entity["name"]
        for entity in await simulator.entities()
        if entity["name"] not in COMMON_FOLDERS
    }
    assert {HOST_NAME, NODE_NAME, TEMPLATE} <= names
    specs: list[tuple[str, Json]] = [
        *(("HostInfo", {"hostname": name[:-1]}) for name in names),
        *(("VMInfo", {"nodename": name[:-1]}) for name in names),
        *(("VmGroup", group_manifest()["spec"] | {"template": name[:-1]}) for name in names),
        *(("VmGroup", group_manifest(cluster=name[:-1])["spec"]) for name in names),
    ]
    for kind, spec in specs:
        warnings = await asyncio.to_thread(post_review, manager, kind, spec)
        (text,) = warnings
        for value in [*spec.values(), *spec.get("placement", {}).values()]:
            text = text.replace(f'"{value}"', "")
        assert not [name for name in names if name in text], text


def post_review(manager: ManagerProcess, kind: str, spec: Json) -> list[str]:
    """The warnings of the manager for a review that the API server did not send."""
    group = {"VmGroup": "vm.codeconnect.vmworld.com"}.get(kind, "topology.corinternal.com")
    version = "v1alpha1" if kind == "VmGroup" else "v1"
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "CREATE",
        "object": {"metadata": {"name": "a", "namespace": "default"}, "spec": spec},
    }
    path = f"/validate-{group.replace('.', '-')}-{version}-{kind.lower()}"
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    call = urllib.request.Request(
        f"https://{LOCALHOST}:{webhook_port(manager)}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(call, context=UNVERIFIED_TLS) as response:
        answer = json.load(response)["response"]
    assert answer["allowed"]
    return list(answer.get("warnings", ()))


REQUIRED_PERMISSIONS = {
    Permission("create", "", "secrets"),
    Permission("get", "", "secrets"),
    Permission("get", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    Permission("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
}
# Used when the CA is replaced, after two thirds of a year; see test_real_cert_rotation.py.
ROTATION_PERMISSIONS = {Permission("patch", "", "secrets")}


async def test_other_kinds_warn_and_the_permissions_are_the_required_ones(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    infos = InfoClient(installed, namespace)
    await infos.create("FCDInfo", "right", DISK_NAME)
    await infos.wait_for_status("FCDInfo", "right")

    async def warnings(document: Json) -> list[str]:
        return (await asyncio.to_thread(apply_document, installed, namespace, document))[1]

    (warning,) = await warnings(info_manifest("VMInfo", "a", nodename="Worker-1"))
    assert 'spec.nodename "Worker-1": vCenter has no VM of that name' in warning
    (warning,) = await warnings(info_manifest("FCDInfo", "a", pvId="pvc-0"))
    assert '"pvc-0"' in warning
    (warning,) = await warnings(group_manifest(cluster="nowhere"))
    assert 'spec.placement.cluster "nowhere": the cluster does not exist' in warning
    assert await warnings(group_manifest()) == []
    lines = [
        event
        for event in installed.read_audit_events()
        if event.get("userAgent") == manager.user_agent
    ]
    assert list_forbidden_messages(lines) == []
    assert list_used(lines) >= REQUIRED_PERMISSIONS
    granted = await asyncio.to_thread(list_granted, installed, SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    relevant = {
        permission
        for permission in granted
        if permission.resource in ("secrets", "validatingwebhookconfigurations")
    }
    assert relevant == REQUIRED_PERMISSIONS | ROTATION_PERMISSIONS


async def test_without_the_flag_no_webhook_is_served(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    manager_kubeconfig: Path,
    log_file: Path,
    tmp_path: Path,
) -> None:
    flags = [
        flag
        for flag in make_flags(simulator, manager_kubeconfig, tmp_path)
        if not flag.startswith("-webhook")
    ]
    async with run_manager(log_file, *flags) as manager:
        await manager.wait_for_log("logged in", within=40)
        await manager.wait_until_ready(within=40)
        assert "serving webhooks" not in manager.log_text
    lines = [
        event
        for event in installed.read_audit_events()
        if event.get("userAgent") == manager.user_agent
    ]
    assert list_used(lines).isdisjoint(REQUIRED_PERMISSIONS)


async def test_objects_are_stored_while_the_manager_is_down(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    await manager.kill()
    output = await asyncio.to_thread(
        apply_document, installed, namespace, info_manifest("HostInfo", "late", hostname="missing")
    )
    assert output == ("hostinfo.topology.corinternal.com/late created", [])
