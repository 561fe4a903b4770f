"""Which folder a stored reference stands for: after a restore it may be another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.folder import FolderFinder
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemory
from vsphere_operators.kinds.vmgroup.model import GroupFolder
from vsphere_operators.kinds.vmgroup.ownership import FolderClaim, GroupId, OwnershipMark
from vsphere_operators.vsphere.updates import ObjectUpdate

GROUP_ID = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-1")
PARENT_REF = "group-v2"


class FolderHarness:
    """An inventory with a folder group-v9; the status of the group has this reference."""

    def __init__(self, name: str = "team-a-web", parent: str = PARENT_REF) -> None:
        self.inventory = make_inventory(("Folder", "group-v9", name, parent))
        self.marks: dict[str, OwnershipMark] = {}
        self.vcenter = SimpleNamespace(inventory=self.inventory, watching_since=1.0)
        self.finder = FolderFinder(
            cast("Any", self.vcenter), cast("Any", SimpleNamespace(marks=self.marks))
        )

    def add_vm(self, group_id: GroupId) -> None:
        self.inventory.apply([enter_update("VirtualMachine", "vm-9", "r0", "group-v9")])
        self.marks["vm-9"] = OwnershipMark(
            group_id=group_id, replica_name="r0", sequence_number=0, fingerprint="f"
        )

    def remove_vm(self) -> None:
        self.inventory.apply([ObjectUpdate("leave", "VirtualMachine", "vm-9")])
        del self.marks["vm-9"]

    def find(self) -> GroupFolder | None:
        group = cast("Any", SimpleNamespace(group_id=GROUP_ID, folder_ref="group-v9"))
        return self.finder.find(group, GroupMemory(lambda: 100.0), PARENT_REF)


def test_a_folder_with_name_and_parent_is_taken() -> None:
    folder = FolderHarness().find()
    assert folder == GroupFolder(
        ref="group-v9", name="team-a-web", path="/DC0/vm/vm-operator/team-a-web", is_empty=True
    )


@pytest.mark.parametrize(
    ("name", "parent"), [("finance-prepared", PARENT_REF), ("team-a-web", "group-v1")]
)
def test_another_folder_with_the_stored_reference_is_not_taken(name: str, parent: str) -> None:
    assert FolderHarness(name, parent).find() is None


def test_a_renamed_folder_is_taken_if_it_has_a_vm_of_the_group() -> None:
    harness = FolderHarness("my-own-folder")
    harness.add_vm(GROUP_ID)
    folder = harness.find()
    assert folder is not None
    assert folder.name == "my-own-folder"


@pytest.mark.parametrize(
    "group_id",
    [
        GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-2"),
        GroupId(cluster_id="c2", namespace="team-a", name="web", uid="uid-1"),
    ],
)
def test_a_vm_of_another_group_proves_nothing(group_id: GroupId) -> None:
    harness = FolderHarness("my-own-folder")
    harness.add_vm(group_id)
    assert harness.find() is None


def test_a_renamed_folder_stays_proven_until_the_next_reload() -> None:
    harness = FolderHarness("my-own-folder")
    harness.add_vm(GROUP_ID)
    assert harness.find()
    harness.remove_vm()
    # The group is deleted: its last VM is gone, and the folder is to be removed too.
    assert harness.find()
    harness.vcenter.watching_since = 2.0
    assert harness.find() is None


@pytest.mark.parametrize(
    ("owner_name", "owner_exists", "expected"),
    [
        ("web", False, "contains VMs of a deleted VmGroup"),
        ("web", True, 'belongs to VmGroup "web" in namespace "team-a"'),
        # A user moved its VMs into the folder of this group.
        ("db", True, 'contains VMs of VmGroup "db" in namespace "team-a"'),
        ("db", False, "contains VMs of a deleted VmGroup"),
    ],
)
def test_a_conflict_names_a_group_that_exists(
    owner_name: str, owner_exists: bool, expected: str
) -> None:
    harness = FolderHarness()
    harness.add_vm(GroupId(cluster_id="c1", namespace="team-a", name=owner_name, uid="uid-2"))
    claim = FolderClaim(group_id=GROUP_ID, folder_key="k", created_at="")
    group = SimpleNamespace(
        group_id=GROUP_ID,
        folder_claim=claim,
        folder_claims=[claim],
        may_exist=lambda owner: owner_exists and owner.uid == "uid-2",
    )
    conflict = harness.finder.find_conflict(
        cast("Any", group),
        GroupFolder(ref="group-v9", name="team-a-web", path="/f", is_empty=False),
        PARENT_REF,
    )
    assert conflict is not None
    assert expected in str(conflict)
