"""What this process remembers: what is unsent, what rests after a failure, and what a failure means."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.expectations import GLOW_SECONDS, LONGEST_PAUSE_SECONDS, Glow, Memory
from vsphere_operators.kinds.vmgroup.failures import verdict_on
from vsphere_operators.kinds.vmgroup.model import Record, Trouble


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(name: str, attempt: int = 1) -> Record:
    return Record(slot=0, name=name, instance_uuid="u", template="vm-1", fingerprint="f", attempt=attempt)


def test_only_what_is_new_in_the_records_is_unsent() -> None:
    memory, old = Memory(Clock()), record("old")
    memory.stored([old, record("again")], [old, record("again", 2), record("new"), replace(record("there"), state="Present")])
    assert {name: (sent.attempt, sent.outcome) for name, sent in memory.sent.items()} == {"again": (2, "unsent"), "new": (1, "unsent")}


def test_what_failed_rests_20_seconds_then_twice_as_long_and_never_longer_than_five_minutes() -> None:
    clock = Clock()
    memory, trouble, pauses = Memory(clock), Trouble("it failed"), list[float]()
    for _ in range(7):
        memory.failed("r", trouble)
        assert memory.troubles() == {"r": trouble}
        pauses.append(memory.next_try_seconds() or 0)
        clock.now += pauses[-1]
        assert memory.troubles() == {}
    assert pauses == [20, 40, 80, 160, 300, 300, 300]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    memory.worked("r")
    memory.failed("r", trouble)
    assert memory.next_try_seconds() == 20


def test_a_changed_wish_is_tried_at_once() -> None:
    memory = Memory(Clock())
    memory.began(3)
    memory.failed("r", Trouble("it failed"))
    memory.began(3)
    assert memory.troubles()
    memory.began(4)
    assert not memory.troubles()


def test_what_is_no_more_is_forgotten() -> None:
    clock = Clock()
    memory = Memory(clock)
    memory.stored([], [record("a"), record("b")])
    memory.failed("b", Trouble("x"))
    memory.glows["vm-1"] = Glow("poweredOn", clock.now + GLOW_SECONDS)
    memory.keep_only(["a"])
    assert (set(memory.sent), memory.failures, set(memory.glows)) == ({"a"}, {}, {"vm-1"})
    clock.now += GLOW_SECONDS
    memory.keep_only(["a"])
    assert memory.glows == {}


@pytest.mark.parametrize(
    ("fault", "passing", "reason", "lasting", "words"),
    [
        (
            "NoPermission",
            False,
            "NoPermission",
            True,
            "cloning failed: said; give that privilege to the role of the manager's user in vCenter",
        ),
        ("NoDiskSpace", False, "InsufficientStorage", True, "cloning failed: said; free space on the datastore, or name another in spec"),
        ("InsufficientCpuResourcesFault", False, "InsufficientResources", True, "cloning failed: said; free CPU in the cluster"),
        ("TaskInProgress", True, "TaskInProgress", False, "cloning failed: said; it is tried again by itself"),
        ("InvalidPowerState", False, "InvalidPowerState", False, "cloning failed: said; it is tried again by itself"),
        ("SomethingNew", False, "SomethingNew", True, "cloning failed: said; vCenter's own event log may say more"),
        ("", True, "VCenterError", False, "cloning failed: said; it is tried again by itself"),
    ],
)
def test_what_a_failure_means(fault: str, passing: bool, reason: str, lasting: bool, words: str) -> None:
    found = verdict_on("cloning", fault, "said. ", passing=passing)
    assert (found.reason, found.lasting) == (reason, lasting)
    assert found.words.startswith(words)
