"""Which change in the inventory causes which RefreshScope."""

from __future__ import annotations

import pytest

from vsphere_operators.vsphere.disk_catalog import RefreshScope
from vsphere_operators.vsphere.disks import _select_scope
from vsphere_operators.vsphere.inventory import Change
from vsphere_operators.vsphere.model import Datastore, Host, Task, VirtualMachine

DATASTORE = Datastore(ref="datastore-1", name="a", accessible=True, url="ds:///a/")


def finished_task(description: str, state: str = "success") -> Change:
    return Change(
        Task(ref="task-1", state="running", description=description),
        Task(ref="task-1", state=state, description=description),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("change", "depth"),
    [
        (finished_task("vslm.vcenter.VStorageObjectManager.createDisk"), RefreshScope.NEW),
        (finished_task("VcenterVStorageObjectManager.deleteDisk"), RefreshScope.NEW),
        (finished_task("com.vmware.cns.tasks.createvolume"), RefreshScope.NEW),
        (finished_task("com.vmware.cns.tasks.attachvolume"), RefreshScope.ASSOCIATIONS),
        (finished_task("VirtualMachine.attachDisk"), RefreshScope.ASSOCIATIONS),
        (finished_task("VirtualMachine.detachDisk", "error"), RefreshScope.ASSOCIATIONS),
        (finished_task("VirtualMachine.reconfigure"), RefreshScope.ASSOCIATIONS),
        (finished_task("VirtualMachine.destroy"), RefreshScope.ASSOCIATIONS),
        (finished_task("VirtualMachine.clone"), RefreshScope.ASSOCIATIONS),
        (finished_task("vslm.vcenter.VStorageObjectManager.extendDisk"), RefreshScope.ALL),
        (
            finished_task("vslm.vcenter.VStorageObjectManager.relocateVStorageObject"),
            RefreshScope.ALL,
        ),
        (finished_task("VirtualMachine.powerOn"), None),
        (
            Change(None, Task(ref="task-1", state="success", description="VirtualMachine.destroy")),
            RefreshScope.ASSOCIATIONS,
        ),
        (
            Change(None, Task(ref="task-1", state="running", description="VirtualMachine.destroy")),
            None,
        ),
        (
            Change(Task(ref="task-1", state="success", description="VirtualMachine.destroy"), None),
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
        (Change(VirtualMachine(ref="vm-1"), None), RefreshScope.ASSOCIATIONS),
        (Change(VirtualMachine(ref="vm-1"), VirtualMachine(ref="vm-1", name="x")), None),
        (Change(Host(ref="host-1"), None), None),
    ],
)
def test_refresh_scope_of_a_change(change: Change, depth: RefreshScope | None) -> None:
    assert _select_scope(change) == depth
