"""Which change in the inventory asks for which look at disks: plain values in, a depth out."""

from __future__ import annotations

import pytest

from vsphere_operators.vsphere.disk_catalog import Depth
from vsphere_operators.vsphere.disks import concern
from vsphere_operators.vsphere.inventory import Change
from vsphere_operators.vsphere.model import Datastore, Host, Machine, Task

STORE = Datastore(ref="datastore-1", name="a", accessible=True, url="ds:///a/")


def finished(description: str, state: str = "success") -> Change:
    return Change(
        Task(ref="task-1", state="running", description=description),
        Task(ref="task-1", state=state, description=description),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("change", "depth"),
    [
        (finished("vslm.vcenter.VStorageObjectManager.createDisk"), Depth.NEW),
        (finished("VcenterVStorageObjectManager.deleteDisk"), Depth.NEW),
        (finished("com.vmware.cns.tasks.createvolume"), Depth.NEW),
        (finished("com.vmware.cns.tasks.attachvolume"), Depth.USES),
        (finished("VirtualMachine.attachDisk"), Depth.USES),
        (finished("VirtualMachine.detachDisk", "error"), Depth.USES),
        (finished("VirtualMachine.reconfigure"), Depth.USES),
        (finished("VirtualMachine.destroy"), Depth.USES),
        (finished("VirtualMachine.clone"), Depth.USES),
        (finished("vslm.vcenter.VStorageObjectManager.extendDisk"), Depth.ALL),
        (finished("vslm.vcenter.VStorageObjectManager.relocateVStorageObject"), Depth.ALL),
        (finished("VirtualMachine.powerOn"), None),
        (Change(None, Task(ref="task-1", state="success", description="VirtualMachine.destroy")), Depth.USES),
        (Change(None, Task(ref="task-1", state="running", description="VirtualMachine.destroy")), None),
        (Change(Task(ref="task-1", state="success", description="VirtualMachine.destroy"), None), None),
        (Change(None, STORE), Depth.NEW),
        (Change(STORE, None), Depth.NEW),
        (Change(STORE, Datastore(ref="datastore-1", name="b", accessible=True)), Depth.ALL),
        (Change(STORE, Datastore(ref="datastore-1", name="a")), Depth.ALL),
        (Change(STORE, Datastore(ref="datastore-1", name="a", accessible=True, url="ds:///b/")), None),
        (Change(Machine(ref="vm-1"), None), Depth.USES),
        (Change(Machine(ref="vm-1"), Machine(ref="vm-1", name="x")), None),
        (Change(Host(ref="host-1"), None), None),
    ],
)
def test_what_concerns_disks(change: Change, depth: Depth | None) -> None:
    assert concern(change) == depth
