"""All nodes in order, and how many are refused for what: one change moves one node, and a question looks at the few that it shows.

How are refusals counted without a look at every node?  Those that no question can lift are counted as they come and go. Time is lacking
    where maintenance starts before now plus the hours that are asked for: the starts are kept in order, so that is one bisection.
And the best that has time enough, where hundreds of better ones have not?  Only who has more time than all that are better can be it. Those
    few, in order, are a `Front`: it is made at most once after a change, and asked by a bisection however many ask.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Generic, TypeVar

from .maintenance import HOUR
from .rules import NodeFacts, Rejection, Requirement, SelectionRules

Rank = tuple[float, int, str]
Time = TypeVar("Time", datetime, int)
_NO_MAINTENANCE = datetime.max.replace(tzinfo=UTC)


def rank(facts: NodeFacts) -> Rank:
    """The order of nodes; one whose demand is not known comes last."""
    demand = facts.load.cpu_demand_mhz
    return (float("inf") if demand is None else demand, -(facts.free_memory_mb or 0), facts.name)


class ParetoFront(Generic[Time]):
    """Those that have more time than all that are better, the best first."""

    def __init__(self, ranks: Iterable[Rank], times: Mapping[str, Time]) -> None:
        self.times: list[Time] = []
        self._ranks: list[Rank] = []
        for each in ranks:
            time = times.get(each[2])
            if time is not None and (not self.times or time > self.times[-1]):
                self.times.append(time)
                self._ranks.append(each)

    def find_best(self, needed: Time) -> list[Rank]:
        """The best of all that have so much; none if nobody has."""
        place = bisect_left(self.times, needed)
        return self._ranks[place : place + 1]


class CandidatePool:
    """The nodes with a GPU, or those without, that no obstacle keeps out."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._start_by_node: dict[str, datetime] = {}
        """When maintenance begins, by node; FAR for none that is known. Those whose hours are simulated are not in it."""
        self._simulated_hours_by_node: dict[str, int] = {}
        """Simulated hours, by node."""
        self._pareto_fronts: tuple[ParetoFront[datetime], ParetoFront[int]] | None = None
        """Of both; None when a node has changed since."""
        self._sorted_starts: list[datetime] = []
        """When maintenance begins, of those that have one ahead."""
        self._sorted_simulated_hours: list[int] = []
        """Hours, of those whose hours are simulated."""

    def add(self, facts: NodeFacts) -> None:
        """One more."""
        self._pareto_fronts = None
        insort(self._ranks, rank(facts))
        if facts.simulated_hours is not None:
            self._simulated_hours_by_node[facts.name] = facts.simulated_hours
            insort(self._sorted_simulated_hours, facts.simulated_hours)
            return
        self._start_by_node[facts.name] = (
            facts.maintenance.start if facts.maintenance else _NO_MAINTENANCE
        )
        if facts.maintenance is not None:
            insort(self._sorted_starts, facts.maintenance.start)

    def remove(self, facts: NodeFacts) -> None:
        """One less."""
        self._pareto_fronts = None
        self._simulated_hours_by_node.pop(facts.name, None)
        self._start_by_node.pop(facts.name, None)
        _remove_sorted(self._ranks, rank(facts))
        if facts.simulated_hours is not None:
            _remove_sorted(self._sorted_simulated_hours, facts.simulated_hours)
        elif facts.maintenance is not None:
            _remove_sorted(self._sorted_starts, facts.maintenance.start)

    def find_best(self, question: Requirement, rules: SelectionRules, now: datetime) -> str:
        """The name of the best that has time enough, "" for none."""
        if question.hours <= 0:
            return self._ranks[0][2] if self._ranks else ""
        if self._pareto_fronts is None:
            self._pareto_fronts = (
                ParetoFront(self._ranks, self._start_by_node),
                ParetoFront(self._ranks, self._simulated_hours_by_node),
            )
        real, simulated = self._pareto_fronts
        found = simulated.find_best(question.hours)
        if question.hours <= rules.horizon_hours:
            found = [*found, *real.find_best(now + question.hours * HOUR)]
        return min(found)[2] if found else ""

    def _count_too_little_time(
        self, question: Requirement, rules: SelectionRules, now: datetime
    ) -> int:
        """How many have too little time."""
        if question.hours <= 0:
            return 0
        simulated = bisect_left(self._sorted_simulated_hours, question.hours)
        if question.hours > rules.horizon_hours:
            return simulated + len(self._ranks) - len(self._sorted_simulated_hours)
        return simulated + bisect_left(self._sorted_starts, now + question.hours * HOUR)

    def seconds_until_fewer_suitable(
        self, question: Requirement, rules: SelectionRules, now: datetime
    ) -> float | None:
        """When the next of those that have time enough has it no longer; None for never."""
        if not 0 < question.hours <= rules.horizon_hours:
            return None
        needed = now + question.hours * HOUR
        place = bisect_left(self._sorted_starts, needed)
        return (
            (self._sorted_starts[place] - needed).total_seconds() + 0.001
            if place < len(self._sorted_starts)
            else None
        )


