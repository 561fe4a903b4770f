"""Marks of VMs, and the owner of a folder."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.ownership import (
    FolderClaim,
    GroupId,
    OwnershipMark,
    describe_folder_conflict,
    find_conflicting_owner,
    instance_uuid_of,
    is_made_for_vm,
    is_owned_by,
    mark_from_extra_config,
    mark_to_extra_config,
)

GROUP_ID = GroupId(cluster_id="c1", namespace="a", name="b-c", uid="uid-1")
OTHER_GROUP_ID = GroupId(cluster_id="c1", namespace="a-b", name="c", uid="uid-2")
MARK = OwnershipMark(
    group_id=GROUP_ID, replica_name="web-replica-abcdefgh", sequence_number=4, fingerprint="f1"
)
INSTANCE_UUID = instance_uuid_of("uid-1", "web-replica-abcdefgh")


def test_the_keys_of_the_mark_never_change() -> None:
    assert mark_to_extra_config(MARK) == {
        "vsphere-operators.cluster": "c1",
        "vsphere-operators.namespace": "a",
        "vsphere-operators.name": "b-c",
        "vsphere-operators.uid": "uid-1",
        "vsphere-operators.replica": "web-replica-abcdefgh",
        "vsphere-operators.slot": "4",
        "vsphere-operators.fingerprint": "f1",
    }
    assert INSTANCE_UUID == "adfcf8db-088d-5543-877a-8ab3eb287954"


texts = st.text(min_size=1, max_size=20)


@given(texts, texts, texts, texts, texts, st.integers(0, 10**6), texts)
def test_a_mark_can_be_read_back(
    cluster: str, namespace: str, name: str, uid: str, replica: str, slot: int, fingerprint: str
) -> None:
    mark = OwnershipMark(
        group_id=GroupId(cluster_id=cluster, namespace=namespace, name=name, uid=uid),
        replica_name=replica,
        sequence_number=slot,
        fingerprint=fingerprint,
    )
    assert mark_from_extra_config({"guestinfo.x": "y", **mark_to_extra_config(mark)}) == mark
    assert UUID(instance_uuid_of(uid, replica)).version == 5


@pytest.mark.parametrize("key", sorted(mark_to_extra_config(MARK)))
def test_an_incomplete_mark_is_ignored(key: str) -> None:
    assert (
        mark_from_extra_config(
            {name: value for name, value in mark_to_extra_config(MARK).items() if name != key}
        )
        is None
    )


@pytest.mark.parametrize("slot", ["", "-1", "x", "1.0", "²"])
def test_a_mark_with_an_invalid_slot_is_ignored(slot: str) -> None:
    assert (
        mark_from_extra_config({**mark_to_extra_config(MARK), "vsphere-operators.slot": slot})
        is None
    )


def test_a_vm_is_owned_if_mark_and_instance_uuid_match() -> None:
    assert is_owned_by(MARK, INSTANCE_UUID, GROUP_ID)
    assert is_owned_by(MARK, INSTANCE_UUID.upper(), GROUP_ID)
    assert not is_owned_by(MARK, str(uuid4()), GROUP_ID), "a copy that a person made"
    assert not is_owned_by(None, INSTANCE_UUID, GROUP_ID), "the mark was taken away"
    assert not is_owned_by(MARK, INSTANCE_UUID, OTHER_GROUP_ID)
    assert not is_owned_by(MARK, INSTANCE_UUID, replace(GROUP_ID, cluster_id="c2"))
    assert not is_owned_by(MARK, INSTANCE_UUID, replace(GROUP_ID, uid="uid-3")), (
        "the group was deleted and made again"
    )
    assert not is_made_for_vm(replace(MARK, replica_name="another"), INSTANCE_UUID)


FIRST_CLAIM = FolderClaim(
    group_id=GROUP_ID, folder_key="/DC0/vm/vm-operator/a-b-c", created_at="2026-01-01T00:00:00Z"
)
SECOND_CLAIM = FolderClaim(
    group_id=OTHER_GROUP_ID,
    folder_key="/DC0/vm/vm-operator/a-b-c",
    created_at="2026-01-02T00:00:00Z",
)


def test_the_older_of_two_groups_owns_the_folder() -> None:
    both = (FIRST_CLAIM, SECOND_CLAIM)
    assert find_conflicting_owner(FIRST_CLAIM, (), both) is None
    assert find_conflicting_owner(SECOND_CLAIM, (), both) == GROUP_ID
    assert find_conflicting_owner(SECOND_CLAIM, (), (SECOND_CLAIM,)) is None, (
        "the first was deleted"
    )
    assert (
        find_conflicting_owner(replace(SECOND_CLAIM, folder_key="/DC0/vm/vm-operator/x"), (), both)
        is None
    )
    message = describe_folder_conflict(FIRST_CLAIM.folder_key, GROUP_ID)
    assert 'VmGroup "b-c" in namespace "a"' in message
    assert FIRST_CLAIM.folder_key in message


def test_one_of_two_groups_of_the_same_age_owns_the_folder() -> None:
    # creationTimestamp has whole seconds, so a tie is possible; the uid decides.
    twin = replace(SECOND_CLAIM, created_at=FIRST_CLAIM.created_at)
    assert [
        find_conflicting_owner(claim, (), (FIRST_CLAIM, twin)) for claim in (FIRST_CLAIM, twin)
    ] == [
        None,
        GROUP_ID,
    ]
    started = replace(twin, has_replicas=True)
    assert [
        find_conflicting_owner(claim, (), (FIRST_CLAIM, started))
        for claim in (FIRST_CLAIM, started)
    ] == [
        OTHER_GROUP_ID,
        None,
    ], "the group that uses the folder owns it"


def test_vms_in_the_folder_have_precedence_over_age() -> None:
    # Two clusters can use the same vCenter and the same folder name.
    foreign = GroupId(cluster_id="c2", namespace="a", name="b-c", uid="uid-9")
    assert (
        find_conflicting_owner(FIRST_CLAIM, (OTHER_GROUP_ID,), (FIRST_CLAIM, SECOND_CLAIM))
        == OTHER_GROUP_ID
    )
    assert find_conflicting_owner(FIRST_CLAIM, (foreign,), (FIRST_CLAIM,)) == foreign
    assert (
        find_conflicting_owner(
            SECOND_CLAIM, (OTHER_GROUP_ID, GROUP_ID), (FIRST_CLAIM, SECOND_CLAIM)
        )
        is None
    )
