"""Which vCenter the references in a status are from, by its instance UUID."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright import ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.model import CloneBlocked
from vsphere_operators.kinds.vmgroup.types import (
    FolderStatus,
    ReplicaStatus,
    VmGroup,
    VmGroupSpec,
    VmGroupStatus,
)
from vsphere_operators.kinds.vmgroup.vcenter_identity import check_vcenter

REPLICA = ReplicaStatus(name="r0", slot=0, instanceUUID="u")


def make_group(**status: Any) -> VmGroup:
    return VmGroup(
        metadata=ObjectMeta(name="web", namespace="team-a"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=1, template="t"),
        status=VmGroupStatus(**status),
    )


@pytest.mark.parametrize(
    ("vcenter", "uuid", "is_same"),
    [
        ("vc", "A", True),
        # Another address of the same vCenter.
        ("10.0.0.5", "A", True),
        # Another appliance under the same name.
        ("vc", "B", False),
        # Stored by a release without UUIDs.
        ("vc", "", True),
        ("10.0.0.5", "", False),
    ],
)
@pytest.mark.parametrize("reference", ["replica", "folder", "none"])
def test_the_instance_uuid_decides(vcenter: str, uuid: str, is_same: bool, reference: str) -> None:
    group = make_group(
        vcenter=vcenter,
        vcenterUUID=uuid,
        replicas=[REPLICA] if reference == "replica" else [],
        folder=FolderStatus(ref="group-v5") if reference == "folder" else None,
    )
    inventory = make_inventory()
    inventory.instance_uuid = "A"
    if is_same or reference == "none":
        check_vcenter(group, inventory)
        return
    with pytest.raises(CloneBlocked, match="serves this namespace now") as raised:
        check_vcenter(group, inventory)
    assert raised.value.reason == "VCenterChanged"
    assert (
        "kubectl patch vmgroup web -n team-a --type merge -p "
        """'{"spec":{"deletionPolicy":"Orphan"}}'""" in str(raised.value)
    )


def test_both_uuids_are_in_the_message() -> None:
    group = make_group(vcenter="vc", vcenterUUID="B", replicas=[REPLICA])
    inventory = make_inventory()
    inventory.instance_uuid = "A"
    with pytest.raises(CloneBlocked) as raised:
        check_vcenter(group, inventory)
    assert '"vc" (instance UUID B)' in str(raised.value)
    assert '"vc" (instance UUID A)' in str(raised.value)


def test_a_vcenter_without_a_uuid_is_not_known_to_be_the_same() -> None:
    # Its about.instanceUuid did not decode, or it is not a vCenter.
    group = make_group(vcenter="vc", vcenterUUID="A", replicas=[REPLICA])
    inventory = make_inventory()
    assert inventory.name == "vc"
    with pytest.raises(CloneBlocked, match="instance UUID unknown"):
        check_vcenter(group, inventory)
