"""The controller of GPUInfo on an API server and an inventory in memory: what moves an answer, and what does not."""

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
from vsphere_operators.kinds.gpuinfo.controller import NONE_AVAILABLE, GPUInfo
from vsphere_operators.kinds.gpuinfo.maintenance import parse_calendar
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, Simulation
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.updates import Ref


async def test_everything_that_can_happen_to_a_node_moves_the_answer() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    stage.create(GPUInfo, "gpu", desAccTime=100, gpuRequired=True)
    async with run_gpuinfo_manager(stage, interval_seconds=1) as controller:
        assert (await wait_for_node(stage, "gpu", "node-3")).refused == {"GPUMissing": 2}
        first = await wait_for_node(stage, "plain", "node-1")
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
        await stage.patch_node(1, {"spec": {"unschedulable": True}})
        assert (await wait_for_node(stage, "plain", "node-2")).refused == {
            "Unschedulable": 1,
            "GPUPresent": 1,
        }
        await stage.patch_node(1, {"spec": {"unschedulable": None}})
        await wait_for_node(stage, "plain", "node-1")
        await stage.patch_node(
            1, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status"
        )
        assert ((await wait_for_node(stage, "plain", "node-2")).refused or {})["NotReady"] == 1
        await stage.patch_node(
            1, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "status"
        )
        await wait_for_node(stage, "plain", "node-1")
        stage.modify(
            "VirtualMachine",
            "vm-1",
            runtime__powerState="poweredOff",
            summary__quickStats__overallCpuDemand=0,
        )
        assert ((await wait_for_node(stage, "plain", "node-2")).refused or {})["PoweredOff"] == 1
        stage.modify("HostSystem", "host-2", runtime__inMaintenanceMode=True)
        none = await wait_for_node(stage, "plain", NONE_AVAILABLE)
        assert none.refused == {"PoweredOff": 1, "HostInMaintenance": 2}
        assert (
            none.suitableHostName,
            none.nodeCPUUsage,
            none.availableAcceleratorTime,
            none.candidates,
        ) == (NONE_AVAILABLE, 0, 0, None)
        stage.modify("HostSystem", "host-2", runtime__inMaintenanceMode=False)
        await wait_for_node(stage, "plain", "node-2")
        soon = (stage.clock() + timedelta(hours=12)).isoformat()
        controller.tracker.set_calendar_entries(
            parse_calendar({"w": f"host=esxi-2 start={soon} length=4h"})[0]
        )
        assert (await wait_for_node(stage, "plain", NONE_AVAILABLE)).refused == {
            "PoweredOff": 1,
            "TooLittleTime": 2,
        }
        controller.tracker.set_calendar_entries([])
        await wait_for_node(stage, "plain", "node-2")
        stage.modify("HostSystem", "host-2", runtime__connectionState="notResponding")
        assert (await wait_for_node(stage, "plain", NONE_AVAILABLE)).refused == {
            "PoweredOff": 1,
            "HostDisconnected": 2,
        }
        stage.leave("VirtualMachine", "vm-1")
        await stage.wait_for_ready(
            GPUInfo,
            "plain",
            "NoneAvailable",
            lambda status: status.refused.get("VMNotFound") == 1,
            within=90,
        )
        events = [
            event.message
            for event in await stage.client.list(Event)
            if event.involvedObject.name == "plain"
        ]
        assert any(
            '"node-2" is the only node that suits, of 3. Before: node-1.' in message
            for message in events
        )


async def test_small_moves_of_load_neither_move_nor_write_the_answer() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage) as controller:
        await wait_for_node(stage, "plain", "node-1")
        before = stage.count_status_writes()
        stage.set_cpu_demand(2, 450)
        stage.set_cpu_demand(1, 510)
        stage.set_cpu_demand(3, 5)
        # Who is woken is forgotten until it has its new answer.
        assert set(controller.subscriptions.by_key) == {Key("default", "plain")}
        assert stage.count_status_writes() == before
        stage.set_cpu_demand(2, 300)
        await wait_for_node(stage, "plain", "node-2")
        stage.set_cpu_demand(2, 300 + 401)
        await stage.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.nodeCPUUsage in (701, 510)
        )


