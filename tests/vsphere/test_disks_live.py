"""Disks with the real inventory watcher: tasks in vCenter cause a poll long before the interval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.disk_catalog import RefreshScope
from vsphere_operators.vsphere.disks import RELEVANT_TASKS, Disks
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
from vsphere_operators.vsphere.model import Datastore, VirtualMachine
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials
from .intercepting_soap import RecordingLog, apart, pyvmomi_content

SimulatorFactory = Callable[..., Awaitable[SimulatedVCenter]]
VM_NAME = "DC0_H0_VM0"


class Counting(RecordingMetrics):
    """Counts nothing."""

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        assert count > 0


@pytest.fixture
async def simulator(start_simulator: SimulatorFactory) -> SimulatedVCenter:
    return await start_simulator("--datastores=2", "--fcd=pvc-a")


@pytest.fixture
async def disks(simulator: SimulatedVCenter) -> AsyncIterator[Disks]:
    soap, log, inventory = (
        SoapClient(simulator_address(simulator), Counting()),
        RecordingLog(),
        Inventory("lab"),
    )
    session = Session(soap, simulator_credentials(simulator), log)
    await session.login()
    collector = InventoryWatcher(soap, session, inventory, log, Counting())
    # The interval is so long that only a change in the inventory can cause a poll.
    disks = Disks(
        soap,
        session,
        inventory,
        log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.1, min_interval_seconds=0.1),
    )
    inventory.connect_tasks(disks.on_task_change, *RELEVANT_TASKS)
    inventory.connect(disks.on_datastore_change, Datastore)
    inventory.connect(disks.on_vm_change, VirtualMachine)
    tasks = [asyncio.create_task(collector.run()), asyncio.create_task(disks.run())]
    await eventually(lambda: disks.loaded)
    yield disks
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await session.logout()
    await soap.close()


def start_task(simulator: SimulatedVCenter, start: Callable[[Any], Any]) -> Awaitable[Any]:
    """Start a task by another client.

    Its end is not awaited: pyVmomi cannot decode the info of a task on a manager.
    """

    def work() -> None:
        with pyvmomi_content(simulator) as content:
            start(content)

    return apart(work)


def find_vm(content: Any) -> Any:
    view = content.viewManager.CreateContainerView(content.rootFolder, [vim.VirtualMachine], True)
    return next(vm for vm in view.view if vm.name == VM_NAME)


def make_disk_id(disks: Disks) -> Any:
    return vim.vslm.ID(id=disks.find_by_name("pvc-a").id)


async def test_created_and_deleted_disk(simulator: SimulatedVCenter, disks: Disks) -> None:
    await simulator.create_disk("pvc-b", sizeMB=7)
    disk = await eventually(lambda: disks.find_by_name("pvc-b"), within=60)
    assert disk.size_mb == 7
    store = vim.Datastore(disk.datastore)
    await start_task(
        simulator,
        lambda content: content.vStorageObjectManager.DeleteVStorageObject(
            vim.vslm.ID(id=disk.id), store
        ),
    )
    await eventually(lambda: "pvc-b" not in disks.disks_by_name, within=60)
    assert disks.find_by_name("pvc-a")


async def test_attached_and_detached_disk(simulator: SimulatedVCenter, disks: Disks) -> None:
    id, store = make_disk_id(disks), vim.Datastore(disks.find_by_name("pvc-a").datastore)
    await start_task(simulator, lambda content: find_vm(content).AttachDisk(id, store))
    user = (await eventually(lambda: disks.find_by_name("pvc-a").attached_vm_uuids, within=60))[0]
    assert [vm.bios_uuid for vm in disks.inventory.vms.values() if vm.name == VM_NAME] == [user]
    await start_task(simulator, lambda content: find_vm(content).DetachDisk(id))
    await eventually(lambda: not disks.find_by_name("pvc-a").attached_vm_uuids, within=60)


async def test_destroyed_vm_uses_no_disk(simulator: SimulatedVCenter, disks: Disks) -> None:
    await simulator.attach_disk("pvc-a", VM_NAME)
    disks._request_scope(RefreshScope.ATTACHMENTS)
    await eventually(lambda: disks.find_by_name("pvc-a").attached_vm_uuids, within=60)
    await simulator.attach_disk("pvc-a", "")
    await simulator.delete(VM_NAME)
    await eventually(lambda: not disks.find_by_name("pvc-a").attached_vm_uuids, within=60)


async def test_renamed_datastore_refreshes_its_disks(
    simulator: SimulatedVCenter, disks: Disks
) -> None:
    await simulator.reset_call_counts()
    await simulator.set_property("LocalDS_0", "name", "vsan")
    await eventually(
        lambda: disks.inventory.datastores[disks.find_by_name("pvc-a").datastore].name == "vsan",
        within=60,
    )

    async def is_disk_read() -> bool:
        return (await simulator.call_counts()).get("VslmRetrieveVStorageObject", 0) == 1

    await eventually(is_disk_read, within=60)


async def test_idle_vcenter_causes_no_calls(simulator: SimulatedVCenter, disks: Disks) -> None:
    await simulator.reset_call_counts()
    await simulator.set_stats(VM_NAME, overallCpuUsage=5)
    await eventually(
        lambda: any(vm.stats.cpu_usage_mhz == 5 for vm in disks.inventory.vms.values())
    )
    assert not [name for name in await simulator.call_counts() if "VStorage" in name]
