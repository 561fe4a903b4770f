"""Which change in the inventory causes which RefreshScope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from vsphere_operators.vsphere.disk_catalog import RefreshScope
from vsphere_operators.vsphere.disks import Disks
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.model import Datastore, Task, TaskState, VirtualMachine

DATASTORE = Datastore(ref="datastore-1", name="a", accessible=True, url="ds:///a/")


def finished_task(description: str, state: TaskState = "success") -> Change[Task]:
    return Change(
        Task(ref="task-1", state="running", description_id=description),
        Task(ref="task-1", state=state, description_id=description),
    )


def destroy_task(state: TaskState) -> Task:
    return Task(ref="task-1", state=state, description_id="VirtualMachine.destroy")


@pytest.mark.parametrize(
    ("change", "depth"),
    [
        (finished_task("vslm.vcenter.VStorageObjectManager.createDisk"), RefreshScope.NEW),
        (finished_task("VcenterVStorageObjectManager.deleteDisk"), RefreshScope.NEW),
        (finished_task("com.vmware.cns.tasks.createvolume"), RefreshScope.NEW),
        (finished_task("com.vmware.cns.tasks.attachvolume"), RefreshScope.ATTACHMENTS),
        (finished_task("VirtualMachine.attachDisk"), RefreshScope.ATTACHMENTS),
        (finished_task("VirtualMachine.detachDisk", "error"), RefreshScope.ATTACHMENTS),
        (finished_task("VirtualMachine.reconfigure"), RefreshScope.ATTACHMENTS),
        (finished_task("VirtualMachine.destroy"), RefreshScope.ATTACHMENTS),
        (finished_task("VirtualMachine.clone"), RefreshScope.ATTACHMENTS),
        (finished_task("vslm.vcenter.VStorageObjectManager.extendDisk"), RefreshScope.ALL),
        (
            finished_task("vslm.vcenter.VStorageObjectManager.relocateVStorageObject"),
            RefreshScope.ALL,
        ),
        (finished_task("VirtualMachine.powerOn"), None),
        (
            Change(None, destroy_task("success")),
            RefreshScope.ATTACHMENTS,
        ),
        (
            Change(None, destroy_task("running")),
            None,
        ),
        (
            Change(destroy_task("success"), None),
            None,
        ),
        (Change(None, DATASTORE), RefreshScope.NEW),
        (Change(DATASTORE, None), RefreshScope.NEW),
        (
            Change(DATASTORE, Datastore(ref="datastore-1", name="b", accessible=True)),
            RefreshScope.ALL,
        ),
        (Change(DATASTORE, Datastore(ref="datastore-1", name="a")), RefreshScope.ALL),
        (
            Change(
                DATASTORE, Datastore(ref="datastore-1", name="a", accessible=True, url="ds:///b/")
            ),
            None,
        ),
        (Change(VirtualMachine(ref="vm-1"), None), RefreshScope.ATTACHMENTS),
        (Change(VirtualMachine(ref="vm-1"), VirtualMachine(ref="vm-1", name="x")), None),
    ],
)
async def test_refresh_scope_of_a_change(change: Change[Any], depth: RefreshScope | None) -> None:
    disks = Disks(Mock(), Mock(), Inventory("lab"), Mock())
    handlers: dict[type, Callable[[Change[Any]], None]] = {
        Task: disks.on_task_change,
        Datastore: disks.on_datastore_change,
        VirtualMachine: disks.on_vm_change,
    }
    handlers[type(change.new or change.old)](change)
    assert disks.poll_schedule.triggered.is_set() == (depth is not None)
    assert disks._requested_scope == (depth or RefreshScope.NEW)
