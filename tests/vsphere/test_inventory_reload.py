"""Large reloads, and changes of nothing but quickStats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

from support.inventory_builder import enter_update
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import Host, VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref

CPU_USAGE = "summary.quickStats.overallCpuUsage"


def large_inventory(vms: int = 2_000, *, first_vm: int = 0, cpu: int = 100) -> list[ObjectUpdate]:
    numbers = range(first_vm, first_vm + vms)
    connected = {"runtime__connectionState": "connected"}
    return [
        enter_update("Folder", "group-1", "Datacenters", ""),
        enter_update("HostSystem", "host-1", "esxi-1", "group-1", **connected),
        *(
            enter_update(
                "VirtualMachine",
                f"vm-{number}",
                f"name-{number - first_vm}",
                "group-1",
                runtime__host=Ref("HostSystem", "host-1"),
                summary__quickStats__overallCpuUsage=cpu,
                **connected,
            )
            for number in numbers
        ),
    ]


def with_connection(state: str) -> ObjectUpdate:
    return ObjectUpdate("modify", "VirtualMachine", "vm-0", {"runtime.connectionState": state})


def reload(inventory: Inventory, updates: list[ObjectUpdate], **options: Any) -> Iterator[None]:
    collected = InventoryReload(inventory, "uuid", **options)
    collected.add(updates)
    return collected.commit_in_slices()


def test_first_load_pauses_and_gives_the_same_as_one_step() -> None:
    sliced, whole, changes = Inventory("a"), Inventory("b"), list[Change[Any]]()
    sliced.connect(changes.append)
    pauses = sum(1 for _ in reload(sliced, large_inventory()))
    assert pauses >= 10
    whole.apply(large_inventory())
    assert sliced.objects == whole.objects
    assert sliced.find_vm("name-7") == whole.find_vm("name-7")
    assert len(sliced.vms_on("host-1")) == 2_000
    # Each object is reported once as new; what depends on others, then once more at most.
    new = [change.new.ref for change in changes if change.new and change.old is None]
    assert sorted(new) == sorted(whole.objects)


def test_readers_wait_while_large_parts_are_replaced() -> None:
    inventory, on_replacing = Inventory("a"), Mock()
    for _ in reload(inventory, large_inventory(), on_replacing=on_replacing):
        pass
    on_replacing.assert_not_called()
    # After a restore every VM has another reference.
    seen = list[int]()
    for _ in reload(inventory, large_inventory(first_vm=5_000), on_replacing=on_replacing):
        seen.append(len(inventory.by_name(VirtualMachine, "name-7")))
    on_replacing.assert_called_once()
    assert inventory.find_vm("name-7").ref == "vm-5007"
    assert len(inventory.vms) == 2_000
    # Never two VMs of one name: what is gone is removed first.
    assert max(seen) == 1


def test_new_stats_of_everything_do_not_make_readers_wait() -> None:
    inventory, on_replacing, changes = Inventory("a"), Mock(), list[Change[Any]]()
    for _ in reload(inventory, large_inventory()):
        pass
    inventory.connect(changes.append)
    moved = large_inventory(cpu=200)
    moved[5] = enter_update("VirtualMachine", "vm-3", "renamed", "group-1")
    for _ in reload(inventory, moved, on_replacing=on_replacing):
        if inventory.vms["vm-7"].stats.cpu_usage_mhz == 200:
            # The difference that matters comes before the new figures.
            assert inventory.vms["vm-3"].name == "renamed"
    on_replacing.assert_not_called()
    assert inventory.vms["vm-7"].stats.cpu_usage_mhz == 200
    assert len({change.new.ref for change in changes if change.new}) == 2_001


def test_listener_can_leave_out_changes_of_stats() -> None:
    inventory, all_changes, others = Inventory("a"), Mock(), Mock()
    inventory.apply(large_inventory(vms=1))
    inventory.connect(all_changes, VirtualMachine, Host)
    inventory.connect(others, VirtualMachine, Host, include_stats=False)
    inventory.apply([ObjectUpdate("modify", "VirtualMachine", "vm-0", {CPU_USAGE: 7})])
    inventory.apply([ObjectUpdate("modify", "HostSystem", "host-1", {CPU_USAGE: 7})])
    assert all_changes.call_count == 2
    others.assert_not_called()
    # Together with something else, also in another update of the same batch.
    inventory.apply(
        [
            ObjectUpdate("modify", "VirtualMachine", "vm-0", {"runtime.powerState": "poweredOff"}),
            ObjectUpdate("modify", "VirtualMachine", "vm-0", {CPU_USAGE: 8}),
        ]
    )
    (change,) = (call.args[0] for call in others.call_args_list)
    assert (change.new.power, change.new.stats.cpu_usage_mhz) == ("poweredOff", 8)
    # The name of a host is part of the status of its VMs.
    inventory.apply([ObjectUpdate("modify", "HostSystem", "host-1", {"name": "renamed"})])
    assert {call.args[0].new.ref for call in others.call_args_list} == {"vm-0", "host-1"}


def test_stats_of_a_disconnected_vm_are_kept_but_not_shown() -> None:
    inventory = Inventory("a")
    inventory.apply(large_inventory(vms=1))
    inventory.apply([with_connection("disconnected")])
    inventory.apply([ObjectUpdate("modify", "VirtualMachine", "vm-0", {CPU_USAGE: 9})])
    assert inventory.vms["vm-0"].stats.cpu_usage_mhz is None
    inventory.apply([with_connection("connected")])
    assert inventory.vms["vm-0"].stats.cpu_usage_mhz == 9
