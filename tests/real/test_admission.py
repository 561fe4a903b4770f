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

from .auditing import Act, did, granted, refusals
from .groups import TEMPLATE
from .managing import EVERYWHERE, SERVICE_ACCOUNT, SYSTEM, ManagerProcess, started
from .stage import simulated
from .vsphere import GROUP, Infos, credentials_in

HOST, DISK, NODE = (
    "esxi-dell-e.rainpole.com",
    "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43",
    "worker-1",
)
HERE = "127.0.0.1"
CONFIGURATION = "validatingwebhookconfiguration/vsphere-operators-validating-webhook-configuration"
SECRET = "vsphere-operators-webhook-ca"
Json = dict[str, Any]


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (f"--host-name={HOST}", f"--fcd={DISK}", f"--node={NODE}")
    async with simulated(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    ) as vcenter:
        yield vcenter


@pytest.fixture
def component(config: Path, tmp_path: Path, binaries: dict[str, Path]) -> list[Json]:
    """What config/components/webhooks adds to config/default, and changes of it."""
    plain = {identity(each): each for each in rendered(config, tmp_path, binaries)}
    return [
        each
        for each in rendered(config, tmp_path, binaries, "webhooks")
        if plain.get(identity(each)) != each
    ]


def rendered(
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


def identity(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_the_component_adds_this_and_no_more(component: list[Json]) -> None:
    assert sorted(identity(each) for each in component) == [
        ("ClusterRole", "vsphere-operators-webhook-ca-role"),
        ("ClusterRoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Deployment", "vsphere-operators-controller-manager"),
        ("Role", "vsphere-operators-webhook-ca-role"),
        ("RoleBinding", "vsphere-operators-webhook-ca-rolebinding"),
        ("Service", "vsphere-operators-webhook-service"),
        ("ValidatingWebhookConfiguration", "vsphere-operators-validating-webhook-configuration"),
    ]
    (deployment,) = (each for each in component if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "-webhooks"
    assert {"name": "webhook", "containerPort": 9443, "protocol": "TCP"} in container["ports"]


def test_all_of_it_is_admitted(installed: ControlPlane, component: list[Json]) -> None:
    shown = installed.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(component)
    )
    assert len(shown.splitlines()) == len(component)


def test_cert_manager_takes_the_place_of_the_own_authority(
    config: Path, tmp_path: Path, binaries: dict[str, Path]
) -> None:
    made = {
        identity(each): each
        for each in rendered(config, tmp_path, binaries, "webhooks", "cert-manager")
    }
    assert ("Certificate", "vsphere-operators-serving-cert") in made
    assert not [name for _, name in made if "webhook-ca" in name]
    annotations = made["ValidatingWebhookConfiguration", CONFIGURATION.partition("/")[2]][
        "metadata"
    ]["annotations"]
    assert annotations == {
        "cert-manager.io/inject-ca-from": f"{SYSTEM}/vsphere-operators-serving-cert"
    }
    (container,) = made["Deployment", "vsphere-operators-controller-manager"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["args"][-2:] == ["-webhooks", "-webhook-cert-dir=/etc/webhook-certificates"]


@pytest.fixture
async def manager(
    installed: ControlPlane,
    namespace: str,
    component: list[Json],
    vcenter: SimulatedVCenter,
    service_account: Path,
    log: Path,
    tmp_path: Path,
) -> AsyncIterator[ManagerProcess]:
    """A manager that knows its vCenter, and whose webhooks the API server asks and trusts; the rights for that are gone afterwards."""
    added = [
        each
        for each in component
        if each["kind"] not in ("Deployment", "ValidatingWebhookConfiguration")
    ]
    (configuration,) = (
        each for each in component if each["kind"] == "ValidatingWebhookConfiguration"
    )
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(added))
    try:
        async with started(log, *flags(vcenter, service_account, tmp_path)) as manager:
            await manager.says("serving webhooks", within=30)
            installed.kubectl(
                "apply", "-f", "-", stdin=json.dumps(reached(configuration, port_of(manager)))
            )
            await manager.becomes_ready(within=40)
            await eventually(lambda: asyncio.to_thread(answers, installed, namespace), within=40)
            yield manager
    finally:
        installed.kubectl("delete", "--ignore-not-found", CONFIGURATION)
        installed.kubectl("-n", SYSTEM, "delete", "--ignore-not-found", f"secret/{SECRET}")
        installed.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(added))


def flags(vcenter: SimulatedVCenter, kubeconfig: Path, folder: Path) -> tuple[str, ...]:
    """As the component has it, but on a free port of this machine, and without a lease to wait for: webhooks need none."""
    return (
        f"--kubeconfig={kubeconfig}",
        *EVERYWHERE,
        f"--vcenter-credentials={credentials_in(folder / 'vc-creds', vcenter)}",
        f"--vcenter-ca-file={vcenter.certificate}",
        "--zap-log-level=debug",
        f"--leader-election-namespace={SYSTEM}",
        "-webhooks",
        "-webhook-port=0",
        f"-webhook-hosts={HERE}",
    )


def port_of(manager: ManagerProcess) -> int:
    return int(next(line["port"] for line in manager.lines if line["msg"] == "serving webhooks"))


def reached(configuration: Json, port: int) -> Json:
    """The configuration, with an address of this machine in place of the Service; that needs a cluster's network."""
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"] = {
            "url": f"https://{HERE}:{port}{webhook['clientConfig']['service']['path']}"
        }
    return configuration


