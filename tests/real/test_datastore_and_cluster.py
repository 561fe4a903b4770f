"""DatastoreInfo and ClusterInfo on a real API server, compared with what pyVmomi's client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import (
    InfoClient,
    run_vcenter_manager,
    without_conditions,
    write_credentials,
)
from support.manager_process import ManagerProcess, ready_condition
from support.pyvmomi_session import PyVmomiSession

from .expected_status import expected_cluster_status, expected_datastore_status

NODE_NAME = "worker-1"
DATASTORE_PATH = "/DC0/datastore/LocalDS_0"
CLUSTER_PATH = "/DC0/host/DC0_C0"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path / "vcsim",
        "--datacenters=2",
        "--clusters=2",
        "--hosts=3",
        "--vms=2",
        "--datastores=2",
        f"--node={NODE_NAME}",
        "--fcd=pvc-first",
    )
    try:
        yield await simulator.start()
    finally:
        await simulator.stop()


@pytest.fixture
async def manager(
    simulator: SimulatedVCenter, log_file: Path, manager_kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[ManagerProcess]:
    credentials = write_credentials(tmp_path / "vc-creds", simulator)
    flags = ("--stats-interval=2s", "--disk-refresh-interval=2s")
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, simulator.certificate, *flags
    ) as manager:
        yield manager


@pytest.fixture
def info_client(installed: ControlPlane, namespace: str) -> InfoClient:
    return InfoClient(installed, namespace)


@contextmanager
def cluster_object(
    client: InfoClient, collection: str, manifest: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """A Node or PersistentVolume for the time of the block."""
    path = f"/api/v1/{collection}"
    name = manifest["metadata"]["name"]
    with client.control_plane.apiserver.admin_client() as https:
        https.call("POST", path, manifest, None)
    try:
        yield manifest
    finally:
        with client.control_plane.apiserver.admin_client() as https:
            https.call("DELETE", f"{path}/{name}", None, None)
            if collection == "persistentvolumes":
                # kube-controller-manager would remove the protecting finalizer; none runs here.
                https.call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)


def volume_manifest(name: str, handle: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": handle},
        },
    }


def node_manifest(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def test_statuses_show_what_vcenter_reports(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    vcenter = simulator.address[0]
    paths = {
        kind: [entity["path"] for entity in await simulator.entities() if entity["type"] == type]
        for kind, type in (
            ("DatastoreInfo", "Datastore"),
            ("ClusterInfo", "ClusterComputeResource"),
        )
    }
    assert {kind: len(kind_paths) for kind, kind_paths in paths.items()} == {
        "DatastoreInfo": 4,
        "ClusterInfo": 4,
    }
    for kind, kind_paths in paths.items():
        for number, path in enumerate(kind_paths):
            await info_client.create(kind, f"x-{number}", path)
    async with PyVmomiSession(simulator) as session:
        for number, path in enumerate(paths["DatastoreInfo"]):
            status = await info_client.wait_for_status("DatastoreInfo", f"x-{number}")
            assert without_conditions(status) == await expected_datastore_status(
                session, path, vcenter, {}
            )
        for number, path in enumerate(paths["ClusterInfo"]):
            status = await info_client.wait_for_status("ClusterInfo", f"x-{number}")
            assert without_conditions(status) == await expected_cluster_status(
                session, path, vcenter, []
            )
    table = info_client.control_plane.kubectl("get", "di", "-n", info_client.namespace)
    print(table)
    clusters = info_client.control_plane.kubectl("get", "ci", "-n", info_client.namespace)
    print(clusters)
    assert max(len(line.rstrip()) for line in (table + clusters).splitlines()) <= 120


async def test_disks_and_volumes_of_a_datastore(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    vcenter, volume = simulator.address[0], f"pv-{info_client.namespace}"
    await info_client.create("DatastoreInfo", "d", DATASTORE_PATH)
    before = (await info_client.wait_for_status("DatastoreInfo", "d"))["orphanedDisks"]["count"]
    handle = await simulator.create_disk("another-name", datastore=DATASTORE_PATH)
    await info_client.wait_for_status(
        "DatastoreInfo",
        "d",
        predicate=lambda status: status["orphanedDisks"]["count"] == before + 1,
    )
    with cluster_object(info_client, "persistentvolumes", volume_manifest(volume, handle)):
        status = await info_client.wait_for_status(
            "DatastoreInfo",
            "d",
            predicate=lambda status: status["persistentVolumes"]["count"] == 1,
        )
        async with PyVmomiSession(simulator) as session:
            assert without_conditions(status) == await expected_datastore_status(
                session, DATASTORE_PATH, vcenter, {handle: volume}
            )
        await simulator.attach_disk("pvc-first", NODE_NAME)
        status = await info_client.wait_for_status(
            "DatastoreInfo",
            "d",
            predicate=lambda status: any(
                disk["attached"] for disk in status["orphanedDisks"].get("disks", ())
            ),
        )
    await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: status["persistentVolumes"]["count"] == 0
    )
    await simulator.delete_disk("another-name")
    await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: status["orphanedDisks"]["count"] == before
    )


async def test_changes_of_a_datastore(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("DatastoreInfo", "d", DATASTORE_PATH)
    full = await info_client.wait_for_status("DatastoreInfo", "d")
    await simulator.set_property(DATASTORE_PATH, "summary.freeSpace", 5 * 2**30)
    await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: status["freeMB"] == 5120
    )
    await simulator.set_property(DATASTORE_PATH, "summary.accessible", False)
    status = await info_client.wait_for_status("DatastoreInfo", "d", "DatastoreInaccessible")
    assert ready_condition({"status": status})["status"] == "False"
    assert {"capacityMB", "freeMB", "disks", "orphanedDisks"}.isdisjoint(status)
    await simulator.set_property(DATASTORE_PATH, "summary.accessible", True)
    status = await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: "disks" in status
    )
    assert status["capacityMB"] == full["capacityMB"]
    host = full["hosts"][0]
    await simulator.rename(host, "renamed.example.com")
    await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: "renamed.example.com" in status["hosts"]
    )


async def test_disks_that_cannot_be_read(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("DatastoreInfo", "d", DATASTORE_PATH)
    await info_client.wait_for_status("DatastoreInfo", "d")
    for method in ("VslmListVStorageObjectForSpec", "ListVStorageObject"):
        await simulator.fail_calls(method, "NoPermission", count=1000)
    status = await info_client.wait_for_status("DatastoreInfo", "d", "DisksUnreadable", within=40)
    assert ready_condition({"status": status})["status"] == "False"
    assert "capacityMB" in status
    assert {"disks", "persistentVolumes", "orphanedDisks"}.isdisjoint(status)
    await simulator.clear_rules()
    await info_client.wait_for_status(
        "DatastoreInfo", "d", predicate=lambda status: "orphanedDisks" in status
    )


async def test_cluster_follows_its_hosts_and_nodes(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    vcenter = simulator.address[0]
    entities = await simulator.entities()
    hosts = [
        entity["name"]
        for entity in entities
        if entity["type"] == "HostSystem" and entity["path"].startswith(f"{CLUSTER_PATH}/")
    ]
    await info_client.create("ClusterInfo", "c", "DC0_C0")
    await info_client.wait_for_status("ClusterInfo", "c")
    await simulator.move_vm(NODE_NAME, hosts[0])
    with cluster_object(info_client, "nodes", node_manifest(NODE_NAME)):
        status = await info_client.wait_for_status(
            "ClusterInfo", "c", predicate=lambda status: status["nodes"]["count"] == 1
        )
        async with PyVmomiSession(simulator) as session:
            assert without_conditions(status) == await expected_cluster_status(
                session, CLUSTER_PATH, vcenter, [NODE_NAME]
            )
            await simulator.set_maintenance(hosts[1])
            status = await info_client.wait_for_status("ClusterInfo", "c", "HostsUnavailable")
            assert without_conditions(status) == await expected_cluster_status(
                session, CLUSTER_PATH, vcenter, [NODE_NAME]
            )
        other = next(
            entity["name"]
            for entity in entities
            if entity["type"] == "HostSystem" and entity["path"].startswith("/DC0/host/DC0_C1/")
        )
        await simulator.move_vm(NODE_NAME, other)
        await info_client.wait_for_status(
            "ClusterInfo",
            "c",
            "HostsUnavailable",
            predicate=lambda status: status["nodes"]["count"] == 0,
        )
    await simulator.set_maintenance(hosts[1], on=False)
    full = await info_client.wait_for_status("ClusterInfo", "c")
    await simulator.set_host_connected(hosts[1], connected=False)
    status = await info_client.wait_for_status("ClusterInfo", "c", "HostsUnavailable")
    assert (status["disconnectedHosts"], status["availableHosts"]) == (1, 2)
    assert status["totalCPUMHz"] < full["totalCPUMHz"]
    await simulator.set_host_connected(hosts[1])
    await info_client.wait_for_status("ClusterInfo", "c")
    await simulator.set_stats(hosts[0], overallCpuUsage=1, overallMemoryUsage=1)
    await info_client.wait_for_status(
        "ClusterInfo", "c", predicate=lambda status: status["freeCPUMHz"] != full["freeCPUMHz"]
    )


async def test_names_that_are_missing_or_ambiguous(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("DatastoreInfo", "twice", "LocalDS_0")
    await info_client.create("DatastoreInfo", "missing", "LocalDS_9")
    await info_client.create("ClusterInfo", "missing", "DC0_C9")
    await info_client.create("ClusterInfo", "empty", None)
    status = await info_client.wait_for_status("DatastoreInfo", "twice", "DatastoreAmbiguous")
    message = ready_condition({"status": status})["message"]
    assert DATASTORE_PATH in message
    assert "/DC1/datastore/LocalDS_0" in message
    assert without_conditions(status) == {}
    status = await info_client.wait_for_status("DatastoreInfo", "missing", "DatastoreNotFound")
    assert "Did you mean" in ready_condition({"status": status})["message"]
    status = await info_client.wait_for_status("ClusterInfo", "missing", "ClusterNotFound")
    assert '"DC0_C0"' in ready_condition({"status": status})["message"]
    await info_client.wait_for_status("ClusterInfo", "empty", "ClusterNameMissing")
    # The simulator cannot rename a datastore by its task.
    await simulator.set_property("/DC1/datastore/LocalDS_0", "name", "LocalDS_9")
    await info_client.wait_for_status("DatastoreInfo", "twice")
    await info_client.wait_for_status("DatastoreInfo", "missing")
    await simulator.rename(CLUSTER_PATH, "DC0_C9")
    await info_client.wait_for_status("ClusterInfo", "missing")
