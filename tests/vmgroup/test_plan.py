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

from .replicas import FOLDER, WISH, record, seen, vm


def names() -> Callable[[], str]:
    serial = count(100)
    return lambda: f"r{next(serial)}"


def decided(wish: DesiredState, what: ObservedState) -> Plan:
    return plan(wish, what, names())


def leaving(made: Plan) -> set[str]:
    assert made.write_status_first
    assert made.actions == ()
    return {each.name for each in made.records if each.terminating}


def test_all_right_is_nothing_to_do_in_the_words_that_people_wait_for() -> None:
    made = decided(WISH, seen([vm(0), vm(1), vm(2)]))
    assert (made.write_status_first, made.actions, made.phase, made.message) == (
        False,
        (),
        "RUNNING",
        "successfully reconciled VmGroup",
    )
    assert (made.counts.current, made.counts.ready, made.counts.updated) == (3, 3, 3)
    assert made.log_lines == ("replica count in sync, checking power state",)


def test_records_are_stored_before_anything_is_sent() -> None:
    made = decided(WISH, ObservedState())
    assert (made.write_status_first, made.actions) == (True, ())
    assert [(each.slot, each.name, each.state, each.template) for each in made.records] == [
        (slot, f"r{100 + slot}", "Planned", "vm-t1") for slot in range(3)
    ]
    assert made.records[0].instance_uuid == instance_uuid_of("uid-1", "r100")
    assert made.log_lines == ("too few replicas, creating 3 replica(s)",)
    assert (made.phase, made.message) == ("PENDING", "0 of 3 replica(s) ready")


def test_the_folder_comes_before_the_first_clone_and_only_what_this_process_stored_is_sent() -> (
    None
):
    planned = [record(slot, state="Planned") for slot in range(3)]
    flights = {"r0": CloneState.UNSENT, "r1": CloneState.UNKNOWN, "r2": CloneState.RUNNING}
    assert decided(WISH, seen((), planned, clone_states=flights, folder=None)).actions == (
        CreateFolder(),
    )
    assert decided(WISH, seen((), planned, clone_states=flights)).actions == (
        Clone(planned[0], "t", power_on=True),
    )


def test_a_clone_that_failed_is_stored_anew_under_the_same_name() -> None:
    failed = record(0, state="Cloning", task="task-1", template="vm-old", fingerprint="f0")
    made = decided(
        replace(WISH, replicas=1), seen((), [failed], clone_states={"r0": CloneState.ENDED})
    )
    assert made.write_status_first
    assert made.records == (record(0, state="Planned", attempt=2),)


def test_a_vm_that_a_person_deleted_is_made_again_in_its_place() -> None:
    made = decided(
        replace(WISH, replicas=2),
        seen([vm(0)], [record(0), record(1)], clone_states={"r1": CloneState.ENDED}),
    )
    assert made.records == (record(0), record(1, state="Planned", attempt=2))


def test_in_doubt_it_waits_and_never_takes_another_name() -> None:
    for flight in (CloneState.UNKNOWN, CloneState.RUNNING):
        made = decided(
            replace(WISH, replicas=1),
            seen((), [record(0, state="Planned")], clone_states={"r0": flight}),
        )
        assert (made.write_status_first, made.actions, made.phase) == (False, (), "PENDING")


def test_in_doubt_a_record_that_must_go_keeps_its_place() -> None:
    doubtful = record(3, state="Planned", terminating=True)
    what = seen(
        [vm(0), vm(1)], [record(0), record(1), doubtful], clone_states={"r3": CloneState.UNKNOWN}
    )
    assert decided(WISH, what).records == (record(0), record(1), doubtful)
    settled = decided(WISH, replace(what, clone_states={"r3": CloneState.ENDED}))
    assert [each.name for each in settled.records] == ["r0", "r1", "r100"]


@pytest.mark.parametrize(
    ("vms", "goes"),
    [
        ([vm(0), vm(1), vm(2), vm(3)], "r3"),
        ([vm(0), vm(1, power="poweredOff"), vm(2), vm(3)], "r1"),
        ([vm(0), vm(1, power="poweredOff"), vm(2, broken=True), vm(3)], "r2"),
        ([vm(0), vm(1), vm(2), vm(3, foreign_disks=("pvc-1",))], "r2"),
    ],
    ids=["the newest", "off", "broken", "not with a disk"],
)
def test_too_many_go_in_their_order(vms: list[ReplicaVm], goes: str) -> None:
    made = decided(WISH, seen(vms))
    assert leaving(made) == {goes}
    assert made.log_lines == ("too many replicas, deleting 1",)


