"""The index of marks, from an inventory and configurations; no vCenter, no network."""

from __future__ import annotations

from dataclasses import dataclass, field
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
from vsphere_operators.vsphere.inventory import Inventory, Signal
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import VmConfig

GROUP_ID = GroupId(cluster_id="c1", namespace="a", name="web", uid="uid-1")
MARK = OwnershipMark(
    group_id=GROUP_ID, replica_name="web-replica-a", sequence_number=0, fingerprint="f1"
)
OWN_INSTANCE_UUID = instance_uuid_of("uid-1", "web-replica-a")


@dataclass
class FakePropertyCache:
    """Configurations of VMs; records the requests."""

    values: dict[str, Any] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    requested_refs: list[str] = field(default_factory=list)
    changed: Signal[str] = field(default_factory=Signal)

    def get(self, ref: str) -> Any:
        self.requested_refs.append(ref)
        return self.values.get(ref)

    def publish(self, ref: str, mark: OwnershipMark | None, *, unreadable: bool = False) -> None:
        """A configuration was read, or the account may not read it."""
        self.values[ref] = VmConfig(mark_to_extra_config(mark) if mark else {}, (), ())
        (self.unreadable.add if unreadable else self.unreadable.discard)(ref)
        self.changed.emit(ref)


@dataclass
class OwnershipHarness:
    """One vCenter, and the groups that were notified."""

    inventory: Inventory = field(default_factory=make_inventory)
    vm_configs: FakePropertyCache = field(default_factory=FakePropertyCache)
    notified_uids: list[str] = field(default_factory=list)
    watching_since: float = 0.0

    def make_index(self) -> OwnershipIndex:
        index = OwnershipIndex(
            cast("Any", self),
            self.notified_uids.append,
        )
        self.inventory.connect(index.on_vm_change, VirtualMachine)
        self.vm_configs.changed.connect(index.on_vm_config_change)
        return index

    def add_vm(self, ref: str, instance_uuid: str) -> None:
        self.inventory.apply(
            [
                enter_update(
                    "VirtualMachine", ref, ref, "group-v2", config__instanceUuid=instance_uuid
                )
            ]
        )


def test_only_possible_replicas_are_read_before_the_index_is_complete() -> None:
    harness = OwnershipHarness()
    index = harness.make_index()
    # A random UUID has version 4, so this VM cannot be a replica.
    harness.add_vm("vm-7", str(uuid4()))
    harness.add_vm("vm-8", OWN_INSTANCE_UUID)
    assert harness.vm_configs.requested_refs == ["vm-8"]
    before = index.has_synced
    harness.vm_configs.publish("vm-8", MARK)
    assert (before, index.has_synced) == (False, True)
    assert index.refs_by_group_uid.get("uid-1") == {"vm-8"}
    assert harness.notified_uids == ["uid-1"]


def test_a_copied_mark_is_ignored() -> None:
    harness = OwnershipHarness()
    index = harness.make_index()
    harness.add_vm("vm-8", instance_uuid_of("uid-1", "another"))
    harness.vm_configs.publish("vm-8", MARK)
    assert index.has_synced
    assert (index.marks, harness.notified_uids) == ({}, [])


def test_an_unreadable_configuration_keeps_the_mark() -> None:
    harness = OwnershipHarness()
    index = harness.make_index()
    harness.add_vm("vm-8", OWN_INSTANCE_UUID)
    harness.vm_configs.publish("vm-8", MARK)
    harness.vm_configs.publish("vm-8", None, unreadable=True)
    assert index.marks == {"vm-8": MARK}
    assert index.has_synced
    harness.vm_configs.publish("vm-8", None)
    assert index.marks == {}
    assert harness.notified_uids == ["uid-1", "uid-1"]


def test_a_vm_without_configuration_keeps_its_group_until_it_is_deleted() -> None:
    harness = OwnershipHarness()
    index = harness.make_index()
    harness.add_vm("vm-8", OWN_INSTANCE_UUID)
    harness.vm_configs.publish("vm-8", MARK)
    harness.inventory.apply(
        [ObjectUpdate("modify", "VirtualMachine", "vm-8", {"config.instanceUuid": None})]
    )
    assert index.refs_by_group_uid.get("uid-1") == {"vm-8"}
    harness.inventory.apply([ObjectUpdate("leave", "VirtualMachine", "vm-8")])
    assert not index.refs_by_group_uid.get("uid-1")
    assert harness.notified_uids == ["uid-1", "uid-1"]


def test_another_instance_uuid_removes_the_mark() -> None:
    harness = OwnershipHarness()
    index = harness.make_index()
    harness.add_vm("vm-8", OWN_INSTANCE_UUID)
    harness.vm_configs.publish("vm-8", MARK)
    harness.inventory.apply(
        [ObjectUpdate("modify", "VirtualMachine", "vm-8", {"config.instanceUuid": str(uuid4())})]
    )
    assert index.marks == {}
