"""What the readiness of children means for their owner."""

from __future__ import annotations

import pytest

from kubewright.builtin import ConfigMap, Namespace
from kubewright.children import Children, ChildState
from kubewright.errors import Terminal
from kubewright.kind import Object, ObjectMeta
from kubewright.outcome import Done, Waiting
from kubewright.readiness import Readiness, ReadinessState

_CONFIG = ConfigMap(metadata=ObjectMeta(name="c", namespace="ns"))


def child(name: str, state: ReadinessState = "Current", message: str = "ready") -> ChildState:
    return ChildState(
        ConfigMap(metadata=ObjectMeta(name=name, namespace="ns")), Readiness(state, message)
    )


def test_outcome_is_done_when_all_are_ready() -> None:
    assert Children("ns", (child("a"),)).outcome() == Done("ChildrenReady", "1 child is ready")
    both = Children("ns", (child("a"), child("b")))
    assert both.outcome() == Done("ChildrenReady", "2 children are ready")
    assert both.ready
    assert Children("ns", ()).ready


def test_outcome_names_each_child_that_is_not_ready() -> None:
    children = Children(
        "ns", (child("a", "InProgress", "pending"), child("b"), child("c", "NotFound", "missing"))
    )
    assert children.outcome() == Waiting(
        "ChildrenNotReady", "ConfigMap a: pending; ConfigMap c: missing"
    )
    assert [state.object.metadata.name for state in children.not_ready] == ["a", "c"]


def test_failed_child_ends_the_reconcile_and_keeps_the_status() -> None:
    with pytest.raises(Terminal, match="ConfigMap a: crashed") as raised:
        Children("ns", (child("a", "Failed", "crashed"),)).outcome()
    assert (raised.value.reason, raised.value.keep_status) == ("ChildFailed", True)


def test_live_object_is_found_by_kind_and_key() -> None:
    far = ConfigMap(metadata=ObjectMeta(name="c", namespace="far"), data={"far": "1"})
    scoped = Namespace(metadata=ObjectMeta(name="c"))
    current = Readiness("Current", "ready")
    objects: list[Object] = [far, _CONFIG, scoped]
    children = Children("ns", tuple(ChildState(obj, current) for obj in objects))
    assert children.live(ConfigMap(metadata=ObjectMeta(name="c"))) is _CONFIG
    assert children.live(ConfigMap(metadata=ObjectMeta(name="c", namespace="far"))) is far
    assert children.live(Namespace(metadata=ObjectMeta(name="c"))) is scoped
    assert (list(children), children[0], len(children)) == (objects, far, 3)
