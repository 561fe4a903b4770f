"""The life of a release: helm install, upgrade, rollback and uninstall on a real API server.

The manager runs as a process with the flags of the Deployment and the service account of the chart.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controller_manager import DEFAULT_CONTROLLERS
from kubewright.testing.controlplane import ControlPlane
from kubewright.yaml_text import to_yaml
from simulator import SimulatedVCenter
from support.chart_values import read_values, render
from support.helm import Helm, HelmFailed
from support.manager_process import (
    FREE_PORT_FLAGS,
    LEASE_NAME,
    MANAGER_USER,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    run_manager,
)
from support.vmgroup_client import VmGroupClient, is_running, list_group_vms

from .audit_log import list_forbidden_messages

RELEASE = "vsphere-operators"
DEPLOYMENT = "vsphere-operators-controller-manager"
CA_SECRET = "vsphere-operators-webhook-ca"
PATHS = {
    "crd": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}",
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}",
    "secret": "/api/v1/namespaces/{namespace}/secrets/{name}",
}
Json = dict[str, Any]
ObjectId = tuple[str, str, str]
KEPT_NAMESPACE: ObjectId = ("Namespace", "", SYSTEM_NAMESPACE)
# Values with examples that exclude each other, leave objects out, or need CRDs of other projects.
NOT_COMBINED = (
    "createNamespace",
    "crds.",
    "leaderElection.",
    "manifests.",
    "metrics.",
    "podDisruptionBudget.enabled",
    "rbac.",
    "serviceAccount.create",
    "vcenter.",
    "vmGroups.existingLimitsSecret",
    "webhooks.",
)


@pytest.fixture(scope="module")
def control_plane(binaries_with_controllers: dict[str, Path]) -> Iterator[ControlPlane]:
    """In place of the session's: without the CRDs and roles that other tests install."""
    plane = ControlPlane(binaries_with_controllers, audit=True, controllers=DEFAULT_CONTROLLERS)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture
def chart(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / "charts/vsphere-operators"


@pytest.fixture
def older_chart(chart: Path, tmp_path: Path) -> Path:
    """An older version of the chart; VmGroups have no short name in it."""
    older = Path(shutil.copytree(chart, tmp_path / "older"))
    crds, metadata = older / "templates/crds.yaml", older / "Chart.yaml"
    short_name = "    shortNames:\n    - vg\n"
    assert short_name in crds.read_text()
    crds.write_text(crds.read_text().replace(short_name, ""))
    metadata.write_text(metadata.read_text().replace("version: ", "version: 0.0.1-", 1))
    return older


@pytest.fixture
def helm(control_plane: ControlPlane, tmp_path: Path) -> Helm:
    folder = tmp_path / "helm"
    folder.mkdir()
    return Helm(folder, control_plane.admin_kubeconfig)


async def run_helm(helm: Helm, command: str, *arguments: str, values: Json | None = None) -> str:
    options = ("--namespace", SYSTEM_NAMESPACE, "--wait", "--timeout=90s")
    return await asyncio.to_thread(helm.run, command, RELEASE, *arguments, *options, values=values)


def list_objects(plane: ControlPlane) -> set[ObjectId]:
    """All objects but Events, which the API server removes later, and APIServices of CRDs."""
    kinds = plane.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    names = ",".join(kind for kind in kinds if not kind.startswith(("events", "apiservices")))
    items = json.loads(plane.kubectl("get", names, "--all-namespaces", "-o", "json"))["items"]
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in items
    }


def read_object(plane: ControlPlane, kind: str, name: str) -> Json:
    with plane.apiserver.admin_client() as https:
        return dict(https.call("GET", PATHS[kind].format(namespace=SYSTEM_NAMESPACE, name=name)))


def prepare_flags(plane: ControlPlane, vcenter: SimulatedVCenter, folder: Path) -> list[str]:
    """The flags of the Deployment, with files and addresses that the Pod has elsewhere."""
    credentials = folder / "vc-creds"
    credentials.mkdir(parents=True)
    for key, value in read_object(plane, "secret", "vc-creds")["data"].items():
        (credentials / key).write_bytes(base64.b64decode(value))
    kubeconfig = plane.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, folder / "kubeconfig"
    )
    deployment = read_object(plane, "deployment", DEPLOYMENT)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    replaced = ("-vcenter-credentials=", "-metrics-bind-address=", "-health-probe-bind-address=")
    return [
        *(flag for flag in container["args"] if not flag.startswith(replaced)),
        *FREE_PORT_FLAGS,
        f"-kubeconfig={kubeconfig}",
        f"-vcenter-credentials={credentials}",
        f"-vcenter-ca-file={vcenter.certificate}",
        "-webhook-port=0",
    ]


