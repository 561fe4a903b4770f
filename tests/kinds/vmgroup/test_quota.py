"""What counts in the quota of a namespace, and what a group may still do at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import (
    Clone,
    CloneState,
    DesiredState,
    Plan,
    PowerOff,
    Quota,
    RemoveFinalizer,
    Resize,
    ResourceAmount,
    Rollout,
)
from vsphere_operators.kinds.vmgroup.ownership import GroupId, OwnershipMark
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.quota import (
    OtherGroup,
    count_existing,
    count_other_group,
    find_quota_violation,
)
from vsphere_operators.kinds.vmgroup.usage import UsageCounter
from vsphere_operators.vsphere.index import Index

from .quota_histories import main, run_history
from .replica_builder import DESIRED, make_observed, make_record, make_vm

SMALL = ResourceAmount(vms=1, cpus=1, memory_mb=1024)
LARGE = ResourceAmount(vms=1, cpus=4, memory_mb=4096)
OWN_ID = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="own")


def make_plan(desired: DesiredState, *arguments: Any, **changes: Any) -> Plan:
    names = iter(f"new-{number}" for number in range(20))
    return plan(desired, make_observed(*arguments, **changes), lambda: next(names))


def with_size(slot: int, size: ResourceAmount, **changes: Any) -> Any:
    return make_record(slot, cpus=size.cpus, memory_mb=size.memory_mb, **changes)


# What counts


def test_the_larger_of_requested_and_existing_counts() -> None:
    records = tuple(make_record(slot) for slot in range(3))
    sizes = {record.name: SMALL for record in records}
    # A user has paused the group with three VMs, and requests one with four CPUs.
    other = OtherGroup(uid="u", records=records, size=LARGE, requested=LARGE)
    assert count_other_group(other, sizes, {}) == ResourceAmount(vms=3, cpus=4, memory_mb=4096)
    younger = replace(other, requested=ResourceAmount())
    assert count_other_group(younger, sizes, {}) == ResourceAmount(vms=3, cpus=3, memory_mb=3072)


def test_terminating_and_pending_replicas_count_with_their_larger_size() -> None:
    records = (
        make_record(0, terminating=True),
        with_size(1, LARGE, state="Cloning"),
        # A resize to the larger size may be in progress.
        with_size(2, LARGE),
        # A user has made this VM larger.
        make_record(3),
    )
    sizes = {"r0": SMALL, "r2": SMALL, "r3": LARGE, "without-record": SMALL}
    assert count_existing(records, sizes, SMALL) == ResourceAmount(
        vms=5, cpus=1 + 4 + 4 + 4 + 1, memory_mb=1024 + 3 * 4096 + 1024
    )


def test_a_record_of_an_older_release_counts_as_its_vm_or_as_the_spec() -> None:
    records = (make_record(0, cpus=0, memory_mb=0), make_record(1, cpus=0, memory_mb=0))
    assert count_existing(records, {"r0": SMALL}, LARGE) == ResourceAmount(
        vms=2, cpus=5, memory_mb=5120
    )


def test_sizes_count_while_they_are_written() -> None:
    memory = GroupMemoryStore(lambda: 0.0).for_group("u")
    memory.expect_records([make_record(0)], [make_record(0), with_size(1, LARGE)])
    assert memory.reserved_sizes == {"r0": SMALL, "r1": LARGE}
    # The write is not visible yet, or was lost: a later one may have other names.
    memory.observe_records([make_record(0)])
    memory.expect_records([make_record(0)], [make_record(0), with_size(2, SMALL)])
    assert memory.reserved_sizes == {"r0": SMALL, "r1": LARGE, "r2": SMALL}
    memory.observe_records([make_record(0), make_record(2)])
    assert memory.reserved_sizes == {}


def test_the_sizes_of_a_write_in_conflict_do_not_count() -> None:
    memory = GroupMemoryStore(lambda: 0.0).for_group("u")
    memory.expect_records([make_record(0)], [make_record(0), with_size(1, LARGE)], "7")
    # The cache may be behind.
    memory.observe_records([make_record(0)], "7")
    assert memory.reserved_sizes == {"r0": SMALL, "r1": LARGE}
    # A user has lowered replicas again just before the write, so nothing more is written.
    memory.observe_records([make_record(0)], "10")
    assert memory.reserved_sizes == {}


def test_a_dropped_record_is_not_unsent_while_the_write_has_no_response() -> None:
    memory = GroupMemoryStore(lambda: 0.0).for_group("u")
    records = [make_record(slot, state="Planned") for slot in range(3)]
    memory.expect_records([], records)
    memory.expect_records(records, [records[0], replace(records[1], terminating=True)])
    assert set(memory.clone_requests) == {"r0"}


def test_the_message_has_the_format_of_a_resource_quota() -> None:
    requested = ResourceAmount(vms=3, cpus=6, memory_mb=3072)
    used = ResourceAmount(vms=2, cpus=2, memory_mb=2048)
    assert find_quota_violation(requested, used, Quota()) == ""
    assert find_quota_violation(requested, used, Quota(vms=5, cpus=8, memory_mb=5120)) == ""
    message = find_quota_violation(requested, used, Quota(vms=4, cpus=7), unmanaged_vms=2)
    assert message.startswith(
        "Exceeded quota of the namespace: requested: vms=3,cpus=6, used: vms=2,cpus=2, "
        "limited: vms=4,cpus=7. Of these, 2 VMs belong to deleted VmGroups: delete them in vCenter."
    )
    message = find_quota_violation(requested, used, Quota(memory_mb=5119))
    assert "requested: memory=3072Mi, used: memory=2048Mi, limited: memory=5119Mi. " in message


def make_counter(vms: dict[str, ResourceAmount]) -> UsageCounter:
    """The VMs of groups in the namespace, as `uid/replica`."""
    marks, by_namespace = {}, Index()
    for name in vms:
        uid, _, replica = name.partition("/")
        group_id = GroupId(cluster_id="c1", namespace="team-a", name=uid, uid=uid)
        marks[name] = OwnershipMark(
            group_id=group_id, replica_name=replica, sequence_number=0, fingerprint="f"
        )
        by_namespace.add(group_id.namespace_key, name)
    inventory = SimpleNamespace(
        vms={
            name: SimpleNamespace(cpus=size.cpus, memory_mb=size.memory_mb)
            for name, size in vms.items()
        }
    )
    index = SimpleNamespace(marks=marks, refs_by_namespace=by_namespace)
    return UsageCounter(cast("Any", inventory), cast("Any", index), GroupMemoryStore(lambda: 0.0))


def limit(counter: UsageCounter, others: list[OtherGroup], **limits: int) -> DesiredState:
    group = SimpleNamespace(
        group_id=OWN_ID,
        desired=DESIRED,
        limits=NamespaceLimits(quota=Quota(**limits)),
        list_other_groups=lambda: others,
    )
    return counter.apply_quota(cast("Any", group))


def test_a_group_gets_what_others_and_vms_of_deleted_groups_leave() -> None:
    other = OtherGroup(uid="other", records=(make_record(0),), size=SMALL)
    counter = make_counter({"other/r0": LARGE, "deleted/r7": SMALL, "own/r0": LARGE})
    assert limit(counter, [other], vms=10, cpus=20).quota == Quota(vms=8, cpus=15)
    exceeded = limit(counter, [other], vms=4)
    assert "requested: vms=3, used: vms=2, limited: vms=4. Of these, 1 VMs" in (
        exceeded.quota_violation
    )
    # Nothing grows, not even by what would fit.
    assert exceeded.quota == Quota(vms=0, cpus=0, memory_mb=0)


def test_clones_and_resizes_count_after_their_group_was_deleted() -> None:
    # A user has removed the finalizer.
    now = 100.0
    counter, group_id = make_counter({"deleted/r1": SMALL}), replace(OWN_ID, uid="deleted")
    counter._memory_store = GroupMemoryStore(lambda: now)
    sizes = counter._memory_store.sizes_in_progress
    sizes.begin("task-1", group_id, Clone(with_size(0, LARGE), "t", power_on=True))
    sizes.begin("task-2", group_id, Resize(make_vm(1), 4, 1, 4096))
    sizes.begin("task-3", group_id, PowerOff(make_vm(1)))
    elsewhere = replace(group_id, namespace="team-b")
    sizes.begin("task-4", elsewhere, Clone(with_size(0, LARGE), "t", power_on=True))
    assert limit(counter, [], vms=10, cpus=20).quota == Quota(vms=8, cpus=12)
    sizes.end("task-1", visible_within_seconds=10.0)
    sizes.end("task-2", visible_within_seconds=10.0)
    now = 109.0
    assert limit(counter, [], vms=10, cpus=20).quota == Quota(vms=8, cpus=12)
    # Of a group that exists, the records count, and of one that was finalized nothing.
    other = OtherGroup(uid="deleted", size=SMALL)
    assert limit(counter, [other], vms=10, cpus=20).quota == Quota(vms=9, cpus=19)
    now = 110.0
    assert limit(counter, [], vms=10, cpus=20).quota == Quota(vms=9, cpus=19)
    sizes.begin("task-5", group_id, Clone(with_size(0, LARGE), "t", power_on=True))
    counter._memory_store.forget("deleted")
    assert limit(counter, [], vms=10, cpus=20).quota == Quota(vms=9, cpus=19)


# What a group may do


def test_new_records_have_their_size_and_fit_into_the_quota() -> None:
    desired = replace(DESIRED, replicas=4, cpus=2, quota=Quota(cpus=5))
    new_plan = make_plan(desired)
    assert [(record.cpus, record.memory_mb) for record in new_plan.records] == [(2, 1024)] * 2
    # While the VMs of a template that was replaced terminate, they count.
    terminating = [make_record(slot, terminating=True) for slot in range(3)]
    vms = [make_vm(slot) for slot in range(3)]
    new_plan = make_plan(desired, vms, terminating)
    assert len(new_plan.records) == 4
    waiting = make_plan(replace(desired, quota=Quota(cpus=4)), vms, terminating)
    assert (len(waiting.records), waiting.phase) == (3, "PENDING")
    assert waiting.message.endswith("being deleted or resized still count")


def test_a_larger_size_is_stored_before_a_resize_and_only_if_it_fits() -> None:
    desired = replace(DESIRED, replicas=2, cpus=4, quota=Quota(cpus=7))
    vms = [make_vm(slot, power="poweredOff") for slot in range(2)]
    stored = make_plan(desired, vms)
    assert (stored.write_status_first, [record.cpus for record in stored.records]) == (
        True,
        [4, 1],
    )
    new_plan = make_plan(desired, vms, stored.records)
    assert new_plan.actions == (Resize(vms[0], 4, 1, 1024),)
    # A smaller size needs no room, and a group without a quota stores nothing first.
    assert make_plan(
        replace(desired, cpus=1, memory_mb=512, quota=Quota(vms=0)), vms
    ).actions == tuple(Resize(vm, 1, 1, 512) for vm in vms)
    assert not make_plan(replace(desired, quota=Quota()), vms).write_status_first


def test_a_reserved_size_counts_until_no_resize_can_be_in_progress() -> None:
    desired = replace(DESIRED, replicas=1)
    for vm, cpus in (
        (make_vm(0, busy=True), 4),
        (make_vm(0, resize_possible=True), 4),
        (make_vm(0), 1),
        (make_vm(0, cpus=2), 2),
    ):
        new_plan = make_plan(desired, [vm], [with_size(0, LARGE)])
        assert new_plan.records[0].cpus == cpus


def test_a_request_above_the_quota_is_an_error_and_reserves_nothing() -> None:
    desired = replace(
        DESIRED,
        replicas=2,
        cpus=4,
        quota=Quota(vms=0, cpus=0, memory_mb=0),
        quota_violation="Exceeded quota",
        clone_blocker="Exceeded quota",
    )
    new_plan = make_plan(desired, [make_vm(0), make_vm(1)])
    assert (new_plan.phase, new_plan.message, new_plan.actions) == ("ERROR", "Exceeded quota", ())
    unsent = make_record(2, state="Planned")
    new_plan = make_plan(
        desired,
        [make_vm(0), make_vm(1)],
        [make_record(0), make_record(1), unsent],
        clone_states={unsent.name: CloneState.UNSENT},
    )
    assert [record.name for record in new_plan.records] == ["r0", "r1"]


def test_a_reserved_clone_is_not_sent_after_an_administrator_used_the_room() -> None:
    unsent = make_record(0, state="Planned")
    states = {unsent.name: CloneState.UNSENT}
    desired = replace(DESIRED, replicas=1, quota=Quota(vms=1))
    new_plan = make_plan(desired, (), [unsent], clone_states=states)
    assert new_plan.actions == (Clone(unsent, "t", power_on=True),)
    blocked = replace(desired, quota=Quota(vms=0))
    assert make_plan(blocked, (), [unsent], clone_states=states).actions == ()


@pytest.mark.parametrize(("vms", "is_replaced_first"), [(4, False), (3, True)])
def test_without_room_for_a_surge_replicas_are_replaced_one_by_one(
    vms: int, is_replaced_first: bool
) -> None:
    desired = replace(
        DESIRED,
        template="vm-t2",
        fingerprint="f2",
        rollout=Rollout(max_surge=1, max_unavailable=0),
        quota=Quota(vms=vms),
    )
    records = make_plan(desired, [make_vm(slot) for slot in range(3)]).records
    assert [record.terminating for record in records] == (
        [True, False, False] if is_replaced_first else [False] * 4
    )


@pytest.mark.parametrize("state", [CloneState.UNSENT, CloneState.NOT_IN_PROGRESS])
def test_a_surge_that_no_longer_fits_is_dropped(state: CloneState) -> None:
    """Otherwise it waits for quota that an older group requests, which waits for this record."""
    desired = replace(
        DESIRED,
        template="vm-t2",
        fingerprint="f2",
        rollout=Rollout(max_surge=1, max_unavailable=0),
        quota=Quota(vms=3),
    )
    vms = [make_vm(slot) for slot in range(3)]
    surging = make_record(3, state="Planned", template="vm-t2", fingerprint="f2")
    records = [*(make_record(slot) for slot in range(3)), surging]
    states = {surging.name: state}
    new_plan = make_plan(desired, vms, records, clone_states=states)
    assert [(record.name, record.terminating) for record in new_plan.records] == [
        ("r0", True),
        ("r1", False),
        ("r2", False),
    ]
    # It fits, or may exist.
    roomy = make_plan(replace(desired, quota=Quota(vms=4)), vms, records, clone_states=states)
    running = make_plan(desired, vms, records, clone_states={surging.name: CloneState.RUNNING})
    for new_plan in (roomy, running):
        assert [record.name for record in new_plan.records] == ["r0", "r1", "r2", "r3"]
        assert not any(record.terminating for record in new_plan.records)


def test_an_orphaned_group_ends_after_a_resize() -> None:
    desired = replace(DESIRED, deleting=True, deletion_policy="Orphan")
    resized = make_vm(0, resize_possible=True)
    assert make_plan(desired, [resized], [with_size(0, LARGE)]).actions == ()
    assert make_plan(desired, [make_vm(0)], [with_size(0, LARGE)]).actions == (RemoveFinalizer(),)


def test_a_running_vm_is_powered_off_only_for_a_size_within_the_quota() -> None:
    desired = replace(DESIRED, replicas=1, cpus=4, quota=Quota(cpus=4))
    vm = make_vm(0)
    assert make_plan(desired, [vm], [with_size(0, LARGE)]).actions == (PowerOff(vm),)
    assert make_plan(replace(desired, quota=Quota(cpus=3)), [vm]).actions == ()


# Histories


@pytest.mark.parametrize("first_seed", range(0, 100, 50))
def test_what_exists_never_exceeds_the_quota(first_seed: int) -> None:
    """A sample; `make quota-histories` runs 10,000."""
    clones_and_resizes = sum(run_history(first_seed + number).grown for number in range(50))
    # Histories in which nothing is created would prove nothing.
    assert clones_and_resizes > 200


def test_the_command_reports_what_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--histories", "2", "--first-seed", "7"])
    assert capsys.readouterr().out.startswith("2 histories, ")
