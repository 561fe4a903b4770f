"""Which VMs a group may adopt, and what becomes of a request."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.adoption import (
    AdoptionPlan,
    AdoptionPlanner,
    _describe_duplicates,
    parse_request,
)
from vsphere_operators.kinds.vmgroup.adoption_candidates import Candidate, judge_vm
from vsphere_operators.kinds.vmgroup.model import (
    CloneState,
    DesiredState,
    GroupFolder,
    Quota,
    ReplicaRecord,
    ReplicaVm,
    UndoAdoption,
)
from vsphere_operators.kinds.vmgroup.ownership import (
    FolderClaim,
    GroupId,
    OwnershipMark,
    VmOrigin,
    instance_uuid_of,
    is_replica_name,
    mark_before_adoption,
    mark_from_extra_config,
    mark_to_extra_config,
)
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.kinds.vmgroup.types import ADOPT_ANNOTATION
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.vm_calls import VmConfig

from .replica_builder import DESIRED, make_observed, make_record, make_vm
from .simulation_model import GROUP_ID, VCENTER_ID

NAME = f"{GROUP_ID.name}-replica-abcdefgh"
UUIDS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(4)]
DELETED = replace(GROUP_ID, uid="uid-before")
FOLDER = GroupFolder(ref="group-v9", name=GROUP_ID.folder_name, path="/DC0/vm/f", is_empty=False)


def make_mark(group_id: GroupId = DELETED, replica: str = NAME, **changes: Any) -> OwnershipMark:
    return OwnershipMark(
        group_id=group_id, replica_name=replica, sequence_number=5, fingerprint="f1", **changes
    )


def make_marked(group_id: GroupId, **changes: Any) -> tuple[VirtualMachine, VmConfig]:
    """A VM with a mark that was made for it."""
    mark = make_mark(group_id)
    vm = make_inventory_vm(instance_uuid=instance_uuid_of(group_id.uid, NAME), **changes)
    return vm, VmConfig(mark_to_extra_config(mark))


def make_inventory_vm(**changes: Any) -> VirtualMachine:
    vm = VirtualMachine(
        ref="vm-7",
        name=NAME,
        parent="group-v9",
        instance_uuid=UUIDS[0],
        connection="connected",
        cpus=1,
        memory_mb=1024,
        power="poweredOn",
    )
    return replace(vm, **changes)


def test_a_vm_of_the_original_operator_can_be_adopted() -> None:
    candidate = judge_vm(make_inventory_vm(), VmConfig(), GROUP_ID)
    assert (candidate.verdict, candidate.replica_name) == ("Adoptable", NAME)
    assert candidate.previous_mark is None


def test_a_vm_of_a_deleted_group_of_this_name_can_be_adopted() -> None:
    vm, config = make_marked(DELETED, name="renamed by a user")
    candidate = judge_vm(vm, config, GROUP_ID)
    assert (candidate.verdict, candidate.replica_name) == ("Adoptable", NAME)
    assert candidate.previous_mark == make_mark()
    assert "uid-before" in candidate.message


@pytest.mark.parametrize(
    ("changes", "config", "verdict", "message", "may_be_own"),
    [
        ({"name": "jump-host"}, VmConfig(), "Foreign", "Its name is not", False),
        ({"is_template": True}, VmConfig(), "Foreign", "It is a template.", False),
        ({}, None, "Waiting", "has not returned its configuration", True),
        ({"instance_uuid": ""}, VmConfig(), "Waiting", "has not returned", True),
        ({"connection": "inaccessible"}, VmConfig(), "Waiting", "cannot access it", True),
        (
            {},
            VmConfig(mark_to_extra_config(make_mark())),
            "Foreign",
            "It is a copy of a replica",
            False,
        ),
        ({}, VmConfig({"vsphere-operators.uid": "x"}), "Refused", "are incomplete", False),
        (
            {"instance_uuid": instance_uuid_of(GROUP_ID.uid, NAME)},
            VmConfig(),
            "Refused",
            "were removed",
            False,
        ),
    ],
)
def test_other_vms_cannot_be_adopted(
    changes: dict[str, Any], config: VmConfig | None, verdict: str, message: str, may_be_own: bool
) -> None:
    candidate = judge_vm(make_inventory_vm(**changes), config, GROUP_ID)
    assert (candidate.verdict, candidate.may_be_own) == (verdict, may_be_own)
    assert message in candidate.message


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (replace(DELETED, name="other"), 'It belongs to VmGroup "other"'),
        (replace(DELETED, namespace="other"), 'in namespace "other"'),
        (replace(DELETED, cluster_id="c9"), "start the manager with -cluster-id=c9"),
    ],
)
def test_a_vm_of_another_group_is_refused(owner: GroupId, message: str) -> None:
    vm, config = make_marked(owner)
    candidate = judge_vm(vm, config, GROUP_ID)
    assert candidate.verdict == "Refused"
    assert message in candidate.message


def test_nothing_is_adopted_from_a_folder_that_two_groups_have() -> None:
    sharing = replace(GROUP_ID, name="other", uid="uid-9")
    candidate = judge_vm(make_inventory_vm(), VmConfig(), GROUP_ID, sharing)
    assert (candidate.verdict, candidate.may_be_own) == ("Refused", True)
    assert 'VmGroup "other"' in candidate.message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-replica-abcdefgh", True),
        ("web-replica-ABCDEFGH", False),
        ("web-replica-abcdefg", False),
        ("web-replica-abcdefghi", False),
        ("web2-replica-abcdefgh", False),
        ("my-web-replica-abcdefgh", False),
        ("web-replica-", False),
        ("", False),
    ],
)
def test_names_of_replicas(name: str, expected: bool) -> None:
    assert is_replica_name("web", name) == expected


def test_the_origin_is_in_the_mark_of_its_own_vm_only() -> None:
    origin = VmOrigin(instance_uuid=UUIDS[0], owner_uid="uid-before")
    extra_config = mark_to_extra_config(make_mark(GROUP_ID, origin=origin))
    mark = mark_from_extra_config(extra_config)
    assert mark is not None
    assert mark.origin == origin
    # A replica that was cloned from an adopted VM has a copy of the key.
    copied = extra_config | mark_to_extra_config(make_mark(GROUP_ID, "web-replica-zzzzzzzz"))
    copied_mark = mark_from_extra_config(copied)
    assert copied_mark is not None
    assert copied_mark.origin is None


def test_undo_restores_what_was_before() -> None:
    def apply(before: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in {**before, **change}.items() if value}

    original = {"guestinfo.userdata": "x"}
    for owner_uid, before in (
        ("", original),
        ("uid-before", original | mark_to_extra_config(make_mark())),
    ):
        origin = VmOrigin(instance_uuid=UUIDS[0], owner_uid=owner_uid)
        adopted = apply(before, mark_to_extra_config(make_mark(GROUP_ID, origin=origin)))
        mark = mark_from_extra_config(adopted)
        assert mark is not None
        assert apply(adopted, mark_before_adoption(mark)) == before


def test_requests() -> None:
    assert parse_request({}) is None
    assert parse_request({ADOPT_ANNOTATION: "  "}) is None
    undo = parse_request({ADOPT_ANNOTATION: " Undo "})
    assert undo is not None
    assert undo.undo
    request = parse_request({ADOPT_ANNOTATION: f"{UUIDS[0].upper()}, {UUIDS[1]},"})
    assert request is not None
    assert request.instance_uuids == {UUIDS[0], UUIDS[1]}


def make_plan(
    request: str = "",
    *,
    vm_count: int = 2,
    desired: DesiredState = DESIRED,
    records: tuple[ReplicaRecord, ...] = (),
    vms: tuple[ReplicaVm, ...] = (),
    more_claims: tuple[FolderClaim, ...] = (),
    change_pending: bool = False,
    is_reported: bool = True,
) -> AdoptionPlan:
    """For a folder with `vm_count` VMs of the original operator, with the first of UUIDS."""
    inventory = make_inventory()
    inventory.apply([enter_update("Folder", "group-v9", GROUP_ID.folder_name, "group-v2")])
    inventory.apply(
        [
            enter_update(
                "VirtualMachine",
                f"vm-{10 + number}",
                f"{GROUP_ID.name}-replica-abcdefg{'abcd'[number]}",
                "group-v9",
                config__instanceUuid=UUIDS[number],
                runtime__connectionState="connected",
                runtime__powerState="poweredOn",
                summary__config__numCpu=1,
                summary__config__memorySizeMB=1024,
            )
            for number in range(vm_count)
        ]
    )
    configs = {f"vm-{10 + number}": VmConfig() for number in range(vm_count)}
    vcenter = SimpleNamespace(
        inventory=inventory,
        vm_configs=SimpleNamespace(values=configs, unreadable=set(), get=configs.get),
    )
    claim = FolderClaim(group_id=GROUP_ID, folder_key="f", created_at="")
    group = GroupInput(
        group_id=GROUP_ID,
        desired=desired,
        generation=1,
        records=records,
        log=lambda line: None,
        record_event=lambda *event: None,
        vcenter=VCENTER_ID,
        loaded_at=0.0,
        folder_claim=claim,
        folder_claims=(claim, *more_claims),
        may_exist=lambda group_id: True,
        list_other_groups=lambda: (),
        adoption_request=parse_request({ADOPT_ANNOTATION: request}),
        reported_uuids=frozenset(UUIDS if is_reported else ()),
    )
    return AdoptionPlanner(cast("Any", vcenter)).plan(
        group, desired, FOLDER, vms, lambda vm: change_pending
    )


def message_of(plan: AdoptionPlan) -> str:
    assert plan.status is not None
    return plan.status.message


def test_a_group_with_vms_to_adopt_creates_none_and_names_the_command() -> None:
    plan = make_plan()
    assert plan.blocker is not None
    assert plan.blocker.reason == "VMsNotAdopted"
    assert f"kubectl vsphere adopt {GROUP_ID.name} -n {GROUP_ID.namespace}" in str(plan.blocker)
    assert plan.requested == ()
    assert plan.status is not None
    assert [vm.verdict for vm in plan.status.vms] == ["Adoptable", "Adoptable"]


def test_a_group_with_vms_of_its_own_ignores_what_a_user_adds() -> None:
    plan = make_plan(records=(make_record(0),), vms=(make_vm(0),))
    assert plan.blocker is None


def test_records_are_requested_for_the_listed_vms_only() -> None:
    plan = make_plan(UUIDS[1])
    (record,) = plan.requested
    assert (record.name, record.adopted_from) == (f"{GROUP_ID.name}-replica-abcdefgb", UUIDS[1])
    assert record.instance_uuid == instance_uuid_of(GROUP_ID.uid, record.name)
    assert record.fingerprint == DESIRED.fingerprint
    assert plan.clone_states == {record.name: CloneState.ADOPTING}
    # The other one may still be adopted.
    assert plan.blocker is not None


def test_a_group_creates_no_vm_while_undo_is_requested() -> None:
    plan = make_plan("undo", vm_count=0, records=(make_record(0),), vms=(make_vm(0),))
    assert plan.blocker is not None
    assert plan.blocker.reason == "VMsNotAdopted"
    assert f"kubectl annotate vmgroup web -n team-a {ADOPT_ANNOTATION}-" in str(plan.blocker)
    in_full = tuple(make_record(number) for number in range(DESIRED.replicas))
    assert make_plan("undo", vm_count=0, records=in_full).blocker is None


def test_only_what_the_stored_status_reports_is_adopted() -> None:
    plan = make_plan(UUIDS[1], is_reported=False)
    assert plan.requested == ()
    assert "not in status.adoption yet" in message_of(plan)


def test_all_or_nothing_is_adopted() -> None:
    plan = make_plan(f"{UUIDS[0]},{UUIDS[3]}")
    assert plan.requested == ()
    assert f"no VM with the instanceUuid {UUIDS[3]}" in message_of(plan)


def test_more_vms_than_replicas_are_refused() -> None:
    desired = replace(DESIRED, replicas=1)
    plan = make_plan(f"{UUIDS[0]},{UUIDS[1]}", desired=desired)
    assert plan.requested == ()
    assert "Set spec.replicas to 2" in message_of(plan)
    # A dry run shows it too.
    assert "Set spec.replicas to 2" in message_of(make_plan(desired=desired))


def test_a_second_vm_with_the_name_of_a_replica_is_refused() -> None:
    name = f"{GROUP_ID.name}-replica-abcdefga"
    records = (replace(make_record(0), name=name),)
    plan = make_plan(UUIDS[0], records=records, vms=(make_vm(0, replica_name=name),))
    assert plan.requested == ()
    assert message_of(plan) == (
        f'The group has a replica "{name}" already, so it cannot adopt "{name}" (vm-10). Move it '
        "to another folder in vCenter."
    )
    copies = [make_inventory_vm(), make_inventory_vm(ref="vm-8", name="copy")]
    chosen = [Candidate(vm=vm, verdict="Adoptable", message="", replica_name=NAME) for vm in copies]
    (message,) = _describe_duplicates(chosen, set())
    assert f'"{NAME}": "{NAME}" (vm-7) and "copy" (vm-8). Move all but one of them' in message
    assert list(_describe_duplicates(chosen[:1], {"other"})) == []


def test_a_quota_is_respected() -> None:
    plan = make_plan(f"{UUIDS[0]},{UUIDS[1]}", desired=replace(DESIRED, quota=Quota(cpus=1)))
    assert plan.requested == ()
    assert "exceed the quota" in message_of(plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"paused": True}, "Set it to false"), ({"deleting": True}, "is being deleted")],
)
def test_a_paused_or_deleted_group_adopts_nothing(changes: dict[str, bool], message: str) -> None:
    desired = replace(DESIRED, **changes)
    plan = make_plan(UUIDS[0], desired=desired)
    assert plan.requested == ()
    # Otherwise the command would wait until its timeout.
    assert message in message_of(plan)
    assert message in message_of(make_plan(desired=desired))


def test_a_shared_folder_is_refused() -> None:
    other = FolderClaim(
        group_id=replace(GROUP_ID, namespace="x", uid="uid-9"), folder_key="f", created_at=""
    )
    plan = make_plan(UUIDS[0], more_claims=(other,))
    assert plan.requested == ()
    assert "has the same folder" in message_of(plan)


def make_adopting_record(number: int) -> ReplicaRecord:
    name = f"{GROUP_ID.name}-replica-abcdefg{'abcd'[number]}"
    return make_record(
        number,
        name=name,
        instance_uuid=instance_uuid_of(GROUP_ID.uid, name),
        state="Cloning",
        adopted_from=UUIDS[number],
    )


def test_a_stored_record_leads_to_its_vm_without_the_request() -> None:
    record = make_adopting_record(0)
    plan = make_plan(records=(record,))
    assert plan.clone_states == {record.name: CloneState.ADOPTING}
    vm = plan.vms_to_adopt[record.name]
    assert vm is not None
    assert vm.ref == "vm-10"
    assert plan.requested == ()


def test_a_vm_that_cannot_be_adopted_any_more_is_left() -> None:
    record = make_adopting_record(0)
    other = FolderClaim(
        group_id=replace(GROUP_ID, namespace="x", uid="uid-9"), folder_key="f", created_at=""
    )
    plan = make_plan(records=(record,), more_claims=(other,))
    assert plan.vms_to_adopt == {record.name: None}


def test_a_record_is_kept_while_a_request_may_be_in_progress() -> None:
    record = make_adopting_record(0)
    plan = make_plan(records=(record,), change_pending=True)
    assert plan.clone_states == {record.name: CloneState.RUNNING}


def test_a_record_is_requested_once() -> None:
    plan = make_plan(UUIDS[0], records=(make_adopting_record(0),))
    assert plan.requested == ()
    assert message_of(plan) == ""


def no_name() -> str:
    raise AssertionError("no VM is created")


def test_the_origin_that_an_older_crd_dropped_is_restored_and_can_be_undone() -> None:
    adopted = make_vm(1, adopted_from=UUIDS[1])
    observed = make_observed([adopted, make_vm(2)])
    desired = replace(DESIRED, replicas=2)
    restored = plan(desired, observed, no_name)
    assert [record.adopted_from for record in restored.records] == [UUIDS[1], ""]
    assert restored.actions == ()
    assert plan(replace(desired, undo_adoption=True), observed, no_name).actions == (
        UndoAdoption(adopted),
    )


def test_an_adoption_that_an_older_crd_cut_off_is_refused_with_the_remedy() -> None:
    record = replace(make_adopting_record(0), adopted_from="")
    plan = make_plan(f"{UUIDS[0]},{UUIDS[1]}", records=(record,))
    assert plan.requested == ()
    assert f"already has records of {record.name}, " in message_of(plan)
    assert "Set spec.deletionPolicy to Orphan, delete the VmGroup, create it again" in message_of(
        plan
    )
    assert message_of(make_plan(records=(record,))) == message_of(plan)
