"""How many labels a Node and a namespace may have, and how often one label may be added.

Why are labels limited?  Users create GPUInfos, but every label is a write of a Node, which is
    cluster-wide: the API server sends the whole Node to the scheduler and to an agent on each other
    Node. Without limits one namespace could let Nodes grow and change all the time.
What is counted?  The labels that the Nodes have, those that this process has decided to add, and
    for its namespace a label that was removed a moment ago. Otherwise creating and deleting
    GPUInfos in turn would have no limit.
Is a removal limited?  No: a Node that is not selected must not keep the label, and a label cannot
    be removed more often than it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from kubewright.flags import format_duration

# Other objects are not enqueued when a label is removed: thousands may wait for one slot.
_FULL_RETRY_SECONDS = 60.0


@dataclass(frozen=True)
class LabelLimits:
    per_node: int = 50
    per_namespace: int = 50
    interval_seconds: float = 60.0


@dataclass(frozen=True)
class LabelDenied:
    """Why a Node does not get the label now."""

    message: str
    retry_seconds: float
    limit_reached: bool


@dataclass(frozen=True)
class _Slot:
    namespace: str
    node: str


class LabelSlots:
    """Decides which labels are added. There is no await between a decision and its record."""

    def __init__(self, limits: LabelLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._slots: dict[str, _Slot] = {}
        self._labels_by_node: dict[str, set[str]] = {}
        self._labels_by_namespace: dict[str, set[str]] = {}
        # When each label was added last, with its namespace; for the length of the interval.
        self._added: dict[str, tuple[str, float]] = {}

    def take(
        self,
        label: str,
        namespace: str,
        node: str,
        *,
        on_node: Set[str],
        in_namespace: Set[str],
    ) -> LabelDenied | None:
        """Take a slot for the label on the Node, unless a limit forbids it.

        `on_node` are the labels that this Node has now, `in_namespace` those of GPUInfos of the
        namespace that any Node has now.
        """
        self.release(label)
        self._forget_old()
        limits, retry = self._limits, max(self._limits.interval_seconds, _FULL_RETRY_SECONDS)
        taken = self._labels_by_node.get(node, set())
        if len(_list_counted_labels(label, taken, on_node)) >= limits.per_node:
            return LabelDenied(
                f'Node "{node}" is not labeled: it has the maximum of {limits.per_node} labels of '
                "GPUInfos. Delete GPUInfos that select it, or ask the administrator to raise "
                "-labels-per-node.",
                retry,
                limit_reached=True,
            )
        taken = self._labels_by_namespace.get(namespace, set())
        if label not in in_namespace:
            taken = taken | {name for name, (owner, _) in self._added.items() if owner == namespace}
        if len(_list_counted_labels(label, taken, in_namespace)) >= limits.per_namespace:
            return LabelDenied(
                f'Node "{node}" is not labeled: the GPUInfos of namespace "{namespace}" have the '
                f"maximum of {limits.per_namespace} labels. Delete GPUInfos that are not needed, "
                "or ask the administrator to raise -labels-per-namespace.",
                retry,
                limit_reached=True,
            )
        if label not in on_node and label in self._added:
            return LabelDenied(
                f'Node "{node}" is labeled later: -label-move-interval '
                f"({format_duration(limits.interval_seconds)}) has not passed since the last move.",
                self._added[label][1] + limits.interval_seconds - self._clock(),
                limit_reached=False,
            )
        self._slots[label] = _Slot(namespace, node)
        self._labels_by_node.setdefault(node, set()).add(label)
        self._labels_by_namespace.setdefault(namespace, set()).add(label)
        return None

    def release(self, label: str) -> None:
        slot = self._slots.pop(label, None)
        if slot is not None:
            _discard(self._labels_by_node, slot.node, label)
            _discard(self._labels_by_namespace, slot.namespace, label)

    def node_of(self, label: str) -> str:
        """The Node that should have the label; "" if none should."""
        slot = self._slots.get(label)
        return slot.node if slot else ""

    def on_label_added(self, label: str, namespace: str) -> None:
        # At the end again, so that the dict stays sorted by time.
        self._added.pop(label, None)
        self._added[label] = (namespace, self._clock())

    def _forget_old(self) -> None:
        before = self._clock() - self._limits.interval_seconds
        while self._added:
            label, (_, added_at) = next(iter(self._added.items()))
            if added_at > before:
                break
            del self._added[label]


def _list_counted_labels(label: str, taken: Set[str], present: Set[str]) -> Set[str]:
    """The other labels that count for a limit: those of this process, and those that Nodes have.

    If a Node has the label already, as after a restart with lower limits, only labels with lower
    names count. Otherwise each label would count all others, and all would be removed.
    """
    if label in present:
        present = {other for other in present if other < label}
    return (taken | present) - {label}


def _discard(labels: dict[str, set[str]], key: str, label: str) -> None:
    labels[key].discard(label)
    if not labels[key]:
        del labels[key]