def test_what_has_no_vm_goes_first_and_at_once() -> None:
    what = seen(
        [vm(0), vm(1), vm(3)],
        [record(slot) for slot in range(4)],
        clone_states={"r2": CloneState.ENDED},
    )
    assert [each.name for each in decided(WISH, what).records] == ["r0", "r1", "r3"]


def test_what_leaves_is_powered_off_then_destroyed_and_never_taken_back() -> None:
    records = [record(0), record(1, terminating=True)]
    assert decided(replace(WISH, replicas=1), seen([vm(0), vm(1)], records)).actions == (
        PowerOff(vm(1)),
    )
    off = vm(1, power="poweredOff")
    for replicas in (1, 2):
        assert decided(replace(WISH, replicas=replicas), seen([vm(0), off], records)).actions == (
            Destroy(off),
        )
    gone = decided(
        replace(WISH, replicas=1), seen([vm(0)], records, clone_states={"r1": CloneState.ENDED})
    )
    assert (gone.write_status_first, gone.records) == (True, (record(0),))


def test_a_vm_with_the_disk_of_somebody_is_not_destroyed_and_words_say_so() -> None:
    held = vm(1, power="poweredOff", foreign_disks=("pvc-7",))
    made = decided(
        replace(WISH, replicas=1), seen([vm(0), held], [record(0), record(1, terminating=True)])
    )
    assert (made.actions, made.phase) == ((), "ERROR")
    assert 'replica "r1"' in made.message
    assert "pvc-7" in made.message
    assert "detach" in made.message
    both = decided(
        replace(WISH, replicas=1), seen([vm(0, foreign_disks=("a",)), vm(1, foreign_disks=("b",))])
    )
    assert (both.write_status_first, both.actions, both.phase) == (False, (), "ERROR")


def test_what_is_off_or_suspended_is_powered_on_but_not_the_broken_or_busy() -> None:
    vms = [
        vm(0, power="poweredOff"),
        vm(1, power="suspended"),
        vm(2, power="poweredOff", broken=True),
    ]
    assert decided(WISH, seen(vms)).actions == (PowerOn(vms[0]), PowerOn(vms[1]))
    assert decided(WISH, seen([replace(each, busy=True) for each in vms])).actions == ()
    assert "may come back" in decided(WISH, seen(vms)).message


def test_power_state_off_is_a_wish_too() -> None:
    wish = replace(WISH, replicas=2, power="poweredOff")
    made = decided(wish, seen([vm(0), vm(1, power="poweredOff")]))
    assert made.actions == (PowerOff(vm(0)),)
    assert decided(wish, seen([vm(slot, power="poweredOff") for slot in (0, 1)])).phase == "RUNNING"


def test_a_new_size_reaches_as_many_at_a_time_as_may_be_down() -> None:
    wish = replace(WISH, cpus=2)
    assert decided(wish, seen([vm(0), vm(1), vm(2)])).actions == (PowerOff(vm(0)),)
    off = vm(0, power="poweredOff")
    assert decided(wish, seen([off, vm(1), vm(2)])).actions == (Reconfigure(off, 2, 1024),)
    resized = vm(0, power="poweredOff", cpus=2)
    assert decided(wish, seen([resized, vm(1), vm(2)])).actions == (PowerOn(resized),)
    assert decided(wish, seen([replace(resized, power="poweredOn"), vm(1), vm(2)])).actions == (
        PowerOff(vm(1)),
    )


def test_where_none_may_be_down_a_new_size_is_a_new_vm() -> None:
    wish = replace(WISH, cpus=2, rollout=Rollout(max_surge=1, max_unavailable=0))
    made = decided(wish, seen([vm(0), vm(1), vm(2)]))
    assert made.write_status_first
    assert [each.name for each in made.records] == ["r0", "r1", "r2", "r100"]
    assert leaving(decided(wish, seen([vm(0), vm(1), vm(2), vm(3, cpus=2)]))) == {"r0"}