@asynccontextmanager
async def run_installed_manager(
    plane: ControlPlane, vcenter: SimulatedVCenter, folder: Path
) -> AsyncIterator[ManagerProcess]:
    """The manager of the installed Deployment, which no Pod runs here."""
    flags = await asyncio.to_thread(prepare_flags, plane, vcenter, folder)
    environ = {"POD_NAMESPACE": SYSTEM_NAMESPACE}
    async with run_manager(folder / "manager.log", *flags, environ=environ) as manager:
        await manager.wait_for_log("logged in", within=60)
        yield manager
        await manager.stop(15)


async def test_release_is_installed_upgraded_rolled_back_and_removed(
    control_plane: ControlPlane,
    simulator: SimulatedVCenter,
    kubelet: None,
    helm: Helm,
    chart: Path,
    older_chart: Path,
    tmp_path: Path,
) -> None:
    plane = control_plane
    before = await asyncio.to_thread(list_objects, plane)
    values: Json = {
        "image": {"repository": "example.com/vsphere-operators"},
        "vcenter": {
            "server": simulator.url,
            "username": simulator.user,
            "password": simulator.password,
        },
    }
    notes = await run_helm(helm, "install", str(older_chart), "--create-namespace", values=values)
    assert f"is installed in namespace {SYSTEM_NAMESPACE}" in notes
    release = await asyncio.to_thread(
        read_object, plane, "secret", f"sh.helm.release.v1.{RELEASE}.v1"
    )
    # The API server rejects a Secret with more than 1 MiB.
    assert len(base64.b64decode(release["data"]["release"])) < 512 * 1024
    groups = VmGroupClient(plane, "default")

    async def has_running_group() -> bool:
        return is_running(await groups.get("vg-1"))

    async with run_installed_manager(plane, simulator, tmp_path / "installed"):
        group = await groups.create("vg-1", replicas=2)
        await eventually(has_running_group, within=60)
    uid = group["metadata"]["uid"]

    async def list_vms() -> set[str]:
        return {vm.name for vm in await list_group_vms(simulator, uid)}

    vms = await list_vms()
    assert len(vms) == 2
    await simulator.reset_mutating_calls()

    upgraded = values | {
        "replicas": 2,
        "webhooks": {"enabled": True},
        "labelNodes": {"enabled": True},
        "inventoryMetrics": {"enabled": True},
        "podDisruptionBudget": {"maxUnavailable": 1},
        "labels": {"team": "platform"},
    }
    await run_helm(helm, "upgrade", str(chart), values=upgraded)
    # The CRDs are upgraded with the release.
    crd = await asyncio.to_thread(read_object, plane, "crd", "vmgroups.vm.codeconnect.vmworld.com")
    assert crd["spec"]["names"]["shortNames"] == ["vg"]
    async with run_installed_manager(plane, simulator, tmp_path / "upgraded") as manager:
        await eventually(has_running_group, within=30)

        async def has_ca() -> bool:
            secret = await asyncio.to_thread(read_object, plane, "secret", CA_SECRET)
            return bool(secret.get("data"))

        async def has_leader() -> bool:
            lease = await asyncio.to_thread(read_object, plane, "lease", LEASE_NAME)
            return bool(lease["spec"]["holderIdentity"])

        # The manager fills in the objects of the chart. The CA does not wait for the lease, which
        # the manager before has released.
        await eventually(has_ca, within=30)
        await eventually(has_leader, within=30)
        assert "-label-nodes" in manager.arguments

    await run_helm(helm, "rollback", "1")
    crd = await asyncio.to_thread(read_object, plane, "crd", "vmgroups.vm.codeconnect.vmworld.com")
    assert "shortNames" not in crd["spec"]["names"]
    async with run_installed_manager(plane, simulator, tmp_path / "rolled-back"):
        await eventually(has_running_group, within=30)

    await run_helm(helm, "uninstall")
    crds = {item for item in await asyncio.to_thread(list_objects, plane) if _is_crd(item)}
    kept = {
        # `helm uninstall` does not remove the namespace of --create-namespace.
        KEPT_NAMESPACE,
        ("ServiceAccount", SYSTEM_NAMESPACE, "default"),
        ("VmGroup", "default", "vg-1"),
        *crds,
    }
    assert len(crds) == 8

    async def find_left_over() -> set[ObjectId]:
        return await asyncio.to_thread(list_objects, plane) - before - kept

    async def is_clean() -> bool:
        return not await find_left_over()

    try:
        await eventually(is_clean, within=30, every=0.5)
    except AssertionError:
        raise AssertionError(f"left behind: {await find_left_over()}") from None

    # Nothing has touched the VMs, and a new release serves them again.
    assert await simulator.mutating_calls() == []
    assert await list_vms() == vms
    await run_helm(helm, "install", str(chart), values=values)
    async with run_installed_manager(plane, simulator, tmp_path / "again"):
        await groups.patch_spec("vg-1", replicas=3)

        async def has_three() -> bool:
            return len(await list_vms()) == 3 and await has_running_group()

        await eventually(has_three, within=60)
        assert vms < await list_vms()
        await groups.delete("vg-1")
        await groups.wait_until_deleted("vg-1")
    assert await list_vms() == set()
    events = await asyncio.to_thread(plane.read_audit_events)
    calls = [event for event in events if event["user"]["username"] == MANAGER_USER]
    assert calls
    assert list_forbidden_messages(calls) == []
    await run_helm(helm, "uninstall")


