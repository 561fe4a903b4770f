"""GPUInfo while facts are missing: no node is selected, and the status explains why."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from kubewright import Condition, Key
from kubewright.builtin import ConfigMap
from kubewright.errors import Forbidden
from kubewright.testing import eventually
from support.fake_node_cluster import (
    FakeNodeCluster,
    add_three_nodes,
    bios_uuid_of,
    run_gpuinfo_manager,
    wait_for_node,
)
from vsphere_operators.kinds.gpuinfo.types import NONE_AVAILABLE, GPUInfo, GPUInfoStatus


@pytest.mark.looptime
async def test_no_node_is_selected_before_all_facts_are_loaded() -> None:
    cluster = FakeNodeCluster()
    cluster.add_host(1)
    cluster.add_vm(1, 1, 100, devices=None)
    cluster.add_node(1)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster) as controller:
        await eventually(lambda: controller.tracker.ranking.facts)
        assert (await cluster.get(GPUInfo, "plain")).status == GPUInfoStatus()
        cluster.vcenter.on_response()
        await eventually(lambda: set(controller.tracker.devices_pending_since) == {"node-1"})
        await asyncio.sleep(60)
        assert (await cluster.get(GPUInfo, "plain")).status == GPUInfoStatus()
        cluster.vcenter.passthrough_devices.values["vm-1"] = ()
        cluster.vcenter.passthrough_devices.changed.emit("vm-1")
        await asyncio.sleep(60)
        assert (await cluster.get(GPUInfo, "plain")).status == GPUInfoStatus()
        cluster.vcenter.scheduled_tasks._finish_poll("")
        await wait_for_node(cluster, "plain", "node-1")


async def test_unreadable_scheduled_tasks_are_reported_in_a_condition() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        assert (await wait_for_plans_known(cluster, "True")).reason == "AllRead"
        cluster.vcenter.scheduled_tasks._finish_poll("no permission")
        condition = await wait_for_plans_known(cluster, "False")
        assert condition.reason == "ScheduledTasksUnreadable"
        assert 'scheduled tasks of vCenter "vc-1" cannot be read' in condition.message
        assert "no permission" in condition.message
        await wait_for_node(cluster, "plain", "node-1")
        cluster.vcenter.scheduled_tasks._finish_poll("")
        assert (await wait_for_plans_known(cluster, "True")).message == ""


async def wait_for_plans_known(cluster: FakeNodeCluster, status: str) -> Condition:
    async def read_condition() -> Condition | None:
        condition = (await cluster.get(GPUInfo, "plain")).status.condition("PlansKnown")
        return condition if condition is not None and condition.status == status else None

    condition = await eventually(read_condition)
    assert condition is not None
    return condition


CALENDAR_KEY = Key("ops", "maintenance")


@pytest.mark.looptime
async def test_no_node_is_selected_without_the_calendar() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, calendar=CALENDAR_KEY) as controller:
        await asyncio.sleep(9)
        assert (await cluster.get(GPUInfo, "plain")).status == GPUInfoStatus()
        _, ready = await cluster.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable", within=3)
        assert ready.status == "False"
        assert "ConfigMap ops/maintenance, does not exist. Create it" in ready.message
        assert ready.message.endswith("No node is selected until the calendar can be read.")
        window = f"node=node-1 start={(cluster.clock() + timedelta(hours=5)).isoformat()} length=4h"
        cluster.api.create(
            ConfigMap.definition.path("ops"),
            {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {"windows": window}},
        )
        assert (await wait_for_node(cluster, "plain", "node-2")).refused == {
            "TooLittleTime": 1,
            "GPUPresent": 1,
        }
        controller.calendar.reflector.problem = "forbidden"  # type: ignore[union-attr]
        cluster.modify("VirtualMachine", "vm-2", runtime__powerState="poweredOff")
        await wait_for_node(cluster, "plain", NONE_AVAILABLE)
        assert (
            "its last known entries apply: forbidden"
            in (await wait_for_plans_known(cluster, "False")).message
        )
        await cluster.client.delete(ConfigMap, CALENDAR_KEY)
        info, ready = await cluster.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable")
        assert info.status.suitableNodeName == NONE_AVAILABLE
        assert "The last selected node is kept until the calendar can be read." in ready.message
        await cluster.client.patch(GPUInfo, Key("default", "plain"), {"spec": {"desAccTime": 1}})
        await cluster.wait_for_ready(
            GPUInfo, "plain", "CalendarUnreadable", lambda status: status.suitableNodeName is None
        )


@pytest.mark.looptime
async def test_forbidden_calendar_names_the_role_to_apply() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    cluster.api.fail_next(
        "GET", ConfigMap.definition.path("ops"), Forbidden("configmaps is forbidden"), times=1000
    )
    async with run_gpuinfo_manager(cluster, calendar=CALENDAR_KEY):
        _, ready = await cluster.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable", within=15)
        assert "configmaps is forbidden" in ready.message
        assert (
            "write that namespace into config/optional/maintenance-calendar.yaml" in ready.message
        )
        assert "config/rbac" not in ready.message


async def test_nodes_without_a_vm_are_listed_and_hidden_devices_reject_a_node() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.add_node(4)
    cluster.add_vm(5, 1, 100, name="twin")
    cluster.add_vm(6, 1, 100, name="twin", config__uuid=bios_uuid_of(5))
    cluster.add_node(5, ready="False")
    cluster.vcenter.passthrough_devices.unreadable |= {"vm-1"}
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster):
        status = await wait_for_node(cluster, "plain", "node-2")
        assert status.refused == {
            "NotReady": 1,
            "VMNotFound": 1,
            "DevicesHidden": 1,
            "GPUPresent": 1,
        }
        assert status.unmatched is not None
        assert [(node.node, node.reason) for node in status.unmatched.nodes] == [
            ("node-4", "VMNotFound"),
            ("node-5", "VMAmbiguous"),
        ]
        assert (
            "2 VMs have the uuid of the Node: vc-1:/twin, vc-1:/twin"
            in status.unmatched.nodes[1].message
        )
        assert (
            f"vsphere://{bios_uuid_of(4)} in spec.providerID" in status.unmatched.nodes[0].message
        )
        assert [candidate.matchedBy for candidate in status.candidates or ()] == ["providerID"]
        await cluster.patch_node(1, {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}, "status")
        await cluster.client.patch(
            GPUInfo, Key("default", "plain"), {"spec": {"gpuRequired": True}}
        )
        assert (await wait_for_node(cluster, "plain", "node-1")).refused == {
            "NotReady": 1,
            "VMNotFound": 1,
            "GPUMissing": 1,
        }
