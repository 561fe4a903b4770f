"""The decision, case by case: power, sizes, rollouts, pauses and the end of a group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.messages import describe_action, describe_request
from vsphere_operators.kinds.vmgroup.model import (
    Clone,
    CloneState,
    CreateFolder,
    Destroy,
    DestroyFolder,
    OperationFailure,
    PowerOff,
    PowerOn,
    RemoveFinalizer,
    Resize,
    Rollout,
)

from .plan_calls import make_plan, terminating_names
from .replica_builder import DESIRED, FOLDER, make_observed, make_record, make_vm


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
