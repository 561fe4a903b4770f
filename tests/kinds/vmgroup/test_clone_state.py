"""Whether a clone may be in progress for a record, case by case."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.clone_state import (
    CloneTask,
    infer_clone_state,
    is_clone_unfinished,
    may_have_had_vm,
    reset_if_replaced,
)
from vsphere_operators.kinds.vmgroup.group_memory import CloneRequest
from vsphere_operators.kinds.vmgroup.model import CloneState, ReplicaRecord

RECORD = ReplicaRecord(
    sequence_number=0, name="r0", instance_uuid="u", template="vm-t1", fingerprint="f1"
)
UNSENT_REQUEST = CloneRequest(attempt=1, outcome="unsent", updated_at=100.0)


def infer_state(
    record: ReplicaRecord = RECORD,
    request: CloneRequest | None = None,
    tasks: Any = (),
    sent_tasks: Any = (),
    now: float = 105.0,
) -> CloneState:
    return infer_clone_state(
        record, {task.ref: task for task in tasks}, sent_tasks, request, 100.0, now
    )


def make_task(**changes: Any) -> CloneTask:
    return replace(
        CloneTask(ref="task-1", template="vm-t1", state="running", seen_at=100.0), **changes
    )


def test_a_stored_record_is_unsent() -> None:
    assert infer_state(request=UNSENT_REQUEST) is CloneState.UNSENT
    # A running clone of the template belongs to another record or client.
    assert infer_state(request=UNSENT_REQUEST, tasks=[make_task()]) is CloneState.UNSENT


def test_without_any_request_or_task_some_seconds_must_pass() -> None:
    # A manager that died may have sent the request just before this one started.
    assert infer_state(now=109.9) is CloneState.UNKNOWN
    assert infer_state(now=110.0) is CloneState.NOT_IN_PROGRESS


def test_without_a_response_the_seconds_count_from_the_request() -> None:
    request = replace(UNSENT_REQUEST, outcome="maybe_sent", updated_at=200.0)
    assert infer_state(request=request, now=209.0) is CloneState.UNKNOWN
    assert infer_state(request=request, now=210.0) is CloneState.NOT_IN_PROGRESS


@pytest.mark.parametrize(
    ("task", "sent_tasks", "expected"),
    [
        (make_task(), (), CloneState.RUNNING),
        (make_task(template="vm-t2"), (), CloneState.NOT_IN_PROGRESS),
        (make_task(), ("task-1",), CloneState.NOT_IN_PROGRESS),
        (make_task(seen_at=110.5), (), CloneState.NOT_IN_PROGRESS),
        (make_task(state="success", ended_at=115.0), (), CloneState.UNKNOWN),
        (make_task(state="success", ended_at=109.0), (), CloneState.NOT_IN_PROGRESS),
    ],
    ids=[
        "may belong to the record",
        "other template",
        "sent by this process for another record",
        "started too late",
        "its VM may not be visible yet",
        "its VM would be visible",
    ],
)
def test_an_unclaimed_clone_task_may_belong_to_the_record(
    task: CloneTask, sent_tasks: tuple[str, ...], expected: CloneState
) -> None:
    assert infer_state(tasks=[task], sent_tasks=sent_tasks, now=120.0) is expected


@pytest.mark.parametrize(
    ("tasks", "now", "expected"),
    [
        ([make_task()], 500.0, CloneState.RUNNING),
        ([make_task(state="success", ended_at=300.0)], 305.0, CloneState.UNKNOWN),
        ([make_task(state="success", ended_at=300.0)], 310.0, CloneState.NOT_IN_PROGRESS),
        ([], 105.0, CloneState.UNKNOWN),
        ([], 110.0, CloneState.NOT_IN_PROGRESS),
    ],
    ids=["runs", "VM not visible yet", "VM was deleted", "not visible yet", "dropped"],
)
def test_the_state_of_a_known_task_decides(
    tasks: list[CloneTask], now: float, expected: CloneState
) -> None:
    assert (
        infer_state(replace(RECORD, state="Cloning", task="task-1"), tasks=tasks, now=now)
        is expected
    )
    assert (
        infer_state(
            request=replace(UNSENT_REQUEST, outcome="accepted", task="task-1"), tasks=tasks, now=now
        )
        is expected
    )


def test_a_failed_task_ends_the_clone_at_once_only_if_this_process_sent_it() -> None:
    """In a restored vCenter, the task in a record may be another clone: others may be missing."""
    failed = make_task(state="error")
    accepted = replace(UNSENT_REQUEST, outcome="accepted", task="task-1")
    assert infer_state(request=accepted, tasks=[failed], now=101.0) is CloneState.NOT_IN_PROGRESS
    cloning = replace(RECORD, state="Cloning", task="task-1")
    assert infer_state(cloning, tasks=[failed], now=109.9) is CloneState.UNKNOWN
    assert infer_state(cloning, tasks=[failed], now=110.0) is CloneState.NOT_IN_PROGRESS


@pytest.mark.parametrize(
    "task", [make_task(template="vm-t2"), make_task(seen_at=110.5)], ids=["template", "time"]
)
def test_a_task_that_a_restored_vcenter_started_is_not_the_one_in_the_record(
    task: CloneTask,
) -> None:
    cloning = replace(RECORD, state="Cloning", task="task-1")
    assert infer_state(cloning, tasks=[task], now=120.0) is CloneState.NOT_IN_PROGRESS
    assert may_have_had_vm(cloning, {"task-1": replace(task, state="error")}, None, 100.0)
    assert not is_unfinished(cloning, tasks=[task], sent_tasks=("task-1",))
    # A task that this process sent is known to be the clone.
    accepted = replace(UNSENT_REQUEST, outcome="accepted", task="task-1")
    assert infer_state(cloning, accepted, [task], now=120.0) is CloneState.RUNNING
    failed = {"task-1": replace(task, state="error")}
    assert not may_have_had_vm(cloning, failed, accepted, 100.0)
    assert is_unfinished(cloning, accepted, [task])


def test_a_rejected_request_and_a_vm_that_existed_mean_ended() -> None:
    assert (
        infer_state(request=replace(UNSENT_REQUEST, outcome="rejected"))
        is CloneState.NOT_IN_PROGRESS
    )
    assert (
        infer_state(replace(RECORD, state="Present", task="task-1"), tasks=[make_task()])
        is CloneState.NOT_IN_PROGRESS
    )


def is_unfinished(
    record: ReplicaRecord = RECORD,
    request: CloneRequest | None = None,
    tasks: Any = (),
    sent_tasks: Any = (),
    now: float = 120.0,
) -> bool:
    return is_clone_unfinished(
        record, {task.ref: task for task in tasks}, sent_tasks, request, 100.0, now
    )


def test_a_vm_is_unfinished_while_its_own_task_runs() -> None:
    cloning = replace(RECORD, state="Cloning", task="task-1")
    other = make_task(ref="task-2")
    assert is_unfinished(cloning, tasks=[make_task()], now=500.0)
    # Also if an older release stored Present as soon as it saw the VM.
    assert is_unfinished(replace(cloning, state="Present"), tasks=[make_task()], now=500.0)
    # At its end, at once: a clone of another client does not matter.
    assert not is_unfinished(cloning, tasks=[make_task(state="success"), other], now=101.0)
    accepted = replace(UNSENT_REQUEST, outcome="accepted", task="task-1")
    assert is_unfinished(request=accepted, tasks=[make_task()], now=500.0)


def test_after_a_restart_an_unassigned_clone_of_the_template_may_write_the_vm() -> None:
    assert is_unfinished(tasks=[make_task()])
    assert not is_unfinished(tasks=[make_task()], sent_tasks=("task-1",))
    assert not is_unfinished(tasks=[make_task(template="vm-t2")])
    assert not is_unfinished(tasks=[make_task(state="success", ended_at=119.0)])
    assert not is_unfinished(tasks=[make_task(seen_at=110.5)]), "it started too late"
    assert not is_unfinished(replace(RECORD, state="Present"), tasks=[make_task()])


def test_the_task_may_become_visible_after_its_vm() -> None:
    assert is_unfinished(now=109.9)
    assert not is_unfinished(now=110.0)
    maybe_sent = replace(UNSENT_REQUEST, outcome="maybe_sent", updated_at=200.0)
    assert is_unfinished(request=maybe_sent, now=209.9)
    assert not is_unfinished(request=maybe_sent, now=210.0)


def test_if_the_own_task_failed_another_one_may_write_the_vm() -> None:
    failed = replace(RECORD, state="Cloning", task="task-1")
    tasks = [make_task(state="error"), make_task(ref="task-2")]
    assert is_unfinished(failed, tasks=tasks, sent_tasks=("task-1",))
    assert not is_unfinished(failed, tasks=tasks[:1], sent_tasks=("task-1",))


def test_the_clone_of_an_adopted_vm_may_be_of_any_template() -> None:
    adopted = replace(RECORD, state="Cloning", template="")
    assert is_unfinished(adopted, tasks=[make_task(template="vm-t2")])


def test_a_stale_record_of_a_previous_vm_does_not_make_the_vm_finished() -> None:
    present = replace(RECORD, state="Present", task="task-0")
    tasks = [make_task(ref="task-0", state="success"), make_task()]
    assert reset_if_replaced(present, "vm-1", "vm-1") == present
    assert reset_if_replaced(present, "", "vm-1") == present, "older releases stored no reference"
    stale = reset_if_replaced(present, "vm-1", "vm-2")
    assert (stale.state, stale.task) == ("Cloning", "")
    assert is_unfinished(stale, tasks=tasks, sent_tasks=("task-0",))
    assert not is_unfinished(present, tasks=tasks, sent_tasks=("task-0",))
    # The clone of the earlier VM had ended too, and this was not stored before it was deleted.
    cloning = replace(present, state="Cloning")
    stale = reset_if_replaced(cloning, "vm-1", "vm-2")
    assert is_unfinished(stale, tasks=tasks, sent_tasks=("task-0",))
