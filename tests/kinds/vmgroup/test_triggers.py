"""Which groups a change in vCenter enqueues: names on a stream, by changes of a small inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.triggers import (
    PROGRESS_INTERVAL_SECONDS,
    VmGroupTriggers,
)
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

ALL_GROUPS = "*"


@dataclass
class TriggerHarness:
    """A small vCenter with one group's VM and a running clone of it, and the published keys."""

    inventory: Inventory = field(default_factory=make_inventory)
    notified_names: list[str] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        stream = SimpleNamespace(
            notify=self.notified_names.append,
            notify_all=lambda: self.notified_names.append(ALL_GROUPS),
        )
        mark = SimpleNamespace(group_id=SimpleNamespace(uid="uid-1"))
        self.pending_tasks: dict[str, Any] = {"task-1": SimpleNamespace(group_uid="uid-1")}
        self.triggers = VmGroupTriggers(
            cast("Any", stream),
            cast("Any", SimpleNamespace(inventory=self.inventory, clock=lambda: self.now)),
            ownership_index=cast("Any", SimpleNamespace(marks={"vm-8": mark})),
            clone_tracker=cast("Any", SimpleNamespace(own_tasks={"task-1"})),
            executor=cast("Any", SimpleNamespace(pending_tasks=self.pending_tasks)),
        )
        self.inventory.apply([enter_update("VirtualMachine", "vm-8", "web-1", "group-v2")])
        self.triggers.connect(self.inventory)

    def modify(self, type: str, ref: str, **values: Value) -> set[str]:
        """The keys that a change of properties publishes."""
        return self.apply(
            ObjectUpdate(
                "modify",
                type,
                ref,
                {key.replace("__", "."): value for key, value in values.items()},
            )
        )

    def apply(self, update: ObjectUpdate) -> set[str]:
        """The keys that an update publishes."""
        self.notified_names.clear()
        self.inventory.apply([update])
        return set(self.notified_names)


@pytest.fixture
def harness() -> TriggerHarness:
    return TriggerHarness()


def test_power_enqueues_the_own_group_and_load_enqueues_none(harness: TriggerHarness) -> None:
    assert (
        harness.modify("VirtualMachine", "vm-8", summary__quickStats__overallCpuDemand=500) == set()
    )
    assert harness.modify("VirtualMachine", "vm-8", runtime__powerState="poweredOff") == {
        "uid:uid-1"
    }
    assert harness.modify("VirtualMachine", "vm-1", runtime__powerState="poweredOff") == set()


def test_a_template_enqueues_by_name_and_folder(
    harness: TriggerHarness,
) -> None:
    added = harness.apply(
        enter_update("VirtualMachine", "vm-9", "golden", "group-v2", config__template=True)
    )
    assert added == {"template:golden", "folder:group-v2", "folder:vm-operator"}
    renamed = harness.modify("VirtualMachine", "vm-9", name="silver")
    assert renamed == {
        "template:golden",
        "template:silver",
        "folder:group-v2",
        "folder:vm-operator",
    }
    assert "template:silver" in harness.apply(ObjectUpdate("leave", "VirtualMachine", "vm-9"))


def test_a_renamed_folder_enqueues_by_both_names_and_its_parent(harness: TriggerHarness) -> None:
    names = harness.modify("Folder", "group-v2", name="elsewhere")
    assert {"folder:vm-operator", "folder:elsewhere", "folder:group-v2", "folder:group-v1"} <= names


def test_a_change_of_pools_and_datastores_enqueues_all_groups(
    harness: TriggerHarness,
) -> None:
    assert harness.modify("ResourcePool", "resgroup-2", name="large") == {ALL_GROUPS}
    # Only a datastore that becomes accessible can fix the placement of a group.
    assert harness.modify("Datastore", "datastore-1", summary__accessible=False) == set()
    assert harness.modify("Datastore", "datastore-1", summary__accessible=True) == {ALL_GROUPS}


def clone_task_update(ref: str, **more: Value) -> ObjectUpdate:
    properties: dict[str, Value] = {
        "info.state": "running",
        "info.descriptionId": "VirtualMachine.clone",
    }
    return ObjectUpdate(
        "enter", "Task", ref, properties | {"info.entity": Ref("VirtualMachine", "vm-1")} | more
    )


def test_a_clone_enqueues_for_its_progress_and_a_foreign_clone_for_its_end(
    harness: TriggerHarness,
) -> None:
    harness.apply(clone_task_update("task-1"))
    assert harness.modify("Task", "task-1", info__progress=10) == set()
    harness.now += PROGRESS_INTERVAL_SECONDS
    assert harness.modify("Task", "task-1", info__progress=50) == {"uid:uid-1"}
    assert harness.modify("Task", "task-1", info__progress=60) == set()
    harness.pending_tasks.clear()  # the executor handles the end first
    assert harness.modify("Task", "task-1", info__state="success") == set()
    assert harness.triggers.progress_reported_at == {}
    assert harness.apply(clone_task_update("task-2")) == set()
    assert harness.modify("Task", "task-2", info__state="success") == {"foreign-clone:vm-1"}
    assert harness.apply(ObjectUpdate("leave", "Task", "task-2")) == set()
    harness.apply(clone_task_update("task-3"))
    assert harness.apply(ObjectUpdate("leave", "Task", "task-3")) == {"foreign-clone:vm-1"}, (
        "vCenter dropped it before it ended"
    )
    harness.apply(clone_task_update("task-4", **{"info.descriptionId": "VirtualMachine.powerOn"}))
    assert harness.modify("Task", "task-4", info__state="success") == set()
    assert harness.triggers.progress_reported_at == {}