def _is_crd(item: ObjectId) -> bool:
    return item[0] == "CustomResourceDefinition"


async def test_release_takes_over_what_kubectl_has_installed(
    control_plane: ControlPlane, kubelet: None, helm: Helm, chart: Path, config: Path
) -> None:
    """The way from `make deploy` to Helm, and with crds.keep=false nothing is left."""
    plane = control_plane
    applied = await asyncio.to_thread(plane.kubectl, "apply", "-k", str(config / "default"))
    assert f"deployment.apps/{DEPLOYMENT}" in applied
    values: Json = {"image": {"repository": "example.com/operators"}, "crds": {"keep": False}}
    with pytest.raises(HelmFailed, match="invalid ownership metadata"):
        await run_helm(helm, "install", str(chart), values=values)
    flags = ("--take-ownership", "--force-conflicts")
    await run_helm(helm, "install", str(chart), *flags, values=values)
    deployment = await asyncio.to_thread(read_object, plane, "deployment", DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("example.com/operators:")
    await run_helm(helm, "uninstall")

    async def has_no_release() -> bool:
        objects = await asyncio.to_thread(list_objects, plane)
        return not any(_is_crd(item) or RELEASE in item[2] for item in objects - {KEPT_NAMESPACE})

    await eventually(has_no_release, within=30, every=0.5)


async def test_missing_crds_of_other_projects_fail_before_a_release_exists(
    helm: Helm, chart: Path
) -> None:
    values: Json = {
        "image": {"repository": "example.com/operators"},
        "manifests": {"prometheusRule": True},
    }
    with pytest.raises(HelmFailed, match="Install the Prometheus Operator first"):
        await run_helm(helm, "install", str(chart), "--create-namespace", values=values)
    releases = await asyncio.to_thread(helm.run, "list", "--all-namespaces", "--output=json")
    assert json.loads(releases) == []


def test_api_server_accepts_the_examples_of_all_values(
    control_plane: ControlPlane, helm: Helm, chart: Path, pytestconfig: pytest.Config
) -> None:
    """Helm passes most values on unchecked, so a wrong field would show only here."""
    values = {
        path: value.example
        for path, value in read_values(pytestconfig.rootpath).items()
        if not path.startswith(NOT_COMBINED)
    }
    assert {"dnsConfig", "envFrom", "networkPolicy.egress.vcenters.to"} <= values.keys()
    objects = render(helm, chart, values)
    for item in objects.values():
        if "namespace" in item["metadata"]:
            item["metadata"]["namespace"] = "default"
    command = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    output = control_plane.kubectl(*command, stdin=to_yaml(*objects.values()))
    assert len(output.splitlines()) == len(objects)
