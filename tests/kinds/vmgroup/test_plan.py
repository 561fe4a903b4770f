"""The decision, case by case: records, clones and deletions of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import (
    Clone,
    CloneState,
    CreateFolder,
    Destroy,
    ObservedState,
    PowerOff,
    ReplicaVm,
    Rollout,
)
from vsphere_operators.kinds.vmgroup.ownership import instance_uuid_of

from .plan_calls import make_plan, terminating_names
from .replica_builder import DESIRED, make_observed, make_record, make_vm


def test_a_group_in_the_desired_state_has_the_success_message() -> None:
    new_plan = make_plan(DESIRED, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert (new_plan.write_status_first, new_plan.actions, new_plan.phase, new_plan.message) == (
        False,
        (),
        "RUNNING",
        "successfully reconciled VmGroup",
    )
    assert (new_plan.counts.current, new_plan.counts.ready, new_plan.counts.updated) == (3, 3, 3)
    assert new_plan.log_lines == ("replica count in sync, checking power state",)


def test_records_are_stored_before_anything_is_sent() -> None:
    new_plan = make_plan(DESIRED, ObservedState())
    assert (new_plan.write_status_first, new_plan.actions) == (True, ())
    assert [
        (record.sequence_number, record.name, record.state, record.template)
        for record in new_plan.records
    ] == [(number, f"r{100 + number}", "Planned", "vm-t1") for number in range(3)]
    # The identity is derived, so that a VM can be recognized without its record.
    assert new_plan.records[0].instance_uuid == instance_uuid_of("uid-1", "r100")
    assert new_plan.log_lines == ("too few replicas, creating 3 replica(s)",)
    assert (new_plan.phase, new_plan.message) == ("PENDING", "0/3 replicas ready")


def test_the_folder_is_created_before_clones_and_only_unsent_records_are_cloned() -> None:
    planned = [make_record(number, state="Planned") for number in range(3)]
    clone_states = {"r0": CloneState.UNSENT, "r1": CloneState.UNKNOWN, "r2": CloneState.RUNNING}
    assert make_plan(
        DESIRED, make_observed((), planned, clone_states=clone_states, folder=None)
    ).actions == (CreateFolder(),)
    assert make_plan(DESIRED, make_observed((), planned, clone_states=clone_states)).actions == (
        Clone(planned[0], "t", power_on=True),
    )


def test_a_failed_clone_is_stored_again_under_the_same_name() -> None:
    # It takes the current template, but keeps its name: the first request may have been sent.
    failed = make_record(0, state="Cloning", task="task-1", template="vm-old", fingerprint="f0")
    new_plan = make_plan(
        replace(DESIRED, replicas=1),
        make_observed((), [failed], clone_states={"r0": CloneState.NOT_IN_PROGRESS}),
    )
    assert new_plan.write_status_first
    assert new_plan.records == (make_record(0, state="Planned", attempt=2),)


def test_a_vm_that_a_user_deleted_is_cloned_again() -> None:
    new_plan = make_plan(
        replace(DESIRED, replicas=2),
        make_observed(
            [make_vm(0)],
            [make_record(0), make_record(1)],
            clone_states={"r1": CloneState.NOT_IN_PROGRESS},
        ),
    )
    assert new_plan.records == (make_record(0), make_record(1, state="Planned", attempt=2))


MISSING: dict[str, Any] = {
    "clone_states": {"r1": CloneState.MISSING},
    "missing_vms": {"r1": "Waiting for r1."},
}


def test_a_missing_vm_is_not_cloned_again() -> None:
    observed = make_observed([make_vm(0)], [make_record(0), make_record(1)], **MISSING)
    new_plan = make_plan(replace(DESIRED, replicas=2), observed)
    assert (new_plan.write_status_first, new_plan.actions) == (False, ())
    assert new_plan.records == (make_record(0), make_record(1))
    assert (new_plan.phase, new_plan.message) == (
        "PENDING",
        "1/2 replicas ready; missing 1. Waiting for r1.",
    )
    # Neither is a missing template reported: nothing is to be cloned.
    blocked = make_plan(replace(DESIRED, replicas=2, clone_blocker="no template"), observed)
    assert (blocked.phase, blocked.message) == (new_plan.phase, new_plan.message)


def test_a_vm_that_vcenter_cannot_read_is_reported() -> None:
    observed = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1)],
        clone_states={"r1": CloneState.UNKNOWN},
        unreadable_vms={"r1": "/DC0/vm/vm-operator/ns-web/r1"},
    )
    new_plan = make_plan(replace(DESIRED, replicas=2, clone_blocker="no template"), observed)
    assert (new_plan.write_status_first, new_plan.actions) == (False, ())
    assert (new_plan.phase, new_plan.message) == (
        "PENDING",
        '1/2 replicas ready; unreadable 1. vCenter cannot read the configuration of replica "r1" '
        "(/DC0/vm/vm-operator/ns-web/r1), usually because its files are inaccessible. "
        "Check the host and the datastore of the VM. It is not replaced, because it may come back.",
    )


def test_nothing_is_selected_for_deletion_while_a_vm_is_missing() -> None:
    # A restore brought r2 back, which was deleted, and r1 is not found yet.
    observed = make_observed(
        [make_vm(0), make_vm(2)], [make_record(0), make_record(1), make_record(2)], **MISSING
    )
    assert not make_plan(replace(DESIRED, replicas=2), observed).write_status_first
    # A record that never had a VM is selected: it would be cloned otherwise.
    unsent = {**MISSING["clone_states"], "r2": CloneState.UNSENT}
    planned = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1), make_record(2, state="Planned")],
        clone_states=unsent,
    )
    assert make_plan(replace(DESIRED, replicas=1), planned).records == (
        make_record(0),
        make_record(1),
    )
    observed = make_observed([make_vm(0), make_vm(1), make_vm(2)])
    assert terminating_names(make_plan(replace(DESIRED, replicas=2), observed)) == {"r2"}


def test_nothing_is_selected_for_deletion_until_the_mark_of_a_found_vm_is_read() -> None:
    # A restore brought r0 back, which r1 had replaced. r1 is found, and its mark is not read yet.
    old, desired = make_vm(0, fingerprint="f0"), replace(DESIRED, replicas=1)
    records = [make_record(0, fingerprint="f0"), make_record(1)]
    unread = make_observed(
        [old],
        records,
        clone_states={"r1": CloneState.UNKNOWN},
        unread_vms=frozenset({"r1"}),
    )
    waiting = make_plan(desired, unread)
    assert (waiting.write_status_first, waiting.actions, waiting.phase) == (False, (), "PENDING")
    read = make_observed([old, make_vm(1)], records)
    assert terminating_names(make_plan(desired, read)) == {"r0"}


@pytest.mark.parametrize("policy", ["Destroy", "Orphan"])
def test_a_group_is_deleted_only_after_its_missing_vm(policy: Any) -> None:
    desired = replace(DESIRED, replicas=1, deleting=True, deletion_policy=policy)
    record = make_record(1, terminating=policy == "Destroy")
    new_plan = make_plan(desired, make_observed((), [record], **MISSING))
    if policy == "Destroy":
        assert (new_plan.write_status_first, new_plan.actions) == (False, ())
        assert new_plan.message == "Deleting the group; 1 replica left. Waiting for r1."
    else:
        # With Orphan the VM would stay anyway.
        assert (new_plan.write_status_first, new_plan.records) == (True, ())


def test_an_orphaned_group_waits_for_a_clone_without_an_answer() -> None:
    # vCenter may begin it later, and nothing would account for the VM.
    desired = replace(DESIRED, replicas=1, deleting=True, deletion_policy="Orphan")
    sent = make_record(1, state="Planned")
    new_plan = make_plan(desired, make_observed((), [sent], **MISSING))
    assert (new_plan.records, new_plan.actions) == ((sent,), ())


def test_a_deleted_vm_is_cloned_again_after_the_terminating_ones_are_gone() -> None:
    desired = replace(DESIRED, replicas=2)
    records = [make_record(0), make_record(1, terminating=True), make_record(2, state="Planned")]
    unsent = {"r2": CloneState.UNSENT}
    kept, terminating = make_vm(0), make_vm(1, power="poweredOff")
    observed = make_observed([kept, terminating], records, clone_states=unsent)
    assert make_plan(desired, observed).actions == (Destroy(terminating),)
    with_surge = replace(desired, rollout=Rollout(max_surge=1))
    assert [type(action) for action in make_plan(with_surge, observed).actions] == [Destroy, Clone]
    gone = make_observed([kept], [records[0], records[2]], clone_states=unsent)
    assert [type(action) for action in make_plan(desired, gone).actions] == [Clone]


def test_a_pending_clone_keeps_its_record() -> None:
    for clone_state in (CloneState.UNKNOWN, CloneState.RUNNING):
        new_plan = make_plan(
            replace(DESIRED, replicas=1),
            make_observed((), [make_record(0, state="Planned")], clone_states={"r0": clone_state}),
        )
        assert (new_plan.write_status_first, new_plan.actions, new_plan.phase) == (
            False,
            (),
            "PENDING",
        )


def test_a_terminating_record_with_a_pending_clone_is_kept() -> None:
    # Its clone may still appear, and would then have no record.
    pending = make_record(3, state="Planned", terminating=True)
    observed = make_observed(
        [make_vm(0), make_vm(1)],
        [make_record(0), make_record(1), pending],
        clone_states={"r3": CloneState.UNKNOWN},
    )
    assert make_plan(DESIRED, observed).records == (make_record(0), make_record(1), pending)
    settled = make_plan(DESIRED, replace(observed, clone_states={"r3": CloneState.NOT_IN_PROGRESS}))
    assert [record.name for record in settled.records] == ["r0", "r1", "r100"]


@pytest.mark.parametrize(
    ("vms", "deleted_name"),
    [
        ([make_vm(0), make_vm(1), make_vm(2), make_vm(3)], "r3"),
        ([make_vm(0), make_vm(1, power="poweredOff"), make_vm(2), make_vm(3)], "r1"),
        (
            [make_vm(0), make_vm(1, power="poweredOff"), make_vm(2, unavailable=True), make_vm(3)],
            "r2",
        ),
        ([make_vm(0), make_vm(1), make_vm(2), make_vm(3, foreign_disks=("pvc-1",))], "r2"),
    ],
    ids=["the newest", "off", "unavailable", "not with a disk"],
)
def test_excess_replicas_are_deleted_in_order(vms: list[ReplicaVm], deleted_name: str) -> None:
    new_plan = make_plan(DESIRED, make_observed(vms))
    assert terminating_names(new_plan) == {deleted_name}
    assert new_plan.log_lines == ("too many replicas, deleting 1",)


def test_a_record_without_vm_is_dropped_first() -> None:
    observed = make_observed(
        [make_vm(0), make_vm(1), make_vm(3)],
        [make_record(number) for number in range(4)],
        clone_states={"r2": CloneState.NOT_IN_PROGRESS},
    )
    assert [record.name for record in make_plan(DESIRED, observed).records] == ["r0", "r1", "r3"]


def test_a_terminating_vm_is_powered_off_then_destroyed_and_never_kept() -> None:
    records = [make_record(0), make_record(1, terminating=True)]
    assert make_plan(
        replace(DESIRED, replicas=1), make_observed([make_vm(0), make_vm(1)], records)
    ).actions == (PowerOff(make_vm(1)),)
    off = make_vm(1, power="poweredOff")
    # Also after the spec asks for two again: Destroy_Task may have been sent.
    for replicas in (1, 2):
        assert make_plan(
            replace(DESIRED, replicas=replicas), make_observed([make_vm(0), off], records)
        ).actions == (Destroy(off),)
    deleted_names = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0)], records, clone_states={"r1": CloneState.NOT_IN_PROGRESS}),
    )
    assert (deleted_names.write_status_first, deleted_names.records) == (True, (make_record(0),))


def test_a_vm_with_a_foreign_disk_is_not_destroyed() -> None:
    # Destroy_Task would delete the volume with the VM.
    held_vm = make_vm(1, power="poweredOff", foreign_disks=("pvc-7",))
    new_plan = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0), held_vm], [make_record(0), make_record(1, terminating=True)]),
    )
    assert (new_plan.actions, new_plan.phase) == ((), "ERROR")
    assert 'Replica "r1"' in new_plan.message
    assert "pvc-7" in new_plan.message
    assert "detach" in new_plan.message
    both = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0, foreign_disks=("a",)), make_vm(1, foreign_disks=("b",))]),
    )
    assert (both.write_status_first, both.actions, both.phase) == (False, (), "ERROR")
