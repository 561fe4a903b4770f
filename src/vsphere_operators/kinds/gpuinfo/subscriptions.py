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

from ...vsphere.stats_throttle import ASSUMED_VCPU_MHZ, SLOT_COUNT, relative_change, slot_of
from .rules import NodeFacts, Requirement, SelectionRules
from .tracker import NodeTracker


class Subscription(Struct, frozen=True):
    """A question and what was told."""

    requirement: Requirement
    published_facts: NodeFacts | None
    facts_version: int
    """Of all facts, when it was told."""


class Subscriptions:
    """All standing questions; `wake` gets those who should look again."""

    def __init__(
        self,
        nodes: NodeTracker,
        rules: SelectionRules,
        wake: Callable[[Key], None],
        *,
        interval_seconds: float,
        change_fraction: float,
    ) -> None:
        self.tracker, self.rules, self.wake = nodes, rules, wake
        self.slot_seconds, self.change_fraction = interval_seconds / SLOT_COUNT, change_fraction
        self.by_key: dict[Key, Subscription] = {}
        self.by_node: dict[str, dict[Key, Subscription]] = {}
        """By the name of the node that was told, "" for none."""
        self.slots: list[dict[Key, None]] = [{} for _ in range(SLOT_COUNT)]
        self.current_slot = 0
        nodes.listeners.append(self._on_facts_change)

    def subscribe(self, key: Key, question: Requirement, told: NodeFacts | None) -> None:
        """Somebody was told so just now."""
        self.unsubscribe(key)
        asked = Subscription(question, told, self.tracker.version)
        self.by_key[key] = asked
        self.by_node.setdefault(told.name if told else "", {})[key] = asked
        self.slots[slot_of(str(key))][key] = None

    def unsubscribe(self, key: Key) -> None:
        """Nobody asks this any more."""
        asked = self.by_key.pop(key, None)
        if asked is None:
            return
        name = asked.published_facts.name if asked.published_facts else ""
        group = self.by_node[name]
        del group[key]
        if not group:
            del self.by_node[name]
        self.slots[slot_of(str(key))].pop(key, None)

    def _on_facts_change(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """One node is otherwise. Who is woken asks anew, so a crowd of changes wakes each but once."""
        for key in self._find_affected(old, new, self.tracker.clock()):
            self.unsubscribe(key)
            self.wake(key)

    def _find_affected(
        self, old: NodeFacts | None, new: NodeFacts | None, now: datetime
    ) -> list[Key]:
        """Whose answer may be another one now."""
        changed = new or old
        if changed is None:
            return []
        told = [
            key
            for key, asked in self.by_node.get(changed.name, {}).items()
            if self.is_outdated(asked, new, now)
        ]
        return (
            told
            if new is None or new.blocker is not None
            else [*told, *self._find_improvable(new, now)]
        )

    def is_outdated(self, asked: Subscription, new: NodeFacts | None, now: datetime) -> bool:
        """Whether those who were told this node have to be told something else."""
        if (
            new is None
            or asked.published_facts is None
            or replace(new, load=asked.published_facts.load) != asked.published_facts
        ):
            return True
        if _compute_load_change(asked.published_facts, new) > self.change_fraction:
            return True
        chosen = self.tracker.ranking.choose(asked.requirement, new.name, self.rules, now)
        return chosen is None or chosen.name != new.name

    def _find_improvable(self, new: NodeFacts, now: datetime) -> Iterator[Key]:
        """Those who were told another node, or none, and for whom this one is better."""
        hours, gpu, facts = (
            self.rules.available_hours(new, now),
            new.has_gpu,
            self.tracker.ranking.facts,
        )
        for name, group in self.by_node.items():
            present = facts.get(name)
            if name != new.name and (
                present is None or self.rules.is_better_by_margin(new, present)
            ):
                for key, asked in group.items():
                    if asked.requirement.gpu_required == gpu and asked.requirement.hours <= hours:
                        yield key

    async def run(self) -> NoReturn:
        """Wake, each in its slot, those whose status may show something that has changed."""
        while True:
            await asyncio.sleep(self.slot_seconds)
            self.current_slot = (self.current_slot + 1) % SLOT_COUNT
            for key in list(self.slots[self.current_slot]):
                if self.by_key[key].facts_version != self.tracker.version:
                    self.wake(key)


def _compute_load_change(told: NodeFacts, new: NodeFacts) -> float:
    """By which part of its total the load has moved, the larger of CPU and memory."""
    cpu = relative_change(
        told.load.cpu_demand_mhz, new.load.cpu_demand_mhz, new.cpus * ASSUMED_VCPU_MHZ
    )
    return max(
        cpu, relative_change(told.load.guest_memory_mb, new.load.guest_memory_mb, new.memory_mb)
    )
