"""The answer as plain calls, the names that people rely on, and the controller on an API server and an inventory in memory."""

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
    ready_reason,
    status_of,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.inventory import Location
from vsphere_operators.vsphere.model import Host, HostStats
from vsphere_operators.vsphere.updates import Ref

SAMPLES = Path(__file__).parents[2] / "config/samples"
LOCATION = Location(path="/dc-1/host/cluster-1/esxi-1", datacenter="dc-1", cluster="cluster-1")
HOST = Host(
    ref="host-12",
    name="esxi-1",
    parent="domain-c8",
    connection="connected",
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


def make_status(host: Host, place: Location = LOCATION) -> HostInfoStatus:
    return status_of(host, place, 7, ("env:prod", "rack:7"), "vc-1")


def test_everything_that_is_known_of_a_host() -> None:
    assert make_status(HOST) == replace(
        STATUS_WITHOUT_LOAD,
        freeCPU=41_559,
        freeMemoryMB=162_016,
        connectionState="connected",
        bootTime=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    assert ready_reason(HOST, "vc-1").reason == "Reconciled"


@pytest.mark.parametrize(
    ("state", "how"),
    [
        ("disconnected", "is disconnected from vCenter vc-1"),
        ("notResponding", "does not respond to vCenter vc-1"),
    ],
)
def test_a_host_that_is_not_heard_keeps_its_hardware_and_loses_its_load(
    state: Any, how: str
) -> None:
    lost = replace(HOST, connection=state)
    assert make_status(lost) == replace(STATUS_WITHOUT_LOAD, connectionState=state)
    with pytest.raises(Terminal, match="reconnect it in vCenter") as refused:
        ready_reason(lost, "vc-1")
    assert refused.value.reason == "HostDisconnected"
    assert f'host "esxi-1" {how}' in str(refused.value)


def test_a_host_in_standby_has_no_load() -> None:
    asleep = replace(HOST, power="standBy", connection="notResponding")
    assert make_status(asleep) == replace(STATUS_WITHOUT_LOAD, connectionState="notResponding")
    assert ready_reason(asleep, "vc-1").reason == "HostInStandby"


def test_maintenance_mode_is_a_note() -> None:
    resting = replace(HOST, in_maintenance=True)
    assert make_status(resting).maintenanceMode is True
    assert make_status(resting).freeCPU == 41_559
    assert ready_reason(resting, "vc-1").reason == "MaintenanceMode"


def test_nothing_known_is_nothing_told() -> None:
    assert status_of(
        Host(ref="host-1", name="esxi-1"), Location(), 0, (), "vc-1"
    ) == HostInfoStatus(maintenanceMode=False, vms=0, vcenter="vc-1")


def test_an_idle_host_is_all_free_and_an_unknown_load_is_not() -> None:
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
def test_free_is_told_only_where_it_is_known(host: Host) -> None:
    answer = make_status(host)
    heard = host.connection not in ("disconnected", "notResponding") and host.power not in (
        "poweredOff",
        "standBy",
    )
    assert (answer.freeCPU is not None) == (
        heard and answer.totalCPU is not None and host.stats.cpu_usage_mhz is not None
    )
    assert (answer.freeMemoryMB is not None) == (
        heard and answer.totalMemoryMB is not None and host.stats.memory_usage_mb is not None
    )
    if answer.freeCPU is not None and answer.totalCPU is not None:
        assert answer.freeCPU + (host.stats.cpu_usage_mhz or 0) == answer.totalCPU


def test_the_crd_has_the_names_that_people_rely_on() -> None:
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
        "Ready",
        "Age",
    ]
    assert next(column["type"] for column in columns if column["name"] == "Up") == "date"


def test_the_sample_is_the_one_that_people_have() -> None:
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
    """Datacenter dc-1 with cluster c-1 and a host in it."""
    stage = FakeEnvironment()
    stage.enter("Folder", "group-d1", name="Datacenters")
    stage.enter("Datacenter", "datacenter-1", name="dc-1", parent=Ref("Folder", "group-d1"))
    stage.enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1"))
    stage.enter("ClusterComputeResource", "domain-c1", name="c-1", parent=Ref("Folder", "group-h1"))
    add_host(stage, name)
    stage.mark_loaded()
    return stage


def add_host(stage: FakeEnvironment, name: str, ref: str = "host-1") -> None:
    stage.enter(
        "HostSystem",
        ref,
        name=name,
        parent=Ref("ClusterComputeResource", "domain-c1"),
        runtime__connectionState="connected",
        summary__hardware__cpuMhz=2000,
        summary__hardware__numCpuCores=10,
        summary__quickStats__overallCpuUsage=5000,
    )


async def test_a_change_in_vcenter_reaches_the_status_by_itself() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(stage, make_controller):
        info, _ = await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        assert (info.status.totalCPU, info.status.freeCPU, info.status.vms) == (20_000, 15_000, 0)
        assert info.status.inventoryPath == "/dc-1/host/c-1/esxi-1"
        stage.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
        await stage.wait_for_ready(HostInfo, "h", "MaintenanceMode")
        stage.modify("ClusterComputeResource", "domain-c1", name="c-2")
        await stage.wait_for_ready(
            HostInfo, "h", "MaintenanceMode", lambda status: status.cluster == "c-2"
        )


async def test_a_disconnected_host_keeps_its_hardware_and_says_what_to_do() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        stage.modify("HostSystem", "host-1", runtime__connectionState="disconnected")
        info, condition = await stage.wait_for_ready(HostInfo, "h", "HostDisconnected")
        assert (condition.status, info.status.totalCPU, info.status.freeCPU) == (
            "False",
            20_000,
            None,
        )
        assert "reconnect it in vCenter" in condition.message
        stage.modify(
            "HostSystem",
            "host-1",
            runtime__connectionState="connected",
            summary__quickStats__overallCpuUsage=4000,
        )
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 16_000
        )


