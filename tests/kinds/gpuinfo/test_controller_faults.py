"""One thing that is wrong, unread or refused must not keep the answers about all others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from kubewright import Key
from kubewright.builtin import ConfigMap
from kubewright.testing import eventually
from support.fake_node_cluster import (
    FakeNodeCluster,
    add_three_nodes,
    run_gpuinfo_manager,
    wait_for_node,
)
from vsphere_operators.kinds.gpuinfo.controller import GPUInfo
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, Simulation
from vsphere_operators.vsphere.devices import DEVICES_PROPERTY
from vsphere_operators.vsphere.faults import Denied
from vsphere_operators.vsphere.inventory import Change
from vsphere_operators.vsphere.scheduled_tasks import PlannedMaintenance
from vsphere_operators.vsphere.updates import ObjectUpdate

CALENDAR_KEY = Key("ops", "maintenance")


def raise_error(change: Change) -> None:
    raise ArithmeticError(str(change))


async def test_a_node_whose_facts_cannot_be_made_is_refused_and_all_others_go_on() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage) as controller:
        await wait_for_node(stage, "plain", "node-1")
        # A time that nothing can be added to: no source of ours lets it through, so it stands for any fault of ours.
        stage.vcenter.scheduled_tasks.apply(
            [PlannedMaintenance("host-1", datetime.max.replace(tzinfo=UTC), "never")]
        )
        status = await wait_for_node(stage, "plain", "node-2")
        assert status.refused == {"FactsUnreadable": 1, "GPUPresent": 1}
        stage.vcenter.inventory.listeners.insert(0, raise_error)
        stage.set_cpu_demand(2, 950)
        await eventually(
            lambda: controller.tracker.ranking.facts["node-2"].load.cpu_demand_mhz == 950
        )
        stage.vcenter.scheduled_tasks.apply([])
        await wait_for_node(stage, "plain", "node-1")


@pytest.mark.looptime
async def test_a_vm_whose_devices_are_never_read_keeps_only_its_own_node_out() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        await wait_for_node(stage, "plain", "node-1")
        stage.add_vm(9, 1, 100, devices=None)
        stage.add_node(9)
        await stage.patch_node(1, {"spec": {"unschedulable": True}})
        status = await wait_for_node(stage, "plain", "node-2")
        assert status.refused == {"Unschedulable": 1, "DevicesUnread": 1, "GPUPresent": 1}
        stage.create(GPUInfo, "late", desAccTime=1, gpuRequired=False)
        await asyncio.sleep(5)
        assert (await stage.get(GPUInfo, "late")).status.suitableNodeName is None
        await asyncio.sleep(10)
        await wait_for_node(stage, "late", "node-2")


async def test_what_is_wrong_is_said_again_when_this_process_begins_to_lead() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.add_node(4, annotations={NEXT_MAINTENANCE_KEY: "next tuesday"})
    lines = {"w": "host=esxi-1 start=tomorrow length=4h"}
    stage.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": lines},
    )
    async with run_gpuinfo_manager(stage, calendar=CALENDAR_KEY) as controller:
        both = {("node-4", "MaintenanceUnreadable"), ("maintenance", "CalendarLineUnreadable")}
        await eventually(lambda: {each[:2] for each in stage.warnings} == both)
        controller.tracker.rebuild_all()
        assert len(stage.warnings) == 2
        controller.tracker.repeat_warnings()
        assert controller.calendar is not None
        controller.calendar.repeat_warnings()
        assert stage.warnings[2:] == sorted(
            stage.warnings[:2], key=lambda each: each[0], reverse=True
        )


async def test_devices_that_vcenter_refuses_to_show_again_are_no_proof_any_more() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    devices, refused = stage.vcenter.passthrough_devices, True

    async def read(refs: list[str]) -> list[ObjectUpdate]:
        if refused:
            raise Denied("no right")
        return [
            ObjectUpdate("modify", "VirtualMachine", ref, {DEVICES_PROPERTY: ()}) for ref in refs
        ]

    devices.read_properties = read  # type: ignore[method-assign]
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        await wait_for_node(stage, "plain", "node-1")
        with stage.vcenter.inventory.subscribe(devices.on_inventory_change):
            stage.modify("VirtualMachine", "vm-1", config__changeVersion="2")
        await devices.poll()
        assert (await wait_for_node(stage, "plain", "node-2")).refused == {
            "DevicesHidden": 1,
            "GPUPresent": 1,
        }
        refused = False
        devices.request_refresh("vm-1")
        await devices.poll()
        await wait_for_node(stage, "plain", "node-1")


@pytest.mark.looptime
async def test_a_calendar_that_becomes_stale_is_said_at_once() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    stage.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {}},
    )
    async with run_gpuinfo_manager(stage, calendar=CALENDAR_KEY) as controller:
        await wait_for_node(stage, "plain", "node-1")
        assert controller.calendar is not None
        reflector = controller.calendar.reflector

        async def plans() -> str | None:
            found = (await stage.get(GPUInfo, "plain")).status.condition("PlansKnown")
            return found.reason if found else None

        reflector.set_problem("configmaps is forbidden")
        await eventually(lambda: has_reason(plans, "CalendarStale"), within=20)
        reflector.mark_alive()
        await eventually(lambda: has_reason(plans, "AllRead"), within=20)


async def has_reason(plans: Callable[[], Awaitable[str | None]], reason: str) -> bool:
    return await plans() == reason


async def test_a_refusal_also_says_that_all_is_simulated() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "wrong", desAccTime=-1, gpuRequired=False)
    async with run_gpuinfo_manager(stage, simulation=Simulation("a")):
        info, _ = await stage.wait_for_ready(GPUInfo, "wrong", "NegativeTime")
        assert (info.status.simulated, info.status.suitableNodeName) == (True, None)
