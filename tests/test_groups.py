"""Which groups a change in vCenter wakes: names on a stream, from changes of a small inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmgroup.ground import enter, inventory
from vsphere_operators.kinds.vmgroup.triggers import PROGRESS_INTERVAL_SECONDS, VmGroupTriggers
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

EVERYBODY = "*"


@dataclass
class Heard:
    """A small vCenter with one group's VM and a running clone of it, and who was woken."""

    inventory: Inventory = field(default_factory=inventory)
    names: list[str] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.groups = VmGroupTriggers(cast("Any", SimpleNamespace(opened={})))
        stream = SimpleNamespace(
            publish=self.names.append, publish_all=lambda: self.names.append(EVERYBODY)
        )
        self.groups.stream = cast("Any", stream)
        mark = SimpleNamespace(group=SimpleNamespace(uid="uid-1"))
        self.workshop = SimpleNamespace(
            owners=SimpleNamespace(marks={"vm-8": mark}),
            clones=SimpleNamespace(ours={"task-1"}),
            started={"task-1": mark},
            vcenter=SimpleNamespace(inventory=self.inventory),
            clock=lambda: self.now,
        )
        self.inventory.apply([enter("VirtualMachine", "vm-8", "web-1", "group-v2")])
        self.inventory.listeners.append(partial(self.groups.on_change, cast("Any", self.workshop)))

    def modify(self, type: str, ref: str, **values: Value) -> set[str]:
        """Who is woken by other properties."""
        return self.apply(
            ObjectUpdate(
                "modify",
                type,
                ref,
                {key.replace("__", "."): value for key, value in values.items()},
            )
        )

    def apply(self, update: ObjectUpdate) -> set[str]:
        """Who is woken by an update."""
        self.names.clear()
        self.inventory.apply([update])
        return set(self.names)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_load_wakes_nobody_and_power_its_own_group(heard: Heard) -> None:
    assert (
        heard.modify("VirtualMachine", "vm-8", summary__quickStats__overallCpuDemand=500) == set()
    )
    assert heard.modify("VirtualMachine", "vm-8", runtime__powerState="poweredOff") == {"uid:uid-1"}
    assert heard.modify("VirtualMachine", "vm-1", runtime__powerState="poweredOff") == set()


def test_a_template_and_what_moves_in_a_folder_wake_by_name_and_reference(heard: Heard) -> None:
    came = heard.apply(enter("VirtualMachine", "vm-9", "golden", "group-v2", config__template=True))
    assert came == {"template:golden", "folder:group-v2", "folder:vm-operator"}
    renamed = heard.modify("VirtualMachine", "vm-9", name="silver")
    assert renamed == {
        "template:golden",
        "template:silver",
        "folder:group-v2",
        "folder:vm-operator",
    }
    assert "template:silver" in heard.apply(ObjectUpdate("leave", "VirtualMachine", "vm-9"))


def test_a_folder_wakes_by_both_names_and_its_parent(heard: Heard) -> None:
    woken = heard.modify("Folder", "group-v2", name="elsewhere")
    assert {"folder:vm-operator", "folder:elsewhere", "folder:group-v2", "folder:group-v1"} <= woken


def test_what_a_place_is_made_of_wakes_everybody_and_its_load_nobody(heard: Heard) -> None:
    assert heard.modify("ResourcePool", "resgroup-2", name="large") == {EVERYBODY}
    assert heard.modify("Datastore", "datastore-1", summary__accessible=False) == set()
    assert heard.modify("Datastore", "datastore-1", summary__accessible=True) == {EVERYBODY}


def running(ref: str, **more: Value) -> ObjectUpdate:
    given: dict[str, Value] = {
        "info.state": "running",
        "info.descriptionId": "VirtualMachine.clone",
    }
    return ObjectUpdate(
        "enter", "Task", ref, given | {"info.entity": Ref("VirtualMachine", "vm-1")} | more
    )


def test_a_clone_of_a_group_tells_its_progress_now_and_then_and_one_of_a_stranger_its_end(
    heard: Heard,
) -> None:
    heard.apply(running("task-1"))
    assert heard.modify("Task", "task-1", info__progress=10) == set()
    heard.now += PROGRESS_INTERVAL_SECONDS
    assert heard.modify("Task", "task-1", info__progress=50) == {"uid:uid-1"}
    assert heard.modify("Task", "task-1", info__progress=60) == set()
    heard.workshop.started.clear()  # the operation hears of its end first
    assert heard.modify("Task", "task-1", info__state="success") == set()
    assert heard.groups.progress_published_at == {}
    assert heard.apply(running("task-2")) == set()
    assert heard.modify("Task", "task-2", info__state="success") == {"source:vm-1"}
    assert heard.apply(ObjectUpdate("leave", "Task", "task-2")) == set()
    heard.apply(running("task-3"))
    assert heard.apply(ObjectUpdate("leave", "Task", "task-3")) == {"source:vm-1"}, (
        "vCenter forgot it before it ended"
    )
    heard.apply(running("task-4", **{"info.descriptionId": "VirtualMachine.powerOn"}))
    assert heard.modify("Task", "task-4", info__state="success") == set()
    assert heard.groups.progress_published_at == {}
