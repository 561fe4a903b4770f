"""The Events and the metrics of a VmGroup, on a real API server and a simulated vCenter."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ManagerProcess
from support.vmgroup_client import (
    TEMPLATE,
    VmGroupClient,
    group_folder_path,
    is_running,
    list_group_vms,
)

from .crash_run import run_observed_manager
from .group_lifecycle import OTHER_TEMPLATE

NAME = "web"
CREATED = "vsphere_vmgroup_vms_created_total"
DESTROYED = "vsphere_vmgroup_vms_destroyed_total"
COMBINED = "(combined from similar events): "
# Type, reason and message of an Event. The references and the random part of names are replaced.
EventText = tuple[str, str, str]

CLONE_STARTED = ("Normal", "CloneStarted", f'Cloning VM "x" from template "{TEMPLATE}" (task-1).')
VM_READY = ("Normal", "VMReady", 'VM "x" is ready on host "DC0_H0".')
ALL_READY = ("Normal", "Reconciled", "All 2 replicas are ready.")


@dataclass
class EventHarness:
    client: VmGroupClient
    vcenter: SimulatedVCenter
    manager: ManagerProcess
    uid: str = ""
    # The Events of the group that were compared already.
    compared: Counter[EventText] = field(default_factory=Counter)

    async def create_group(self, **spec: Any) -> None:
        self.uid = (await self.client.create(NAME, **spec))["metadata"]["uid"]

    async def wait_until_running(self) -> None:

        async def running() -> bool:
            return is_running(await self.client.get(NAME))

        await eventually(running, within=60)

    async def run_kubectl(self, *arguments: str) -> str:
        kubectl = partial(self.client.control_plane.kubectl, "-n", self.client.namespace)
        return await asyncio.to_thread(kubectl, *arguments)

    async def list_refs(self) -> list[str]:
        return [vm.ref for vm in await list_group_vms(self.vcenter, self.uid)]

    async def list_events(self) -> list[dict[str, Any]]:
        events = await self.client.call("GET", f"/api/v1/namespaces/{self.client.namespace}/events")
        return [event for event in events["items"] if event["involvedObject"]["uid"] == self.uid]

    async def count_new_events(self) -> Counter[EventText]:
        counts = Counter[EventText]()
        for event in await self.list_events():
            message = re.sub(rf"{NAME}-replica-[a-z]{{8}}", "x", event["message"])
            # The host is not known any more if the group waited for the destroy task.
            message = re.sub(r'\b(task|vm)-\d+( on host "DC0_H0")?', r"\1-1", message)
            counts[event["type"], event["reason"], message] += event["count"]
        return counts - self.compared

    async def expect_events(self, expected: dict[EventText, int]) -> None:
        """Wait until exactly these Events were added since the last call."""

        async def complete() -> bool:
            return await self.count_new_events() == expected

        # The assertion below shows the difference.
        with suppress(AssertionError):
            await eventually(complete, within=30)
        assert await self.count_new_events() == expected
        self.compared += Counter(expected)

    async def expect_reasons(self, expected: dict[str, int]) -> None:
        """Wait until the group has exactly this many Events of each reason."""

        async def count() -> Counter[str]:
            counts = Counter[str]()
            for event in await self.list_events():
                counts[event["reason"]] += event["count"]
            return counts

        async def complete() -> bool:
            return await count() == expected

        with suppress(AssertionError):
            await eventually(complete, within=30)
        assert await count() == expected

    async def read_counts(self, metric: str) -> dict[str, float]:
        """The series that are not 0, by the label `reason` or `phase`."""
        series = await self.manager.read_metric(metric)
        return {
            re.findall(r'(?:reason|phase)="(\w+)"', labels)[0]: value
            for labels, value in series.items()
            if value
        }


@pytest.fixture
async def harness(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> AsyncIterator[EventHarness]:
    async with run_observed_manager(
        installed, simulator, namespace, tmp_path / "manager", "--vcenter-operations=10"
    ) as (manager, _):
        yield EventHarness(VmGroupClient(installed, namespace), simulator, manager)


async def test_each_event_of_a_group_is_recorded_once(harness: EventHarness) -> None:
    await harness.create_group(replicas=2)
    await harness.expect_events({CLONE_STARTED: 2, VM_READY: 2, ALL_READY: 1})
    phases = await harness.manager.read_metric("vsphere_vmgroups")
    assert phases == {'phase="ERROR"': 0.0, 'phase="PENDING"': 0.0, 'phase="RUNNING"': 1.0}

    for arguments in (("describe", "vg", NAME), ("events", "--for", f"vmgroup/{NAME}")):
        text = await harness.run_kubectl(*arguments)
        assert [text.count(reason) for reason in ("CloneStarted", "VMReady")] == [2, 2], text

    first, second = await harness.list_refs()
    await harness.vcenter.delete(first)
    gone = (
        'VM "x" (vm-1) no longer exists in vCenter, and the manager did not delete it. It is '
        "cloned again under the same name."
    )
    replaced = {("Warning", "VMGone", gone): 1, CLONE_STARTED: 1, VM_READY: 1, ALL_READY: 1}
    await harness.expect_events(replaced)

    await harness.vcenter.set_power(second, False)
    powered_on = ("Normal", "VMPoweredOn", 'Powered on VM "x", which was powered off.')
    await harness.expect_events({powered_on: 1, ALL_READY: 1})

    await harness.client.patch_spec(NAME, cpu=2, memory=2)
    resized = 'Resized VM "x" from 1 vCPU and 1024 MB to 2 vCPUs and 2048 MB.'
    await harness.expect_events({("Normal", "VMResized", resized): 2, ALL_READY: 1})

    await harness.client.patch_spec(NAME, template=OTHER_TEMPLATE)
    change = "spec.template, spec.linkedClone or spec.storagePolicy has changed"
    await harness.expect_events(
        {
            ("Normal", "RollingUpdate", f'Replacing VM "x": {change}.'): 2,
            ("Normal", "VMDeleted", 'Deleted VM "x": a new VM replaces it.'): 2,
            (*CLONE_STARTED[:2], CLONE_STARTED[2].replace(TEMPLATE, OTHER_TEMPLATE)): 2,
            VM_READY: 2,
            ALL_READY: 1,
        }
    )

    await harness.client.patch_spec(NAME, replicas=1)
    deleted = ("Normal", "VMDeleted", 'Deleted VM "x": spec.replicas is 1.')
    await harness.expect_events({deleted: 1, ("Normal", "Reconciled", "The replica is ready."): 1})

    await harness.client.delete(NAME)
    await harness.client.wait_until_deleted(NAME)
    deleted = ("Normal", "VMDeleted", 'Deleted VM "x": the VmGroup is being deleted.')
    await harness.expect_events({deleted: 1})

    assert await harness.read_counts(CREATED) == {"scale_up": 2, "replacement": 1, "rollout": 2}
    destroyed = {"rollout": 2, "scale_down": 1, "group_deletion": 1}
    assert await harness.read_counts(DESTROYED) == destroyed
    durations = await harness.manager.read_metric("vsphere_vmgroup_clone_duration_seconds_count")
    assert list(durations.values()) == [5.0]
    assert await harness.read_counts("vsphere_vmgroups") == {}
    dropped = await harness.manager.read_metric("kubewright_events_dropped_total")
    assert list(dropped.values()) == [0.0]


async def test_a_failed_clone_and_orphaned_vms_are_recorded(harness: EventHarness) -> None:
    await harness.vcenter.fail_calls("CloneVM_Task", "TaskInProgress", where="task")
    await harness.create_group(replicas=1, deletionPolicy="Orphan")
    await harness.wait_until_running()
    await harness.expect_reasons(
        {"CloneStarted": 2, "CloneFailed": 1, "VMReady": 1, "Reconciled": 1}
    )
    (failed,) = (event for event in await harness.list_events() if event["type"] == "Warning")
    assert re.fullmatch(
        rf'Cloning "web-replica-[a-z]{{8}}" from template "{TEMPLATE}" failed: .*\. '
        r"The operation is retried automatically\.",
        failed["message"],
    )
    failures = await harness.manager.read_metric("vsphere_vmgroup_clone_failures_total")
    assert list(failures.values()) == [1.0]

    (vm,) = await list_group_vms(harness.vcenter, harness.uid)
    await harness.client.delete(NAME)
    await harness.client.wait_until_deleted(NAME)

    async def orphaned() -> list[str]:
        events = await harness.list_events()
        return [event["message"] for event in events if event["reason"] == "VMsOrphaned"]

    (message,) = await eventually(orphaned, within=60)
    folder = group_folder_path(harness.client.namespace, NAME)
    assert message.startswith(f"The group was deleted without its VMs. Folder left: {folder}. ")
    assert message.endswith(f": {vm.name}.")


async def test_a_manager_that_starts_again_continues_with_the_events(
    harness: EventHarness,
) -> None:
    await harness.vcenter.hold_clones(50)
    await harness.create_group(replicas=1)
    await harness.expect_events({CLONE_STARTED: 1})
    await harness.manager.kill()
    await harness.vcenter.release_calls()
    harness.manager.start()
    await harness.wait_until_running()
    ready = ("Normal", "Reconciled", "The replica is ready.")
    await harness.expect_events({VM_READY: 1, ready: 1})


async def test_the_events_of_many_vms_are_combined(harness: EventHarness) -> None:
    await harness.create_group(replicas=50)
    await harness.wait_until_running()
    await harness.expect_reasons({"CloneStarted": 50, "VMReady": 50, "Reconciled": 1})
    events = await harness.list_events()
    assert Counter(event["reason"] for event in events) == {
        "CloneStarted": 10,
        "VMReady": 10,
        "Reconciled": 1,
    }
    combined = [event for event in events if event["message"].startswith(COMBINED)]
    assert sorted((event["reason"], event["count"]) for event in combined) == [
        ("CloneStarted", 41),
        ("VMReady", 41),
    ]
    dropped = await harness.manager.read_metric("kubewright_events_dropped_total")
    assert list(dropped.values()) == [0.0]