def test_a_new_template_takes_one_after_the_other() -> None:
    wish = replace(WISH, template="vm-t2", fingerprint="f2")
    assert leaving(decided(wish, seen([vm(0), vm(1), vm(2)]))) == {"r0"}
    part = seen(
        [vm(1), vm(2)],
        [record(1), record(2), record(3, state="Planned", fingerprint="f2")],
        clone_states={"r3": CloneState.RUNNING},
    )
    assert decided(wish, part).records == part.records
    new = [vm(1), vm(2), vm(3, fingerprint="f2")]
    assert leaving(decided(wish, seen(new))) == {"r1"}


def test_nothing_rolls_while_nothing_can_be_cloned_and_the_rest_goes_on() -> None:
    wish = replace(
        WISH,
        template="",
        fingerprint="f2",
        blocker='no template "doesNotExist" in /DC0; create it there',
    )
    made = decided(wish, seen([vm(0), vm(1, power="poweredOff"), vm(2)]))
    assert made.actions == (PowerOn(vm(1, power="poweredOff")),)
    assert (made.phase, made.message) == ("ERROR", wish.blocker)
    assert decided(replace(wish, fingerprint="f1"), seen([vm(0), vm(1), vm(2)])).phase == "RUNNING"


def test_on_delete_leaves_the_old_ones() -> None:
    wish = replace(WISH, fingerprint="f2", rollout=Rollout(strategy="OnDelete"))
    made = decided(wish, seen([vm(0), vm(1), vm(2)]))
    assert (made.write_status_first, made.actions, made.phase, made.counts.updated) == (
        False,
        (),
        "RUNNING",
        0,
    )


def test_a_vm_of_ours_without_a_record_gets_one_and_leaves_if_it_is_too_many() -> None:
    wiped = decided(WISH, seen([vm(0), vm(1)], []))
    assert [(each.name, each.state) for each in wiped.records] == [
        ("r0", "Present"),
        ("r1", "Present"),
        ("r100", "Planned"),
    ]
    late = decided(replace(WISH, replicas=2), seen([vm(0), vm(1), vm(9)], [record(0), record(1)]))
    assert leaving(late) == {"r9"}


def test_a_name_that_another_vm_has_is_an_error_and_not_tried() -> None:
    what = seen(
        (),
        [record(0, state="Planned")],
        clone_states={"r0": CloneState.ENDED},
        conflicting_vms={"r0": "/DC0/vm/x/r0"},
    )
    made = decided(replace(WISH, replicas=1), what)
    assert (made.write_status_first, made.actions, made.phase) == (False, (), "ERROR")
    assert "/DC0/vm/x/r0" in made.message


def test_after_a_failure_it_holds_still_until_the_caller_says_so() -> None:
    off = vm(0, power="poweredOff")
    for lasting, phase in ((False, "PENDING"), (True, "ERROR")):
        made = decided(
            replace(WISH, replicas=1),
            seen([off], failures={"r0": OperationFailure("no host has room", lasting)}),
        )
        assert (made.actions, made.phase) == ((), phase)
        assert "no host has room" in made.message


def test_paused_only_looks() -> None:
    for wish in (replace(WISH, paused=True), replace(WISH, paused=True, deleting=True)):
        made = decided(wish, seen([vm(0, power="poweredOff"), vm(1, cpus=3)]))
        assert (made.write_status_first, made.actions, made.phase) == (False, (), "PENDING")
        assert made.message.startswith("paused: ")


def test_paused_hides_no_error() -> None:
    made = decided(replace(WISH, paused=True, blocker='no template "t"; create it'), seen())
    assert (made.write_status_first, made.actions, made.phase) == (False, (), "ERROR")
    assert made.message.startswith("paused: ")
    assert made.message.endswith('; no template "t"; create it; unset spec.paused to go on')


def test_deletion_takes_vms_then_the_folder_then_the_finalizer() -> None:
    wish = replace(WISH, deleting=True)
    what = seen(
        [vm(0)],
        [record(0), record(1, state="Planned"), record(2, state="Planned")],
        clone_states={"r1": CloneState.UNSENT},
    )
    first = decided(wish, what)
    assert leaving(first) == {"r0", "r2"}
    assert first.log_lines == ("VmGroup marked for deletion",)
    waits = decided(
        wish,
        seen(
            (),
            [record(2, state="Planned", terminating=True)],
            clone_states={"r2": CloneState.UNKNOWN},
        ),
    )
    assert (waits.actions, waits.message) == ((), "being deleted, 1 replica(s) left")
    empty = replace(FOLDER, is_empty=True)
    assert decided(wish, seen(folder=empty)).actions == (DestroyFolder(empty),)
    assert decided(wish, seen(folder=empty, max_actions=0)).actions == ()
    assert decided(wish, seen(folder=None)).actions == (RemoveFinalizer(),)
    assert decided(wish, seen()).actions == (RemoveFinalizer(),), (
        "a folder with somebody's VM stays"
    )