async def test_a_vm_that_moves_takes_the_host_name_along() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        await wait_for_node(stage, "plain", "node-1")
        stage.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        await stage.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.suitableHostName == "esxi-2"
        )


@pytest.mark.looptime
async def test_time_alone_moves_hours_and_answer_and_a_window_that_ends_gives_the_node_back() -> (
    None
):
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=10, gpuRequired=False)
    async with run_gpuinfo_manager(stage, interval_seconds=3600) as controller:
        await wait_for_node(stage, "plain", "node-1")
        start = (stage.clock() + timedelta(hours=12, minutes=30)).isoformat()
        controller.tracker.set_calendar_entries(
            parse_calendar({"w": f"node=node-1 start={start} length=4h"})[0]
        )
        await stage.wait_for_ready(
            GPUInfo, "plain", "NodeChosen", lambda status: status.availableAcceleratorTime == 12
        )
        await asyncio.sleep(1790)
        assert (await stage.get(GPUInfo, "plain")).status.availableAcceleratorTime == 12
        await asyncio.sleep(10)
        await stage.wait_for_ready(
            GPUInfo,
            "plain",
            "NodeChosen",
            lambda status: status.availableAcceleratorTime == 11,
            within=31,
        )
        await asyncio.sleep(2 * 3600)
        assert (await wait_for_node(stage, "plain", "node-2")).refused == {
            "TooLittleTime": 1,
            "GPUPresent": 1,
        }
        await asyncio.sleep(13.9 * 3600)
        assert (await stage.get(GPUInfo, "plain")).status.suitableNodeName == "node-2"
        await asyncio.sleep(0.1 * 3600)
        assert (await wait_for_node(stage, "plain", "node-1")).availableAcceleratorTime == 8760


async def test_an_outage_keeps_the_last_answer_and_says_so() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        await wait_for_node(stage, "plain", "node-1")
        stage.vcenter.inventory_watcher.last_answer_at -= 60
        stage.vcenter.on_failure(Unreachable("vCenter does not answer"))
        info, ready = await stage.wait_for_ready(GPUInfo, "plain", "VCenterUnreachable")
        assert ready.status == "False"
        assert info.status.suitableNodeName == "node-1"
        stage.vcenter.on_answer()
        await wait_for_node(stage, "plain", "node-1")


async def test_negative_hours_and_unreadable_times_are_said_and_the_rest_goes_on() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "wrong", desAccTime=-1, gpuRequired=False)
    stage.create(GPUInfo, "empty")
    async with run_gpuinfo_manager(stage):
        wrong, ready = await stage.wait_for_ready(GPUInfo, "wrong", "NegativeTime")
        assert ready.status == "False"
        assert wrong.status.suitableNodeName is None
        await wait_for_node(stage, "empty", "node-1")
        await stage.patch_node(
            1, {"metadata": {"annotations": {NEXT_MAINTENANCE_KEY: "next tuesday"}}}
        )
        await stage.patch_node(2, {"status": {"allocatable": {"example.com/gpu": "1"}}}, "status")
        await eventually(lambda: len(stage.warnings) == 2)
        assert [(name, reason) for name, reason, _ in stage.warnings] == [
            ("node-1", "MaintenanceUnreadable"),
            ("node-2", "UnknownGPUResource"),
        ]
        assert '"next tuesday" is not a time of RFC 3339' in stage.warnings[0][2]
        stage.set_cpu_demand(1, 501)
        assert len(stage.warnings) == 2
        await wait_for_node(stage, "empty", "node-1")


async def test_simulated_numbers_are_the_same_for_the_same_seed_and_said_in_the_status() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    hours, gpu = zip(
        *(Simulation("7").simulate_node(f"node-{number}") for number in (1, 2, 3)), strict=True
    )
    assert all(300 <= each <= 400 for each in hours)
    assert {Simulation("7").simulate_node(f"n{number}")[1] for number in range(20)} == {True, False}
    async with run_gpuinfo_manager(stage, simulation=Simulation("7")):
        info, ready = await stage.wait_for_ready(
            GPUInfo, "plain", "NoneAvailable" if all(gpu) else "NodeChosen"
        )
        assert info.status.simulated is True
        assert "simulated" in ready.message
        if not all(gpu):
            assert info.status.availableAcceleratorTime in hours
