"""Whose VM is which, from the inventory and from what was read: no vCenter, no network."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.ownership import (
    GroupId,
    OwnershipIndex,
    OwnershipMark,
    instance_uuid_of,
    mark_to_extra_config,
)
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.signal import Signal
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import VmConfig

GROUP_ID = GroupId(cluster_id="c1", namespace="a", name="web", uid="uid-1")
MARK = OwnershipMark(group_id=GROUP_ID, replica_name="web-replica-a", slot=0, fingerprint="f1")
OWN_INSTANCE_UUID = instance_uuid_of("uid-1", "web-replica-a")


@dataclass
class FakePropertyCache:
    """What was read of VMs; who asks is noted."""

    values: dict[str, Any] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    requested_refs: list[str] = field(default_factory=list)
    changed: Signal[str] = field(default_factory=Signal)

    def get(self, ref: str) -> Any:
        self.requested_refs.append(ref)
        return self.values.get(ref)

    def publish(self, ref: str, mark: OwnershipMark | None, *, hidden: bool = False) -> None:
        """Something was read, or vCenter does not show it."""
        self.values[ref] = VmConfig(mark_to_extra_config(mark) if mark else {}, (), ())
        (self.hidden.add if hidden else self.hidden.discard)(ref)
        self.changed.emit(ref)


@dataclass
class OwnershipHarness:
    """One vCenter and whom it concerns."""

    inventory: Inventory = field(default_factory=make_inventory)
    vm_configs: FakePropertyCache = field(default_factory=FakePropertyCache)
    notified_uids: list[str] = field(default_factory=list)

    def make_index(self) -> OwnershipIndex:
        index = OwnershipIndex(
            cast("Any", SimpleNamespace(inventory=self.inventory, vm_configs=self.vm_configs)),
            self.notified_uids.append,
        )
        self.inventory.connect(index.on_vm_change, VirtualMachine)
        self.vm_configs.changed.connect(index.on_vm_config_change)
        return index

    def add_vm(self, ref: str, instance_uuid: str) -> None:
        """A VM comes."""
        self.inventory.apply(
            [
                enter_update(
                    "VirtualMachine", ref, ref, "group-v2", config__instanceUuid=instance_uuid
                )
            ]
        )


def test_only_vms_that_can_be_replicas_are_read_and_until_then_nothing_is_complete() -> None:
    world = OwnershipHarness()
    owners = world.make_index()
    world.add_vm("vm-7", str(uuid4()))
    world.add_vm("vm-8", OWN_INSTANCE_UUID)
    assert world.vm_configs.requested_refs == ["vm-8"]
    before = owners.has_synced
    world.vm_configs.publish("vm-8", MARK)
    assert (before, owners.has_synced) == (False, True)
    assert owners.refs_by_group_uid.get("uid-1") == {"vm-8"}
    assert world.notified_uids == ["uid-1"]


def test_a_copied_mark_is_nobodys() -> None:
    world = OwnershipHarness()
    owners = world.make_index()
    world.add_vm("vm-8", instance_uuid_of("uid-1", "another"))
    world.vm_configs.publish("vm-8", MARK)
    assert owners.has_synced
    assert (owners.marks, world.notified_uids) == ({}, [])


def test_one_that_vcenter_does_not_show_keeps_nobody_waiting_and_is_not_unmarked() -> None:
    world = OwnershipHarness()
    owners = world.make_index()
    world.add_vm("vm-8", OWN_INSTANCE_UUID)
    world.vm_configs.publish("vm-8", MARK)
    world.vm_configs.publish("vm-8", None, hidden=True)
    assert owners.marks == {"vm-8": MARK}
    assert owners.has_synced
    world.vm_configs.publish("vm-8", None)
    assert owners.marks == {}
    assert world.notified_uids == ["uid-1", "uid-1"]


def test_one_without_a_configuration_stays_its_groups_and_one_that_leaves_does_not() -> None:
    world = OwnershipHarness()
    owners = world.make_index()
    world.add_vm("vm-8", OWN_INSTANCE_UUID)
    world.vm_configs.publish("vm-8", MARK)
    world.inventory.apply(
        [ObjectUpdate("modify", "VirtualMachine", "vm-8", {"config.instanceUuid": None})]
    )
    assert owners.refs_by_group_uid.get("uid-1") == {"vm-8"}
    world.inventory.apply([ObjectUpdate("leave", "VirtualMachine", "vm-8")])
    assert not owners.refs_by_group_uid.get("uid-1")
    assert world.notified_uids == ["uid-1", "uid-1"]


def test_another_instance_uuid_makes_it_another_vm() -> None:
    world = OwnershipHarness()
    owners = world.make_index()
    world.add_vm("vm-8", OWN_INSTANCE_UUID)
    world.vm_configs.publish("vm-8", MARK)
    world.inventory.apply(
        [ObjectUpdate("modify", "VirtualMachine", "vm-8", {"config.instanceUuid": str(uuid4())})]
    )
    assert owners.marks == {}
