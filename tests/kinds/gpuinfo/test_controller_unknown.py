"""GPUInfo while something is not known: nobody is named on a guess, and the status says what is lacking."""

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
from vsphere_operators.kinds.gpuinfo.controller import NONE_AVAILABLE, GPUInfo, GPUInfoStatus


@pytest.mark.looptime
async def test_no_answer_is_given_before_everything_is_known() -> None:
    stage = FakeNodeCluster()
    stage.add_host(1)
    stage.add_vm(1, 1, 100, devices=None)
    stage.add_node(1)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage) as controller:
        await eventually(lambda: controller.tracker.ranking.facts)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        stage.vcenter.on_answer()
        await eventually(lambda: set(controller.tracker.devices_pending_since) == {"node-1"})
        await asyncio.sleep(60)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        stage.vcenter.passthrough_devices.values["vm-1"] = ()
        for listener in stage.vcenter.passthrough_devices.listeners:
            listener("vm-1")
        await asyncio.sleep(60)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        stage.vcenter.scheduled_tasks.finish_poll("")
        await wait_for_node(stage, "plain", "node-1")


async def test_scheduled_tasks_that_cannot_be_read_are_said_in_a_condition() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        assert (await wait_for_plans_known(stage, "True")).reason == "AllRead"
        stage.vcenter.scheduled_tasks.finish_poll("no permission")
        told = await wait_for_plans_known(stage, "False")
        assert told.reason == "ScheduledTasksUnreadable"
        assert 'scheduled tasks of vCenter "vc-1" cannot be read' in told.message
        assert "no permission" in told.message
        await wait_for_node(stage, "plain", "node-1")
        stage.vcenter.scheduled_tasks.finish_poll("")
        assert (await wait_for_plans_known(stage, "True")).message == ""


async def wait_for_plans_known(stage: FakeNodeCluster, status: str) -> Condition:
    async def there() -> Condition | None:
        found = (await stage.get(GPUInfo, "plain")).status.condition("PlansKnown")
        return found if found is not None and found.status == status else None

    found = await eventually(there)
    assert found is not None
    return found


CALENDAR_KEY = Key("ops", "maintenance")


@pytest.mark.looptime
async def test_no_node_is_named_without_the_calendar_and_it_is_said_what_to_do() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    async with run_gpuinfo_manager(stage, calendar=CALENDAR_KEY) as controller:
        await asyncio.sleep(9)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        _, ready = await stage.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable", within=3)
        assert ready.status == "False"
        assert "ConfigMap ops/maintenance, does not exist. Create it" in ready.message
        window = f"node=node-1 start={(stage.clock() + timedelta(hours=5)).isoformat()} length=4h"
        stage.api.create(
            ConfigMap.definition.path("ops"),
            {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {"windows": window}},
        )
        assert (await wait_for_node(stage, "plain", "node-2")).refused == {
            "TooLittleTime": 1,
            "GPUPresent": 1,
        }
        controller.calendar.reflector.problem = "forbidden"  # type: ignore[union-attr]
        stage.modify("VirtualMachine", "vm-2", runtime__powerState="poweredOff")
        await wait_for_node(stage, "plain", NONE_AVAILABLE)
        assert (
            "what it said last counts: forbidden"
            in (await wait_for_plans_known(stage, "False")).message
        )
        await stage.client.delete(ConfigMap, CALENDAR_KEY)
        info, _ = await stage.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable")
        assert info.status.suitableNodeName == NONE_AVAILABLE
        await stage.client.patch(GPUInfo, Key("default", "plain"), {"spec": {"desAccTime": 1}})
        await stage.wait_for_ready(
            GPUInfo, "plain", "CalendarUnreadable", lambda status: status.suitableNodeName is None
        )


@pytest.mark.looptime
async def test_a_calendar_that_may_not_be_read_names_the_right() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    stage.api.fail_next(
        "GET", ConfigMap.definition.path("ops"), Forbidden("configmaps is forbidden"), times=1000
    )
    async with run_gpuinfo_manager(stage, calendar=CALENDAR_KEY):
        _, ready = await stage.wait_for_ready(GPUInfo, "plain", "CalendarUnreadable", within=15)
        assert "configmaps is forbidden" in ready.message
        assert (
            "write that namespace into config/optional/maintenance-calendar.yaml" in ready.message
        )
        assert "config/rbac" not in ready.message


async def test_nodes_without_a_vm_are_named_and_hidden_devices_are_no_proof_of_anything() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.add_node(4)
    stage.add_vm(5, 1, 100, name="twin")
    stage.add_vm(6, 1, 100, name="twin", config__uuid=bios_uuid_of(5))
    stage.add_node(5, ready="False")
    stage.vcenter.passthrough_devices.hidden |= {"vm-1"}
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage):
        status = await wait_for_node(stage, "plain", "node-2")
        assert status.refused == {
            "NotReady": 1,
            "VMNotFound": 1,
            "DevicesHidden": 1,
            "GPUPresent": 1,
        }
        assert status.unmatched is not None
        assert [(each.node, each.reason) for each in status.unmatched.nodes] == [
            ("node-4", "VMNotFound"),
            ("node-5", "VMAmbiguous"),
        ]
        assert "2 VMs have its uuid: vc-1:/twin, vc-1:/twin" in status.unmatched.nodes[1].message
        assert (
            f"vsphere://{bios_uuid_of(4)} in spec.providerID" in status.unmatched.nodes[0].message
        )
        assert [each.matchedBy for each in status.candidates or ()] == ["providerID"]
        await stage.patch_node(1, {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}, "status")
        await stage.client.patch(GPUInfo, Key("default", "plain"), {"spec": {"gpuRequired": True}})
        assert (await wait_for_node(stage, "plain", "node-1")).refused == {
            "NotReady": 1,
            "VMNotFound": 1,
            "GPUMissing": 1,
        }
