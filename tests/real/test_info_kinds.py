"""HostInfo, VMInfo and FCDInfo on a real API server in front of a simulated vCenter; the truth is read by pyVmomi's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from truth import Truth

from .infotruth import disk_truth, host_truth, vm_truth
from .managing import ManagerProcess, ready_of
from .vsphere import Infos, credentials_in, managing, without_conditions

HOST = "esxi-dell-e.rainpole.com"
NODE = "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"
DISK = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    flags = (
        "--datacenters=2",
        "--clusters=1",
        "--hosts=2",
        "--vms=2",
        "--datastores=2",
        f"--host-name={HOST}",
        f"--node={NODE}",
    )
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path / "vcsim",
        *flags,
        f"--fcd={DISK}",
        password="canary-4711",
    )
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


@pytest.fixture
async def manager(
    vcenter: SimulatedVCenter, log: Path, service_account: Path, tmp_path: Path
) -> AsyncIterator[ManagerProcess]:
    credentials = credentials_in(tmp_path / "vc-creds", vcenter)
    flags = ("--stats-interval=2s", "--tag-refresh-interval=2s", "--disk-refresh-interval=2s")
    async with managing(log, service_account, credentials, vcenter.certificate, *flags) as manager:
        yield manager


@pytest.fixture
def infos(installed: ControlPlane, namespace: str) -> Infos:
    return Infos(installed, namespace)


async def test_the_samples_answer_what_vcenter_says(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos, config: Path
) -> None:
    for sample in ("hostinfo", "vminfo", "fcdinfo"):
        infos.plane.kubectl(
            "apply", "-n", infos.namespace, "-f", str(config / f"samples/topology_v1_{sample}.yaml")
        )
    name = vcenter.address[0]
    host = await infos.status("HostInfo", "hostinfo-host-e")
    vm = await infos.status("VMInfo", "tkg-worker-1")
    disk = await infos.status("FCDInfo", "fcdinfo-sample")
    async with Truth(vcenter) as truth:
        assert without_conditions(host) == await host_truth(truth, HOST, name)
        assert without_conditions(vm) == await vm_truth(truth, NODE, name)
        assert without_conditions(disk) == await disk_truth(truth, DISK, name)
    table = infos.plane.kubectl("get", "ch,vi,fcd", "-n", infos.namespace)
    assert HOST in table
    assert NODE in table
    assert DISK in table


async def test_every_host_and_vm_answers_what_vcenter_says(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    async with Truth(vcenter) as truth:
        hosts = [each["name"] for each in await truth.all(vim.HostSystem, ["name"])]
        vms = [each["name"] for each in await truth.all(vim.VirtualMachine, ["name"])]
        assert (len(hosts), len(vms)) == (len(set(hosts)), len(set(vms)))
        for number, name in enumerate(hosts):
            await infos.create("HostInfo", f"host-{number}", name)
        for number, name in enumerate(vms):
            await infos.create("VMInfo", f"vm-{number}", name)
        for number, name in enumerate(hosts):
            answer = without_conditions(await infos.status("HostInfo", f"host-{number}"))
            assert answer == await host_truth(truth, name, vcenter.address[0])
        for number, name in enumerate(vms):
            answer = without_conditions(await infos.status("VMInfo", f"vm-{number}"))
            assert answer == await vm_truth(truth, name, vcenter.address[0])


async def test_what_changes_in_vcenter_reaches_the_status(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    await infos.create("HostInfo", "host", HOST)
    await infos.create("VMInfo", "vm", NODE)
    await infos.create("FCDInfo", "disk", DISK)
    before = await infos.status("VMInfo", "vm")
    await infos.status("FCDInfo", "disk")
    others = [
        each["name"]
        for each in await vcenter.entities()
        if each["type"] == "HostSystem" and each["name"] != before["host"]
    ]
    await vcenter.move_vm(NODE, others[0])
    await infos.status("VMInfo", "vm", where=lambda status: status["host"] != before["host"])
    await vcenter.set_power(NODE, on=False)
    off = await infos.status("VMInfo", "vm", "PoweredOff")
    assert off["powerState"] == "poweredOff"
    assert "ipAddress" not in off
    await vcenter.set_power(NODE, on=True)
    await infos.status("VMInfo", "vm", where=lambda status: status["powerState"] == "poweredOn")
    await vcenter.set_maintenance(HOST)
    assert (await infos.status("HostInfo", "host", "MaintenanceMode"))["maintenanceMode"] is True
    await vcenter.set_maintenance(HOST, on=False)
    await vcenter.set_attribute(HOST, "rack", "r12")
    await infos.status(
        "HostInfo", "host", where=lambda status: status.get("customAttributes") == {"rack": "r12"}
    )
    await vcenter.set_tag(HOST, "zone", "blue")
    await infos.status("HostInfo", "host", where=lambda status: status.get("tags") == ["zone:blue"])
    await vcenter.attach_disk(DISK, NODE)
    await infos.status("FCDInfo", "disk", where=lambda status: status.get("attachedTo") == NODE)
    datacenter = (await infos.get("HostInfo", "host"))["status"]["datacenter"]
    await vcenter.rename(f"/{datacenter}", "renamed")
    await infos.status("HostInfo", "host", where=lambda status: status["datacenter"] == "renamed")


async def test_what_is_not_there_says_so_and_recovers(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    await infos.create("HostInfo", "missing", "esxi-nowhere.example.com")
    await infos.create("VMInfo", "missing", "later")
    await infos.create("FCDInfo", "missing", "pvc-later")
    await infos.create("HostInfo", "empty", None)
    await infos.create("VMInfo", "empty", "")
    await infos.create("FCDInfo", "empty", None)
    for kind, reason in (
        ("HostInfo", "HostnameMissing"),
        ("VMInfo", "NodenameMissing"),
        ("FCDInfo", "PVIdMissing"),
    ):
        status = await infos.status(kind, "empty", reason)
        assert ready_of({"status": status})["status"] == "False"
        assert without_conditions(status) == {}
    for kind, reason in (
        ("HostInfo", "HostNotFound"),
        ("VMInfo", "VMNotFound"),
        ("FCDInfo", "DiskNotFound"),
    ):
        status = await infos.status(kind, "missing", reason)
        assert without_conditions(status) == {}
    await vcenter.rename(HOST, "esxi-nowhere.example.com")
    await vcenter.create_vm("later")
    await vcenter.create_disk("pvc-later")
    await infos.status("HostInfo", "missing")
    await infos.status(
        "VMInfo", "missing", "PoweredOff", where=lambda status: status["totalCPU"] > 0
    )
    await infos.status("FCDInfo", "missing")
    await vcenter.delete("later")
    await vcenter.delete_disk("pvc-later")
    await vcenter.rename("esxi-nowhere.example.com", HOST)
    for kind, reason in (
        ("HostInfo", "HostNotFound"),
        ("VMInfo", "VMNotFound"),
        ("FCDInfo", "DiskNotFound"),
    ):
        assert without_conditions(await infos.status(kind, "missing", reason)) == {}


async def test_two_of_one_name_are_told_with_both_paths(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    hosts = [
        each
        for each in await vcenter.entities()
        if each["type"] == "HostSystem" and each["name"] != HOST
    ]
    twin = next(each for each in hosts if not each["path"].startswith("/DC0/"))
    await infos.create("HostInfo", "host", HOST)
    await infos.status("HostInfo", "host")
    await vcenter.rename(twin["ref"], HOST)
    status = await infos.status("HostInfo", "host", "HostAmbiguous")
    assert without_conditions(status) == {}
    message = ready_of({"status": status})["message"]
    paths = [
        each["path"]
        for each in await vcenter.entities()
        if each["type"] == "HostSystem" and each["name"] == HOST
    ]
    assert len(paths) == 2
    assert all(path in message for path in paths)
    await vcenter.rename(twin["ref"], twin["name"])
    await infos.status("HostInfo", "host")


async def test_two_vms_and_two_disks_of_one_name_are_told_with_both_places(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    vms = {
        each["path"]: each for each in await vcenter.entities() if each["type"] == "VirtualMachine"
    }
    folder = next(path for path, each in vms.items() if each["name"] == NODE).rpartition("/")[0]
    twin = next(each for path, each in vms.items() if path.rpartition("/")[0] != folder)
    await infos.create("VMInfo", "vm", NODE)
    await infos.create("FCDInfo", "disk", "twins")
    first = await vcenter.create_disk("twins")
    await infos.status("VMInfo", "vm")
    await infos.status("FCDInfo", "disk")
    await vcenter.rename(twin["ref"], NODE)
    second = await vcenter.create_disk("twins")
    vm = await infos.status("VMInfo", "vm", "VMAmbiguous")
    disk = await infos.status("FCDInfo", "disk", "DiskAmbiguous")
    assert (without_conditions(vm), without_conditions(disk)) == ({}, {})
    paths = [
        each["path"]
        for each in await vcenter.entities()
        if each["type"] == "VirtualMachine" and each["name"] == NODE
    ]
    assert len(paths) == 2
    assert all(path in ready_of({"status": vm})["message"] for path in paths)
    assert all(id in ready_of({"status": disk})["message"] for id in (first, second))


async def test_a_disconnected_host_and_a_vm_without_tools(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    await infos.create("HostInfo", "host", HOST)
    await infos.create("VMInfo", "vm", NODE)
    full = await infos.status("HostInfo", "host")
    await vcenter.set_host_connected(HOST, connected=False)
    lost = await infos.status("HostInfo", "host", "HostDisconnected")
    assert "freeCPU" not in lost
    assert "freeMemoryMB" not in lost
    assert (lost["totalCPU"], lost["connectionState"]) == (full["totalCPU"], "disconnected")
    await vcenter.set_host_connected(HOST)
    assert "freeCPU" in await infos.status("HostInfo", "host")
    await infos.status("VMInfo", "vm")
    await vcenter.set_tools_running(NODE, running=False)
    silent = await infos.status("VMInfo", "vm", "ToolsNotRunning")
    assert ready_of({"status": silent})["status"] == "True"
    assert "ipAddress" not in silent
    assert silent["guestId"]
    await vcenter.set_tools_running(NODE, running=True)
    assert "ipAddress" in await infos.status("VMInfo", "vm")


async def test_a_volume_leads_to_its_disk_and_its_claim(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    handle = await vcenter.create_disk("another-name")
    volume = f"pvc-{infos.namespace}"
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": handle},
            "claimRef": {"namespace": infos.namespace, "name": "data"},
        },
    }
    await infos.create("FCDInfo", "disk", volume)
    await infos.status("FCDInfo", "disk", "DiskNotFound")
    await infos.call("POST", "/api/v1/persistentvolumes", manifest)
    try:
        found = await infos.status("FCDInfo", "disk")
        assert (found["id"], found["persistentVolume"], found["claim"]) == (
            handle,
            volume,
            f"{infos.namespace}/data",
        )
    finally:
        await infos.call("DELETE", f"/api/v1/persistentvolumes/{volume}")
        # What protects volumes from deletion is taken off by kube-controller-manager, which does not run here.
        merge = {"Content-Type": "application/merge-patch+json"}
        await infos.call(
            "PATCH",
            f"/api/v1/persistentvolumes/{volume}",
            {"metadata": {"finalizers": None}},
            merge,
        )
    await infos.status("FCDInfo", "disk", "DiskNotFound")


async def read_once(vcenter: SimulatedVCenter) -> bool:
    return "RetrievePropertiesEx" in await vcenter.call_counts()


async def test_edits_cause_no_call_to_vcenter(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    await infos.create("HostInfo", "host", HOST)
    await infos.create("VMInfo", "vm", NODE)
    await infos.status("HostInfo", "host")
    await infos.status("VMInfo", "vm")
    # Which VMs are a VmGroup's replicas is read once, a moment after the load: an edit may overtake it, and does not cause it.
    await eventually(lambda: read_once(vcenter))
    await vcenter.reset_call_counts()
    for number in range(50):
        await infos.merge(
            "HostInfo",
            "host",
            {"spec": {"hostname": HOST if number % 2 else "esxi-nowhere.example.com"}},
        )
        await infos.merge("VMInfo", "vm", {"metadata": {"labels": {"turn": str(number)}}})
    await infos.status("HostInfo", "host", "Reconciled")
    calls = await vcenter.call_counts()
    # What is looked at by interval goes on, whoever edits what.
    by_interval = (
        "WaitForUpdatesEx",
        "ListVStorageObject",
        "RetrieveVStorageObject",
        "Vslm",
        "RetrieveServiceContent",
        "POST /",
        "GET /",
        "DELETE /",
    )
    assert [method for method in calls if not method.startswith(by_interval)] == []


def labels(**values: str) -> str:
    """Labels as an exposition has them: in the order of their names."""
    return ",".join(f'{name}="{value}"' for name, value in sorted(values.items()))


async def test_metrics_tell_of_the_vcenter(
    manager: ManagerProcess, vcenter: SimulatedVCenter, infos: Infos
) -> None:
    await infos.create("HostInfo", "host", HOST)
    await infos.create("FCDInfo", "disk", DISK)
    await infos.status("HostInfo", "host")
    await infos.status("FCDInfo", "disk")
    name = vcenter.address[0]
    entities = await vcenter.entities()
    objects = await manager.series("vsphere_inventory_objects")
    for kind in ("HostSystem", "VirtualMachine", "Datacenter", "Datastore"):
        assert objects[labels(vcenter=name, type=kind)] == sum(
            each["type"] == kind for each in entities
        )
    assert objects[labels(vcenter=name, type="FirstClassDisk")] == 1
    assert await manager.series("vsphere_vcenter_sessions") == {labels(vcenter=name): 1.0}
    assert (await manager.series("vsphere_inventory_age_seconds"))[labels(vcenter=name)] < 60
    entered = (await manager.series("vsphere_inventory_updates_total"))[
        labels(vcenter=name, type="HostSystem", kind="enter")
    ]
    assert entered == sum(each["type"] == "HostSystem" for each in entities)
    login = labels(vcenter=name, method="Login", outcome="ok")
    assert (await manager.series("vsphere_vcenter_calls_total"))[login] == 1
    assert (await manager.series("vsphere_vcenter_call_duration_seconds_count"))[
        labels(vcenter=name, method="Login")
    ] == 1
    await vcenter.expire_sessions()

    async def again() -> bool:
        return (await manager.series("vsphere_vcenter_calls_total"))[login] == 2

    await eventually(again, within=20)
