"""Which node is selected for which GPUInfo: a changed node enqueues only affected objects.

How are the affected objects found?  Those with the changed node are checked one by one. For all
    others the selection changes only if the changed node beats their selected node: one comparison
    per selected node, however many objects there are.
And everything else that a status shows (usage, other candidates, counts)?  It is refreshed once per
    interval, one bucket of objects after the other, and only if any facts changed. The usage of the
    selected node is refreshed at once when it changes by more than `change_fraction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from kubewright import Key

from ...vsphere.stats_throttle import ASSUMED_VCPU_MHZ, BUCKET_COUNT, bucket_of, relative_change
from .rules import NodeFacts, Query, Requirement, SelectionRules
from .tracker import NodeTracker


class _ReportedSelection(Struct, frozen=True):
    """The requirement of one GPUInfo, and the facts of the node that its status shows."""

    requirement: Requirement
    reported_facts: NodeFacts | None
    facts_version: int


class SelectionIndex:
    """The selections of all GPUInfos; `enqueue` is called with the objects to reconcile again."""

    def __init__(
        self,
        tracker: NodeTracker,
        rules: SelectionRules,
        enqueue: Callable[[Key], None],
        *,
        interval_seconds: float,
        change_fraction: float,
    ) -> None:
        self._tracker, self._rules, self._enqueue = tracker, rules, enqueue
        self._bucket_seconds = interval_seconds / BUCKET_COUNT
        self._change_fraction = change_fraction
        self.by_key: dict[Key, _ReportedSelection] = {}
        # By the name of the selected node; "" for none.
        self.by_node: dict[str, dict[Key, _ReportedSelection]] = {}
        self._buckets: list[dict[Key, None]] = [{} for _ in range(BUCKET_COUNT)]

    def add(self, key: Key, requirement: Requirement, facts: NodeFacts | None) -> None:
        self.discard(key)
        selection = _ReportedSelection(requirement, facts, self._tracker.version)
        self.by_key[key] = selection
        self.by_node.setdefault(facts.name if facts else "", {})[key] = selection
        self._buckets[bucket_of(str(key))][key] = None

    def discard(self, key: Key) -> None:
        selection = self.by_key.pop(key, None)
        if selection is None:
            return
        facts = selection.reported_facts
        name = facts.name if facts else ""
        selections = self.by_node[name]
        del selections[key]
        if not selections:
            del self.by_node[name]
        self._buckets[bucket_of(str(key))].pop(key, None)

    def on_facts_change(self, old: NodeFacts | None, new: NodeFacts | None) -> None:
        for key in self._find_affected(old, new, self._tracker.clock()):
            # The reconcile adds it again, so a burst of changes enqueues each object once.
            self.discard(key)
            self._enqueue(key)

    def _find_affected(
        self, old: NodeFacts | None, new: NodeFacts | None, now: datetime
    ) -> list[Key]:
        changed = new or old
        if changed is None:
            return []
        affected = [
            key
            for key, selection in self.by_node.get(changed.name, {}).items()
            if self._is_outdated(selection, new, now)
        ]
        if new is not None and new.rejection_for_all is None:
            affected.extend(self._find_keys_with_worse_node(new, now))
        return affected

    def _is_outdated(
        self, selection: _ReportedSelection, new: NodeFacts | None, now: datetime
    ) -> bool:
        reported = selection.reported_facts
        if new is None or reported is None or replace(new, usage=reported.usage) != reported:
            return True
        cpu_change = relative_change(
            reported.usage.cpu_demand_mhz, new.usage.cpu_demand_mhz, new.cpus * ASSUMED_VCPU_MHZ
        )
        memory_change = relative_change(
            reported.usage.guest_memory_mb, new.usage.guest_memory_mb, new.memory_mb
        )
        if max(cpu_change, memory_change) > self._change_fraction:
            return True
        query = Query(selection.requirement, self._rules, now)
        selected = self._tracker.ranking.select_node(query, new.name)
        return selected is None or selected.name != new.name

    def _find_keys_with_worse_node(self, new: NodeFacts, now: datetime) -> Iterator[Key]:
        """The objects with another node, or none, for which this one is better."""
        hours = self._rules.available_hours(new, now)
        for name, selections in self.by_node.items():
            current = self._tracker.ranking.facts.get(name)
            if name == new.name or (
                current is not None and not self._rules.is_better_by_margin(new, current)
            ):
                continue
            for key, selection in selections.items():
                requirement = selection.requirement
                if requirement.gpu_required == new.has_gpu and requirement.hours <= hours:
                    yield key

    async def run(self) -> NoReturn:
        """Enqueue, bucket by bucket, the objects with a status that may show outdated facts."""
        bucket = 0
        while True:
            await asyncio.sleep(self._bucket_seconds)
            bucket = (bucket + 1) % BUCKET_COUNT
            for key in list(self._buckets[bucket]):
                if self.by_key[key].facts_version != self._tracker.version:
                    self._enqueue(key)
