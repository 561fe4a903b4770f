"""What GitOps tools report: kstatus, as Flux uses it, on objects that the manager has written.

Each state is a row of a table: an object, the reason of its condition Ready, and the status that
kstatus must compute.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.go_module import build_module
from simulator import SimulatedVCenter
from support.info_client import TOPOLOGY_API_VERSION, run_vcenter_manager, write_credentials
from support.manager_process import ManagerProcess, ready_condition
from support.vmgroup_client import TEMPLATE

from .crash_run import run_simulator
from .gpu_cluster import NODE_UUIDS, GpuCluster

ObjectId = tuple[str, str]
HOST, NODE, DISK = "esxi-1.example.com", "worker-1", "pvc-1"
API_VERSIONS = {
    "VmGroup": "vm.codeconnect.vmworld.com/v1alpha1",
    "MyCustomResource": "poc.test.domain/v1",
}
KINDS: dict[str, dict[str, Any]] = {
    "HostInfo": {"hostname": HOST},
    "VMInfo": {"nodename": NODE},
    "FCDInfo": {"pvId": DISK},
    "DatastoreInfo": {"datastore": "LocalDS_0"},
    "ClusterInfo": {"cluster": "DC0_C0"},
    "GPUInfo": {"desAccTime": 1, "gpuRequired": False},
    "VmGroup": {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE},
    "MyCustomResource": {"name": "no-such-pod"},
}


class Row(NamedTuple):
    kind: str
    name: str
    spec: dict[str, Any] | None
    reason: str
    """Of the condition Ready; "" if the object has none."""
    expected: str


UNSEEN = [Row(kind, f"{kind.lower()}-a", spec, "", "InProgress") for kind, spec in KINDS.items()]
CURRENT = [
    Row("HostInfo", "hostinfo-a", None, "Reconciled", "Current"),
    Row("VMInfo", "vminfo-a", None, "Reconciled", "Current"),
    Row("FCDInfo", "fcdinfo-a", None, "Reconciled", "Current"),
    Row("DatastoreInfo", "datastoreinfo-a", None, "Reconciled", "Current"),
    Row("ClusterInfo", "clusterinfo-a", None, "Reconciled", "Current"),
    Row("GPUInfo", "gpuinfo-a", None, "NodeChosen", "Current"),
    Row("VmGroup", "vmgroup-a", None, "Reconciled", "Current"),
    Row("MyCustomResource", "mycustomresource-a", None, "NoFriend", "Current"),
]
FAILED = [
    Row("HostInfo", "absent", {"hostname": "absent"}, "HostNotFound", "Failed"),
    Row("HostInfo", "empty", {}, "HostnameMissing", "Failed"),
    Row("VMInfo", "absent", {"nodename": "absent"}, "VMNotFound", "Failed"),
    Row("VMInfo", "empty", {}, "NodenameMissing", "Failed"),
    Row("FCDInfo", "absent", {"pvId": "absent"}, "DiskNotFound", "Failed"),
    Row("FCDInfo", "empty", {}, "PVIdMissing", "Failed"),
    Row("DatastoreInfo", "absent", {"datastore": "absent"}, "DatastoreNotFound", "Failed"),
    Row("DatastoreInfo", "empty", {}, "DatastoreNameMissing", "Failed"),
    Row("ClusterInfo", "absent", {"cluster": "absent"}, "ClusterNotFound", "Failed"),
    Row("ClusterInfo", "empty", {}, "ClusterNameMissing", "Failed"),
    Row("GPUInfo", "negative", {"desAccTime": -1}, "NegativeTime", "Failed"),
    Row(
        "VmGroup", "absent", KINDS["VmGroup"] | {"template": "absent"}, "TemplateNotFound", "Failed"
    ),
    Row("MyCustomResource", "empty", {}, "NameMissing", "Failed"),
]
# The next Node may match, so this is not a failure.
WAITING = Row("GPUInfo", "too-long", {"desAccTime": 10**9}, "NoneAvailable", "InProgress")
CLONING = Row("VmGroup", "cloning", KINDS["VmGroup"], "Progressing", "InProgress")
UNREACHABLE = [
    Row("HostInfo", "hostinfo-a", None, "VCenterUnreachable", "InProgress"),
    Row("HostInfo", "new", {"hostname": HOST}, "VCenterUnreachable", "InProgress"),
    Row("VMInfo", "new", {"nodename": NODE}, "VCenterUnreachable", "InProgress"),
    Row("VmGroup", "new", KINDS["VmGroup"], "VCenterUnreachable", "InProgress"),
]
UNOBSERVED = [
    Row("HostInfo", "absent", {"hostname": HOST}, "HostNotFound", "InProgress"),
    Row("GPUInfo", "gpuinfo-a", {"desAccTime": 2}, "NodeChosen", "InProgress"),
    Row("VmGroup", "absent", KINDS["VmGroup"], "TemplateNotFound", "InProgress"),
]


class StatusReader:
    """Creates the objects of rows, and compares what kstatus computes for them."""

    def __init__(self, plane: ControlPlane, namespace: str, program: Path) -> None:
        self._plane, self._namespace, self._program = plane, namespace, program
        # By API version.
        self._plurals: dict[str, list[str]] = {}

    async def apply(self, *rows: Row) -> None:
        objects = [
            {
                "apiVersion": API_VERSIONS.get(row.kind, TOPOLOGY_API_VERSION),
                "kind": row.kind,
                "metadata": {"name": row.name, "namespace": self._namespace},
                "spec": row.spec,
            }
            for row in rows
            if row.spec is not None
        ]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        await asyncio.to_thread(self._plane.kubectl, "apply", "-f", "-", stdin=manifest)

    async def delete(self, kind: str, name: str) -> None:
        command = ("delete", kind, name, "-n", self._namespace, "--wait=false")
        await asyncio.to_thread(self._plane.kubectl, *command)

    async def wait_for(self, *rows: Row) -> None:
        reasons = {(row.kind, row.name): row.reason for row in rows}
        expected = {(row.kind, row.name): (row.reason, row.expected) for row in rows}

        def find_differences() -> dict[Any, Any]:
            objects = self._list_objects()
            actual_reasons = {key: _reason_of(obj) for key, obj in objects.items()}
            # kstatus is a process, so it computes only what can match.
            differences = _compare(reasons, actual_reasons)
            return differences or _compare(expected, self._compute_states(objects))

        async def matches() -> bool:
            return not await asyncio.to_thread(find_differences)

        try:
            await eventually(matches, within=60)
        except AssertionError:
            differences = await asyncio.to_thread(find_differences)
            raise AssertionError(f"kstatus differs: {differences}") from None

    def _list_objects(self) -> dict[ObjectId, Any]:
        with self._plane.apiserver.admin_client() as https:
            for api_version in (TOPOLOGY_API_VERSION, *API_VERSIONS.values()):
                if api_version not in self._plurals:
                    resources = https.call("GET", f"/apis/{api_version}")["resources"]
                    self._plurals[api_version] = [
                        resource["name"] for resource in resources if "/" not in resource["name"]
                    ]
            paths = [
                f"/apis/{api_version}/namespaces/{self._namespace}/{plural}"
                for api_version, plurals in self._plurals.items()
                for plural in plurals
            ]
            objects = [item for path in paths for item in https.call("GET", path)["items"]]
        return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}

    def _compute_states(self, objects: dict[ObjectId, Any]) -> dict[ObjectId, tuple[str, str]]:
        process = subprocess.run(
            [self._program],
            input=json.dumps(list(objects.values())),
            capture_output=True,
            text=True,
            check=True,
        )
        results = json.loads(process.stdout)
        return {
            key: (_reason_of(obj), result["status"])
            for (key, obj), result in zip(objects.items(), results, strict=True)
        }


def _reason_of(obj: Any) -> str:
    return str(ready_condition(obj).get("reason", ""))


def _compare(expected: dict[ObjectId, Any], actual: dict[ObjectId, Any]) -> dict[ObjectId, Any]:
    return {
        key: {"expected": value, "actual": actual.get(key)}
        for key, value in expected.items()
        if actual.get(key) != value
    }


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (
        "--hosts=1",
        f"--host-name={HOST}",
        f"--node={NODE}={NODE_UUIDS[NODE]}",
        f"--fcd={DISK}",
    )
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    ) as simulator:
        yield simulator


@pytest.fixture
async def node(installed: ControlPlane, namespace: str) -> AsyncIterator[None]:
    cluster = GpuCluster(installed, namespace)
    await cluster.add_node(NODE, f"vsphere://{NODE_UUIDS[NODE]}")
    yield
    await cluster.remove_nodes()


@pytest.fixture
def start_manager(
    simulator: SimulatedVCenter, log_file: Path, manager_kubeconfig: Path, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[ManagerProcess]]:
    credentials = write_credentials(tmp_path / "vc-creds", simulator)
    return lambda: run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, simulator.certificate
    )


@pytest.mark.usefixtures("node")
async def test_kstatus_of_every_kind(
    installed: ControlPlane,
    namespace: str,
    simulator: SimulatedVCenter,
    start_manager: Callable[[], AbstractAsyncContextManager[ManagerProcess]],
    pytestconfig: pytest.Config,
) -> None:
    root = pytestconfig.rootpath
    (program,) = await asyncio.to_thread(
        build_module, root / "testenv/kstatus", root / ".testenv/bin", build=False
    )
    objects = StatusReader(installed, namespace, program)
    # Without a manager nothing is known of an object, so it is not Current.
    await objects.apply(*UNSEEN)
    await objects.wait_for(*UNSEEN)
    async with start_manager():
        await objects.apply(*FAILED, WAITING)
        await objects.wait_for(*CURRENT, *FAILED, WAITING)
        await simulator.hold_calls("CloneVM_Task", "task")
        await objects.apply(CLONING)
        await objects.wait_for(CLONING)
        await simulator.release_calls()
        await objects.wait_for(CLONING._replace(reason="Reconciled", expected="Current"))
        await simulator.set_outage("503")
        await objects.apply(*UNREACHABLE)
        await objects.wait_for(*UNREACHABLE)
        await simulator.set_outage("")
        await objects.wait_for(CURRENT[0], Row("HostInfo", "new", None, "Reconciled", "Current"))
    await objects.apply(*UNOBSERVED)
    await objects.delete("VmGroup", "vmgroup-a")
    deleted = Row("VmGroup", "vmgroup-a", None, "Reconciled", "Terminating")
    await objects.wait_for(*UNOBSERVED, deleted)
    # What is repaired is not stalled any more; the manager also ends the deletion.
    async with start_manager():
        repaired = [row._replace(reason="Reconciled", expected="Current") for row in UNOBSERVED]
        await objects.wait_for(repaired[0], repaired[2])