async def test_no_number_survives_a_host_that_left_and_a_new_one_is_found_by_itself() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        stage.leave("HostSystem", "host-1")
        info, condition = await stage.wait_for_ready(HostInfo, "h", "HostNotFound")
        assert condition.status == "False"
        assert info.status == HostInfoStatus(
            conditions=info.status.conditions, observedGeneration=1
        )
        add_host(stage, "esxi-1", "host-2")
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.totalCPU == 20_000
        )
        add_host(stage, "esxi-1", "host-3")
        info, _ = await stage.wait_for_ready(HostInfo, "h", "HostAmbiguous")
        assert info.status.totalCPU is None
        stage.leave("HostSystem", "host-3")
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")


async def test_a_renamed_host_is_followed_under_both_names() -> None:
    stage = environment_with_host("old")
    stage.create(HostInfo, "old", hostname="old")
    stage.create(HostInfo, "new", hostname="new")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(HostInfo, "old", "Reconciled")
        await stage.wait_for_ready(HostInfo, "new", "HostNotFound")
        stage.modify("HostSystem", "host-1", name="new")
        await stage.wait_for_ready(HostInfo, "old", "HostNotFound")
        await stage.wait_for_ready(HostInfo, "new", "Reconciled")


async def test_an_empty_spec_is_told_what_is_missing() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h")
    async with run_manager(stage, make_controller):
        _, condition = await stage.wait_for_ready(HostInfo, "h", "HostnameMissing")
        assert condition.status == "False"
        assert "set it to the name of an ESXi host" in condition.message


async def test_small_moves_of_load_wait_and_large_ones_do_not() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        # The host's first appearance came before anybody listened; from the second change on its pace is known.
        stage.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6500)
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 13_500
        )
        written = stage.count_status_writes()
        stage.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6600)
        stage.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=8000)
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 12_000
        )
        assert stage.count_status_writes() == written + 1


async def test_a_vm_that_comes_together_with_new_load_is_counted_at_once() -> None:
    stage = environment_with_host()
    stage.create(HostInfo, "h", hostname="esxi-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        stage.modify("HostSystem", "host-1", summary__quickStats__overallCpuUsage=6500)
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.freeCPU == 13_500
        )
        stage.vcenter.inventory.apply(
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
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.vms == 1, within=2
        )
