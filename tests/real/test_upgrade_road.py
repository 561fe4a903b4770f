"""docs/howto/upgrade.md from each of the original operators to this manager, and back.

The CRDs, objects and Deployments are those of the originals. The commands are those of the page,
with the names of the operator that is replaced.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager
from support.manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE, ready_condition
from support.simulator_state import read_simulator_state

from .crash_run import run_simulator
from .original_operator import create_original_vms

ROOT = Path(__file__).parents[2]
TOPOLOGY, VM = "topology.corinternal.com", "vm.codeconnect.vmworld.com"
INTEGER, TEXT, BOOLEAN = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
DISK_NAME = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"


@dataclass(frozen=True)
class Original:
    """An original operator: its CRD, its sample and the status that it wrote."""

    kind: str
    plural: str
    short_name: str
    # The names of its Deployment and namespace begin with it.
    project: str
    name: str
    spec: dict[str, Any]
    spec_fields: dict[str, Any]
    status: dict[str, Any]
    group: str = TOPOLOGY
    version: str = "v1"
    # Ready of this manager's answer.
    ready: str = "True"
    required: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return f"{self.project}-system"

    @property
    def deployment(self) -> str:
        return f"{self.project}-controller-manager"

    @property
    def path(self) -> str:
        """The path of its sample in the API."""
        return f"/apis/{self.group}/{self.version}/namespaces/default/{self.plural}/{self.name}"

    def build_crd(self) -> dict[str, Any]:
        """As controller-gen of that time made it."""
        status_fields = {
            name: INTEGER if isinstance(value, int) and not isinstance(value, bool) else TEXT
            for name, value in self.status.items()
        } | {name: BOOLEAN for name, value in self.status.items() if isinstance(value, bool)}
        spec = {"type": "object", "properties": self.spec_fields}
        if self.required:
            spec["required"] = self.required
        schema = {
            "type": "object",
            "properties": {
                "apiVersion": TEXT,
                "kind": TEXT,
                "metadata": {"type": "object"},
                "spec": spec,
                "status": {"type": "object", "properties": status_fields},
            },
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": [self.short_name] if self.short_name else [],
                },
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": self.version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                    }
                ],
            },
        }

    def build_object(self) -> dict[str, Any]:
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": self.spec,
        }


ORIGINALS = [
    Original(
        kind="HostInfo",
        plural="hostinfoes",
        short_name="ch",
        project="hostinfo",
        name="hostinfo-host-e",
        spec={"hostname": "DC0_C0_H0"},
        spec_fields={"hostname": TEXT},
        status={"totalCPU": 43980, "freeCPU": 40514},
    ),
    Original(
        kind="VMInfo",
        plural="vminfoes",
        short_name="ch",
        project="vminfo",
        name="tkg-worker-1",
        spec={"nodename": "DC0_C0_RP0_VM0"},
        spec_fields={"nodename": TEXT},
        status={"guestId": "ubuntu64Guest", "totalCPU": 4, "powerState": "poweredOn"},
    ),
    Original(
        kind="FCDInfo",
        plural="fcdinfoes",
        short_name="fcd",
        project="fcdinfo",
        name="fcdinfo-sample",
        spec={"pvId": DISK_NAME},
        spec_fields={"pvId": TEXT},
        status={"sizeMB": 1024, "filePath": "[vsan] fcd/a.vmdk", "provisioningType": "thin"},
    ),
    Original(
        kind="GPUInfo",
        plural="gpuinfoes",
        short_name="gpu",
        project="accelerator-operator",
        name="gpuinfo-sample",
        spec={"desAccTime": 100, "gpuRequired": True},
        spec_fields={"desAccTime": INTEGER, "gpuRequired": BOOLEAN},
        status={"suitableNodeName": "k8s-worker-01", "availableAcceleratorTime": 350},
        # The cluster has no Node.
        ready="False",
    ),
    Original(
        kind="VmGroup",
        plural="vmgroups",
        short_name="vg",
        project="codeconnect-vm-operator",
        name="vg-1",
        spec={"cpu": 1, "memory": 1, "replicas": 3, "template": "vm-operator-template"},
        spec_fields={"cpu": INTEGER, "memory": INTEGER, "replicas": INTEGER, "template": TEXT},
        status={
            "phase": "RUNNING",
            "currentReplicas": 3,
            "desiredReplicas": 3,
            "lastMessage": "successfully reconciled VmGroup",
        },
        group=VM,
        version="v1alpha1",
        required=["cpu", "memory", "replicas", "template"],
    ),
    Original(
        kind="MyCustomResource",
        plural="mycustomresources",
        short_name="",
        project="k8s-custom-operator-poc",
        name="my-custom-resource-01",
        spec={"name": "funny-joe"},
        spec_fields={"name": TEXT},
        status={"Healthy": True},
        group="poc.test.domain",
    ),
]


def commands_with(text: str) -> str:
    """The only block of the page that contains the text."""
    page = (ROOT / "docs/howto/upgrade.md").read_text()
    section = page.split("## From an older version")[0]
    (block,) = [block.text for block in fenced_blocks(section) if text in block.text]
    return block


@dataclass(frozen=True)
class Road:
    """One cluster with some of the originals."""

    plane: ControlPlane
    vcenter: SimulatedVCenter
    originals: Sequence[Original]
    folder: Path

    async def run(self, commands: str, original: Original | None = None) -> str:
        """Run commands of the page in the repository, with the names of this original."""
        if original:
            for name in ("hostinfo", "codeconnect-vm-operator"):
                commands = commands.replace(f"{name}-controller-manager", original.deployment)
                commands = commands.replace(f"{name}-system", original.namespace)
        programs = f"{self.plane.binaries['kubectl'].parent}:{Path(sys.executable).parent}"
        environ = {
            **os.environ,
            "KUBECONFIG": str(self.plane.admin_kubeconfig),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.plane.folder),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def call(self, verb: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/merge-patch+json"} if verb == "PATCH" else None
        with self.plane.apiserver.admin_client() as https:
            return dict(https.call(verb, path, body, headers))

    def get(self, original: Original) -> dict[str, Any]:
        return self.call("GET", original.path)

    async def wait_for_ready(self, original: Original, status: str) -> dict[str, Any]:
        async def find() -> dict[str, Any] | None:
            obj = await asyncio.to_thread(self.get, original)
            ready = ready_condition(obj)
            is_current = ready.get("observedGeneration") == obj["metadata"]["generation"]
            return obj if is_current and ready.get("status") == status else None

        obj: dict[str, Any] | None = await eventually(find, within=40, every=0.2)
        assert obj is not None
        return obj

    def install_original(self, original: Original) -> None:
        """Its CRD, sample, status, Deployment and Secret."""
        plane = self.plane
        # As `make install` of kubebuilder: without --server-side.
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(original.build_crd()))
        plane.wait_for_crds(f"{original.plural}.{original.group}")
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(original.build_object()))
        self.call("PATCH", f"{original.path}/status", {"status": original.status})
        labels = {"control-plane": "controller-manager"}
        container = {"name": "manager", "image": "controller:latest"}
        plane.create_namespace(original.namespace)
        objects = [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": original.deployment, "labels": labels},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [container]},
                    },
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "vc-creds"},
                "stringData": {
                    "GOVMOMI_URL": self.vcenter.url,
                    "GOVMOMI_USERNAME": self.vcenter.user,
                    "GOVMOMI_PASSWORD": self.vcenter.password,
                },
            },
        ]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        plane.kubectl("apply", "-n", original.namespace, "-f", "-", stdin=manifest)

    async def copy_secret(self, original: Original) -> dict[str, str]:
        """The data of the Secret that the commands of the page copy to the new namespace."""
        path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/vc-creds"
        if original is not self.originals[0]:
            # Of the original before.
            await asyncio.to_thread(self.call, "DELETE", path)
        await self.run(commands_with("get secret vc-creds"), original)
        return dict((await asyncio.to_thread(self.call, "GET", path))["data"])

    def mount_secret(self, data: Mapping[str, str]) -> Path:
        """As kubelet mounts it."""
        folder = self.folder / "vc-creds"
        folder.mkdir()
        for key, value in data.items():
            (folder / key).write_bytes(base64.b64decode(value))
        return folder

    def replicas_of(self, namespace: str, deployment: str) -> int:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
        return int(self.call("GET", path)["spec"]["replicas"])


@pytest.fixture(scope="module")
def road_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """Without any of our objects."""
    plane = ControlPlane(binaries)
    plane.start_sync()
    yield plane
    plane.stop_sync()


# The installation, the manager and the simulator are the same for all originals of a cluster. The
# original CRDs of HostInfo and VMInfo have the same short name, so that no cluster can have both.
ROADS = [
    [original for original in ORIGINALS if original.kind != "VMInfo"],
    [original for original in ORIGINALS if original.kind == "VMInfo"],
]


@pytest.fixture(params=ROADS, ids=lambda road: "-".join(original.kind for original in road))
async def road(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    road_plane: ControlPlane,
    tmp_path: Path,
) -> AsyncIterator[Road]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with run_simulator(binary, tmp_path / "vcsim") as vcenter:
        road = Road(road_plane, vcenter, request.param, tmp_path)
        yield road
    await asyncio.to_thread(remove_all, road)


def remove_all(road: Road) -> None:
    for original in road.originals:
        road.call("PATCH", original.path, {"metadata": {"finalizers": None}})
    namespaces = (*(original.namespace for original in road.originals), SYSTEM_NAMESPACE)
    for namespace in namespaces:
        road.plane.remove_namespace(namespace)
    crds = road.plane.kubectl("get", "crds", "-o", "name").split()
    road.plane.kubectl("delete", *crds, "--timeout=30s")


async def test_the_road_from_the_originals_and_back(road: Road) -> None:
    originals, plane, vcenter = road.originals, road.plane, road.vcenter
    groups = [original for original in originals if original.kind == "VmGroup"]
    await vcenter.create_disk(DISK_NAME)
    for group in groups:
        await create_original_vms(vcenter, "default", group.name, count=3)
    for original in originals:
        await asyncio.to_thread(road.install_original, original)
    before = {vm.ref: vm for vm in (await read_simulator_state(vcenter)).vms}
    uids = {original.kind: road.get(original)["metadata"]["uid"] for original in originals}

    # There.
    deployments = await road.run(commands_with("get deployments -A"))
    secrets = []
    for original in originals:
        assert original.deployment in deployments
        await road.run(commands_with("hostinfo-controller-manager --replicas=0"), original)
        assert road.replicas_of(original.namespace, original.deployment) == 0
        secrets.append(await road.copy_secret(original))
    assert all(secret == secrets[0] for secret in secrets)
    # `make deploy` of docs/howto/install.md, with this Python.
    await road.run(
        f"{sys.executable} -m kubewright deploy --image example.com/vsphere-operators:v1"
    )
    plane.wait_for_crds()
    await road.run(commands_with("get clusterrolebindings"))
    kubeconfig = plane.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, road.folder / "kubeconfig"
    )
    credentials = road.mount_secret(secrets[0])
    await vcenter.reset_mutating_calls()
    async with run_vcenter_manager(
        road.folder / "manager.log", kubeconfig, credentials, vcenter.certificate
    ):
        if any(original.kind == "MyCustomResource" for original in originals):
            await road.run("kubectl run funny-joe --image=ubuntu")
        for group in groups:
            await adopt(road, group)
        for original in originals:
            obj = await road.wait_for_ready(original, original.ready)
            assert obj["metadata"]["uid"] == uids[original.kind]
            assert {name: obj["spec"][name] for name in original.spec} == original.spec
            assert original.status.keys() <= obj["status"].keys() or original.ready == "False"

        # And back.
        for group in groups:
            await road.run(commands_with("adopt vg-1 -n default --undo --yes"), group)
    for original in originals:
        await road.run(
            commands_with(f"scale deployment \\\n  {original_deployment_on_page()}"), original
        )
        assert road.replicas_of(SYSTEM_NAMESPACE, "vsphere-operators-controller-manager") == 0
        assert road.replicas_of(original.namespace, original.deployment) == 1
        plane.kubectl("replace", "-f", "-", stdin=json.dumps(original.build_crd()))
        obj = road.get(original)
        assert obj["metadata"]["uid"] == uids[original.kind]
        assert obj["spec"] == original.spec
    after = {vm.ref: vm for vm in (await read_simulator_state(vcenter)).vms}
    assert after == before
    changes = [call["method"] for call in await vcenter.mutating_calls()]
    tasks = [method for method in changes if method.endswith("_Task")]
    assert tasks == ["ReconfigVM_Task"] * 6 * len(groups)


async def adopt(road: Road, group: Original) -> None:
    """The VMs of the original are not touched before the commands of the page adopt them."""
    blocked = await road.wait_for_ready(group, "False")
    assert ready_condition(blocked)["reason"] == "VMsNotAdopted"

    async def is_adoptable() -> bool:
        obj = await asyncio.to_thread(road.get, group)
        vms = obj["status"].get("adoption", {}).get("vms", [])
        return [vm["verdict"] for vm in vms] == ["Adoptable"] * 3

    await eventually(is_adoptable, within=60, every=0.2)
    output = await road.run(commands_with("adopt vg-1 -n default --yes"), group)
    assert "Dry run: nothing was changed." in output
    assert "has adopted 3 VMs" in output


def original_deployment_on_page() -> str:
    return "codeconnect-vm-operator-controller-manager"
