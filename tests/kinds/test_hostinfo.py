"""The status of a host, the names of the original CRD, and the controller on a fake API server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright import Cache, Terminal
from kubewright.crd import build_crds
from support.fake_environment import FakeEnvironment, make_update, run_manager
from vsphere_operators.kinds.hostinfo import (
    HostInfo,
    HostInfoController,
    HostInfoStatus,
    host_status_of,
    ready_outcome,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.model import Host, HostStats, Location
from vsphere_operators.vsphere.updates import Ref

SAMPLES = Path(__file__).parents[2] / "config/samples"
LOCATION = Location(path="/dc-1/host/cluster-1/esxi-1", datacenter="dc-1", cluster="cluster-1")
HOST = Host(
    ref="host-12",
    name="esxi-1",
    parent="domain-c8",
    connection="connected",
    in_maintenance=False,
    power="poweredOn",
    cpu_mhz=2294,
    cpu_cores=20,
    memory_bytes=274_743_689_217,
    vendor="Dell Inc.",
    model="PowerEdge R640",
    version="8.0.3",
    build="24022510",
    boot_time=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    attributes={"Owner": "storage team"},
    stats=HostStats(cpu_usage_mhz=4321, memory_usage_mb=100_000),
)
STATUS_WITHOUT_LOAD = HostInfoStatus(
    totalCPU=45_880,
    totalMemoryMB=262_016,
    vendor="Dell Inc.",
    model="PowerEdge R640",
    esxiVersion="8.0.3",
    esxiBuild="24022510",
    maintenanceMode=False,
    vms=7,
    cluster="cluster-1",
    datacenter="dc-1",
    inventoryPath="/dc-1/host/cluster-1/esxi-1",
    vcenter="vc-1",
    tags=["env:prod", "rack:7"],
    customAttributes={"Owner": "storage team"},
)


def make_status(host: Host, location: Location = LOCATION) -> HostInfoStatus:
    return host_status_of(host, location, 7, ("env:prod", "rack:7"), "vc-1")


def test_status_of_a_host() -> None:
    assert make_status(HOST) == replace(
        STATUS_WITHOUT_LOAD,
        freeCPU=41_559,
        freeMemoryMB=162_016,
        connectionState="connected",
        bootTime=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    assert ready_outcome(HOST, "vc-1").reason == "Reconciled"


@pytest.mark.parametrize(
    ("state", "description"),
    [
        ("disconnected", "is disconnected from vCenter vc-1"),
        ("notResponding", "does not respond to vCenter vc-1"),
    ],
)
def test_disconnected_host_keeps_its_hardware_and_has_no_load(state: Any, description: str) -> None:
    host = replace(HOST, connection=state)
    assert make_status(host) == replace(STATUS_WITHOUT_LOAD, connectionState=state)
    with pytest.raises(Terminal, match="reconnect it in vCenter") as caught:
        ready_outcome(host, "vc-1")
    assert caught.value.reason == "HostDisconnected"
    assert f'Host "esxi-1" {description}' in str(caught.value)


def test_host_in_standby_has_no_load() -> None:
    standby_host = replace(HOST, power="standBy", connection="notResponding")
    assert make_status(standby_host) == replace(
        STATUS_WITHOUT_LOAD, connectionState="notResponding"
    )
    assert ready_outcome(standby_host, "vc-1").reason == "HostInStandby"


def test_maintenance_mode_is_ready_with_a_reason() -> None:
    host = replace(HOST, in_maintenance=True)
    assert make_status(host).maintenanceMode is True
    assert make_status(host).freeCPU == 41_559
    assert ready_outcome(host, "vc-1").reason == "MaintenanceMode"


def test_unknown_values_are_absent() -> None:
    assert host_status_of(
        Host(ref="host-1", name="esxi-1"), Location(), 0, (), "vc-1"
    ) == HostInfoStatus(vms=0, vcenter="vc-1")


def test_idle_host_is_all_free_and_unknown_load_is_absent() -> None:
    assert (
        make_status(replace(HOST, stats=HostStats(cpu_usage_mhz=0, memory_usage_mb=0))).freeCPU
        == 45_880
    )
    assert make_status(replace(HOST, stats=HostStats())).freeCPU is None
    assert make_status(replace(HOST, stats=HostStats())).freeMemoryMB is None


@given(
    st.builds(
        Host,
        ref=st.just("host-1"),
        connection=st.sampled_from(["connected", "disconnected", "notResponding", ""]),
        power=st.sampled_from(["poweredOn", "poweredOff", "standBy", "unknown", ""]),
        cpu_mhz=st.none() | st.integers(0, 10_000),
        cpu_cores=st.none() | st.integers(0, 512),
        memory_bytes=st.none() | st.integers(0, 2**45),
        stats=st.builds(
            HostStats,
            cpu_usage_mhz=st.none() | st.integers(0, 2**31),
            memory_usage_mb=st.none() | st.integers(0, 2**31),
        ),
    )
)
def test_free_capacity_is_present_only_if_known(host: Host) -> None:
    status = make_status(host)
    connected = host.connection not in ("disconnected", "notResponding") and host.power not in (
        "poweredOff",
        "standBy",
    )
    assert (status.freeCPU is not None) == (
        connected and status.totalCPU is not None and host.stats.cpu_usage_mhz is not None
    )
    assert (status.freeMemoryMB is not None) == (
        connected and status.totalMemoryMB is not None and host.stats.memory_usage_mb is not None
    )
    if status.freeCPU is not None and status.totalCPU is not None:
        assert status.freeCPU + (host.stats.cpu_usage_mhz or 0) == status.totalCPU


def test_crd_has_the_names_of_the_contract() -> None:
    crd = build_crds([HostInfo])[0]["spec"]
    assert (crd["group"], crd["scope"]) == ("topology.corinternal.com", "Namespaced")
    assert crd["names"] == {
        "kind": "HostInfo",
        "listKind": "HostInfoList",
        "plural": "hostinfoes",
        "singular": "hostinfo",
        "shortNames": ["ch", "hi"],
    }
    [version] = crd["versions"]
    assert (version["name"], version["subresources"]) == ("v1", {"status": {}})
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    assert properties["spec"]["properties"].keys() == {"hostname"}
    assert "required" not in properties["spec"]
    for name in ("totalCPU", "freeCPU"):
        shape = properties["status"]["properties"][name]
        assert (shape["type"], shape["format"]) == ("integer", "int64")
    columns = version["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Hostname",
        "CPU-MHz",
        "Free-CPU-MHz",
        "Memory-MB",
        "Free-Memory-MB",
        "Ready",
        "Age",
    ]
    assert next(column["type"] for column in columns if column["name"] == "Up") == "date"


def test_sample_is_that_of_the_contract() -> None:
    sample = yaml.safe_load((SAMPLES / "topology_v1_hostinfo.yaml").read_text())
    assert sample == {
        "apiVersion": "topology.corinternal.com/v1",
        "kind": "HostInfo",
        "metadata": {"name": "hostinfo-host-e"},
        "spec": {"hostname": "esxi-dell-e.rainpole.com"},
    }


def make_controller(vcenters: VCenterRegistry, cache: Cache) -> HostInfoController:
    return HostInfoController(vcenters)


def environment_with_host(name: str = "esxi-1") -> FakeEnvironment:
    """Datacenter dc-1 with cluster c-1, which has one host."""
    environment = FakeEnvironment()
    environment.enter("Folder", "group-d1", name="Datacenters")
    environment.enter("Datacenter", "datacenter-1", name="dc-1", parent=Ref("Folder", "group-d1"))
    environment.enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1"))
    environment.enter(
        "ClusterComputeResource", "domain-c1", name="c-1", parent=Ref("Folder", "group-h1")
    )
    add_host(environment, name)
    environment.mark_loaded()
    return environment


def add_host(environment: FakeEnvironment, name: str, ref: str = "host-1") -> None:
    environment.enter(
        "HostSystem",
        ref,
        name=name,
        parent=Ref("ClusterComputeResource", "domain-c1"),
        runtime__connectionState="connected",
        summary__hardware__cpuMhz=2000,
        summary__hardware__numCpuCores=10,
        summary__quickStats__overallCpuUsage=5000,
    )


async def test_change_in_vcenter_updates_the_status() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        assert (info.status.totalCPU, info.status.freeCPU, info.status.vms) == (20_000, 15_000, 0)
        assert info.status.inventoryPath == "/dc-1/host/c-1/esxi-1"
        environment.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
        await environment.wait_for_ready(HostInfo, "h", "MaintenanceMode")
        environment.modify("ClusterComputeResource", "domain-c1", name="c-2")
        await environment.wait_for_ready(
            HostInfo, "h", "MaintenanceMode", lambda status: status.cluster == "c-2"
        )


async def test_disconnected_host_is_reported_with_a_fix() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        environment.modify("HostSystem", "host-1", runtime__connectionState="disconnected")
        info, condition = await environment.wait_for_ready(HostInfo, "h", "HostDisconnected")
        assert (condition.status, info.status.totalCPU, info.status.freeCPU) == (
            "False",
            20_000,
            None,
        )
        assert "reconnect it in vCenter" in condition.message
        environment.modify(
            "HostSystem",
            "host-1",
            runtime__connectionState="connected",
            summary__quickStats__overallCpuUsage=4000,
        )
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 16_000
        )


async def test_deleted_host_clears_the_numbers_and_a_new_one_is_found() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        environment.leave("HostSystem", "host-1")
        info, condition = await environment.wait_for_ready(HostInfo, "h", "HostNotFound")
        assert condition.status == "False"
        assert info.status == HostInfoStatus(
            conditions=info.status.conditions, observedGeneration=1
        )
        add_host(environment, "esxi-1", "host-2")
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.totalCPU == 20_000
        )
        add_host(environment, "esxi-1", "host-3")
        info, _ = await environment.wait_for_ready(HostInfo, "h", "HostAmbiguous")
        assert info.status.totalCPU is None
        environment.leave("HostSystem", "host-3")
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")


async def test_tags_of_before_a_restart_stay_until_they_are_read() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        tags = environment.vcenter.tags
        tags._apply({"host-1": ("zone:a",)})
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.tags == ["zone:a"]
        )
        # As in a new process: the inventory is there, the tags are not read yet.
        tags.by_ref, tags.loaded = {}, False
        environment.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
        info, _ = await environment.wait_for_ready(HostInfo, "h", "MaintenanceMode")
        assert info.status.tags == ["zone:a"]
        # Another host has other tags.
        add_host(environment, "esxi-2", "host-2")
        await environment.client.patch(HostInfo, info.key, {"spec": {"hostname": "esxi-2"}})
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.tags is None
        )
        await environment.client.patch(HostInfo, info.key, {"spec": {"hostname": "esxi-1"}})
        await environment.wait_for_ready(HostInfo, "h", "MaintenanceMode")
        tags._apply({"host-1": ("zone:b",)})
        await environment.wait_for_ready(
            HostInfo, "h", "MaintenanceMode", lambda status: status.tags == ["zone:b"]
        )


async def test_tags_that_are_gone_after_a_restart_are_removed() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        tags = environment.vcenter.tags
        tags._apply({"host-1": ("zone:a",)})
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.tags == ["zone:a"]
        )
        tags.by_ref, tags.loaded = {}, False
        environment.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
        await environment.wait_for_ready(HostInfo, "h", "MaintenanceMode")
        tags._apply({})
        await environment.wait_for_ready(
            HostInfo, "h", "MaintenanceMode", lambda status: status.tags is None
        )


async def test_renamed_host_updates_objects_of_both_names() -> None:
    environment = environment_with_host("old")
    environment.create(HostInfo, "old", hostname="old")
    environment.create(HostInfo, "new", hostname="new")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "old", "Reconciled")
        await environment.wait_for_ready(HostInfo, "new", "HostNotFound")
        environment.modify("HostSystem", "host-1", name="new")
        await environment.wait_for_ready(HostInfo, "old", "HostNotFound")
        await environment.wait_for_ready(HostInfo, "new", "Reconciled")


async def test_empty_spec_reports_the_missing_field() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(HostInfo, "h", "HostnameMissing")
        assert condition.status == "False"
        assert "Set it to the name of an ESXi host" in condition.message


async def test_small_changes_of_load_are_deferred_and_large_ones_are_not() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        # The host was added before the throttle listened; later changes are throttled.
        environment.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6500)
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 13_500
        )
        written = environment.count_status_writes()
        environment.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6600)
        environment.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=8000)
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 12_000
        )
        assert environment.count_status_writes() == written + 1


async def test_new_vm_is_counted_at_once_even_with_a_small_change_of_load() -> None:
    environment = environment_with_host()
    environment.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        environment.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6500)
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 13_500
        )
        environment.vcenter.inventory.apply(
            [
                make_update(
                    "modify", "HostSystem", "host-1", {"summary.quickStats.overallCpuUsage": 6510}
                ),
                make_update(
                    "enter",
                    "VirtualMachine",
                    "vm-1",
                    {"name": "vm-1", "runtime.host": Ref("HostSystem", "host-1")},
                ),
            ]
        )
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.vms == 1, within=30
        )
        environment.modify("VirtualMachine", "vm-1", config__template=True)
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.vms == 0, within=30
        )
