"""All nodes in order of preference, and how many are rejected for which reason.

How are rejections counted without visiting every node?  Rejections that apply to every requirement
    are counted as facts come and go. A node has too little time if its maintenance
    starts before now plus the required hours: the starts are kept sorted, so one bisection counts
    them.
How is the best node with enough time found when hundreds of better ones have too little?  Only a
    node that has more time than all better ones can be the result. These few, in order, are the
    `_BestNodeByTime`. They are found at most once after a change, and each query is one
    bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec import Struct

from .rules import TIMER_SLACK_SECONDS, NodeFacts, Query, Rejection

_Rank = tuple[float, int, str]
_TimeT = TypeVar("_TimeT", datetime, int)
_NO_MAINTENANCE = datetime.max.replace(tzinfo=UTC)
# Keep the status small: it is written for every GPUInfo, and a cluster may have 1,000 nodes.
MAX_CANDIDATES = 5
MAX_UNMATCHED = 5


class Selection(Struct, frozen=True, kw_only=True):
    """The node selected for a query, and what the status shows about the others."""

    query: Query
    selected: NodeFacts | None = None
    # The first suitable nodes, best first; the selected one may be among them.
    best_suitable: Sequence[NodeFacts] = ()
    suitable_count: int = 0
    seconds_until_fewer_suitable: float | None = None
    rejection_counts: Mapping[str, int] = {}
    unmatched_nodes: Sequence[NodeFacts] = ()
    omitted_unmatched_count: int = 0

    @property
    def candidates(self) -> list[NodeFacts]:
        """The selected node, followed by the best others."""
        if self.selected is None:
            return []
        others = (facts for facts in self.best_suitable if facts.name != self.selected.name)
        return [self.selected, *islice(others, MAX_CANDIDATES - 1)]


class _BestNodeByTime(Generic[_TimeT]):
    """The nodes that have more time than every better node, best first."""

    def __init__(self, ranks: Iterable[_Rank], times: Mapping[str, _TimeT]) -> None:
        self._times: list[_TimeT] = []
        self._ranks: list[_Rank] = []
        for rank in ranks:
            time = times.get(rank[2])
            if time is not None and (not self._times or time > self._times[-1]):
                self._times.append(time)
                self._ranks.append(rank)

    def _find_first_with_time(self, required: _TimeT) -> list[_Rank]:
        """The best node that has this much time, as a list of one or none."""
        index = bisect_left(self._times, required)
        return self._ranks[index : index + 1]


class _NodePool:
    """The nodes without a `rejection_for_all`, either those with a GPU or those without one."""

    def __init__(self) -> None:
        self.ranks: list[_Rank] = []
        # Start of maintenance by node. Nodes with simulated hours are in the other dictionary.
        self._start_by_node: dict[str, datetime] = {}
        self._simulated_hours_by_node: dict[str, int] = {}
        # None after a change, until the next query builds them.
        self._best_node_by_time: tuple[_BestNodeByTime[datetime], _BestNodeByTime[int]] | None = (
            None
        )
        self._sorted_starts: list[datetime] = []
        self._sorted_simulated_hours: list[int] = []

    def add(self, facts: NodeFacts) -> None:
        self._best_node_by_time = None
        insort(self.ranks, _rank(facts))
        if facts.simulated_hours is not None:
            self._simulated_hours_by_node[facts.name] = facts.simulated_hours
            insort(self._sorted_simulated_hours, facts.simulated_hours)
            return
        self._start_by_node[facts.name] = (
            facts.next_window.start if facts.next_window else _NO_MAINTENANCE
        )
        if facts.next_window is not None:
            insort(self._sorted_starts, facts.next_window.start)

    def remove(self, facts: NodeFacts) -> None:
        self._best_node_by_time = None
        self._simulated_hours_by_node.pop(facts.name, None)
        self._start_by_node.pop(facts.name, None)
        _remove_sorted(self.ranks, _rank(facts))
        if facts.simulated_hours is not None:
            _remove_sorted(self._sorted_simulated_hours, facts.simulated_hours)
        elif facts.next_window is not None:
            _remove_sorted(self._sorted_starts, facts.next_window.start)

    def _find_best_node(self, query: Query) -> str:
        """The name of the best node that has enough time; "" for none."""
        hours = query.requirement.hours
        if hours <= 0:
            return self.ranks[0][2] if self.ranks else ""
        if self._best_node_by_time is None:
            self._best_node_by_time = (
                _BestNodeByTime(self.ranks, self._start_by_node),
                _BestNodeByTime(self.ranks, self._simulated_hours_by_node),
            )
        by_start, by_simulated_hours = self._best_node_by_time
        best = by_simulated_hours._find_first_with_time(hours)
        if hours <= query.rules.unplanned_hours:
            best = [*best, *by_start._find_first_with_time(query.deadline)]
        return min(best)[2] if best else ""

    def _count_too_little_time(self, query: Query) -> int:
        hours = query.requirement.hours
        if hours <= 0:
            return 0
        simulated = bisect_left(self._sorted_simulated_hours, hours)
        if hours > query.rules.unplanned_hours:
            return simulated + len(self.ranks) - len(self._sorted_simulated_hours)
        return simulated + bisect_left(self._sorted_starts, query.deadline)

    def seconds_until_fewer_suitable(self, query: Query) -> float | None:
        """When the next of the nodes with enough time will have too little; None for never."""
        if not 0 < query.requirement.hours <= query.rules.unplanned_hours:
            return None
        index = bisect_left(self._sorted_starts, query.deadline)
        if index == len(self._sorted_starts):
            return None
        remaining = self._sorted_starts[index] - query.deadline
        return remaining.total_seconds() + TIMER_SLACK_SECONDS


class Ranking:
    """All nodes in order of preference, with separate orders for nodes with and without a GPU."""

    def __init__(self) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self._pools = {True: _NodePool(), False: _NodePool()}
        self._rejected_for_all_counts: Counter[Rejection] = Counter()
        self._unmatched_names: list[str] = []

    def set_facts(self, name: str, new: NodeFacts | None) -> None:
        """Replace the facts of one node; None removes it."""
        if (old := self.facts.pop(name, None)) is not None:
            if old.match_failure is not None:
                _remove_sorted(self._unmatched_names, name)
            if old.rejection_for_all is not None:
                self._rejected_for_all_counts[old.rejection_for_all] -= 1
            else:
                self._pools[old.has_gpu].remove(old)
        if new is None:
            return
        self.facts[name] = new
        if new.match_failure is not None:
            insort(self._unmatched_names, name)
        if new.rejection_for_all is not None:
            self._rejected_for_all_counts[new.rejection_for_all] += 1
        else:
            self._pools[new.has_gpu].add(new)

    def select(self, query: Query, current_node: str) -> Selection:
        """Select a node, and collect what the status shows. `current_node` is "" for none."""
        pool = self._pools[query.requirement.gpu_required]
        suitable_count = len(pool.ranks) - pool._count_too_little_time(query)
        ranked = (self.facts[name] for _, _, name in pool.ranks)
        suitable = (facts for facts in ranked if query.has_enough_time(facts))
        unmatched = self._unmatched_names
        return Selection(
            query=query,
            selected=self.select_node(query, current_node),
            # Stop after the last of them: hundreds of nodes with too little time may follow it.
            best_suitable=list(islice(suitable, min(suitable_count, MAX_CANDIDATES))),
            suitable_count=suitable_count,
            seconds_until_fewer_suitable=pool.seconds_until_fewer_suitable(query),
            rejection_counts=self._count_rejections(query),
            unmatched_nodes=[self.facts[name] for name in unmatched[:MAX_UNMATCHED]],
            omitted_unmatched_count=max(len(unmatched) - MAX_UNMATCHED, 0),
        )

    def select_node(self, query: Query, current_node: str) -> NodeFacts | None:
        """The best node, or the current one while no other is better by the margin."""
        best = self.facts.get(self._pools[query.requirement.gpu_required]._find_best_node(query))
        current = self.facts.get(current_node)
        if best is None or current is None or query.find_rejection(current) is not None:
            return best
        return best if query.rules.is_better_by_margin(best, current) else current

    def _count_rejections(self, query: Query) -> dict[str, int]:
        """Number of rejected nodes by reason, in the order of `Rejection`."""
        counts = Counter(self._rejected_for_all_counts)
        gpu_required = query.requirement.gpu_required
        for has_gpu, pool in self._pools.items():
            too_little_time = pool._count_too_little_time(query)
            counts[Rejection.TOO_LITTLE_TIME] += too_little_time
            if has_gpu != gpu_required:
                wrong_gpu = Rejection.GPU_PRESENT if has_gpu else Rejection.GPU_MISSING
                counts[wrong_gpu] += len(pool.ranks) - too_little_time
        return {reason.value: counts[reason] for reason in Rejection if counts[reason]}


def _rank(facts: NodeFacts) -> _Rank:
    demand = facts.usage.cpu_demand_mhz
    # A node with unknown demand comes last.
    return (float("inf") if demand is None else demand, -(facts.free_memory_mb or 0), facts.name)


def _remove_sorted(values: list[Any], value: Any) -> None:
    del values[bisect_left(values, value)]