def test_orphans_are_left_as_they_are_once_nothing_is_under_way() -> None:
    wish = replace(WISH, deleting=True, deletion_policy="Orphan")
    under_way = seen(
        [vm(0)], [record(0), record(1, state="Cloning")], clone_states={"r1": CloneState.RUNNING}
    )
    assert decided(wish, under_way).actions == ()
    assert decided(wish, seen([vm(0), vm(1, power="poweredOff")])).actions == (RemoveFinalizer(),)


def test_one_whose_mark_was_taken_away_gives_its_place_to_another() -> None:
    what = seen(
        [vm(0)],
        [record(0), record(1)],
        clone_states={"r1": CloneState.ENDED},
        conflicting_vms={"r1": "/DC0/vm/x/r1"},
    )
    made = decided(replace(WISH, replicas=2), what)
    assert made.write_status_first
    assert [(each.slot, each.name == "r1") for each in made.records] == [(0, False), (2, False)]


def test_no_more_is_started_than_there_is_room_for() -> None:
    planned = [record(slot, state="Planned") for slot in range(5)]
    what = seen(
        (), planned, clone_states=dict.fromkeys([each.name for each in planned], CloneState.UNSENT)
    )
    for free in (-1, 0, 2, 9):
        made = decided(replace(WISH, replicas=5), replace(what, max_actions=free))
        assert len(made.actions) == min(5, max(0, free))


def test_log_lines_are_those_that_people_grep_for() -> None:
    lines = [
        describe_action(each)
        for each in (
            CreateFolder(),
            Clone(record(0), "t", True),
            PowerOn(vm(0)),
            Destroy(vm(0)),
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
        "nothing is left of this VmGroup in vCenter",
    ]
    assert describe_request("y", "x") == 'received reconcile request for "x" (namespace: "y")'


VMS = st.builds(
    lambda slot, **changes: vm(slot, **changes),
    slot=st.integers(0, 8),
    power=st.sampled_from(["poweredOn", "poweredOn", "poweredOff", "suspended"]),
    broken=st.sampled_from([False, False, True]),
    cpus=st.integers(1, 2),
    fingerprint=st.sampled_from(["f1", "f2"]),
    busy=st.sampled_from([False, False, True]),
    foreign_disks=st.sampled_from([(), (), ("pvc-1",)]),
)
RECORDS = st.builds(
    lambda slot, **changes: record(slot, **changes),
    slot=st.integers(0, 8),
    state=st.sampled_from(["Planned", "Cloning", "Present"]),
    terminating=st.sampled_from([False, False, True]),
)
WISHES = st.builds(
    lambda **changes: replace(WISH, **changes),
    replicas=st.integers(0, 6),
    rollout=st.builds(Rollout, max_surge=st.integers(0, 2), max_unavailable=st.integers(0, 2)),
    deleting=st.sampled_from([False, False, True]),
    obstacle=st.sampled_from(["", "", "no template"]),
)


def any_seen() -> st.SearchStrategy[ObservedState]:
    return st.builds(
        lambda vms, records, flights, free: seen(
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
@given(wish=WISHES, what=any_seen())
def test_whatever_is_seen_the_plan_is_bounded_repeatable_and_stays_with_its_own(
    wish: DesiredState, what: ObservedState
) -> None:
    made = decided(wish, what)
    assert made == decided(wish, what)
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
    gone = select_for_deletion(replace(WISH, replicas=replicas), build_replicas(seen(alike)))
    worth = {
        each.name: (0 if each.broken else 1 if each.power != "poweredOn" else 2, -each.slot)
        for each in alike
    }
    assert len(gone) == max(0, len(alike) - replicas)
    stay = [worth[name] for name in worth if name not in gone]
    assert all(worth[name] < min(stay) for name in gone) if stay else True
