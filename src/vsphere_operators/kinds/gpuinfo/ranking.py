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
from .rules import NodeFacts, Question, Refusal, Rules

Rank = tuple[float, int, str]
Time = TypeVar("Time", datetime, int)
FAR = datetime.max.replace(tzinfo=UTC)


def rank(facts: NodeFacts) -> Rank:
    """The order of nodes; one whose demand is not known comes last."""
    demand = facts.load.cpu_demand_mhz
    return (float("inf") if demand is None else demand, -(facts.free_memory_mb or 0), facts.name)


class Front(Generic[Time]):
    """Those that have more time than all that are better, the best first."""

    def __init__(self, ranks: Iterable[Rank], times: Mapping[str, Time]) -> None:
        self.times: list[Time] = []
        self.ranks: list[Rank] = []
        for each in ranks:
            time = times.get(each[2])
            if time is not None and (not self.times or time > self.times[-1]):
                self.times.append(time)
                self.ranks.append(each)

    def first(self, needed: Time) -> list[Rank]:
        """The best of all that have so much; none if nobody has."""
        place = bisect_left(self.times, needed)
        return self.ranks[place : place + 1]


class Side:
    """The nodes with a GPU, or those without, that no obstacle keeps out."""

    def __init__(self) -> None:
        self.ranks: list[Rank] = []
        self.until: dict[str, datetime] = {}
        """When maintenance begins, by node; FAR for none that is known. Those whose hours are simulated are not in it."""
        self.hours: dict[str, int] = {}
        """Simulated hours, by node."""
        self.fronts: tuple[Front[datetime], Front[int]] | None = None
        """Of both; None when a node has changed since."""
        self.starts: list[datetime] = []
        """When maintenance begins, of those that have one ahead."""
        self.simulated: list[int] = []
        """Hours, of those whose hours are simulated."""

    def add(self, facts: NodeFacts) -> None:
        """One more."""
        self.fronts = None
        insort(self.ranks, rank(facts))
        if facts.simulated_hours is not None:
            self.hours[facts.name] = facts.simulated_hours
            insort(self.simulated, facts.simulated_hours)
            return
        self.until[facts.name] = facts.maintenance.start if facts.maintenance else FAR
        if facts.maintenance is not None:
            insort(self.starts, facts.maintenance.start)

    def drop(self, facts: NodeFacts) -> None:
        """One less."""
        self.fronts = None
        self.hours.pop(facts.name, None)
        self.until.pop(facts.name, None)
        take_out(self.ranks, rank(facts))
        if facts.simulated_hours is not None:
            take_out(self.simulated, facts.simulated_hours)
        elif facts.maintenance is not None:
            take_out(self.starts, facts.maintenance.start)

    def best(self, question: Question, rules: Rules, now: datetime) -> str:
        """The name of the best that has time enough, "" for none."""
        if question.hours <= 0:
            return self.ranks[0][2] if self.ranks else ""
        if self.fronts is None:
            self.fronts = Front(self.ranks, self.until), Front(self.ranks, self.hours)
        real, simulated = self.fronts
        found = simulated.first(question.hours)
        if question.hours <= rules.horizon_hours:
            found = [*found, *real.first(now + question.hours * HOUR)]
        return min(found)[2] if found else ""

    def without_time(self, question: Question, rules: Rules, now: datetime) -> int:
        """How many have too little time."""
        if question.hours <= 0:
            return 0
        simulated = bisect_left(self.simulated, question.hours)
        if question.hours > rules.horizon_hours:
            return simulated + len(self.ranks) - len(self.simulated)
        return simulated + bisect_left(self.starts, now + question.hours * HOUR)

    def seconds_to_one_less(self, question: Question, rules: Rules, now: datetime) -> float | None:
        """When the next of those that have time enough has it no longer; None for never."""
        if not 0 < question.hours <= rules.horizon_hours:
            return None
        needed = now + question.hours * HOUR
        place = bisect_left(self.starts, needed)
        return (self.starts[place] - needed).total_seconds() + 0.001 if place < len(self.starts) else None


class Ranking:
    """All nodes in order, those with and those without a GPU apart."""

    def __init__(self) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self.sides = {True: Side(), False: Side()}
        self.obstacles: Counter[Refusal] = Counter()
        self.unmatched: list[str] = []
        """Names of the Nodes without a VM of their own, in order."""

    def put(self, name: str, new: NodeFacts | None) -> None:
        """Other facts of one node, or none."""
        if (old := self.facts.pop(name, None)) is not None:
            self.take_out(old)
        if new is None:
            return
        self.facts[name] = new
        if new.unmatched is not None:
            insort(self.unmatched, name)
        if new.obstacle is not None:
            self.obstacles[new.obstacle] += 1
        else:
            self.sides[new.has_gpu].add(new)

    def take_out(self, old: NodeFacts) -> None:
        """One node less."""
        if old.unmatched is not None:
            take_out(self.unmatched, old.name)
        if old.obstacle is not None:
            self.obstacles[old.obstacle] -= 1
        else:
            self.sides[old.has_gpu].drop(old)

    def able(self, gpu: bool) -> Iterator[NodeFacts]:
        """Those without an obstacle, the best first."""
        return (self.facts[name] for _, _, name in self.sides[gpu].ranks)

    def suitable(self, question: Question, rules: Rules, now: datetime) -> Iterator[NodeFacts]:
        """All that suit, the best first."""
        suiting = (facts for facts in self.able(question.gpu_required) if rules.has_time(facts, question, now))
        # Nobody looks for more than there are: behind the last of them there may be hundreds that do not suit.
        return islice(suiting, self.count(question, rules, now))

    def count(self, question: Question, rules: Rules, now: datetime) -> int:
        """How many suit."""
        side = self.sides[question.gpu_required]
        return len(side.ranks) - side.without_time(question, rules, now)

    def choose(self, question: Question, present: str, rules: Rules, now: datetime) -> NodeFacts | None:
        """The answer; `present` is the node that was named before, "" for none."""
        best = self.facts.get(self.sides[question.gpu_required].best(question, rules, now))
        held = self.facts.get(present)
        if best is None or held is None or rules.refusal(held, question, now) is not None:
            return best
        return best if rules.beats(best, held) else held

    def refused(self, question: Question, rules: Rules, now: datetime) -> dict[str, int]:
        """How many nodes are refused for which reason, in the order of the reasons."""
        counts = Counter(self.obstacles)
        wrong = Refusal.GPU_MISSING if question.gpu_required else Refusal.GPU_PRESENT
        for gpu, side in self.sides.items():
            short = side.without_time(question, rules, now)
            counts[Refusal.TOO_LITTLE_TIME] += short
            counts[wrong] += len(side.ranks) - short if gpu != question.gpu_required else 0
        return {reason.value: counts[reason] for reason in Refusal if counts[reason]}


def take_out(ordered: list[Any], value: Any) -> None:
    """One of a value out of a list in order."""
    del ordered[bisect_left(ordered, value)]