class Ranking:
    """All nodes in order, those with and those without a GPU apart."""

    def __init__(self) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self.pools = {True: CandidatePool(), False: CandidatePool()}
        self.blocker_counts: Counter[Rejection] = Counter()
        self.unmatched_names: list[str] = []
        """Names of the Nodes without a VM of their own, in order."""

    def set_facts(self, name: str, new: NodeFacts | None) -> None:
        """Other facts of one node, or none."""
        if (old := self.facts.pop(name, None)) is not None:
            self.remove(old)
        if new is None:
            return
        self.facts[name] = new
        if new.match_failure is not None:
            insort(self.unmatched_names, name)
        if new.blocker is not None:
            self.blocker_counts[new.blocker] += 1
        else:
            self.pools[new.has_gpu].add(new)

    def remove(self, old: NodeFacts) -> None:
        """One node less."""
        if old.match_failure is not None:
            _remove_sorted(self.unmatched_names, old.name)
        if old.blocker is not None:
            self.blocker_counts[old.blocker] -= 1
        else:
            self.pools[old.has_gpu].remove(old)

    def _iter_eligible(self, gpu: bool) -> Iterator[NodeFacts]:
        """Those without an obstacle, the best first."""
        return (self.facts[name] for _, _, name in self.pools[gpu]._ranks)

    def iter_suitable(
        self, question: Requirement, rules: SelectionRules, now: datetime
    ) -> Iterator[NodeFacts]:
        """All that suit, the best first."""
        suiting = (
            facts
            for facts in self._iter_eligible(question.gpu_required)
            if rules.has_enough_time(facts, question, now)
        )
        # Nobody looks for more than there are: behind the last of them there may be hundreds that do not suit.
        return islice(suiting, self.count_suitable(question, rules, now))

    def count_suitable(self, question: Requirement, rules: SelectionRules, now: datetime) -> int:
        """How many suit."""
        side = self.pools[question.gpu_required]
        return len(side._ranks) - side._count_too_little_time(question, rules, now)

    def choose(
        self, question: Requirement, present: str, rules: SelectionRules, now: datetime
    ) -> NodeFacts | None:
        """The answer; `present` is the node that was named before, "" for none."""
        best = self.facts.get(self.pools[question.gpu_required].find_best(question, rules, now))
        held = self.facts.get(present)
        if best is None or held is None or rules.find_rejection(held, question, now) is not None:
            return best
        return best if rules.is_better_by_margin(best, held) else held

    def count_rejections(
        self, question: Requirement, rules: SelectionRules, now: datetime
    ) -> dict[str, int]:
        """How many nodes are refused for which reason, in the order of the reasons."""
        counts = Counter(self.blocker_counts)
        wrong = Rejection.GPU_MISSING if question.gpu_required else Rejection.GPU_PRESENT
        for gpu, side in self.pools.items():
            short = side._count_too_little_time(question, rules, now)
            counts[Rejection.TOO_LITTLE_TIME] += short
            counts[wrong] += len(side._ranks) - short if gpu != question.gpu_required else 0
        return {reason.value: counts[reason] for reason in Rejection if counts[reason]}


def _remove_sorted(ordered: list[Any], value: Any) -> None:
    """One of a value out of a list in order."""
    del ordered[bisect_left(ordered, value)]
