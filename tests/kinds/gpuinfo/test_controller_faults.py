"""A fault of one node, device or source does not affect the selection of others."""

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
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, Simulation
from vsphere_operators.kinds.gpuinfo.types import GPUInfo
from vsphere_operators.vsphere.devices import DEVICES_PROPERTY
from vsphere_operators.vsphere.faults import Denied
from vsphere_operators.vsphere.inventory import Change
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.properties import InventoryObject
from vsphere_operators.vsphere.scheduled_tasks import MaintenanceTask
from vsphere_operators.vsphere.updates import ObjectUpdate

CALENDAR_KEY = Key("ops", "maintenance")


def raise_error(change: Change[InventoryObject]) -> None:
    raise ArithmeticError(str(change))


async def test_node_with_unreadable_facts_is_rejected_and_others_are_served() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster) as controller:
        await wait_for_node(cluster, "plain", "node-1")
        # Adding to this time overflows. No source lets it through, so it stands for any bug.
        cluster.vcenter.scheduled_tasks.apply(
            [MaintenanceTask("host-1", datetime.max.replace(tzinfo=UTC), "never")]
        )
        status = await wait_for_node(cluster, "plain", "node-2")
        assert status.refused == {"FactsUnreadable": 1, "GPUPresent": 1}
        cluster.vcenter.inventory._signals[VirtualMachine]._listeners.insert(0, raise_error)
        cluster.set_cpu_demand(2, 950)
        await eventually(
            lambda: controller.tracker.ranking.facts["node-2"].usage.cpu_demand_mhz == 950
        )
        cluster.vcenter.scheduled_tasks.apply([])
        await wait_for_node(cluster, "plain", "node-1")


@pytest.mark.looptime
async def test_vm_with_unread_devices_rejects_only_its_own_node() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        await wait_for_node(cluster, "plain", "node-1")
        cluster.add_vm(9, 1, 100, devices=None)
        cluster.add_node(9)
        await cluster.patch_node(1, {"spec": {"unschedulable": True}})
        status = await wait_for_node(cluster, "plain", "node-2")
        assert status.refused == {"Unschedulable": 1, "DevicesUnread": 1, "GPUPresent": 1}
        cluster.create(GPUInfo, "late", desAccTime=1, gpuRequired=False)
        await asyncio.sleep(5)
        assert (await cluster.get(GPUInfo, "late")).status.suitableNodeName is None
        await asyncio.sleep(10)
        await wait_for_node(cluster, "late", "node-2")


async def test_warnings_are_repeated_when_this_process_starts_leading() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.add_node(4, annotations={NEXT_MAINTENANCE_KEY: "next tuesday"})
    lines = {"w": "host=esxi-1 start=tomorrow length=4h"}
    cluster.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": lines},
    )
    async with run_gpuinfo_manager(cluster, calendar=CALENDAR_KEY) as controller:
        both = {("node-4", "MaintenanceUnreadable"), ("maintenance", "CalendarLineUnreadable")}
        await eventually(lambda: {warning[:2] for warning in cluster.warnings} == both)
        controller.tracker.rebuild_all()
        assert len(cluster.warnings) == 2
        controller.tracker.repeat_warnings()
        assert controller.calendar is not None
        controller.calendar.repeat_warnings()
        assert cluster.warnings[2:] == sorted(
            cluster.warnings[:2], key=lambda warning: warning[0], reverse=True
        )


async def test_hidden_devices_no_longer_count_until_they_are_readable_again() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    devices, denied = cluster.vcenter.passthrough_devices, True

    async def read(refs: list[str]) -> list[ObjectUpdate]:
        if denied:
            raise Denied("no permission")
        return [
            ObjectUpdate("modify", "VirtualMachine", ref, {DEVICES_PROPERTY: ()}) for ref in refs
        ]

    devices.read_properties = read  # type: ignore[method-assign]
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        await wait_for_node(cluster, "plain", "node-1")
        cluster.modify("VirtualMachine", "vm-1", config__changeVersion="2")
        await devices.poll()
        assert (await wait_for_node(cluster, "plain", "node-2")).refused == {
            "DevicesHidden": 1,
            "GPUPresent": 1,
        }
        denied = False
        devices.request_refresh("vm-1")
        await devices.poll()
        await wait_for_node(cluster, "plain", "node-1")


@pytest.mark.looptime
async def test_stale_calendar_is_reported_at_once() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    cluster.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {}},
    )
    async with run_gpuinfo_manager(cluster, calendar=CALENDAR_KEY) as controller:
        await wait_for_node(cluster, "plain", "node-1")
        assert controller.calendar is not None
        reflector = controller.calendar.reflector

        async def plans() -> str | None:
            condition = (await cluster.get(GPUInfo, "plain")).status.condition("PlansKnown")
            return condition.reason if condition else None

        reflector._set_problem("configmaps is forbidden")
        await eventually(lambda: has_reason(plans, "CalendarStale"), within=20)
        reflector._set_problem("")
        await eventually(lambda: has_reason(plans, "AllRead"), within=20)


async def has_reason(plans: Callable[[], Awaitable[str | None]], reason: str) -> bool:
    return await plans() == reason


async def test_invalid_spec_keeps_the_mark_of_simulation() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "wrong", desAccTime=-1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, simulation=Simulation("a")):
        info, _ = await cluster.wait_for_ready(GPUInfo, "wrong", "NegativeTime")
        assert (info.status.simulated, info.status.suitableNodeName) == (True, None)
