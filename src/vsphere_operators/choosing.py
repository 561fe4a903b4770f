"""The best node for a long job: facts, refusals, ranking and choice. Pure: no clock, no I/O; the time of now is an argument.

A node that suits is ready, schedulable and running on a host that is there, has time enough before its next maintenance, and has a GPU, or
has none, as asked. Of those, the least CPU demand wins; of equals the one with more free memory, then the first by name. The answer stays
with the node that it named before, while that one suits and no other is better by more than the margin.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from .maintenance import HOUR, Window

MARGIN_MHZ = 100
"""Demand moves by some ten MHz on an idle VM: less than this is no difference."""


class Refusal(StrEnum):
    """Why a node is not suitable; one that has several is counted under the first of them, in this order."""

    NOT_READY = "NotReady"
    UNSCHEDULABLE = "Unschedulable"
    VCENTER_UNREACHABLE = "VCenterUnreachable"
    VM_NOT_FOUND = "VMNotFound"
    VM_AMBIGUOUS = "VMAmbiguous"
    VM_UNAVAILABLE = "VMUnavailable"
    POWERED_OFF = "PoweredOff"
    HOST_DISCONNECTED = "HostDisconnected"
    HOST_IN_MAINTENANCE = "HostInMaintenance"
    TOO_LITTLE_TIME = "TooLittleTime"
    GPU_MISSING = "GPUMissing"
    GPU_PRESENT = "GPUPresent"


class Load(Struct, frozen=True, gc=False):
    """What moves every 20 s; None where vCenter does not tell."""

    cpu_demand_mhz: int | None = None
    guest_memory_mb: int | None = None


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One Node with its VM and its host, as they are now."""

    name: str
    obstacle: Refusal | None = None
    """The first reason that no question can lift."""
    vm: str = ""
    vcenter: str = ""
    host: str = ""
    gpus: tuple[str, ...] = ()
    """What makes it a node with a GPU, each with its source."""
    host_devices: tuple[str, ...] = ()
    """The graphics devices of the host, whoever uses them."""
    cpus: int = 0
    memory_mb: int = 0
    load: Load = Load()
    maintenance: Window | None = None
    """The one that it is in, or the next one."""
    simulated_hours: int | None = None
    simulated_gpu: bool | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether a job finds a GPU there."""
        return bool(self.gpus) if self.simulated_gpu is None else self.simulated_gpu

    @property
    def free_memory_mb(self) -> int | None:
        """What the guest does not use."""
        used = self.load.guest_memory_mb
        return None if used is None else max(self.memory_mb - used, 0)


class Question(Struct, frozen=True, gc=False):
    """What a job needs."""

    hours: int
    gpu_required: bool


class Rules(Struct, frozen=True, gc=False):
    """How answers are found; from the manager's flags."""

    horizon_hours: int = 8760
    """How far anybody looks ahead: what a node has for which no maintenance is known."""
    margin: float = 0.1
    """By which part of the present node's demand another one has to be better, and by MARGIN_MHZ."""

    def hours(self, facts: NodeFacts, now: datetime) -> int:
        """Whole hours until the next maintenance; 0 in one."""
        if facts.simulated_hours is not None:
            return facts.simulated_hours
        if facts.maintenance is None:
            return self.horizon_hours
        return min(max((facts.maintenance.start - now) // HOUR, 0), self.horizon_hours)

    def seconds_to_next_hour(self, facts: NodeFacts, now: datetime) -> float | None:
        """When `hours` will be another number; None for never. The end of a window is another fact, and not told here."""
        if facts.simulated_hours is not None or facts.maintenance is None or (left := facts.maintenance.start - now) < HOUR:
            return None
        beyond = left - self.horizon_hours * HOUR
        return (beyond if beyond >= timedelta() else left % HOUR).total_seconds() + 0.001

    def seconds_to_too_little(self, facts: NodeFacts, question: Question, now: datetime) -> float | None:
        """When a node that suits will have too little time; None for never."""
        if facts.simulated_hours is not None or facts.maintenance is None or question.hours <= 0:
            return None
        return (facts.maintenance.start - now - question.hours * HOUR).total_seconds() + 0.001

    def refusal(self, facts: NodeFacts, question: Question, now: datetime) -> Refusal | None:
        """Why this node does not suit; None if it does."""
        if facts.obstacle is not None:
            return facts.obstacle
        if self.hours(facts, now) < question.hours:
            return Refusal.TOO_LITTLE_TIME
        if facts.has_gpu != question.gpu_required:
            return Refusal.GPU_MISSING if question.gpu_required else Refusal.GPU_PRESENT
        return None

    def beats(self, other: NodeFacts, present: NodeFacts) -> bool:
        """Whether the answer moves from the present node to another one that is better by more than the margin."""
        theirs, ours = other.load.cpu_demand_mhz, present.load.cpu_demand_mhz
        if theirs is None or ours is None:
            return theirs is not None
        return ours - theirs > MARGIN_MHZ + self.margin * ours


Rank = tuple[float, int, str]


def rank(facts: NodeFacts) -> Rank:
    """The order of nodes; one whose demand is not known comes last."""
    demand = facts.load.cpu_demand_mhz
    return (float("inf") if demand is None else demand, -(facts.free_memory_mb or 0), facts.name)


class Ranking:
    """All nodes in order, those with and those without a GPU apart; one change moves one node."""

    def __init__(self) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self.ranks: dict[bool, list[Rank]] = {True: [], False: []}
        self.obstacles: Counter[Refusal] = Counter()

    def put(self, name: str, new: NodeFacts | None) -> None:
        """Other facts of one node, or none."""
        old = self.facts.pop(name, None)
        if old is not None and old.obstacle is not None:
            self.obstacles[old.obstacle] -= 1
        elif old is not None:
            ranks, place = self.ranks[old.has_gpu], rank(old)
            del ranks[bisect_left(ranks, place)]
        if new is None:
            return
        self.facts[name] = new
        if new.obstacle is not None:
            self.obstacles[new.obstacle] += 1
        else:
            insort(self.ranks[new.has_gpu], rank(new))

    def able(self, gpu: bool) -> Iterator[NodeFacts]:
        """Those without an obstacle, the best first."""
        return (self.facts[name] for _, _, name in self.ranks[gpu])

    def suitable(self, question: Question, rules: Rules, now: datetime) -> Iterator[NodeFacts]:
        """All that suit, the best first."""
        return (facts for facts in self.able(question.gpu_required) if rules.hours(facts, now) >= question.hours)

    def choose(self, question: Question, present: str, rules: Rules, now: datetime) -> NodeFacts | None:
        """The answer; `present` is the node that was named before, "" for none."""
        best = next(self.suitable(question, rules, now), None)
        held = self.facts.get(present)
        if best is None or held is None or rules.refusal(held, question, now) is not None:
            return best
        return best if rules.beats(best, held) else held

    def refused(self, question: Question, rules: Rules, now: datetime) -> dict[str, int]:
        """How many nodes are refused for which reason, in the order of the reasons."""
        counts = Counter(self.obstacles)
        other = Refusal.GPU_MISSING if question.gpu_required else Refusal.GPU_PRESENT
        for gpu in (True, False):
            for facts in self.able(gpu):
                if rules.hours(facts, now) < question.hours:
                    counts[Refusal.TOO_LITTLE_TIME] += 1
                elif gpu != question.gpu_required:
                    counts[other] += 1
        return {reason.value: counts[reason] for reason in Refusal if counts[reason]}


Clock = Callable[[], datetime]
