"""The limits of labels hold in every generated history of additions, removals and restarts."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from vsphere_operators.kinds.gpuinfo.label_slots import LabelLimits, LabelSlots

NODES, NAMESPACES = ("n1", "n2", "n3"), ("red", "blue")
LABELS = {f"{namespace}.{number}": namespace for namespace in NAMESPACES for number in range(6)}


class LabeledNodes:
    """Nodes with labels, and the decisions about them, as the labeler applies them."""

    def __init__(self, limits: LabelLimits) -> None:
        self.limits, self.now = limits, 0.0
        self.node_by_label: dict[str, str] = {}
        self.additions: list[tuple[float, str]] = []
        self.restart()

    def restart(self) -> None:
        self.slots = LabelSlots(self.limits, lambda: self.now)
        # A new process does not know when labels were added.
        self.additions.clear()

    def move(self, label: str, node: str) -> bool:
        """Whether the label is on the node afterwards."""
        namespace = LABELS[label]
        on_node = {name for name, place in self.node_by_label.items() if place == node}
        in_namespace = {name for name in self.node_by_label if LABELS[name] == namespace}
        denied = self.slots.take(label, namespace, node, on_node=on_node, in_namespace=in_namespace)
        if denied is not None:
            self.remove(label)
            assert denied.retry_seconds > 0
            return False
        if self.node_by_label.get(label) != node:
            self.node_by_label[label] = node
            self.additions.append((self.now, label))
            self.slots.on_label_added(label, namespace)
        return True

    def remove(self, label: str) -> None:
        self.slots.release(label)
        self.node_by_label.pop(label, None)

    def check_limits(self) -> None:
        assert max(Counter(self.node_by_label.values()).values(), default=0) <= self.limits.per_node
        namespaces = Counter(LABELS[label] for label in self.node_by_label)
        assert max(namespaces.values(), default=0) <= self.limits.per_namespace
        recent = [
            label for at, label in self.additions if at > self.now - self.limits.interval_seconds
        ]
        assert len(recent) == len(set(recent))
        assert max(Counter(LABELS[label] for label in recent).values(), default=0) <= (
            self.limits.per_namespace
        )


@pytest.mark.parametrize("seed", range(50))
def test_limits_hold_in_every_history(seed: int) -> None:
    rng = random.Random(seed)
    limits = LabelLimits(rng.randint(1, 4), rng.randint(1, 4), rng.choice([0.0, 10.0, 60.0]))
    nodes = LabeledNodes(limits)
    for _ in range(300):
        nodes.now += rng.choice([0.0, 1.0, 5.0, 30.0])
        label = rng.choice(list(LABELS))
        match rng.randrange(20):
            case 0:
                nodes.restart()
            case 1 | 2 | 3:
                nodes.remove(label)
            case _:
                nodes.move(label, rng.choice(NODES))
        nodes.check_limits()


def test_lower_limit_keeps_the_first_by_name_in_any_order() -> None:
    for seed in range(20):
        nodes = LabeledNodes(LabelLimits(per_node=6, interval_seconds=0))
        red = [label for label, namespace in LABELS.items() if namespace == "red"]
        assert all(nodes.move(label, "n1") for label in red)
        nodes.limits = LabelLimits(per_node=2, interval_seconds=0)
        nodes.restart()
        random.Random(seed).shuffle(red)
        for label in red:
            nodes.move(label, "n1")
        assert set(nodes.node_by_label) == {"red.0", "red.1"}


def test_place_is_free_again_when_the_interval_has_passed() -> None:
    nodes = LabeledNodes(LabelLimits(per_namespace=1, interval_seconds=60))
    assert nodes.move("red.0", "n1")
    nodes.remove("red.0")
    assert not nodes.move("red.1", "n1")
    assert nodes.move("blue.0", "n1")
    nodes.now = 60
    assert nodes.move("red.1", "n1")


def test_label_that_stays_is_never_denied_by_the_interval() -> None:
    nodes = LabeledNodes(LabelLimits(interval_seconds=60))
    assert nodes.move("red.0", "n1")
    assert nodes.move("red.0", "n1")
    assert not nodes.move("red.0", "n2")
    assert nodes.node_by_label == {}