def answers(plane: ControlPlane, namespace: str) -> bool:
    """Whether warnings arrive; the API server's own watch of the configuration, and the inventory, take a moment."""
    return bool(
        applied(plane, namespace, info("HostInfo", "trial", hostname="nobody"), "--dry-run=server")[
            1
        ]
    )


def applied(
    plane: ControlPlane, namespace: str, document: Json, *more: str
) -> tuple[str, list[str]]:
    """What kubectl prints for whoever applies this, and its warnings."""
    done = plane.run_kubectl("-n", namespace, "apply", *more, "-f", "-", stdin=json.dumps(document))
    return done.stdout.strip(), re.findall(r"^Warning: (.*)$", done.stderr, re.MULTILINE)


def info(kind: str, name: str, **spec: str) -> Json:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def group(**placement: str) -> Json:
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
    infos = Infos(installed, namespace)

    async def apply(document: Json, *more: str) -> tuple[str, list[str]]:
        return await asyncio.to_thread(applied, installed, namespace, document, *more)

    assert await apply(info("HostInfo", "right", hostname=HOST)) == (
        "hostinfo.topology.corinternal.com/right created",
        [],
    )
    wrong = info("HostInfo", "wrong", hostname=HOST.replace("dell", "del"))
    shown, warnings = await apply(wrong)
    assert shown == "hostinfo.topology.corinternal.com/wrong created"
    status = await infos.status("HostInfo", "wrong", "HostNotFound")
    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    assert warnings == [ready["message"]]
    assert f'Near to it: "{HOST}"' in warnings[0]
    assert await apply(wrong) == ("hostinfo.topology.corinternal.com/wrong unchanged", [])
    assert (await apply(wrong | {"metadata": {"name": "wrong", "labels": {"a": "b"}}}))[1] == []
    assert await apply(info("HostInfo", "wrong", hostname=HOST)) == (
        "hostinfo.topology.corinternal.com/wrong configured",
        [],
    )
    await infos.status("HostInfo", "wrong")
    shown, warnings = await apply(wrong, "--dry-run=server")
    assert warnings == [ready["message"]]
    assert (await infos.get("HostInfo", "wrong"))["spec"] == {"hostname": HOST}


NEEDED = {
    Act("create", "", "secrets"),
    Act("get", "", "secrets"),
    Act("get", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    Act("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
}
LATER = {Act("patch", "", "secrets")}
"""Used when the CA is replaced, after two thirds of a year: packages/kubewright/tests/webhook/test_real_rotation.py."""


async def test_the_other_kinds_warn_too_and_the_rights_of_the_component_are_what_it_takes(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    infos = Infos(installed, namespace)
    await infos.create("FCDInfo", "right", DISK)
    await infos.status("FCDInfo", "right")

    async def warnings(document: Json) -> list[str]:
        return (await asyncio.to_thread(applied, installed, namespace, document))[1]

    (said,) = await warnings(info("VMInfo", "a", nodename="Worker-1"))
    assert 'no VM named "Worker-1". Near to it: "worker-1"' in said
    (said,) = await warnings(info("FCDInfo", "a", pvId="pvc-0"))
    assert '"pvc-0"' in said
    (said,) = await warnings(group(cluster="nowhere"))
    assert 'no cluster named "nowhere"' in said
    assert await warnings(group()) == []
    lines = [
        event for event in installed.read_audit_events() if event.get("userAgent") == manager.agent
    ]
    assert refusals(lines) == []
    assert did(lines) >= NEEDED
    given = await asyncio.to_thread(granted, installed, SYSTEM, SERVICE_ACCOUNT)
    ours = {act for act in given if act.resource in ("secrets", "validatingwebhookconfigurations")}
    assert ours == NEEDED | LATER


async def test_without_the_flag_nothing_listens_and_nothing_is_asked_for(
    installed: ControlPlane,
    vcenter: SimulatedVCenter,
    service_account: Path,
    log: Path,
    tmp_path: Path,
) -> None:
    given = [
        each
        for each in flags(vcenter, service_account, tmp_path)
        if not each.startswith("-webhook")
    ]
    async with started(log, *given) as manager:
        await manager.says("logged in", within=40)
        await manager.becomes_ready(within=40)
        assert "serving webhooks" not in manager.text
    lines = [
        event for event in installed.read_audit_events() if event.get("userAgent") == manager.agent
    ]
    assert did(lines).isdisjoint(NEEDED)


async def test_a_manager_that_is_gone_keeps_nobody_from_applying(
    manager: ManagerProcess, installed: ControlPlane, namespace: str
) -> None:
    await manager.kill()
    shown = await asyncio.to_thread(
        applied, installed, namespace, info("HostInfo", "late", hostname="nobody")
    )
    assert shown == ("hostinfo.topology.corinternal.com/late created", [])
