"""Which records without a VM are MISSING, and which may be cloned again."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from msgspec.structs import replace

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.absence import AbsenceTracker
from vsphere_operators.kinds.vmgroup.clone_state import CloneTask, CloneTaskTracker
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.model import CloneState, ReplicaRecord
from vsphere_operators.kinds.vmgroup.observation import GroupObserver, PlanInput
from vsphere_operators.kinds.vmgroup.ownership import FolderClaim
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.vsphere.index import Index
from vsphere_operators.vsphere.updates import ObjectUpdate

from .replica_builder import DESIRED, make_record
from .simulation_model import GROUP_ID, VCENTER_ID

NOW = 1000.0
LOADED_AT = NOW - 100.0
TIMEOUT_SECONDS = 300.0


def observe(
    record: ReplicaRecord,
    task_state: Literal["running", "success", "error", ""] = "",
    *more: ReplicaRecord,
    host_connection: str = "connected",
    conflicting_uuid: str = "",
    has_unreadable_vm: bool = False,
    rejected: str = "",
    other_group_loaded_at: float | None = None,
    leading_since: float = LOADED_AT,
    last_known_refs: dict[str, str] | None = None,
) -> PlanInput:
    """Observe a group with these records and no VM, 100 s after the inventory was loaded.

    With `conflicting_uuid`, its folder has a VM of the record's name without a mark; with
    `has_unreadable_vm` also without a uuid. vCenter has rejected the clone of the record
    `rejected`. With `other_group_loaded_at`, it returned task-1 for a clone of another group, in
    the inventory that was loaded then. The first group was reconciled at `leading_since`, when
    task-1 had run for 15 s.
    """
    inventory, time = make_inventory(), leading_since

    def clock() -> float:
        return time

    if conflicting_uuid or has_unreadable_vm:
        inventory.apply(
            [
                enter_update("Folder", "group-v9", GROUP_ID.folder_name, "group-v2"),
                enter_update(
                    "VirtualMachine",
                    "vm-9",
                    record.name,
                    "group-v9",
                    config__instanceUuid=conflicting_uuid,
                ),
            ]
        )
    inventory.apply(
        [
            ObjectUpdate(
                "modify", "HostSystem", "host-1", {"runtime.connectionState": host_connection}
            )
        ]
    )
    vcenter = cast(
        "Any",
        SimpleNamespace(
            inventory=inventory,
            clock=clock,
            watching_since=LOADED_AT,
            task_limiter=SimpleNamespace(free_slots=3),
            vm_configs=SimpleNamespace(values={}, unreadable=set(), get=lambda ref: None),
        ),
    )
    tracker = CloneTaskTracker(clock)
    if task_state:
        tracker.tasks["task-1"] = CloneTask(
            ref="task-1",
            template=record.template,
            state=task_state,
            seen_at=leading_since - 15.0,
        )
    marks = SimpleNamespace(marks={}, unread_refs=set(), refs_by_group_uid=Index())
    absences = AbsenceTracker(
        vcenter, TIMEOUT_SECONDS, lambda: datetime(2026, 11, 17, 12, tzinfo=UTC)
    )
    memory_store = GroupMemoryStore(clock)
    for other in more:
        if other.name == rejected:
            memory_store.for_group(GROUP_ID.uid).record_clone(other, "rejected")
    if other_group_loaded_at is not None:
        memory_store.for_group("uid-2").record_clone(
            make_record(9, state="Planned"), "accepted", "task-1", other_group_loaded_at
        )
    memory_store.for_group(GROUP_ID.uid)
    time = NOW
    observer = GroupObserver(vcenter, cast("Any", marks), tracker, memory_store, absences)
    group = GroupInput(
        group_id=GROUP_ID,
        desired=replace(DESIRED, replicas=1),
        generation=1,
        records=(record, *more),
        log=lambda line: None,
        record_event=lambda *event: None,
        vcenter=VCENTER_ID,
        loaded_at=LOADED_AT,
        folder_claim=FolderClaim(group_id=GROUP_ID, folder_key="", created_at=""),
        may_exist=lambda group_id: True,
        list_other_groups=lambda: (),
        last_known_refs=last_known_refs or {},
    )
    # The first time, it is not known that a VM of the group is missing.
    observer.observe(group)
    return observer.observe(group)


@pytest.mark.parametrize(
    ("record", "task_state", "clone_state"),
    [
        (make_record(0), "", CloneState.MISSING),
        (make_record(0, state="Cloning", task="task-1"), "success", CloneState.MISSING),
        # vCenter no longer lists the task.
        (make_record(0, state="Cloning", task="task-1"), "", CloneState.MISSING),
        (make_record(0, state="Cloning", task="task-1"), "error", CloneState.NOT_IN_PROGRESS),
        (make_record(0, state="Planned"), "", CloneState.NOT_IN_PROGRESS),
    ],
)
def test_a_vm_that_existed_is_missing(
    record: ReplicaRecord, task_state: Literal["success", "error", ""], clone_state: CloneState
) -> None:
    observation = observe(record, task_state)
    assert observation.observed.clone_states == {"r0": clone_state}
    is_missing = clone_state is CloneState.MISSING
    assert set(observation.observed.missing_vms) == ({"r0"} if is_missing else set())
    assert observation.recheck_seconds == (TIMEOUT_SECONDS if is_missing else None)


def test_the_hosts_of_the_placement_count() -> None:
    observation = observe(make_record(0), host_connection="notResponding")
    assert "not connected: esxi-1." in observation.observed.missing_vms["r0"]


@pytest.mark.parametrize("is_own_vm", [False, True])
def test_a_vm_of_another_owner_with_its_name_proves_nothing(is_own_vm: bool) -> None:
    """Its own VM may be on a removed host, and come back. Without its mark it is left alone."""
    record = make_record(0)
    observed = observe(
        record, conflicting_uuid=record.instance_uuid if is_own_vm else "5f0e6a6e-1"
    ).observed
    assert set(observed.conflicting_vms) == {"r0"}
    state = CloneState.NOT_IN_PROGRESS if is_own_vm else CloneState.MISSING
    assert observed.clone_states == {"r0": state}


def test_the_last_known_vm_without_a_uuid_is_unreadable() -> None:
    # The VM of vm-9 has inaccessible files: vCenter shows it without its configuration.
    observed = observe(
        make_record(0), has_unreadable_vm=True, last_known_refs={"r0": "vm-9"}
    ).observed
    assert observed.clone_states == {"r0": CloneState.UNKNOWN}
    assert observed.unreadable_vms == {"r0": f"/DC0/vm/vm-operator/{GROUP_ID.folder_name}/r0"}
    assert observed.missing_vms == {}


def test_while_a_vm_is_missing_a_clone_without_a_response_may_have_been_sent() -> None:
    # The manager died after it sent the clone of r1, and vCenter was restored from a backup.
    in_doubt = make_record(1, state="Planned")
    observation = observe(make_record(0), "", in_doubt)
    assert set(observation.observed.missing_vms) == {"r0", "r1"}
    assert observation.observed.clone_states == dict.fromkeys(("r0", "r1"), CloneState.MISSING)
    # Of this clone, it is known that it was never begun.
    observation = observe(make_record(0), "", in_doubt, rejected="r1")
    assert observation.observed.clone_states["r1"] is CloneState.NOT_IN_PROGRESS


def test_a_vm_that_was_seen_before_its_clone_was_known_to_have_ended_is_missing() -> None:
    """The answer to the clone was lost, so the record never got its task."""
    record = make_record(0, state="Planned")
    observation = observe(record, last_known_refs={"r0": "vm-9"})
    assert observation.observed.clone_states == {"r0": CloneState.MISSING}


@pytest.mark.parametrize(
    ("loaded_at", "clone_state"),
    [
        (LOADED_AT, CloneState.NOT_IN_PROGRESS),
        # Since then vCenter was replaced by another one, or restored, and its task-1 is a clone
        # without a response.
        (LOADED_AT - 100.0, CloneState.RUNNING),
    ],
)
def test_a_task_that_was_sent_before_the_inventory_was_loaded_is_another_one_now(
    loaded_at: float, clone_state: CloneState
) -> None:
    record = make_record(0, state="Planned")
    observed = observe(record, "running", other_group_loaded_at=loaded_at).observed
    assert observed.clone_states == {"r0": clone_state}


def test_while_a_vm_is_missing_the_task_in_a_record_may_be_another_clone() -> None:
    """vCenter may have been restored, and uses the references of later tasks again."""
    missing, cloning = make_record(0), make_record(1, state="Cloning", task="task-1")
    # It does not prove that the clone of r1 failed: the VM of r1 may come back.
    clone_states = observe(missing, "error", cloning).observed.clone_states
    assert clone_states == dict.fromkeys(("r0", "r1"), CloneState.MISSING)
    assert observe(cloning, "error").observed.clone_states == {"r1": CloneState.NOT_IN_PROGRESS}


def test_the_task_in_another_record_may_be_a_clone_without_a_response() -> None:
    """The record is from before a restore of vCenter, which uses the reference again."""
    cloning = make_record(0, state="Cloning", task="task-1")
    observed = observe(cloning, "running", make_record(1, state="Planned")).observed
    assert observed.clone_states == dict.fromkeys(("r0", "r1"), CloneState.RUNNING)


def test_a_standby_waits_for_the_clone_of_the_leader_that_died() -> None:
    """It loaded the inventory long before: the leader sent the clone since then."""
    in_doubt = make_record(0, state="Planned")
    observed = observe(in_doubt, "running", leading_since=NOW - 20.0).observed
    assert observed.clone_states == {"r0": CloneState.RUNNING}
    observed = observe(in_doubt, leading_since=NOW - 9.0).observed
    assert observed.clone_states == {"r0": CloneState.UNKNOWN}
    observed = observe(in_doubt, leading_since=NOW - 10.0).observed
    assert observed.clone_states == {"r0": CloneState.NOT_IN_PROGRESS}
