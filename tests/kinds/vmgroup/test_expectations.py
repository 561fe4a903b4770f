"""What this process remembers: what is unsent, what rests after a failure, and what a failure means."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.expectations import (
    EFFECT_TIMEOUT_SECONDS,
    MAX_BACKOFF_SECONDS,
    Expectations,
    PendingEffect,
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
        slot=0, name=name, instance_uuid="u", template="vm-1", fingerprint="f", attempt=attempt
    )


def test_only_what_is_new_in_the_records_is_unsent() -> None:
    memory, old = Expectations(FakeClock()), make_record("old")
    memory.expect_records(
        [old, make_record("again")],
        [
            old,
            make_record("again", 2),
            make_record("new"),
            replace(make_record("there"), state="Present"),
        ],
    )
    assert {name: (sent.attempt, sent.outcome) for name, sent in memory.clone_requests.items()} == {
        "again": (2, "unsent"),
        "new": (1, "unsent"),
    }


def test_what_failed_rests_20_seconds_then_twice_as_long_and_never_longer_than_five_minutes() -> (
    None
):
    clock = FakeClock()
    memory, trouble, pauses = Expectations(clock), OperationFailure("it failed"), list[float]()
    for _ in range(7):
        memory.record_failure("r", trouble)
        assert memory.active_failures() == {"r": trouble}
        pauses.append(memory.seconds_until_retry() or 0)
        clock.now += pauses[-1]
        assert memory.active_failures() == {}
    assert pauses == [20, 40, 80, 160, 300, 300, 300]
    assert pauses[-1] == MAX_BACKOFF_SECONDS
    memory.record_success("r")
    memory.record_failure("r", trouble)
    assert memory.seconds_until_retry() == 20


def test_a_changed_wish_is_tried_at_once() -> None:
    memory = Expectations(FakeClock())
    memory.observe_generation(3)
    memory.record_failure("r", OperationFailure("it failed"))
    memory.observe_generation(3)
    assert memory.active_failures()
    memory.observe_generation(4)
    assert not memory.active_failures()


def test_what_is_no_more_is_forgotten() -> None:
    clock = FakeClock()
    memory = Expectations(clock)
    memory.expect_records([], [make_record("a"), make_record("b")])
    memory.record_failure("b", OperationFailure("x"))
    memory.pending_effects["vm-1"] = PendingEffect("poweredOn", clock.now + EFFECT_TIMEOUT_SECONDS)
    memory.keep_only(["a"])
    assert (set(memory.clone_requests), memory.backoffs, set(memory.pending_effects)) == (
        {"a"},
        {},
        {"vm-1"},
    )
    clock.now += EFFECT_TIMEOUT_SECONDS
    memory.keep_only(["a"])
    assert memory.pending_effects == {}


@pytest.mark.parametrize(
    ("fault", "transient", "reason", "permanent", "advice"),
    [
        (
            "NoPermission",
            False,
            "NoPermission",
            True,
            "Grant that privilege to the role of the manager's vCenter account.",
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
