"""The controller of GPUInfo on a fake API server and inventory: what changes a selection."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kubewright import Key
from kubewright.builtin import Event
from kubewright.testing import eventually
from support.fake_node_cluster import (
    FakeNodeCluster,
    add_three_nodes,
    run_gpuinfo_manager,
    wait_for_node,
)
from vsphere_operators.kinds.gpuinfo.maintenance_windows import parse_calendar
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, Simulation
from vsphere_operators.kinds.gpuinfo.types import NONE_AVAILABLE, GPUInfo
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.updates import Ref


async def test_every_change_of_a_node_changes_the_selection() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    cluster.create(GPUInfo, "gpu", desAccTime=100, gpuRequired=True)
    async with run_gpuinfo_manager(cluster, interval_seconds=1) as controller:
        assert (await wait_for_node(cluster, "gpu", "node-3")).refused == {"GPUMissing": 2}
        first = await wait_for_node(cluster, "plain", "node-1")
        assert (
            first.suitableHostName,
            first.nodeCPUUsage,
            first.nodeMemoryUsage,
            first.availableAcceleratorTime,
        ) == (
            "esxi-1",
            500,
            1024,
            8760,
        )
        await cluster.patch_node(1, {"spec": {"unschedulable": True}})
        assert (await wait_for_node(cluster, "plain", "node-2")).refused == {
            "Unschedulable": 1,
            "GPUPresent": 1,
        }
        await cluster.patch_node(1, {"spec": {"unschedulable": None}})
        await wait_for_node(cluster, "plain", "node-1")
        await cluster.patch_node(
            1, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status"
        )
        assert ((await wait_for_node(cluster, "plain", "node-2")).refused or {})["NotReady"] == 1
        await cluster.patch_node(
            1, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "status"
        )
        await wait_for_node(cluster, "plain", "node-1")
        cluster.modify(
            "VirtualMachine",
            "vm-1",
            runtime__powerState="poweredOff",
            summary__quickStats__overallCpuDemand=0,
        )
        assert ((await wait_for_node(cluster, "plain", "node-2")).refused or {})["PoweredOff"] == 1
        cluster.modify("HostSystem", "host-2", runtime__inMaintenanceMode=True)
        none = await wait_for_node(cluster, "plain", NONE_AVAILABLE)
        assert none.refused == {"PoweredOff": 1, "HostInMaintenance": 2}
        assert (
            none.suitableHostName,
            none.nodeCPUUsage,
            none.availableAcceleratorTime,
            none.candidates,
        ) == (NONE_AVAILABLE, 0, 0, None)
        ready = none.condition("Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "NoneAvailable")
        cluster.modify("HostSystem", "host-2", runtime__inMaintenanceMode=False)
        await wait_for_node(cluster, "plain", "node-2")
        soon = (cluster.clock() + timedelta(hours=12)).isoformat()
        controller.tracker.on_calendar_change(
            parse_calendar({"w": f"host=esxi-2 start={soon} length=4h"})[0]
        )
        assert (await wait_for_node(cluster, "plain", NONE_AVAILABLE)).refused == {
            "PoweredOff": 1,
            "TooLittleTime": 2,
        }
        controller.tracker.on_calendar_change([])
        await wait_for_node(cluster, "plain", "node-2")
        cluster.modify("HostSystem", "host-2", runtime__connectionState="notResponding")
        assert (await wait_for_node(cluster, "plain", NONE_AVAILABLE)).refused == {
            "PoweredOff": 1,
            "HostDisconnected": 2,
        }
        cluster.leave("VirtualMachine", "vm-1")
        await cluster.wait_for_ready(
            GPUInfo,
            "plain",
            "NoneAvailable",
            lambda status: status.refused.get("VMNotFound") == 1,
            within=90,
        )
        events = [
            event.message
            for event in await cluster.client.list(Event)
            if event.involvedObject.name == "plain"
        ]
        assert any(
            'Selected node "node-2": 1 of 3 nodes matches. Previously: node-1.' in message
            for message in events
        )
        # The Event for a node after none is that of Ready, which became True: one, not two.
        assert 'Selected node "node-2": 1 of 3 nodes matches.' in events
        assert not any("Previously: None available." in message for message in events)


async def test_small_changes_of_load_neither_change_nor_write_the_selection() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster) as controller:
        await wait_for_node(cluster, "plain", "node-1")
        before = cluster.count_status_writes()
        cluster.set_cpu_demand(2, 450)
        cluster.set_cpu_demand(1, 510)
        cluster.set_cpu_demand(3, 5)
        # A enqueued object is not in the index until it is reconciled.
        assert set(controller.selections.by_key) == {Key("default", "plain")}
        assert cluster.count_status_writes() == before
        cluster.set_cpu_demand(2, 300)
        await wait_for_node(cluster, "plain", "node-2")
        cluster.set_cpu_demand(2, 300 + 401)
        await cluster.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.nodeCPUUsage in (701, 510)
        )


async def test_migrated_vm_changes_the_host_name() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        await wait_for_node(cluster, "plain", "node-1")
        cluster.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        await cluster.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.suitableHostName == "esxi-2"
        )


@pytest.mark.looptime(noop_cycles=4)
async def test_time_changes_hours_and_selection_and_a_node_returns_after_its_window() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, interval_seconds=3600) as controller:
        await wait_for_node(cluster, "plain", "node-1")
        start = (cluster.clock() + timedelta(hours=3, minutes=30)).isoformat()
        controller.tracker.on_calendar_change(
            parse_calendar({"w": f"node=node-1 start={start} length=1h"})[0]
        )
        await cluster.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.availableAcceleratorTime == 3
        )
        await asyncio.sleep(1790)
        assert (await cluster.get(GPUInfo, "plain")).status.availableAcceleratorTime == 3
        await asyncio.sleep(10)
        await cluster.wait_for_ready(
            GPUInfo,
            "plain",
            "NodeChosen",
            lambda status: status.availableAcceleratorTime == 2,
            within=31,
        )
        await asyncio.sleep(2 * 3600)
        assert (await wait_for_node(cluster, "plain", "node-2")).refused == {
            "TooLittleTime": 1,
            "GPUPresent": 1,
        }
        await asyncio.sleep(1.9 * 3600)
        assert (await cluster.get(GPUInfo, "plain")).status.suitableNodeName == "node-2"
        await asyncio.sleep(0.1 * 3600)
        assert (await wait_for_node(cluster, "plain", "node-1")).availableAcceleratorTime == 8760


async def test_outage_keeps_the_last_selection_and_sets_ready_false() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        await wait_for_node(cluster, "plain", "node-1")
        cluster.vcenter.inventory_watcher.last_response_at -= 60
        cluster.vcenter.on_failure(Unreachable("vCenter does not answer"))
        info, ready = await cluster.wait_for_ready(GPUInfo, "plain", "VCenterUnreachable")
        assert ready.status == "False"
        assert info.status.suitableNodeName == "node-1"
        cluster.vcenter.on_response()
        await wait_for_node(cluster, "plain", "node-1")


async def test_invalid_spec_and_annotations_are_reported_and_others_are_served() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "wrong", desAccTime=-1, gpuRequired=False)
    cluster.create(GPUInfo, "empty")
    async with run_gpuinfo_manager(cluster):
        wrong, ready = await cluster.wait_for_ready(GPUInfo, "wrong", "NegativeTime")
        assert ready.status == "False"
        assert wrong.status.suitableNodeName is None
        await wait_for_node(cluster, "empty", "node-1")
        await cluster.patch_node(
            1, {"metadata": {"annotations": {NEXT_MAINTENANCE_KEY: "next tuesday"}}}
        )
        await cluster.patch_node(2, {"status": {"allocatable": {"example.com/gpu": "1"}}}, "status")
        await eventually(lambda: len(cluster.warnings) == 2)
        assert [(name, reason) for name, reason, _ in cluster.warnings] == [
            ("node-1", "MaintenanceUnreadable"),
            ("node-2", "UnknownGPUResource"),
        ]
        assert '"next tuesday" is not an RFC 3339 time' in cluster.warnings[0][2]
        cluster.set_cpu_demand(1, 501)
        assert len(cluster.warnings) == 2
        await wait_for_node(cluster, "empty", "node-1")


async def test_simulated_numbers_depend_on_the_seed_and_are_marked_in_the_status() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    hours, gpu = zip(
        *(Simulation("7").simulate_node(f"node-{number}") for number in (1, 2, 3)), strict=True
    )
    assert all(300 <= count <= 400 for count in hours)
    assert {Simulation("7").simulate_node(f"n{number}")[1] for number in range(20)} == {
        True,
        False,
    }
    async with run_gpuinfo_manager(cluster, simulation=Simulation("7")):
        info, ready = await cluster.wait_for_ready(
            GPUInfo, "plain", "NoneAvailable" if all(gpu) else "NodeChosen"
        )
        assert info.status.simulated is True
        assert "simulated" in ready.message
        if not all(gpu):
            assert info.status.availableAcceleratorTime in hours
