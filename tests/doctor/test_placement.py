"""Where VmGroups are placed: plain calls on an inventory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.placement import VmGroupRequest, check, find_parent_folders
from vsphere_operators.vsphere.inventory import Inventory


def make_templates(*names: str, is_template: bool = True) -> Inventory:
    """An inventory in which only these VMs may be templates."""
    inventory = make_inventory()
    for ref in [vm.ref for vm in inventory.vms.values() if vm.is_template]:
        inventory.vms.pop(ref)
    inventory.apply(
        [
            enter_update(
                "VirtualMachine", f"vm-9{n}", name, "group-v2", config__template=is_template
            )
            for n, name in enumerate(names)
        ]
    )
    return inventory


def find(inventory: Inventory, subject: str, *groups: VmGroupRequest) -> Sequence[Finding]:
    return [item for item in check(inventory, {}, groups) if item.subject == subject]


GROUP = VmGroupRequest(namespace="team-a", name="web", template="ubuntu")


def test_without_a_template_the_fix_names_no_vm_that_may_not_exist() -> None:
    (finding,) = find(make_templates(), "templates")
    assert finding.level == "warning"
    assert finding.fix.startswith("govc vm.markastemplate VM   # VM: ")


def test_vm_with_the_name_of_the_template_is_converted_by_its_path() -> None:
    (finding,) = find(make_templates("ubuntu", is_template=False), "VmGroup", GROUP)
    assert finding.fix.startswith("govc vm.markastemplate /DC0/vm/vm-operator/ubuntu   #")


@pytest.mark.parametrize(
    ("templates", "fix"),
    [
        (
            ["debian"],
            """kubectl -n team-a patch vg web --type merge -p '{"spec":{"template":"debian"}}'""",
        ),
        (
            ["debian", "suse"],
            """kubectl -n team-a patch vg web --type merge -p '{"spec":{"template":"TEMPLATE"}}'"""
            "   # TEMPLATE: debian, suse",
        ),
        ([], ""),
    ],
)
def test_only_a_template_without_alternatives_is_suggested(templates: list[str], fix: str) -> None:
    (finding,) = find(make_templates(*templates), "VmGroup", GROUP)
    assert finding.fix == fix


def test_group_that_is_deleted_is_not_placed() -> None:
    deleted = VmGroupRequest(namespace="team-a", name="web", template="ubuntu", is_deleted=True)
    assert find(make_templates(), "VmGroup", deleted) == []


def test_folder_of_the_same_name_elsewhere_is_not_a_parent_folder() -> None:
    inventory = make_inventory()
    inventory.apply([enter_update("Folder", "group-h9", "vm-operator", "group-h1")])
    assert [inventory.path(ref) for ref in find_parent_folders(inventory, {})] == [
        "/DC0/vm/vm-operator"
    ]
