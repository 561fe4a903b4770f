"""HostInfo, VMInfo and FCDInfo on a real API server, compared with what pyVmomi's client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
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

from .expected_status import expected_disk_status, expected_host_status, expected_vm_status

HOST_NAME = "esxi-dell-e.rainpole.com"
NODE_NAME = "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"
DISK_NAME = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (
        "--datacenters=2",
        "--clusters=1",
        "--hosts=2",
        "--vms=2",
        "--datastores=2",
        f"--host-name={HOST_NAME}",
        f"--node={NODE_NAME}",
    )
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path / "vcsim",
        *flags,
        f"--fcd={DISK_NAME}",
        password="canary-4711",
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
    flags = ("--stats-interval=2s", "--tag-refresh-interval=2s", "--disk-refresh-interval=2s")
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, simulator.certificate, *flags
    ) as manager:
        yield manager


@pytest.fixture
def info_client(installed: ControlPlane, namespace: str) -> InfoClient:
    return InfoClient(installed, namespace)


async def test_samples_show_what_vcenter_reports(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient, config: Path
) -> None:
    for sample in ("hostinfo", "vminfo", "fcdinfo"):
        info_client.control_plane.kubectl(
            "apply",
            "-n",
            info_client.namespace,
            "-f",
            str(config / f"samples/topology_v1_{sample}.yaml"),
        )
    name = simulator.address[0]
    host = await info_client.wait_for_status("HostInfo", "hostinfo-host-e")
    vm = await info_client.wait_for_status("VMInfo", "tkg-worker-1")
    disk = await info_client.wait_for_status("FCDInfo", "fcdinfo-sample")
    async with PyVmomiSession(simulator) as session:
        assert without_conditions(host) == await expected_host_status(session, HOST_NAME, name)
        assert without_conditions(vm) == await expected_vm_status(session, NODE_NAME, name)
        assert without_conditions(disk) == await expected_disk_status(session, DISK_NAME, name)
    table = info_client.control_plane.kubectl("get", "ch,vi,fcd", "-n", info_client.namespace)
    assert HOST_NAME in table
    assert NODE_NAME in table
    assert DISK_NAME in table


async def test_every_host_and_vm_shows_what_vcenter_reports(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    async with PyVmomiSession(simulator) as session:
        hosts = [entity["name"] for entity in await session.read_all(vim.HostSystem, ["name"])]
        vms = [entity["name"] for entity in await session.read_all(vim.VirtualMachine, ["name"])]
        assert (len(hosts), len(vms)) == (len(set(hosts)), len(set(vms)))
        for number, name in enumerate(hosts):
            await info_client.create("HostInfo", f"host-{number}", name)
        for number, name in enumerate(vms):
            await info_client.create("VMInfo", f"vm-{number}", name)
        for number, name in enumerate(hosts):
            status = without_conditions(
                await info_client.wait_for_status("HostInfo", f"host-{number}")
            )
            assert status == await expected_host_status(session, name, simulator.address[0])
        for number, name in enumerate(vms):
            status = without_conditions(await info_client.wait_for_status("VMInfo", f"vm-{number}"))
            assert status == await expected_vm_status(session, name, simulator.address[0])


async def test_changes_in_vcenter_update_the_status(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.create("VMInfo", "vm", NODE_NAME)
    await info_client.create("FCDInfo", "disk", DISK_NAME)
    before = await info_client.wait_for_status("VMInfo", "vm")
    await info_client.wait_for_status("FCDInfo", "disk")
    others = [
        entity["name"]
        for entity in await simulator.entities()
        if entity["type"] == "HostSystem" and entity["name"] != before["host"]
    ]
    await simulator.move_vm(NODE_NAME, others[0])
    await info_client.wait_for_status(
        "VMInfo", "vm", predicate=lambda status: status["host"] != before["host"]
    )
    await simulator.set_power(NODE_NAME, on=False)
    off = await info_client.wait_for_status("VMInfo", "vm", "PoweredOff")
    assert off["powerState"] == "poweredOff"
    assert "ipAddress" not in off
    await simulator.set_power(NODE_NAME, on=True)
    await info_client.wait_for_status(
        "VMInfo", "vm", predicate=lambda status: status["powerState"] == "poweredOn"
    )
    await simulator.set_maintenance(HOST_NAME)
    assert (await info_client.wait_for_status("HostInfo", "host", "MaintenanceMode"))[
        "maintenanceMode"
    ] is True
    await simulator.set_maintenance(HOST_NAME, on=False)
    await simulator.set_attribute(HOST_NAME, "rack", "r12")
    await info_client.wait_for_status(
        "HostInfo",
        "host",
        predicate=lambda status: status.get("customAttributes") == {"rack": "r12"},
    )
    await simulator.set_tag(HOST_NAME, "zone", "blue")
    await info_client.wait_for_status(
        "HostInfo", "host", predicate=lambda status: status.get("tags") == ["zone:blue"]
    )
    await simulator.attach_disk(DISK_NAME, NODE_NAME)
    await info_client.wait_for_status(
        "FCDInfo", "disk", predicate=lambda status: status.get("attachedTo") == NODE_NAME
    )
    datacenter = (await info_client.get("HostInfo", "host"))["status"]["datacenter"]
    await simulator.rename(f"/{datacenter}", "renamed")
    await info_client.wait_for_status(
        "HostInfo", "host", predicate=lambda status: status["datacenter"] == "renamed"
    )


async def test_missing_objects_are_reported_and_recover(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("HostInfo", "missing", "esxi-nowhere.example.com")
    await info_client.create("VMInfo", "missing", "later")
    await info_client.create("FCDInfo", "missing", "pvc-later")
    await info_client.create("HostInfo", "empty", None)
    await info_client.create("VMInfo", "empty", "")
    await info_client.create("FCDInfo", "empty", None)
    for kind, reason in (
        ("HostInfo", "HostnameMissing"),
        ("VMInfo", "NodenameMissing"),
        ("FCDInfo", "PVIdMissing"),
    ):
        status = await info_client.wait_for_status(kind, "empty", reason)
        assert ready_condition({"status": status})["status"] == "False"
        assert without_conditions(status) == {}
    for kind, reason in (
        ("HostInfo", "HostNotFound"),
        ("VMInfo", "VMNotFound"),
        ("FCDInfo", "DiskNotFound"),
    ):
        status = await info_client.wait_for_status(kind, "missing", reason)
        assert without_conditions(status) == {}
    await simulator.rename(HOST_NAME, "esxi-nowhere.example.com")
    await simulator.create_vm("later")
    await simulator.create_disk("pvc-later")
    await info_client.wait_for_status("HostInfo", "missing")
    await info_client.wait_for_status(
        "VMInfo", "missing", "PoweredOff", predicate=lambda status: status["totalCPU"] > 0
    )
    await info_client.wait_for_status("FCDInfo", "missing")
    await simulator.delete("later")
    await simulator.delete_disk("pvc-later")
    await simulator.rename("esxi-nowhere.example.com", HOST_NAME)
    for kind, reason in (
        ("HostInfo", "HostNotFound"),
        ("VMInfo", "VMNotFound"),
        ("FCDInfo", "DiskNotFound"),
    ):
        assert without_conditions(await info_client.wait_for_status(kind, "missing", reason)) == {}


async def test_two_hosts_of_one_name_are_reported_with_both_paths(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    hosts = [
        entity
        for entity in await simulator.entities()
        if entity["type"] == "HostSystem" and entity["name"] != HOST_NAME
    ]
    twin = next(entity for entity in hosts if not entity["path"].startswith("/DC0/"))
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.wait_for_status("HostInfo", "host")
    await simulator.rename(twin["ref"], HOST_NAME)
    status = await info_client.wait_for_status("HostInfo", "host", "HostAmbiguous")
    assert without_conditions(status) == {}
    message = ready_condition({"status": status})["message"]
    paths = [
        entity["path"]
        for entity in await simulator.entities()
        if entity["type"] == "HostSystem" and entity["name"] == HOST_NAME
    ]
    assert len(paths) == 2
    assert all(path in message for path in paths)
    await simulator.rename(twin["ref"], twin["name"])
    await info_client.wait_for_status("HostInfo", "host")


async def test_two_vms_or_disks_of_one_name_are_reported_with_both_paths(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    vms = {
        entity["path"]: entity
        for entity in await simulator.entities()
        if entity["type"] == "VirtualMachine"
    }
    folder = next(path for path, entity in vms.items() if entity["name"] == NODE_NAME).rpartition(
        "/"
    )[0]
    twin = next(entity for path, entity in vms.items() if path.rpartition("/")[0] != folder)
    await info_client.create("VMInfo", "vm", NODE_NAME)
    await info_client.create("FCDInfo", "disk", "twins")
    first = await simulator.create_disk("twins")
    await info_client.wait_for_status("VMInfo", "vm")
    await info_client.wait_for_status("FCDInfo", "disk")
    await simulator.rename(twin["ref"], NODE_NAME)
    second = await simulator.create_disk("twins")
    vm = await info_client.wait_for_status("VMInfo", "vm", "VMAmbiguous")
    disk = await info_client.wait_for_status("FCDInfo", "disk", "DiskAmbiguous")
    assert (without_conditions(vm), without_conditions(disk)) == ({}, {})
    paths = [
        entity["path"]
        for entity in await simulator.entities()
        if entity["type"] == "VirtualMachine" and entity["name"] == NODE_NAME
    ]
    assert len(paths) == 2
    assert all(path in ready_condition({"status": vm})["message"] for path in paths)
    assert all(id in ready_condition({"status": disk})["message"] for id in (first, second))


async def test_disconnected_host_and_vm_without_tools(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.create("VMInfo", "vm", NODE_NAME)
    full = await info_client.wait_for_status("HostInfo", "host")
    await simulator.set_host_connected(HOST_NAME, connected=False)
    lost = await info_client.wait_for_status("HostInfo", "host", "HostDisconnected")
    assert "freeCPU" not in lost
    assert "freeMemoryMB" not in lost
    assert (lost["totalCPU"], lost["connectionState"]) == (full["totalCPU"], "disconnected")
    await simulator.set_host_connected(HOST_NAME)
    assert "freeCPU" in await info_client.wait_for_status("HostInfo", "host")
    await info_client.wait_for_status("VMInfo", "vm")
    await simulator.set_tools_running(NODE_NAME, running=False)
    silent = await info_client.wait_for_status("VMInfo", "vm", "ToolsNotRunning")
    assert ready_condition({"status": silent})["status"] == "True"
    assert "ipAddress" not in silent
    assert silent["guestId"]
    await simulator.set_tools_running(NODE_NAME, running=True)
    assert "ipAddress" in await info_client.wait_for_status("VMInfo", "vm")


async def test_volume_identifies_its_disk_and_claim(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    handle = await simulator.create_disk("another-name")
    volume = f"pvc-{info_client.namespace}"
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": handle},
            "claimRef": {"namespace": info_client.namespace, "name": "data"},
        },
    }
    await info_client.create("FCDInfo", "disk", volume)
    await info_client.wait_for_status("FCDInfo", "disk", "DiskNotFound")
    await info_client.call("POST", "/api/v1/persistentvolumes", manifest)
    try:
        status = await info_client.wait_for_status("FCDInfo", "disk")
        assert (status["id"], status["persistentVolume"], status["claim"]) == (
            handle,
            volume,
            f"{info_client.namespace}/data",
        )
    finally:
        await info_client.call("DELETE", f"/api/v1/persistentvolumes/{volume}")
        # kube-controller-manager, which does not run here, would remove the protecting finalizer.
        merge = {"Content-Type": "application/merge-patch+json"}
        await info_client.call(
            "PATCH",
            f"/api/v1/persistentvolumes/{volume}",
            {"metadata": {"finalizers": None}},
            merge,
        )
    await info_client.wait_for_status("FCDInfo", "disk", "DiskNotFound")


async def has_read_properties(vcenter: SimulatedVCenter) -> bool:
    return "RetrievePropertiesEx" in await vcenter.call_counts()


async def test_edits_cause_no_call_to_vcenter(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.create("VMInfo", "vm", NODE_NAME)
    await info_client.wait_for_status("HostInfo", "host")
    await info_client.wait_for_status("VMInfo", "vm")
    # The marks of VmGroup replicas are read once, a moment after the load; no edit causes that.
    await eventually(lambda: has_read_properties(simulator))
    await simulator.reset_call_counts()
    for number in range(50):
        await info_client.patch(
            "HostInfo",
            "host",
            {"spec": {"hostname": HOST_NAME if number % 2 else "esxi-nowhere.example.com"}},
        )
        await info_client.patch("VMInfo", "vm", {"metadata": {"labels": {"turn": str(number)}}})
    await info_client.wait_for_status("HostInfo", "host", "Reconciled")
    calls = await simulator.call_counts()
    # Polling continues regardless of edits.
    polling = (
        "WaitForUpdatesEx",
        "ListVStorageObject",
        "RetrieveVStorageObject",
        "Vslm",
        "RetrieveServiceContent",
        "POST /",
        "GET /",
        "DELETE /",
    )
    assert [method for method in calls if not method.startswith(polling)] == []


def format_labels(**values: str) -> str:
    """The labels of a metric as /metrics shows them, sorted by name."""
    return ",".join(f'{name}="{value}"' for name, value in sorted(values.items()))


async def test_metrics_of_a_vcenter(
    manager: ManagerProcess, simulator: SimulatedVCenter, info_client: InfoClient
) -> None:
    await info_client.create("HostInfo", "host", HOST_NAME)
    await info_client.create("FCDInfo", "disk", DISK_NAME)
    await info_client.wait_for_status("HostInfo", "host")
    await info_client.wait_for_status("FCDInfo", "disk")
    name = simulator.address[0]
    entities = await simulator.entities()
    objects = await manager.read_metric("vsphere_inventory_objects")
    for kind in ("HostSystem", "VirtualMachine", "Datacenter", "Datastore"):
        assert objects[format_labels(vcenter=name, type=kind)] == sum(
            entity["type"] == kind for entity in entities
        )
    assert objects[format_labels(vcenter=name, type="FirstClassDisk")] == 1
    assert await manager.read_metric("vsphere_vcenter_sessions") == {
        format_labels(vcenter=name): 1.0
    }
    assert (await manager.read_metric("vsphere_inventory_age_seconds"))[
        format_labels(vcenter=name)
    ] < 60
    entered = (await manager.read_metric("vsphere_inventory_updates_total"))[
        format_labels(vcenter=name, type="HostSystem", kind="enter")
    ]
    assert entered == sum(entity["type"] == "HostSystem" for entity in entities)
    login = format_labels(vcenter=name, method="Login", outcome="ok")
    assert (await manager.read_metric("vsphere_vcenter_calls_total"))[login] == 1
    assert (await manager.read_metric("vsphere_vcenter_call_duration_seconds_count"))[
        format_labels(vcenter=name, method="Login")
    ] == 1
    await simulator.expire_sessions()

    async def has_logged_in_again() -> bool:
        return (await manager.read_metric("vsphere_vcenter_calls_total"))[login] == 2

    await eventually(has_logged_in_again, within=60)
