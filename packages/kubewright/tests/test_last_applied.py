"""When the memory of the last apply makes another one unnecessary."""

from __future__ import annotations

import msgspec
import pytest

from kubewright.builtin import ConfigMap
from kubewright.errors import Retry
from kubewright.kind import Key, ObjectMeta
from kubewright.last_applied import LastApplied
from kubewright.ownership import DesiredChild, complete_child
from kubewright.patch import Json, apply_merge_patch

from .support.widget_kind import Widget

_OWNER = Widget(metadata=ObjectMeta(name="a", namespace="ns", uid="uid"))


def desired_child(**data: str) -> DesiredChild:
    child = ConfigMap(metadata=ObjectMeta(name="c"), data=data or {"a": "1"})
    return complete_child(_OWNER, child, "widget")


def live_child(desired: DesiredChild, version: str = "1", change: Json | None = None) -> ConfigMap:
    """What the server has after an apply of the child and a change by another client."""
    server_metadata: Json = {"metadata": {"resourceVersion": version}}
    manifest = apply_merge_patch(desired.manifest, (change or {}) | server_metadata)
    return ConfigMap.decode(msgspec.json.encode(manifest))


def test_memory_accepts_what_the_server_made_of_the_content() -> None:
    memory, desired = LastApplied(), desired_child()
    # An admission webhook changes the value for good.
    rewritten = {"data": {"a": "rewritten", "added": "x"}}
    memory.record("uid", desired, live_child(desired, "1", rewritten))
    assert memory.needs_no_apply("uid", desired, live_child(desired, "1", rewritten))
    assert memory.needs_no_apply("uid", desired, live_child(desired, "2", rewritten))
    assert not memory.needs_no_apply("uid", desired, live_child(desired, "3", {"data": {"a": "x"}}))


def test_other_content_is_applied() -> None:
    memory, desired = LastApplied(), desired_child()
    live = live_child(desired)
    memory.record("uid", desired, live)
    assert not memory.needs_no_apply("uid", desired_child(a="2"), live)
    assert not memory.needs_no_apply("uid", desired_child(a="1", b="2"), live)


def test_without_memory_the_digest_and_all_values_must_match() -> None:
    desired = desired_child(a="1", b="2")
    assert LastApplied().needs_no_apply("uid", desired, live_child(desired))
    assert LastApplied().needs_no_apply(
        "uid", desired, live_child(desired, "1", {"data": {"c": "3"}})
    )
    assert not LastApplied().needs_no_apply(
        "uid", desired, live_child(desired, "1", {"data": {"a": "9"}})
    )
    # It has every value, and one that an earlier release applied.
    earlier = live_child(desired_child(a="1", b="2", removed="3"))
    assert not LastApplied().needs_no_apply("uid", desired, earlier)


def test_repairs_are_counted_for_a_minute() -> None:
    now = 0.0
    memory, desired = LastApplied(clock=lambda: now), desired_child()
    memory.record("uid", desired, live_child(desired))

    def repair(number: int) -> None:
        changed = live_child(desired, f"{2 * number}", {"data": {"a": "9"}})
        assert not memory.needs_no_apply("uid", desired, changed)
        memory.record("uid", desired, live_child(desired, f"{2 * number + 1}"))

    for number in range(1, 11):
        repair(number)
    now = 61.0
    for number in range(11, 21):
        repair(number)
    with pytest.raises(Retry, match=r"changed \.data\.a 11 times within 60 s") as raised:
        repair(21)
    assert raised.value.reason == "ChildContested"
    assert raised.value.requeue_after_seconds == 60


def test_entries_go_with_the_child_and_the_owner() -> None:
    memory, desired = LastApplied(), desired_child()
    for uid in ("uid", "other"):
        memory.record(uid, desired, live_child(desired))
    assert len(memory) == 2
    memory.forget_child("uid", ConfigMap, Key("ns", "c"))
    memory.forget_child("uid", ConfigMap, Key("ns", "unknown"))
    assert len(memory) == 1
    memory.forget_owner("other")
    memory.forget_owner("unknown")
    assert len(memory) == 0
