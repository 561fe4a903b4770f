"""The manager with -webhooks under the rights of config/components/webhooks: real kubectl prints the warnings, and everything is stored."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.manifests.installer import run_kustomize
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import TOPOLOGY_API_VERSION, InfoClient, write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
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
CA_SECRET = "vsphere-operators-webhook-ca"
Json = dict[str, Any]


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (f"--host-name={HOST_NAME}", f"--fcd={DISK_NAME}", f"--node={NODE_NAME}")
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    ) as vcenter:
        yield vcenter


@pytest.fixture
def webhooks_component(config: Path, tmp_path: Path, binaries: dict[str, Path]) -> list[Json]:
    """What config/components/webhooks adds to config/default, and changes of it."""
    plain = {object_id(each): each for each in render_overlay(config, tmp_path, binaries)}
    return [
        each
        for each in render_overlay(config, tmp_path, binaries, "webhooks")
        if plain.get(object_id(each)) != each
    ]


def render_overlay(
    config: Path, tmp_path: Path, binaries: dict[str, Path], *components: str
) -> list[Json]:
    folder = tmp_path / "-".join(["overlay", *components])
    shutil.copytree(config, folder)
    overlay = folder / "overlays/here"
    overlay.mkdir(parents=True)
    picked = [f"../../components/{name}" for name in components]
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../../default"], "components": picked})
    )
    return list(yaml.safe_load_all(run_kustomize(folder, overlay, str(binaries["kubectl"]))))


def object_id(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_the_component_adds_this_and_no_more(webhooks_component: list[Json]) -> None:
    assert sorted(object_id(each) for each in webhooks_component) == [
        ("ClusterRole", "vsphere-operators-webhook-ca-role"),
        ("ClusterRoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Deployment", "vsphere-operators-controller-manager"),
        ("Role", "vsphere-operators-webhook-ca-role"),
        ("RoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Service", "vsphere-operators-webhook-service"),
        ("ValidatingWebhookConfiguration", "vsphere-operators-validating-webhook-configuration"),
    ]
    (deployment,) = (each for each in webhooks_component if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "-webhooks"
    assert {"name": "webhook", "containerPort": 9443, "protocol": "TCP"} in container["ports"]


def test_all_of_it_is_admitted(installed: ControlPlane, webhooks_component: list[Json]) -> None:
    shown = installed.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(webhooks_component)
    )
    assert len(shown.splitlines()) == len(webhooks_component)


def test_cert_manager_takes_the_place_of_the_own_authority(
    config: Path, tmp_path: Path, binaries: dict[str, Path]
) -> None:
    made = {
        object_id(each): each
        for each in render_overlay(config, tmp_path, binaries, "webhooks", "cert-manager")
    }
    assert ("Certificate", "vsphere-operators-serving-cert") in made
    assert not [name for _, name in made if "webhook-ca" in name]
    annotations = made["ValidatingWebhookConfiguration", WEBHOOK_CONFIGURATION.partition("/")[2]][
        "metadata"
    ]["annotations"]
    assert annotations == {
        "cert-manager.io/inject-ca-from": f"{SYSTEM_NAMESPACE}/vsphere-operators-serving-cert"
    }
    (container,) = made["Deployment", "vsphere-operators-controller-manager"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["args"][-2:] == ["-webhooks", "-webhook-cert-dir=/etc/webhook-certificates"]


@pytest.fixture
async def manager(
    installed: ControlPlane,
    namespace: str,
    webhooks_component: list[Json],
    vcenter: SimulatedVCenter,
    manager_kubeconfig: Path,
    log_file: Path,
    tmp_path: Path,
) -> AsyncIterator[ManagerProcess]:
    """A manager that knows its vCenter, and whose webhooks the API server asks and trusts; the rights for that are gone afterwards."""
    added = [
        each
        for each in webhooks_component
        if each["kind"] not in ("Deployment", "ValidatingWebhookConfiguration")
    ]
    (configuration,) = (
        each for each in webhooks_component if each["kind"] == "ValidatingWebhookConfiguration"
    )
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(added))
    try:
        async with run_manager(
            log_file, *make_flags(vcenter, manager_kubeconfig, tmp_path)
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
                lambda: asyncio.to_thread(has_warnings, installed, namespace), within=40
            )
            yield manager
    finally:
        installed.kubectl("delete", "--ignore-not-found", WEBHOOK_CONFIGURATION)
        installed.kubectl(
            "-n", SYSTEM_NAMESPACE, "delete", "--ignore-not-found", f"secret/{CA_SECRET}"
        )
        installed.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(added))


def make_flags(vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    """As the component has it, but on a free port of this machine, and without a lease to wait for: webhooks need none."""
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
    """The configuration, with an address of this machine in place of the Service; that needs a cluster's network."""
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {
            "url": f"https://{LOCALHOST}:{port}{webhook['clientConfig']['service']['path']}"
        }
    return configuration


