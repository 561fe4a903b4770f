"""The decision, case by case: plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.messages import describe_action, describe_request
from vsphere_operators.kinds.vmgroup.model import (
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
    Reconfigure,
    RemoveFinalizer,
    ReplicaVm,
    Rollout,
)
from vsphere_operators.kinds.vmgroup.ownership import instance_uuid_of
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.replica import build_replicas, select_for_deletion

from .replica_builder import DESIRED, FOLDER, make_observed, make_record, make_vm


def make_name_generator() -> Callable[[], str]:
    serial = count(100)
    return lambda: f"r{next(serial)}"


def make_plan(wish: DesiredState, what: ObservedState) -> Plan:
    return plan(wish, what, make_name_generator())


def terminating_names(made: Plan) -> set[str]:
    assert made.write_status_first
    assert made.actions == ()
    return {each.name for each in made.records if each.terminating}


def test_all_right_is_nothing_to_do_in_the_words_that_people_wait_for() -> None:
    made = make_plan(DESIRED, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert (made.write_status_first, made.actions, made.phase, made.message) == (
        False,
        (),
        "RUNNING",
        "successfully reconciled VmGroup",
    )
    assert (made.counts.current, made.counts.ready, made.counts.updated) == (3, 3, 3)
    assert made.log_lines == ("replica count in sync, checking power state",)


def test_records_are_stored_before_anything_is_sent() -> None:
    made = make_plan(DESIRED, ObservedState())
    assert (made.write_status_first, made.actions) == (True, ())
    assert [(each.slot, each.name, each.state, each.template) for each in made.records] == [
        (slot, f"r{100 + slot}", "Planned", "vm-t1") for slot in range(3)
    ]
    assert made.records[0].instance_uuid == instance_uuid_of("uid-1", "r100")
    assert made.log_lines == ("too few replicas, creating 3 replica(s)",)
    assert (made.phase, made.message) == ("PENDING", "0/3 replicas ready")


def test_the_folder_comes_before_the_first_clone_and_only_what_this_process_stored_is_sent() -> (
    None
):
    planned = [make_record(slot, state="Planned") for slot in range(3)]
    flights = {"r0": CloneState.UNSENT, "r1": CloneState.UNKNOWN, "r2": CloneState.RUNNING}
    assert make_plan(
        DESIRED, make_observed((), planned, clone_states=flights, folder=None)
    ).actions == (CreateFolder(),)
    assert make_plan(DESIRED, make_observed((), planned, clone_states=flights)).actions == (
        Clone(planned[0], "t", power_on=True),
    )


def test_a_clone_that_failed_is_stored_anew_under_the_same_name() -> None:
    failed = make_record(0, state="Cloning", task="task-1", template="vm-old", fingerprint="f0")
    made = make_plan(
        replace(DESIRED, replicas=1),
        make_observed((), [failed], clone_states={"r0": CloneState.ENDED}),
    )
    assert made.write_status_first
    assert made.records == (make_record(0, state="Planned", attempt=2),)


def test_a_vm_that_a_person_deleted_is_made_again_in_its_place() -> None:
    made = make_plan(
        replace(DESIRED, replicas=2),
        make_observed(
            [make_vm(0)], [make_record(0), make_record(1)], clone_states={"r1": CloneState.ENDED}
        ),
    )
    assert made.records == (make_record(0), make_record(1, state="Planned", attempt=2))


def test_in_doubt_it_waits_and_never_takes_another_name() -> None:
    for flight in (CloneState.UNKNOWN, CloneState.RUNNING):
        made = make_plan(
            replace(DESIRED, replicas=1),
            make_observed((), [make_record(0, state="Planned")], clone_states={"r0": flight}),
        )
        assert (made.write_status_first, made.actions, made.phase) == (False, (), "PENDING")


def test_in_doubt_a_record_that_must_go_keeps_its_place() -> None:
    doubtful = make_record(3, state="Planned", terminating=True)
    what = make_observed(
        [make_vm(0), make_vm(1)],
        [make_record(0), make_record(1), doubtful],
        clone_states={"r3": CloneState.UNKNOWN},
    )
    assert make_plan(DESIRED, what).records == (make_record(0), make_record(1), doubtful)
    settled = make_plan(DESIRED, replace(what, clone_states={"r3": CloneState.ENDED}))
    assert [each.name for each in settled.records] == ["r0", "r1", "r100"]


@pytest.mark.parametrize(
    ("vms", "goes"),
    [
        ([make_vm(0), make_vm(1), make_vm(2), make_vm(3)], "r3"),
        ([make_vm(0), make_vm(1, power="poweredOff"), make_vm(2), make_vm(3)], "r1"),
        ([make_vm(0), make_vm(1, power="poweredOff"), make_vm(2, broken=True), make_vm(3)], "r2"),
        ([make_vm(0), make_vm(1), make_vm(2), make_vm(3, foreign_disks=("pvc-1",))], "r2"),
    ],
    ids=["the newest", "off", "broken", "not with a disk"],
)
def test_too_many_go_in_their_order(vms: list[ReplicaVm], goes: str) -> None:
    made = make_plan(DESIRED, make_observed(vms))
    assert terminating_names(made) == {goes}
    assert made.log_lines == ("too many replicas, deleting 1",)


def test_what_has_no_vm_goes_first_and_at_once() -> None:
    what = make_observed(
        [make_vm(0), make_vm(1), make_vm(3)],
        [make_record(slot) for slot in range(4)],
        clone_states={"r2": CloneState.ENDED},
    )
    assert [each.name for each in make_plan(DESIRED, what).records] == ["r0", "r1", "r3"]


def test_what_leaves_is_powered_off_then_destroyed_and_never_taken_back() -> None:
    records = [make_record(0), make_record(1, terminating=True)]
    assert make_plan(
        replace(DESIRED, replicas=1), make_observed([make_vm(0), make_vm(1)], records)
    ).actions == (PowerOff(make_vm(1)),)
    off = make_vm(1, power="poweredOff")
    for replicas in (1, 2):
        assert make_plan(
            replace(DESIRED, replicas=replicas), make_observed([make_vm(0), off], records)
        ).actions == (Destroy(off),)
    gone = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0)], records, clone_states={"r1": CloneState.ENDED}),
    )
    assert (gone.write_status_first, gone.records) == (True, (make_record(0),))


def test_a_vm_with_the_disk_of_somebody_is_not_destroyed_and_words_say_so() -> None:
    held = make_vm(1, power="poweredOff", foreign_disks=("pvc-7",))
    made = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0), held], [make_record(0), make_record(1, terminating=True)]),
    )
    assert (made.actions, made.phase) == ((), "ERROR")
    assert 'Replica "r1"' in made.message
    assert "pvc-7" in made.message
    assert "detach" in made.message
    both = make_plan(
        replace(DESIRED, replicas=1),
        make_observed([make_vm(0, foreign_disks=("a",)), make_vm(1, foreign_disks=("b",))]),
    )
    assert (both.write_status_first, both.actions, both.phase) == (False, (), "ERROR")


def test_what_is_off_or_suspended_is_powered_on_but_not_the_broken_or_busy() -> None:
    vms = [
        make_vm(0, power="poweredOff"),
        make_vm(1, power="suspended"),
        make_vm(2, power="poweredOff", broken=True),
    ]
    assert make_plan(DESIRED, make_observed(vms)).actions == (PowerOn(vms[0]), PowerOn(vms[1]))
    assert (
        make_plan(DESIRED, make_observed([replace(each, busy=True) for each in vms])).actions == ()
    )
    assert "may come back" in make_plan(DESIRED, make_observed(vms)).message


def test_power_state_off_is_a_wish_too() -> None:
    wish = replace(DESIRED, replicas=2, power="poweredOff")
    made = make_plan(wish, make_observed([make_vm(0), make_vm(1, power="poweredOff")]))
    assert made.actions == (PowerOff(make_vm(0)),)
    assert (
        make_plan(wish, make_observed([make_vm(slot, power="poweredOff") for slot in (0, 1)])).phase
        == "RUNNING"
    )


def test_a_new_size_reaches_as_many_at_a_time_as_may_be_down() -> None:
    wish = replace(DESIRED, cpus=2)
    assert make_plan(wish, make_observed([make_vm(0), make_vm(1), make_vm(2)])).actions == (
        PowerOff(make_vm(0)),
    )
    off = make_vm(0, power="poweredOff")
    assert make_plan(wish, make_observed([off, make_vm(1), make_vm(2)])).actions == (
        Reconfigure(off, 2, 1024),
    )
    resized = make_vm(0, power="poweredOff", cpus=2)
    assert make_plan(wish, make_observed([resized, make_vm(1), make_vm(2)])).actions == (
        PowerOn(resized),
    )
    assert make_plan(
        wish, make_observed([replace(resized, power="poweredOn"), make_vm(1), make_vm(2)])
    ).actions == (PowerOff(make_vm(1)),)


def test_where_none_may_be_down_a_new_size_is_a_new_vm() -> None:
    wish = replace(DESIRED, cpus=2, rollout=Rollout(max_surge=1, max_unavailable=0))
    made = make_plan(wish, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert made.write_status_first
    assert [each.name for each in made.records] == ["r0", "r1", "r2", "r100"]
    assert terminating_names(
        make_plan(wish, make_observed([make_vm(0), make_vm(1), make_vm(2), make_vm(3, cpus=2)]))
    ) == {"r0"}


def test_a_new_template_takes_one_after_the_other() -> None:
    wish = replace(DESIRED, template="vm-t2", fingerprint="f2")
    assert terminating_names(
        make_plan(wish, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    ) == {"r0"}
    part = make_observed(
        [make_vm(1), make_vm(2)],
        [make_record(1), make_record(2), make_record(3, state="Planned", fingerprint="f2")],
        clone_states={"r3": CloneState.RUNNING},
    )
    assert make_plan(wish, part).records == part.records
    new = [make_vm(1), make_vm(2), make_vm(3, fingerprint="f2")]
    assert terminating_names(make_plan(wish, make_observed(new))) == {"r1"}


def test_nothing_rolls_while_nothing_can_be_cloned_and_the_rest_goes_on() -> None:
    wish = replace(
        DESIRED,
        template="",
        fingerprint="f2",
        blocker='no template "doesNotExist" in /DC0; create it there',
    )
    made = make_plan(wish, make_observed([make_vm(0), make_vm(1, power="poweredOff"), make_vm(2)]))
    assert made.actions == (PowerOn(make_vm(1, power="poweredOff")),)
    assert (made.phase, made.message) == ("ERROR", wish.blocker)
    assert (
        make_plan(
            replace(wish, fingerprint="f1"), make_observed([make_vm(0), make_vm(1), make_vm(2)])
        ).phase
        == "RUNNING"
    )


def test_on_delete_leaves_the_old_ones() -> None:
    wish = replace(DESIRED, fingerprint="f2", rollout=Rollout(strategy="OnDelete"))
    made = make_plan(wish, make_observed([make_vm(0), make_vm(1), make_vm(2)]))
    assert (made.write_status_first, made.actions, made.phase, made.counts.updated) == (
        False,
        (),
        "RUNNING",
        0,
    )


def test_a_vm_of_ours_without_a_record_gets_one_and_leaves_if_it_is_too_many() -> None:
    wiped = make_plan(DESIRED, make_observed([make_vm(0), make_vm(1)], []))
    assert [(each.name, each.state) for each in wiped.records] == [
        ("r0", "Present"),
        ("r1", "Present"),
        ("r100", "Planned"),
    ]
    late = make_plan(
        replace(DESIRED, replicas=2),
        make_observed([make_vm(0), make_vm(1), make_vm(9)], [make_record(0), make_record(1)]),
    )
    assert terminating_names(late) == {"r9"}


def test_a_name_that_another_vm_has_is_an_error_and_not_tried() -> None:
    what = make_observed(
        (),
        [make_record(0, state="Planned")],
        clone_states={"r0": CloneState.ENDED},
        conflicting_vms={"r0": "/DC0/vm/x/r0"},
    )
    made = make_plan(replace(DESIRED, replicas=1), what)
    assert (made.write_status_first, made.actions, made.phase) == (False, (), "ERROR")
    assert "/DC0/vm/x/r0" in made.message


def test_after_a_failure_it_holds_still_until_the_caller_says_so() -> None:
    off = make_vm(0, power="poweredOff")
    for lasting, phase in ((False, "PENDING"), (True, "ERROR")):
        made = make_plan(
            replace(DESIRED, replicas=1),
            make_observed([off], failures={"r0": OperationFailure("no host has room", lasting)}),
        )
        assert (made.actions, made.phase) == ((), phase)
        assert "no host has room" in made.message


def test_paused_only_looks() -> None:
    for wish in (replace(DESIRED, paused=True), replace(DESIRED, paused=True, deleting=True)):
        made = make_plan(wish, make_observed([make_vm(0, power="poweredOff"), make_vm(1, cpus=3)]))
        assert (made.write_status_first, made.actions, made.phase) == (False, (), "PENDING")
        assert made.message.startswith("Paused: ")


def test_paused_hides_no_error() -> None:
    made = make_plan(
        replace(DESIRED, paused=True, blocker='Template "t" not found.'), make_observed()
    )
    assert (made.write_status_first, made.actions, made.phase) == (False, (), "ERROR")
    assert made.message.startswith("Paused: ")
    assert made.message.endswith('. Template "t" not found. Unset spec.paused to continue.')


def test_deletion_takes_vms_then_the_folder_then_the_finalizer() -> None:
    wish = replace(DESIRED, deleting=True)
    what = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1, state="Planned"), make_record(2, state="Planned")],
        clone_states={"r1": CloneState.UNSENT},
    )
    first = make_plan(wish, what)
    assert terminating_names(first) == {"r0", "r2"}
    assert first.log_lines == ("VmGroup marked for deletion",)
    waits = make_plan(
        wish,
        make_observed(
            (),
            [make_record(2, state="Planned", terminating=True)],
            clone_states={"r2": CloneState.UNKNOWN},
        ),
    )
    assert (waits.actions, waits.message) == ((), "Deleting the group; 1 replica left")
    empty = replace(FOLDER, is_empty=True)
    assert make_plan(wish, make_observed(folder=empty)).actions == (DestroyFolder(empty),)
    assert make_plan(wish, make_observed(folder=empty, max_actions=0)).actions == ()
    assert make_plan(wish, make_observed(folder=None)).actions == (RemoveFinalizer(),)
    assert make_plan(wish, make_observed()).actions == (RemoveFinalizer(),), (
        "a folder with somebody's VM stays"
    )


def test_orphans_are_left_as_they_are_once_nothing_is_under_way() -> None:
    wish = replace(DESIRED, deleting=True, deletion_policy="Orphan")
    under_way = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1, state="Cloning")],
        clone_states={"r1": CloneState.RUNNING},
    )
    assert make_plan(wish, under_way).actions == ()
    assert make_plan(wish, make_observed([make_vm(0), make_vm(1, power="poweredOff")])).actions == (
        RemoveFinalizer(),
    )


def test_one_whose_mark_was_taken_away_gives_its_place_to_another() -> None:
    what = make_observed(
        [make_vm(0)],
        [make_record(0), make_record(1)],
        clone_states={"r1": CloneState.ENDED},
        conflicting_vms={"r1": "/DC0/vm/x/r1"},
    )
    made = make_plan(replace(DESIRED, replicas=2), what)
    assert made.write_status_first
    assert [(each.slot, each.name == "r1") for each in made.records] == [(0, False), (2, False)]


def test_no_more_is_started_than_there_is_room_for() -> None:
    planned = [make_record(slot, state="Planned") for slot in range(5)]
    what = make_observed(
        (), planned, clone_states=dict.fromkeys([each.name for each in planned], CloneState.UNSENT)
    )
    for free in (-1, 0, 2, 9):
        made = make_plan(replace(DESIRED, replicas=5), replace(what, max_actions=free))
        assert len(made.actions) == min(5, max(0, free))


def test_log_lines_are_those_that_people_grep_for() -> None:
    lines = [
        describe_action(each)
        for each in (
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
    lambda slot, **changes: make_vm(slot, **changes),
    slot=st.integers(0, 8),
    power=st.sampled_from(["poweredOn", "poweredOn", "poweredOff", "suspended"]),
    broken=st.sampled_from([False, False, True]),
    cpus=st.integers(1, 2),
    fingerprint=st.sampled_from(["f1", "f2"]),
    busy=st.sampled_from([False, False, True]),
    foreign_disks=st.sampled_from([(), (), ("pvc-1",)]),
)
RECORDS = st.builds(
    lambda slot, **changes: make_record(slot, **changes),
    slot=st.integers(0, 8),
    state=st.sampled_from(["Planned", "Cloning", "Present"]),
    terminating=st.sampled_from([False, False, True]),
)
DESIRED_STATES = st.builds(
    lambda **changes: replace(DESIRED, **changes),
    replicas=st.integers(0, 6),
    rollout=st.builds(Rollout, max_surge=st.integers(0, 2), max_unavailable=st.integers(0, 2)),
    deleting=st.sampled_from([False, False, True]),
    blocker=st.sampled_from(["", "", "no template"]),
)


def observed_states() -> st.SearchStrategy[ObservedState]:
    return st.builds(
        lambda vms, records, flights, free: make_observed(
            vms, records, clone_states=flights, max_actions=free
        ),
        st.lists(VMS, max_size=7, unique_by=lambda each: each.name),
        st.lists(RECORDS, max_size=7, unique_by=lambda each: each.name),
        st.dictionaries(
            st.sampled_from([f"r{slot}" for slot in range(9)]), st.sampled_from(CloneState)
        ),
        st.integers(0, 4),
    )


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(wish=DESIRED_STATES, what=observed_states())
def test_whatever_is_seen_the_plan_is_bounded_repeatable_and_stays_with_its_own(
    wish: DesiredState, what: ObservedState
) -> None:
    made = make_plan(wish, what)
    assert made == make_plan(wish, what)
    there = {each.name for each in what.records} | {each.name for each in what.vms}
    new = [each for each in made.records if each.name not in there]
    if new:
        assert len(made.records) <= wish.replicas + wish.rollout.max_surge
        assert not wish.deleting
        assert not wish.blocker
    assert not (made.write_status_first and made.actions)
    assert (
        len([each for each in made.actions if not isinstance(each, RemoveFinalizer)])
        <= what.max_actions
    )
    present = {each.name for each in what.vms}
    for each in what.records:
        kept = next((mine for mine in made.records if mine.name == each.name), None)
        if kept is None:
            assert each.name not in present
            assert what.clone_states.get(each.name, CloneState.UNKNOWN) in (
                CloneState.ENDED,
                CloneState.UNSENT,
            )
        else:
            assert kept.instance_uuid == each.instance_uuid
            assert kept.terminating or not each.terminating
    check_actions(made, what)


def check_actions(made: Plan, what: ObservedState) -> None:
    stored = {each.name: each for each in what.records}
    for each in made.actions:
        if isinstance(each, Clone):
            assert each.record == stored[each.record.name]
            assert what.clone_states[each.record.name] is CloneState.UNSENT
        if isinstance(each, Destroy):
            assert stored[each.vm.name].terminating
            assert (each.vm.power, each.vm.foreign_disks) == ("poweredOff", ())
        if isinstance(each, PowerOn | PowerOff | Reconfigure | Destroy):
            assert each.vm in what.vms
            assert not each.vm.busy


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(
    vms=st.lists(VMS, min_size=1, max_size=7, unique_by=lambda each: each.name),
    replicas=st.integers(0, 6),
)
def test_who_goes_is_never_better_than_who_stays(vms: list[ReplicaVm], replicas: int) -> None:
    """Compared with ranks written down anew: broken, off, on; of one rank the newest first. All of one template, all without disks."""
    alike = [replace(each, fingerprint="f1", foreign_disks=(), cpus=1) for each in vms]
    gone = select_for_deletion(
        replace(DESIRED, replicas=replicas), build_replicas(make_observed(alike))
    )
    worth = {
        each.name: (0 if each.broken else 1 if each.power != "poweredOn" else 2, -each.slot)
        for each in alike
    }
    assert len(gone) == max(0, len(alike) - replicas)
    stay = [worth[name] for name in worth if name not in gone]
    assert all(worth[name] < min(stay) for name in gone) if stay else True
