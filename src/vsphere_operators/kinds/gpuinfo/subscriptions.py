"""Who asked what and was told which node: so that a change of one node wakes those whose answer it changes, and nobody else.

How does one change find them?  Those who were told that node are looked at one by one. For all others the answer moves only if the changed
    node beats the one that they were told, which is one comparison for each node that anybody was told: a handful, however many ask.
And everything else that a status shows (load, the other candidates, counts)?  It follows once an interval, each object in a slot of its
    own, and only if anything changed at all. Load of the node that was told is told at once when it moves by more than `share`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from kubewright import Key

from ...vsphere.stats_throttle import SLOTS, VCPU_MHZ, part, slot_of
from .rules import NodeFacts, Question, Rules
from .tracker import Nodes


class Asked(Struct, frozen=True):
    """A question and what was told."""

    question: Question
    told: NodeFacts | None
    version: int
    """Of all facts, when it was told."""


class Questions:
    """All standing questions; `wake` gets those who should look again."""

    def __init__(self, nodes: Nodes, rules: Rules, wake: Callable[[Key], None], *, interval_seconds: float, share: float) -> None:
        self.nodes, self.rules, self.wake = nodes, rules, wake
        self.slot_seconds, self.share = interval_seconds / SLOTS, share
        self.asked: dict[Key, Asked] = {}
        self.by_answer: dict[str, dict[Key, Asked]] = {}
        """By the name of the node that was told, "" for none."""
        self.slots: list[dict[Key, None]] = [{} for _ in range(SLOTS)]
        self.slot = 0
        nodes.listeners.append(self.hear)

    def answered(self, key: Key, question: Question, told: NodeFacts | None) -> None:
        """Somebody was told so just now."""
        self.forget(key)
        asked = Asked(question, told, self.nodes.version)
        self.asked[key] = asked
        self.by_answer.setdefault(told.name if told else "", {})[key] = asked
        self.slots[slot_of(str(key))][key] = None

    def forget(self, key: Key) -> None:
        """Nobody asks this any more."""
        asked = self.asked.pop(key, None)
        if asked is None:
            return
        name = asked.told.name if asked.told else ""
        group = self.by_answer[name]
        del group[key]
        if not group:
            del self.by_answer[name]
        self.slots[slot_of(str(key))].pop(key, None)

    def hear(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """One node is otherwise. Who is woken asks anew, so a crowd of changes wakes each but once."""
        for key in self.affected(old, new, self.nodes.clock()):
            self.forget(key)
            self.wake(key)

    def affected(self, old: NodeFacts | None, new: NodeFacts | None, now: datetime) -> list[Key]:
        """Whose answer may be another one now."""
        changed = new or old
        if changed is None:
            return []
        told = [key for key, asked in self.by_answer.get(changed.name, {}).items() if self.moved(asked, new, now)]
        return told if new is None or new.obstacle is not None else [*told, *self.taken_over(new, now)]

    def moved(self, asked: Asked, new: NodeFacts | None, now: datetime) -> bool:
        """Whether those who were told this node have to be told something else."""
        if new is None or asked.told is None or replace(new, load=asked.told.load) != asked.told:
            return True
        if load_moved(asked.told, new) > self.share:
            return True
        chosen = self.nodes.ranking.choose(asked.question, new.name, self.rules, now)
        return chosen is None or chosen.name != new.name

    def taken_over(self, new: NodeFacts, now: datetime) -> Iterator[Key]:
        """Those who were told another node, or none, and for whom this one is better."""
        hours, gpu, facts = self.rules.hours(new, now), new.has_gpu, self.nodes.ranking.facts
        for name, group in self.by_answer.items():
            present = facts.get(name)
            if name != new.name and (present is None or self.rules.beats(new, present)):
                for key, asked in group.items():
                    if asked.question.gpu_required == gpu and asked.question.hours <= hours:
                        yield key

    async def run(self) -> NoReturn:
        """Wake, each in its slot, those whose status may show something that has changed."""
        while True:
            await asyncio.sleep(self.slot_seconds)
            self.slot = (self.slot + 1) % SLOTS
            for key in list(self.slots[self.slot]):
                if self.asked[key].version != self.nodes.version:
                    self.wake(key)


def load_moved(told: NodeFacts, new: NodeFacts) -> float:
    """By which part of its total the load has moved, the larger of CPU and memory."""
    cpu = part(told.load.cpu_demand_mhz, new.load.cpu_demand_mhz, new.cpus * VCPU_MHZ)
    return max(cpu, part(told.load.guest_memory_mb, new.load.guest_memory_mb, new.memory_mb))
