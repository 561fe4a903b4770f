"""The decision for generated states: what holds for every plan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import (
    Adopt,
    Clone,
    CloneState,
    DesiredState,
    Destroy,
    ObservedState,
    Plan,
    PowerOff,
    PowerOn,
    RemoveFinalizer,
    ReplicaVm,
    Resize,
    Rollout,
    UndoAdoption,
)
from vsphere_operators.kinds.vmgroup.replica import build_replicas, select_for_deletion
from vsphere_operators.vsphere.model import VirtualMachine

from .plan_calls import make_plan
from .replica_builder import DESIRED, make_observed, make_record, make_vm

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
