"""VmGroups with a folder or VMs of others: plain calls."""

from __future__ import annotations

import pytest

from kubewright import Condition, ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.doctor.vmgroups import check_conditions, check_vcenter_identity
from vsphere_operators.kinds.vmgroup.types import FolderStatus, VmGroup, VmGroupSpec, VmGroupStatus


def make_group(reason: str = "Reconciled", *, vcenter_uuid: str = "") -> VmGroup:
    ready = Condition(
        type="Ready",
        status="True" if reason == "Reconciled" else "False",
        reason=reason,
        message="Folder /DC0/vm/f belongs to another group.",
    )
    return VmGroup(
        metadata=ObjectMeta(name="web", namespace="team-a"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=2, template="t"),
        status=VmGroupStatus(
            conditions=[ready],
            folder=FolderStatus(ref="group-v1"),
            vcenter="old",
            vcenterUUID=vcenter_uuid,
        ),
    )


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("FolderTaken", "kubectl -n team-a patch vg web --type merge"),
        ("VCenterChanged", "kubectl patch vmgroup web -n team-a --type merge"),
    ],
)
def test_group_that_the_manager_does_not_touch_is_a_problem(reason: str, fix: str) -> None:
    (finding,) = check_conditions([make_group(reason), make_group(), make_group("Progressing")])
    assert (finding.level, finding.subject) == ("problem", "VmGroup")
    assert finding.message.startswith(f"team-a/web: {reason}: Folder /DC0/vm/f belongs to")
    assert finding.fix.startswith(fix)


def test_vms_in_another_vcenter_are_found_before_the_manager_starts() -> None:
    inventory = make_inventory()
    inventory.instance_uuid = "new-uuid"
    (finding,) = check_vcenter_identity([make_group(vcenter_uuid="old-uuid")], inventory)
    assert finding.level == "problem"
    assert "team-a/web: VCenterChanged: The VMs of this group are in vCenter" in finding.message
    assert '"deletionPolicy":"Orphan"' in finding.fix
    assert 'only to leave its VMs in vCenter "old"' in finding.fix
    assert not list(check_vcenter_identity([make_group(vcenter_uuid="new-uuid")], inventory))
    # The manager's own report comes from check_conditions().
    reported = make_group("VCenterChanged", vcenter_uuid="old-uuid")
    assert not list(check_vcenter_identity([reported], inventory))
