"""The inventory, filled by updates of the test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from vsphere_operators.vsphere.faults import Ambiguous, NotFound
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Entity,
    Folder,
    HostStats,
    Location,
    ResourcePool,
    Task,
    VirtualMachineStats,
)
from vsphere_operators.vsphere.properties import InventoryObject
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

TYPES = {
    "dc": "Datacenter",
    "f": "Folder",
    "c": "ClusterComputeResource",
    "s": "ComputeResource",
    "h": "HostSystem",
    "vm": "VirtualMachine",
    "ds": "Datastore",
    "rp": "ResourcePool",
    "task": "Task",
}


def type_of(ref: str) -> str:
    return TYPES[ref.rstrip("0123456789")]


def enter(ref: str, name: str = "", parent: str = "", **more: Any) -> ObjectUpdate:
    above = {"parent": Ref(type_of(parent), parent)} if parent else {}
    return ObjectUpdate("enter", type_of(ref), ref, {"name": name, **above, **more})


def modify(ref: str, changes: dict[str, Any]) -> ObjectUpdate:
    return ObjectUpdate("modify", type_of(ref), ref, changes)


def leave(ref: str) -> ObjectUpdate:
    return ObjectUpdate("leave", type_of(ref), ref)


def placed_on(host: str, *stores: str) -> dict[str, Any]:
    return {
        "runtime.host": Ref("HostSystem", host),
        "datastore": tuple(Ref("Datastore", item) for item in stores),
    }


def cpu_usage(megahertz: int | None) -> dict[str, Any]:
    return {"summary.quickStats.overallCpuUsage": megahertz}


CONNECTED = {"runtime.connectionState": "connected"}
SMALL_INVENTORY = [
    enter("f0", "Datacenters"),
    enter("dc1", "east", "f0"),
    enter("f1", "host", "dc1"),
    enter("f2", "vm", "dc1"),
    enter("f3", "datastore", "dc1"),
    enter("c1", "blue", "f1"),
    enter("s1", "esxi-2", "f1"),
    enter("rp1", "Resources", "c1"),
    enter("ds1", "fast", "f3"),
    enter("h1", "esxi-1", "c1", **CONNECTED, **cpu_usage(700)),
    enter("h2", "esxi-2", "s1", **CONNECTED, **cpu_usage(300)),
    enter(
        "vm1",
        "db",
        "f2",
        **CONNECTED,
        **placed_on("h1", "ds1"),
        **{"config.uuid": "ABC-1", "config.instanceUuid": "def-1"},
    ),
    enter(
        "vm2",
        "web",
        "f2",
        **CONNECTED,
        **placed_on("h2", "ds1"),
        **{"config.uuid": "abc-2", "config.instanceUuid": "def-2"},
    ),
]


@pytest.fixture
def inventory() -> Inventory:
    inventory = Inventory("lab")
    inventory.apply(SMALL_INVENTORY)
    return inventory


def record_changes(inventory: Inventory) -> list[Change[InventoryObject]]:
    changes: list[Change[InventoryObject]] = []
    inventory.connect(changes.append)
    return changes


def replace_all(inventory: Inventory, updates: Iterable[ObjectUpdate]) -> None:
    reload = InventoryReload(inventory)
    reload.add(updates)
    reload.commit()


def changed_refs(changes: Sequence[Change[InventoryObject]]) -> list[str]:
    return sorted(item.ref for change in changes if (item := change.new or change.old))


def test_paths_and_locations(inventory: Inventory) -> None:
    assert inventory.location("h1") == Location("/east/host/blue/esxi-1", "east", "blue")
    assert inventory.location("h2") == Location("/east/host/esxi-2/esxi-2", "east", "")
    assert inventory.location("vm1") == Location("/east/vm/db", "east", "blue")
    assert inventory.location("vm2") == Location("/east/vm/web", "east", "")
    assert inventory.location("ds1") == Location("/east/datastore/fast", "east", "")
    assert inventory.location("f0") == Location("/", "", "")
    assert inventory.location("h9") == Location("", "", "")


def test_objects_are_found_by_name_and_uuid(inventory: Inventory) -> None:
    assert inventory.find_host("esxi-1").ref == "h1"
    assert inventory.find_vm("db").ref == "vm1"
    assert [vm.ref for vm in inventory.by_bios_uuid("aBc-1")] == ["vm1"]
    assert [vm.ref for vm in inventory.by_instance_uuid("DEF-2")] == ["vm2"]
    for entity_type, name, ref in (
        (Datacenter, "east", "dc1"),
        (ComputeResource, "blue", "c1"),
        (ResourcePool, "Resources", "rp1"),
        (Folder, "vm", "f2"),
        (Datastore, "fast", "ds1"),
    ):
        assert [entity.ref for entity in inventory.by_name(entity_type, name)] == [ref]
    # The ComputeResource of a standalone host is not a cluster.
    assert inventory.by_name(ComputeResource, "esxi-2") == []
    assert [item.ref for item in inventory.vms_on("h1")] == ["vm1"]
    assert {item.ref for item in inventory.children("f1")} == {"c1", "s1"}
    assert inventory.compute_resources[inventory.find_host("esxi-2").parent].ref == "s1"
    assert inventory.name_of("ds1") == "fast"
    assert inventory.name_of("ds9") == ""
    assert (east := inventory.datacenter_of("vm1")) is not None
    assert east.ref == "dc1"


def test_missing_name_comes_with_suggestions(inventory: Inventory) -> None:
    with pytest.raises(
        NotFound,
        match=r'vCenter "lab" has no host named "ESXI-1"\. Did you mean "esxi-1", "esxi-2"\? '
        r"Check the",
    ):
        inventory.find_host("ESXI-1")
    with pytest.raises(NotFound, match=r'no VM named "zzz"\. Check the spelling'):
        inventory.find_vm("zzz")
    with pytest.raises(NotFound, match='no host named ""'):
        inventory.find_host("")


def test_names_are_compared_exactly(inventory: Inventory) -> None:
    for name in ("esxi-*", "esxi-?", "/east/host/blue/esxi-1", "blue/esxi-1", "%2f"):
        with pytest.raises(NotFound):
            inventory.find_host(name)


def test_suggestions_are_fast_among_many_names() -> None:
    inventory = Inventory("lab")
    inventory.apply([enter(f"h{i}", f"esxi-{i:04}.rainpole.com") for i in range(1000)])
    with pytest.raises(NotFound, match=r'Did you mean "esxi-0500\.rainpole\.com"\? '):
        inventory.find_host("esxi-0500")
    with pytest.raises(NotFound, match=r'"esxi-0500\.rainpole\.com"'):
        inventory.find_host("esx-0500.rainpole.com")
    inventory.apply([modify("h500", {"name": "other"})])
    with pytest.raises(NotFound) as error:
        inventory.find_host("esxi-0500")
    assert "0500.rainpole" not in str(error.value)


def test_ambiguous_name_lists_both_paths(inventory: Inventory) -> None:
    inventory.apply([enter("h3", "esxi-1", "s1")])
    with pytest.raises(
        Ambiguous,
        match=r'2 hosts named "esxi-1": /east/host/blue/esxi-1, /east/host/esxi-2/esxi-1\. It '
        r"must be unique",
    ):
        inventory.find_host("esxi-1")
    inventory.apply([leave("h3")])
    assert inventory.find_host("esxi-1").ref == "h1"


def test_escaped_names_are_decoded(inventory: Inventory) -> None:
    inventory.apply([modify("vm1", {"name": "a%2fb%5Cc%25d%2F%41"})])
    assert inventory.find_vm("a/b\\c%d/%41").ref == "vm1"
    assert inventory.path("vm1") == "/east/vm/a/b\\c%d/%41"


def test_each_changed_object_is_reported_once(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    before = inventory.hosts["h1"]
    inventory.apply(
        [modify("h1", cpu_usage(701)), modify("h1", cpu_usage(702)), modify("h2", cpu_usage(300))]
    )
    assert changes == [Change(before, inventory.hosts["h1"])]
    assert changes[0].old is not changes[0].new
    assert inventory.hosts["h1"].stats.cpu_usage_mhz == 702


def test_object_that_enters_and_leaves_in_one_batch_is_not_reported(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    inventory.apply(
        [enter("vm9", "brief"), leave("vm9"), leave("vm8"), modify("vm7", {"name": "ghost"})]
    )
    assert changes == []
    assert set(inventory.vms) == {"vm1", "vm2"}


def test_object_that_left_is_removed_from_all_indexes(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    before = inventory.vms["vm1"]
    inventory.apply([leave("vm1")])
    host = inventory.hosts["h1"]
    assert [(change.old, change.new) for change in changes] == [(before, None), (host, host)]
    assert changes[1].old is changes[1].new
    assert inventory.vms_on("h1") == []
    with pytest.raises(NotFound):
        inventory.find_vm("db")
    assert inventory.by_bios_uuid("abc-1") == inventory.by_instance_uuid("def-1") == []


@pytest.mark.parametrize(
    ("update", "concerned"),
    [
        (modify("dc1", {"name": "west"}), {"h1", "h2", "vm1", "vm2", "ds1"}),
        (modify("c1", {"name": "red"}), {"h1", "vm1"}),
        (modify("s1", {"name": "other"}), {"h2", "vm2"}),
        (modify("f2", {"name": "machines"}), {"vm1", "vm2"}),
        (modify("h1", {"name": "esxi-9"}), {"vm1"}),
        (modify("ds1", {"name": "slow"}), {"vm1", "vm2"}),
        (modify("vm1", {"name": "web"}), {"vm2"}),
        (modify("vm1", {"config.uuid": "ABC-2"}), {"vm2"}),
        (modify("vm1", placed_on("h2", "ds1")), {"h1", "h2"}),
        (enter("vm3", "new", "f2", **placed_on("h1", "ds1")), {"h1"}),
        (enter("h3", "esxi-1", "s1"), {"h1"}),
        (modify("h1", {"parent": Ref("ComputeResource", "s1")}), {"vm1"}),
        (modify("h1", cpu_usage(1)), set[str]()),
        (modify("vm1", {"runtime.powerState": "poweredOff"}), set[str]()),
        (leave("c1"), {"h1", "vm1"}),
    ],
)
def test_dependants_of_a_change_are_reported(
    inventory: Inventory, update: ObjectUpdate, concerned: set[str]
) -> None:
    changes = record_changes(inventory)
    inventory.apply([update])
    reported_refs = {
        change.new.ref for change in changes if change.old is change.new and change.new
    }
    assert {ref for ref in reported_refs if ref[0] in "hv" or ref.startswith("ds")} == concerned
    assert [ref for ref in changed_refs(changes) if ref == update.ref] == [update.ref]
    assert len(changed_refs(changes)) == len(set(changed_refs(changes)))


@pytest.mark.parametrize("state", ["disconnected", "notResponding"])
def test_disconnected_host_loses_and_regains_its_stats(inventory: Inventory, state: str) -> None:
    inventory.apply([modify("h1", {"runtime.connectionState": state})])
    assert inventory.hosts["h1"].stats == HostStats()
    inventory.apply([modify("h1", {"summary.quickStats.overallMemoryUsage": 12})])
    assert inventory.hosts["h1"].stats == HostStats()
    inventory.apply([modify("h1", CONNECTED)])
    assert inventory.hosts["h1"].stats == HostStats(cpu_usage_mhz=700, memory_usage_mb=12)


def test_disconnected_vm_has_no_stats(inventory: Inventory) -> None:
    inventory.apply([modify("vm1", {"summary.quickStats.guestMemoryUsage": 5})])
    inventory.apply([modify("vm1", {"runtime.connectionState": "disconnected"})])
    assert inventory.vms["vm1"].stats == VirtualMachineStats()
    inventory.apply([modify("vm1", CONNECTED)])
    assert inventory.vms["vm1"].stats == VirtualMachineStats(guest_memory_mb=5)


def attribute_property(key: str, value: str) -> dict[str, Any]:
    return {"customValue": ({"@type": "CustomFieldStringValue", "key": key, "value": value},)}


def custom_fields_update(**names: str) -> ObjectUpdate:
    return ObjectUpdate(
        "modify",
        "CustomFieldsManager",
        "CustomFieldsManager",
        {"field": tuple({"key": key[1:], "name": name} for key, name in names.items())},
    )


def test_attributes_get_names_when_these_arrive(inventory: Inventory) -> None:
    inventory.apply([modify("h1", attribute_property("101", "me"))])
    assert (inventory.hosts["h1"].attributes, inventory.unnamed_attribute_keys) == ({}, {"101"})
    changes = record_changes(inventory)
    inventory.apply([custom_fields_update(k101="owner")])
    assert (inventory.hosts["h1"].attributes, inventory.unnamed_attribute_keys) == (
        {"owner": "me"},
        set(),
    )
    assert changed_refs(changes) == ["h1"]
    inventory.apply([custom_fields_update(k101="keeper")])
    assert inventory.hosts["h1"].attributes == {"keeper": "me"}
    inventory.apply([modify("h1", {"customValue": None})])
    assert inventory.hosts["h1"].attributes == {}


def test_reload_reports_only_differences(inventory: Inventory) -> None:
    inventory.apply(
        [custom_fields_update(k101="owner"), modify("h2", attribute_property("101", "me"))]
    )
    changes = record_changes(inventory)
    again = [update for update in SMALL_INVENTORY if update.ref not in ("h1", "h2", "vm2")]
    same = enter(
        "h2", "esxi-2", "s1", **CONNECTED, **cpu_usage(300), **attribute_property("101", "me")
    )
    replace_all(
        inventory,
        [
            custom_fields_update(k101="owner"),
            *again,
            same,
            enter("h5", "esxi-1", "c1", **CONNECTED, **cpu_usage(700)),
        ],
    )
    assert changed_refs(changes) == ["h1", "h2", "h5", "vm1", "vm2"]
    assert {change.new.ref for change in changes if change.old is change.new and change.new} == {
        "h2",
        "vm1",
    }
    assert inventory.find_host("esxi-1").ref == "h5"
    assert inventory.hosts["h2"].attributes == {"owner": "me"}


def test_reload_without_differences_reports_nothing(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    replace_all(inventory, SMALL_INVENTORY)
    assert changes == []


def test_reload_replaces_everything_at_once(inventory: Inventory) -> None:
    reload = InventoryReload(inventory)
    reload.add(SMALL_INVENTORY[:5])
    reload.add([enter("h7", "esxi-1", "c1"), leave("f3")])
    assert inventory.find_host("esxi-1").ref == "h1"
    reload.commit()
    assert inventory.find_host("esxi-1").ref == "h7"
    assert set(inventory.objects) == {"f0", "dc1", "f1", "f2", "h7"}


def test_a_leave_update_differs_from_an_object_that_a_reload_misses(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    inventory.apply([leave("vm1")])
    assert [change.reloaded for change in changes if change.old and change.old.ref == "vm1"] == [
        False
    ]
    changes.clear()
    replace_all(
        inventory, [update for update in SMALL_INVENTORY if update.ref not in ("vm1", "vm2")]
    )
    assert [change.reloaded for change in changes if change.old and change.old.ref == "vm2"] == [
        True
    ]


def test_vm_inside_a_vapp_is_below_its_pool(inventory: Inventory) -> None:
    inventory.apply([enter("vm5", "inner", "", **{"resourcePool": Ref("VirtualApp", "rp1")})])
    assert inventory.path("vm5") == "/east/host/blue/Resources/inner"


def test_tasks_are_reported() -> None:
    inventory = Inventory("lab")
    changes = record_changes(inventory)
    inventory.apply(
        [
            ObjectUpdate(
                "enter",
                "Task",
                "task1",
                {
                    "info.state": "running",
                    "info.progress": 5,
                    "info.entity": Ref("VirtualMachine", "vm1"),
                },
            )
        ]
    )
    assert inventory.tasks["task1"] == Task(
        ref="task1", state="running", progress_percent=5, entity="vm1"
    )
    fault = {
        "@type": "LocalizedMethodFault",
        "fault": {"@type": "InvalidPowerState"},
        "localizedMessage": "it is on",
    }
    inventory.apply(
        [modify("task1", {"info.state": "error", "info.error": fault, "info.progress": None})]
    )
    assert inventory.tasks["task1"] == Task(
        ref="task1",
        state="error",
        entity="vm1",
        fault="InvalidPowerState",
        message="it is on",
    )
    inventory.apply([leave("task1")])
    assert inventory.tasks == {}
    assert [change.old is change.new for change in changes] == [False] * 3


def test_unknown_types_are_ignored(inventory: Inventory) -> None:
    changes = record_changes(inventory)
    inventory.apply([ObjectUpdate("enter", "Network", "network-1", {"name": "VM Network"})])
    assert changes == []


def test_unchanged_values_stay_the_same_objects(inventory: Inventory) -> None:
    held: dict[str, Entity] = dict(inventory.vms)
    inventory.apply([modify("h1", cpu_usage(5))])
    assert all(inventory.vms[ref] is value for ref, value in held.items())


def test_listener_for_tasks_gets_only_the_described_ones(inventory: Inventory) -> None:
    changes = list[Change[Task]]()
    inventory.connect_tasks(changes.append, "VirtualMachine.Clone", "disk")
    descriptions = ("VirtualMachine.clone", "HostSystem.enterMaintenanceMode", "vslm.createDisk")
    for number, description in enumerate(descriptions):
        properties: dict[str, Value] = {"info.descriptionId": description}
        inventory.apply([ObjectUpdate("enter", "Task", f"task-{number}", properties)])
    inventory.apply([ObjectUpdate("leave", "Task", f"task-{n}") for n in range(3)])
    assert changed_refs(changes) == ["task-0", "task-0", "task-2", "task-2"]


def test_a_reference_that_gets_a_task_of_another_kind_is_reported_as_left(
    inventory: Inventory,
) -> None:
    """vCenter was restored from a backup, and uses the references of later tasks again."""
    changes = list[Change[Task]]()
    inventory.connect_tasks(changes.append, "VirtualMachine.clone")
    for description in ("VirtualMachine.clone", "VirtualMachine.powerOn", "VirtualMachine.clone"):
        properties: dict[str, Value] = {"info.descriptionId": description}
        reload = InventoryReload(inventory)
        reload.add([ObjectUpdate("enter", "Task", "task-1", properties)])
        reload.commit()
    assert [(bool(change.old), bool(change.new)) for change in changes] == [
        (False, True),
        (True, False),
        (True, True),
    ]


def raise_error(change: Change[InventoryObject]) -> None:
    raise ArithmeticError(str(change))


def test_failing_listener_does_not_stop_the_others() -> None:
    log = Mock()
    inventory = Inventory("lab", log)
    inventory.apply(SMALL_INVENTORY)
    inventory.connect(raise_error)
    changes = record_changes(inventory)
    inventory.apply([modify("h1", {"name": "esxi-9"}), modify("vm2", {"name": "shop"})])
    assert {"h1", "vm2"} <= set(changed_refs(changes))
    errors = [call.kwargs["error"] for call in log.error.call_args_list]
    assert {type(error) for error in errors} == {ArithmeticError}
    assert len(errors) == len(changes)
