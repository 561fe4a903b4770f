"""The decision, case by case: values in, a plan out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.messages import describe_action, describe_request
from vsphere_operators.kinds.vmgroup.model import (
    Adopt,
    Clone,
    CloneState,
    CreateFolder,
    DesiredState,
    Destroy,
    DestroyFolder,
    ObservedState,
    OperationFailure,
    Plan,
    PowerOff,
    PowerOn,
    RemoveFinalizer,
    ReplicaVm,
    Resize,
    Rollout,
    UndoAdoption,
)
from vsphere_operators.kinds.vmgroup.ownership import instance_uuid_of
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.replica import build_replicas, select_for_deletion
from vsphere_operators.vsphere.model import VirtualMachine

from .replica_builder import DESIRED, FOLDER, make_observed, make_record, make_vm


def make_name_generator() -> Callable[[], str]:
    serial = count(100)
    return lambda: f"r{next(serial)}"


def make_plan(desired: DesiredState, observed: ObservedState) -> Plan:
    return plan(desired, observed, make_name_generator())


def terminating_names(new_plan: Plan) -> set[str]:
    assert new_plan.write_status_first
    assert new_plan.actions == ()
    return {record.name for record in new_plan.records if record.terminating}


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


def test_vms_that_are_off_or_suspended_are_powered_on_unless_unavailable_or_busy() -> None:
    vms = [
        make_vm(0, power="poweredOff"),
        make_vm(1, power="suspended"),
        make_vm(2, power="poweredOff", unavailable=True),
    ]
    assert make_plan(DESIRED, make_observed(vms)).actions == (PowerOn(vms[0]), PowerOn(vms[1]))
    assert make_plan(DESIRED, make_observed([replace(vm, busy=True) for vm in vms])).actions == ()
    assert "may come back" in make_plan(DESIRED, make_observed(vms)).message


def test_nothing_is_done_with_a_vm_before_its_clone_has_ended() -> None:
    # vCenter shows the VM early, powered off, and rejects every other task on it.
    vm = make_vm(0, power="poweredOff", cpus=2, busy=True)
    observed = make_observed(
        [vm], [make_record(0, state="Cloning", cpus=2)], clone_states={"r0": CloneState.RUNNING}
    )
    desired = replace(DESIRED, replicas=1)
    waiting = make_plan(desired, observed)
    assert (waiting.write_status_first, waiting.actions, waiting.phase) == (False, (), "PENDING")
    assert waiting.message == "0/1 replicas ready; cloning 1; updating 1"
    # A restart does not make it Present: the next manager must know that it waits.
    assert waiting.records == observed.records
    for deleting in (
        replace(desired, deleting=True),
        replace(desired, deleting=True, deletion_policy="Orphan"),
    ):
        marked = make_plan(deleting, observed)
        assert make_plan(deleting, replace(observed, records=marked.records)).actions == ()
    ended = make_plan(desired, replace(observed, vms=(make_vm(0),), clone_states={}))
    assert (ended.records, ended.phase) == ((make_record(0),), "RUNNING")


def test_a_suspended_vm_is_destroyed_without_being_resumed() -> None:
    # PowerOffVM_Task needs a VM that is powered on; Destroy_Task only one that is not.
    suspended = make_vm(1, power="suspended")
    records = [make_record(0), make_record(1, terminating=True)]
    assert make_plan(
        replace(DESIRED, replicas=1), make_observed([make_vm(0), suspended], records)
    ).actions == (Destroy(suspended),)


def test_a_suspended_vm_is_resumed_before_it_is_powered_off_or_resized() -> None:
    suspended = make_vm(0, power="suspended")
    for desired in (
        replace(DESIRED, replicas=1, power="poweredOff"),
        replace(DESIRED, replicas=1, cpus=2),
        replace(DESIRED, replicas=1, cpus=2, power="poweredOff"),
    ):
        assert make_plan(desired, make_observed([suspended])).actions == (PowerOn(suspended),)
        assert make_plan(desired, make_observed([make_vm(0)])).actions == (PowerOff(make_vm(0)),)
    assert describe_action(PowerOn(suspended)) == ('vm "r0" suspended, attempting to power on...')


def test_vms_are_powered_off_if_desired() -> None:
    desired = replace(DESIRED, replicas=2, power="poweredOff")
    new_plan = make_plan(desired, make_observed([make_vm(0), make_vm(1, power="poweredOff")]))
    assert new_plan.actions == (PowerOff(make_vm(0)),)
    assert (
        make_plan(
            desired, make_observed([make_vm(number, power="poweredOff") for number in (0, 1)])
        ).phase
        == "RUNNING"
    )


@pytest.mark.parametrize(
    ("cpus", "template_cores", "vm_cores", "sent"),
    [
        (4, 2, 1, 2),  # that of the template, also after a size that it did not divide
        (3, 2, 2, 1),
        (2, 4, 1, 1),
        (2, 0, 0, None),  # template and VM leave it to vCenter
        (3, 0, 2, 1),  # the VM is older than the template
    ],
)
def test_a_resize_sends_the_cores_per_socket_of_the_template(
    cpus: int, template_cores: int, vm_cores: int, sent: int | None
) -> None:
    vm = make_vm(0, power="poweredOff", cpus=1, memory_mb=2048, cores_per_socket=vm_cores)
    desired = replace(DESIRED, replicas=1, cpus=cpus, template_cores_per_socket=template_cores)
    assert make_plan(desired, make_observed([vm])).actions == (Resize(vm, cpus, sent, 1024),)


def test_a_resize_without_the_template_keeps_the_cores_per_socket_of_the_vm() -> None:
    vm = make_vm(0, power="poweredOff", cpus=2, cores_per_socket=2)
    desired = replace(DESIRED, replicas=1, cpus=4, template="", clone_blocker="no template")
    assert make_plan(desired, make_observed([vm])).actions == (Resize(vm, 4, 2, 1024),)


def test_a_resize_respects_max_unavailable() -> None:
    desired = replace(DESIRED, cpus=2)
    assert make_plan(desired, make_observed([make_vm(0), make_vm(1), make_vm(2)])).actions == (
        PowerOff(make_vm(0)),
    )
    off = make_vm(0, power="poweredOff")
    assert make_plan(desired, make_observed([off, make_vm(1), make_vm(2)])).actions == (
        Resize(off, 2, 1, 1024),
    )
    # The first VM has to run again before the next one is powered off.
    resized = make_vm(0, power="poweredOff", cpus=2)
    assert make_plan(desired, make_observed([resized, make_vm(1), make_vm(2)])).actions == (
        PowerOn(resized),
    )
    assert make_plan(
        desired, make_observed([replace(resized, power="poweredOn"), make_vm(1), make_vm(2)])
    ).actions == (PowerOff(make_vm(1)),)


def test_without_max_unavailable_a_resize_replaces_vms() -> None:
    desired = replace(DESIRED, cpus=2, rollout=Rollout(max_surge=1, max_unavailable=0))
    new_plan = make_plan(desired, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert new_plan.write_status_first
    assert [record.name for record in new_plan.records] == ["r0", "r1", "r2", "r100"]
    assert terminating_names(
        make_plan(desired, make_observed([make_vm(0), make_vm(1), make_vm(2), make_vm(3, cpus=2)]))
    ) == {"r0"}


def test_a_new_template_replaces_one_vm_at_a_time() -> None:
    desired = replace(DESIRED, template="vm-t2", fingerprint="f2")
    assert terminating_names(
        make_plan(desired, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    ) == {"r0"}
    # While the successor is cloned, no other VM is replaced.
    part = make_observed(
        [make_vm(1), make_vm(2)],
        [make_record(1), make_record(2), make_record(3, state="Planned", fingerprint="f2")],
        clone_states={"r3": CloneState.RUNNING},
    )
    assert make_plan(desired, part).records == part.records
    new = [make_vm(1), make_vm(2), make_vm(3, fingerprint="f2")]
    assert terminating_names(make_plan(desired, make_observed(new))) == {"r1"}


def test_a_blocker_stops_the_rollout_but_not_power_actions() -> None:
    desired = replace(
        DESIRED,
        template="",
        fingerprint="f2",
        clone_blocker='no template "doesNotExist" in /DC0; create it there',
    )
    new_plan = make_plan(
        desired, make_observed([make_vm(0), make_vm(1, power="poweredOff"), make_vm(2)])
    )
    assert new_plan.actions == (PowerOn(make_vm(1, power="poweredOff")),)
    assert (new_plan.phase, new_plan.message) == ("ERROR", desired.clone_blocker)
    assert (
        make_plan(
            replace(desired, fingerprint="f1"), make_observed([make_vm(0), make_vm(1), make_vm(2)])
        ).phase
        == "RUNNING"
    )


def test_on_delete_keeps_outdated_vms() -> None:
    desired = replace(DESIRED, fingerprint="f2", rollout=Rollout(strategy="OnDelete"))
    new_plan = make_plan(desired, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert (
        new_plan.write_status_first,
        new_plan.actions,
        new_plan.phase,
        new_plan.counts.updated,
    ) == (
        False,
        (),
        "RUNNING",
        0,
    )


def test_a_vm_without_record_is_adopted_or_deleted() -> None:
    # A wiped status is rebuilt from the marks.
    wiped = make_plan(DESIRED, make_observed([make_vm(0), make_vm(1)], []))
    assert [(record.name, record.state) for record in wiped.records] == [
        # Their clones may not have ended.
        ("r0", "Cloning"),
        ("r1", "Cloning"),
        ("r100", "Planned"),
    ]
    # A clone that ended after its record was dropped is one VM too many.
    late = make_plan(
        replace(DESIRED, replicas=2),
        make_observed([make_vm(0), make_vm(1), make_vm(9)], [make_record(0), make_record(1)]),
    )
    assert terminating_names(late) == {"r9"}


def test_a_conflicting_vm_is_an_error_and_no_clone_is_sent() -> None:
    observed = make_observed(
        (),
        [make_record(0, state="Planned")],
        clone_states={"r0": CloneState.NOT_IN_PROGRESS},
        conflicting_vms={"r0": "/DC0/vm/x/r0"},
    )
    new_plan = make_plan(replace(DESIRED, replicas=1), observed)
    assert (new_plan.write_status_first, new_plan.actions, new_plan.phase) == (False, (), "ERROR")
    assert "/DC0/vm/x/r0" in new_plan.message


def test_nothing_is_started_on_a_replica_with_an_active_failure() -> None:
    off = make_vm(0, power="poweredOff")
    for permanent, phase in ((False, "PENDING"), (True, "ERROR")):
        new_plan = make_plan(
            replace(DESIRED, replicas=1),
            make_observed([off], failures={"r0": OperationFailure("no host has room", permanent)}),
        )
        assert (new_plan.actions, new_plan.phase) == ((), phase)
        assert "no host has room" in new_plan.message


def test_a_paused_group_only_observes() -> None:
    for desired in (replace(DESIRED, paused=True), replace(DESIRED, paused=True, deleting=True)):
        new_plan = make_plan(
            desired, make_observed([make_vm(0, power="poweredOff"), make_vm(1, cpus=3)])
        )
        assert (new_plan.write_status_first, new_plan.actions, new_plan.phase) == (
            False,
            (),
            "PENDING",
        )
        assert new_plan.message.startswith("Paused: ")


def test_a_paused_group_reports_errors() -> None:
    new_plan = make_plan(
        replace(DESIRED, paused=True, clone_blocker='Template "t" not found.'), make_observed()
    )
    assert (new_plan.write_status_first, new_plan.actions, new_plan.phase) == (False, (), "ERROR")
    assert new_plan.message.startswith("Paused: ")
    assert new_plan.message.endswith('. Template "t" not found. Unset spec.paused to continue.')


def test_deletion_destroys_vms_then_the_folder_then_removes_the_finalizer() -> None:
    desired = replace(DESIRED, deleting=True)
    observed = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1, state="Planned"), make_record(2, state="Planned")],
        clone_states={"r1": CloneState.UNSENT},
    )
    first = make_plan(desired, observed)
    assert terminating_names(first) == {"r0", "r2"}
    assert first.log_lines == ("VmGroup marked for deletion",)
    # A pending clone could otherwise create a VM after the group is gone.
    waits = make_plan(
        desired,
        make_observed(
            (),
            [make_record(2, state="Planned", terminating=True)],
            clone_states={"r2": CloneState.UNKNOWN},
        ),
    )
    assert (waits.actions, waits.message) == ((), "Deleting the group; 1 replica left")
    empty = replace(FOLDER, is_empty=True)
    assert make_plan(desired, make_observed(folder=empty)).actions == (DestroyFolder(empty),)
    assert make_plan(desired, make_observed(folder=empty, max_actions=0)).actions == ()
    assert make_plan(desired, make_observed(folder=None)).actions == (RemoveFinalizer(),)
    assert make_plan(desired, make_observed()).actions == (RemoveFinalizer(),), (
        "a folder with a foreign VM is kept"
    )


def test_orphaned_vms_are_kept_once_no_clone_is_in_progress() -> None:
    desired = replace(DESIRED, deleting=True, deletion_policy="Orphan")
    under_way = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1, state="Cloning")],
        clone_states={"r1": CloneState.RUNNING},
    )
    assert make_plan(desired, under_way).actions == ()
    # Its clone was sent without an answer, and runs by a task that no record names.
    busy = make_observed([make_vm(0, busy=True)], [make_record(0, state="Planned")])
    assert make_plan(desired, busy).actions == ()
    assert make_plan(
        desired, make_observed([make_vm(0), make_vm(1, power="poweredOff")])
    ).actions == (RemoveFinalizer(),)


def test_a_vm_without_its_mark_is_replaced() -> None:
    observed = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1)],
        clone_states={"r1": CloneState.NOT_IN_PROGRESS},
        conflicting_vms={"r1": "/DC0/vm/x/r1"},
    )
    new_plan = make_plan(replace(DESIRED, replicas=2), observed)
    assert new_plan.write_status_first
    assert [(record.sequence_number, record.name == "r1") for record in new_plan.records] == [
        (0, False),
        (2, False),
    ]


def test_no_more_actions_than_free_slots_are_started() -> None:
    planned = [make_record(number, state="Planned") for number in range(5)]
    observed = make_observed(
        (),
        planned,
        clone_states=dict.fromkeys([record.name for record in planned], CloneState.UNSENT),
    )
    for free in (-1, 0, 2, 9):
        new_plan = make_plan(replace(DESIRED, replicas=5), replace(observed, max_actions=free))
        assert len(new_plan.actions) == min(5, max(0, free))


def test_log_lines_are_those_of_the_contract() -> None:
    lines = [
        describe_action(action)
        for action in (
            CreateFolder(),
            Clone(make_record(0), "t", True),
            PowerOn(make_vm(0)),
            Destroy(make_vm(0)),
            DestroyFolder(FOLDER),
            RemoveFinalizer(),
        )
    ]
    assert lines == [
        "VmGroup folder does not exist, creating folder",
        'creating clone "r0" from template "t"',
        'vm "r0" powered off, attempting to power on...',
        'deleting virtual machine "r0"',
        'deleting group folder "team-a-web" (path: "/DC0/vm/vm-operator/team-a-web")',
        "no cleanup is left, removing the finalizer",
    ]
    assert describe_request("y", "x") == 'received reconcile request for "x" (namespace: "y")'


VMS = st.builds(
    lambda number, **changes: make_vm(number, **changes),
    number=st.integers(0, 8),
    power=st.sampled_from(["poweredOn", "poweredOn", "poweredOff", "suspended"]),
    unavailable=st.sampled_from([False, False, True]),
    cpus=st.integers(1, 2),
    fingerprint=st.sampled_from(["f1", "f2"]),
    busy=st.sampled_from([False, False, True]),
    foreign_disks=st.sampled_from([(), (), ("pvc-1",)]),
    adopted_from=st.sampled_from(["", "", "uuid-before"]),
)
RECORDS = st.builds(
    lambda number, **changes: make_record(number, **changes),
    number=st.integers(0, 8),
    state=st.sampled_from(["Planned", "Cloning", "Present"]),
    terminating=st.sampled_from([False, False, True]),
    adopted_from=st.sampled_from(["", "", "uuid-before"]),
)
VM_TO_ADOPT = VirtualMachine(ref="vm-99", name="r0", parent="group-v1")
DESIRED_STATES = st.builds(
    lambda **changes: replace(DESIRED, **changes),
    replicas=st.integers(0, 6),
    rollout=st.builds(Rollout, max_surge=st.integers(0, 2), max_unavailable=st.integers(0, 2)),
    deleting=st.sampled_from([False, False, True]),
    clone_blocker=st.sampled_from(["", "", "no template"]),
    undo_adoption=st.sampled_from([False, False, True]),
)


def observed_states() -> st.SearchStrategy[ObservedState]:
    return st.builds(
        lambda vms, records, clone_states, adoptable, free: make_observed(
            vms,
            records,
            clone_states=clone_states,
            vms_to_adopt=dict.fromkeys(adoptable, VM_TO_ADOPT),
            max_actions=free,
        ),
        st.lists(VMS, max_size=7, unique_by=lambda vm: vm.replica_name),
        st.lists(RECORDS, max_size=7, unique_by=lambda record: record.name),
        st.dictionaries(
            st.sampled_from([f"r{number}" for number in range(9)]), st.sampled_from(CloneState)
        ),
        st.sets(st.sampled_from([f"r{number}" for number in range(9)])),
        st.integers(0, 4),
    )


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(desired=DESIRED_STATES, observed=observed_states())
def test_every_plan_is_bounded_and_repeatable_and_acts_on_own_vms_only(
    desired: DesiredState, observed: ObservedState
) -> None:
    new_plan = make_plan(desired, observed)
    assert new_plan == make_plan(desired, observed)
    there = {record.name for record in observed.records} | {vm.replica_name for vm in observed.vms}
    new = [record for record in new_plan.records if record.name not in there]
    if new:
        assert len(new_plan.records) <= desired.replicas + desired.rollout.max_surge
        assert not desired.deleting
        assert not desired.clone_blocker
        assert not desired.undo_adoption
    assert not (new_plan.write_status_first and new_plan.actions)
    assert (
        len([action for action in new_plan.actions if not isinstance(action, RemoveFinalizer)])
        <= observed.max_actions
    )
    present = {vm.replica_name for vm in observed.vms}
    for record in observed.records:
        kept = next((mine for mine in new_plan.records if mine.name == record.name), None)
        if kept is None:
            assert record.name not in present
            assert observed.clone_states.get(record.name, CloneState.UNKNOWN) in (
                CloneState.NOT_IN_PROGRESS,
                CloneState.UNSENT,
                CloneState.ADOPTING,
            )
        else:
            assert kept.instance_uuid == record.instance_uuid
            assert kept.terminating or not record.terminating
    check_actions(new_plan, observed, desired)


def check_actions(new_plan: Plan, observed: ObservedState, desired: DesiredState) -> None:
    stored = {record.name: record for record in observed.records}
    for action in new_plan.actions:
        if isinstance(action, Clone):
            assert action.record == stored[action.record.name]
            assert observed.clone_states[action.record.name] is CloneState.UNSENT
        if isinstance(action, Destroy):
            assert stored[action.vm.replica_name].terminating
            assert (action.vm.power, action.vm.foreign_disks) == ("poweredOff", ())
        if isinstance(action, Adopt):
            assert action.record == stored[action.record.name]
            assert action.record.adopted_from
            assert not action.record.terminating
            assert observed.clone_states[action.record.name] is CloneState.ADOPTING
            assert not desired.undo_adoption
        if isinstance(action, UndoAdoption):
            assert desired.undo_adoption
            assert action.vm.adopted_from
        if isinstance(action, PowerOn | PowerOff | Resize | Destroy | UndoAdoption):
            assert action.vm in observed.vms
            assert not action.vm.busy


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(
    vms=st.lists(VMS, min_size=1, max_size=7, unique_by=lambda vm: vm.replica_name),
    replicas=st.integers(0, 6),
)
def test_a_deleted_replica_is_never_better_than_a_kept_one(
    vms: list[ReplicaVm], replicas: int
) -> None:
    """Compared with ranks: unavailable, off, on; within a rank the newest first."""
    alike = [replace(vm, fingerprint="f1", foreign_disks=(), cpus=1) for vm in vms]
    deleted_names = select_for_deletion(
        replace(DESIRED, replicas=replicas), build_replicas(make_observed(alike))
    )
    ranks = {
        vm.replica_name: (
            0 if vm.unavailable else 1 if vm.power != "poweredOn" else 2,
            -vm.sequence_number,
        )
        for vm in alike
    }
    assert len(deleted_names) == max(0, len(alike) - replicas)
    kept_ranks = [ranks[name] for name in ranks if name not in deleted_names]
    assert all(ranks[name] < min(kept_ranks) for name in deleted_names) if kept_ranks else True