def has_warnings(plane: ControlPlane, namespace: str) -> bool:
    """Whether warnings arrive; the API server's own watch of the configuration, and the inventory, take a moment."""
    return bool(
        apply_document(
            plane,
            namespace,
            info_manifest("HostInfo", "trial", hostname="nobody"),
            "--dry-run=server",
        )[1]
    )


def apply_document(
    plane: ControlPlane, namespace: str, document: Json, *more: str
) -> tuple[str, list[str]]:
    """What kubectl prints for whoever applies this, and its warnings."""
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


async def test_a_mistyped_name_is_told_by_kubectl_and_the_object_is_stored(
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
    shown, warnings = await apply(wrong)
    assert shown == "hostinfo.topology.corinternal.com/wrong created"
    status = await infos.wait_for_status("HostInfo", "wrong", "HostNotFound")
    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    assert warnings == [ready["message"]]
    assert f'Did you mean "{HOST_NAME}"?' in warnings[0]
    assert await apply(wrong) == ("hostinfo.topology.corinternal.com/wrong unchanged", [])
    assert (await apply(wrong | {"metadata": {"name": "wrong", "labels": {"a": "b"}}}))[1] == []
    assert await apply(info_manifest("HostInfo", "wrong", hostname=HOST_NAME)) == (
        "hostinfo.topology.corinternal.com/wrong configured",
        [],
    )
    await infos.wait_for_status("HostInfo", "wrong")
    shown, warnings = await apply(wrong, "--dry-run=server")
    assert warnings == [ready["message"]]
    assert (await infos.get("HostInfo", "wrong"))["spec"] == {"hostname": HOST_NAME}


REQUIRED_PERMISSIONS = {
    Permission("create", "", "secrets"),
    Permission("get", "", "secrets"),
    Permission("get", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    Permission("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
}
ROTATION_PERMISSIONS = {Permission("patch", "", "secrets")}
"""Used when the CA is replaced, after two thirds of a year: packages/kubewright/tests/webhook/test_real_cert_rotation.py."""


async def test_the_other_kinds_warn_too_and_the_rights_of_the_component_are_what_it_takes(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    infos = InfoClient(installed, namespace)
    await infos.create("FCDInfo", "right", DISK_NAME)
    await infos.wait_for_status("FCDInfo", "right")

    async def warnings(document: Json) -> list[str]:
        return (await asyncio.to_thread(apply_document, installed, namespace, document))[1]

    (said,) = await warnings(info_manifest("VMInfo", "a", nodename="Worker-1"))
    assert 'no VM named "Worker-1". Did you mean "worker-1"?' in said
    (said,) = await warnings(info_manifest("FCDInfo", "a", pvId="pvc-0"))
    assert '"pvc-0"' in said
    (said,) = await warnings(group_manifest(cluster="nowhere"))
    assert 'no cluster named "nowhere"' in said
    assert await warnings(group_manifest()) == []
    lines = [
        event
        for event in installed.read_audit_events()
        if event.get("userAgent") == manager.user_agent
    ]
    assert list_forbidden_messages(lines) == []
    assert list_used(lines) >= REQUIRED_PERMISSIONS
    given = await asyncio.to_thread(list_granted, installed, SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    ours = {act for act in given if act.resource in ("secrets", "validatingwebhookconfigurations")}
    assert ours == REQUIRED_PERMISSIONS | ROTATION_PERMISSIONS


async def test_without_the_flag_nothing_listens_and_nothing_is_asked_for(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    manager_kubeconfig: Path,
    log_file: Path,
    tmp_path: Path,
) -> None:
    given = [
        each
        for each in make_flags(vcenter, manager_kubeconfig, tmp_path)
        if not each.startswith("-webhook")
    ]
    async with run_manager(log_file, *given) as manager:
        await manager.wait_for_log("logged in", within=40)
        await manager.wait_until_ready(within=40)
        assert "serving webhooks" not in manager.log_text
    lines = [
        event
        for event in installed.read_audit_events()
        if event.get("userAgent") == manager.user_agent
    ]
    assert list_used(lines).isdisjoint(REQUIRED_PERMISSIONS)


async def test_a_manager_that_is_gone_keeps_nobody_from_applying(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    await manager.kill()
    shown = await asyncio.to_thread(
        apply_document, installed, namespace, info_manifest("HostInfo", "late", hostname="nobody")
    )
    assert shown == ("hostinfo.topology.corinternal.com/late created", [])
