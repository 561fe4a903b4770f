"""What this process expects: unsent clones and back-offs; and how failures are described."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.group_memory import (
    EFFECT_TIMEOUT_SECONDS,
    OPERATION_BACKOFF_MAX_SECONDS,
    GroupMemory,
    GroupMemoryStore,
    UnseenEffect,
)
from vsphere_operators.kinds.vmgroup.messages import describe_failure
from vsphere_operators.kinds.vmgroup.model import OperationFailure, ReplicaRecord

RETRY_ADVICE = "The operation is retried automatically."


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_record(name: str, attempt: int = 1) -> ReplicaRecord:
    return ReplicaRecord(
        sequence_number=0,
        name=name,
        instance_uuid="u",
        template="vm-1",
        fingerprint="f",
        attempt=attempt,
    )


def test_a_request_counts_for_its_attempt_and_its_task_until_the_next_load() -> None:
    memory, record = GroupMemory(FakeClock()), make_record("r0")
    memory.record_clone(record, "accepted", "task-1", loaded_at=50.0)
    request = memory.find_request(record, loaded_at=50.0)
    assert request is not None
    assert request.task == "task-1"
    # A restored vCenter uses the reference for another task.
    assert memory.find_request(record, loaded_at=60.0) == replace(request, task="")
    assert memory.find_request(make_record("r0", attempt=2), loaded_at=50.0) is None


def test_a_process_acts_from_its_first_reconcile_or_the_load_of_the_inventory() -> None:
    """A standby loads the inventory before it is the leader, and then reconciles nothing."""
    clock = FakeClock()
    store = GroupMemoryStore(clock)
    clock.now = 200.0
    store.for_group("uid-1")
    clock.now = 300.0
    store.for_group("uid-2")
    assert store.acting_since("uid-1", loaded_at=100.0) == 200.0
    assert store.acting_since("uid-1", loaded_at=250.0) == 250.0


def test_a_process_acts_for_a_group_of_another_since_it_saw_a_record_that_it_did_not_write() -> (
    None
):
    """Another replica had the group until then, and may have sent a clone just before."""
    clock = FakeClock()
    store = GroupMemoryStore(clock)
    clock.now = 200.0
    memory = store.for_group("uid-1")
    own, foreign = make_record("own"), make_record("foreign")
    memory.expect_records([], [own])
    memory.observe_records([own])
    clock.now = 300.0
    memory.observe_records([own])
    assert store.acting_since("uid-1", 100.0) == 200.0
    memory.observe_records([own, foreign])
    clock.now = 400.0
    memory.observe_records([own, foreign])
    assert store.acting_since("uid-1", 100.0) == 300.0
    # The shard came back: since then, another replica may have sent more.
    store.forget("uid-1")
    store.for_group("uid-1").observe_records([own])
    assert store.acting_since("uid-1", 100.0) == 400.0


def test_only_new_attempts_are_unsent() -> None:
    memory, old = GroupMemory(FakeClock()), make_record("old")
    memory.expect_records(
        [old, make_record("again")],
        [
            old,
            make_record("again", 2),
            make_record("new"),
            replace(make_record("present"), state="Present"),
            replace(make_record("adopted"), state="Cloning"),
        ],
    )
    assert {
        name: (request.attempt, request.outcome) for name, request in memory.clone_requests.items()
    } == {
        "again": (2, "unsent"),
        "new": (1, "unsent"),
        "adopted": (1, "maybe_sent"),
    }


def test_back_off_starts_at_20_seconds_and_doubles_up_to_5_minutes() -> None:
    clock = FakeClock()
    memory, failure, pauses = (
        GroupMemory(clock),
        OperationFailure("it failed"),
        list[float](),
    )
    for _ in range(7):
        memory.record_failure("r", failure)
        assert memory.active_failures() == {"r": failure}
        pauses.append(memory.seconds_until_retry() or 0)
        clock.now += pauses[-1]
        assert memory.active_failures() == {}
    assert pauses == [20, 40, 80, 160, 300, 300, 300]
    assert pauses[-1] == OPERATION_BACKOFF_MAX_SECONDS
    memory.record_success("r")
    memory.record_failure("r", failure)
    assert memory.seconds_until_retry() == 20


def test_a_changed_spec_ends_the_back_off() -> None:
    memory = GroupMemory(FakeClock())
    memory.observe_generation(3)
    memory.record_failure("r", OperationFailure("it failed"))
    memory.observe_generation(3)
    assert memory.active_failures()
    # The edit may be the fix that the failure asked for.
    memory.observe_generation(4)
    assert not memory.active_failures()


def test_removed_replicas_and_expired_effects_are_forgotten() -> None:
    clock = FakeClock()
    memory = GroupMemory(clock)
    memory.expect_records([], [make_record("a"), make_record("b")])
    memory.record_failure("b", OperationFailure("x"))
    memory.unseen_effects["vm-1"] = UnseenEffect("poweredOn", clock.now + EFFECT_TIMEOUT_SECONDS)
    memory.keep_only(["a"])
    assert (
        set(memory.clone_requests),
        memory.backoffs,
        set(memory.unseen_effects),
    ) == (
        {"a"},
        {},
        {"vm-1"},
    )
    clock.now += EFFECT_TIMEOUT_SECONDS
    memory.keep_only(["a"])
    assert memory.unseen_effects == {}


@pytest.mark.parametrize(
    ("fault", "transient", "reason", "permanent", "advice"),
    [
        (
            "NoPermission",
            False,
            "NoPermission",
            True,
            "Grant that privilege to the role of the manager's vCenter account; `manager doctor` "
            "prints the commands.",
        ),
        (
            "NoDiskSpace",
            False,
            "InsufficientStorage",
            True,
            "Free space on the datastore, or select another one in spec",
        ),
        (
            "InsufficientCpuResourcesFault",
            False,
            "InsufficientResources",
            True,
            "Free CPU in the cluster",
        ),
        ("TaskInProgress", True, "TaskInProgress", False, RETRY_ADVICE),
        ("InvalidPowerState", False, "InvalidPowerState", False, RETRY_ADVICE),
        (
            "SomethingNew",
            False,
            "SomethingNew",
            True,
            f"See the events in vCenter for details. {RETRY_ADVICE}",
        ),
        ("", True, "VCenterError", False, RETRY_ADVICE),
    ],
)
def test_a_failure_is_described_with_its_cause_and_advice(
    fault: str, transient: bool, reason: str, permanent: bool, advice: str
) -> None:
    failure = describe_failure("Cloning", fault, "the cause. ", transient=transient)
    assert (failure.reason, failure.permanent) == (reason, permanent)
    assert failure.message.startswith(f"Cloning failed: the cause. {advice}")
