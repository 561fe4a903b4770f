"""How often numbers that always move are told: at once when much has changed, else once an interval.

Questions and answers:

What is told at once?  Everything but a move of quickStats, and a move by more than `share` of the total since they were last told. What is
    told for any reason takes the newest numbers along, so they count as told.
And the rest?  Each entity has a slot of its own in the interval, by a digest of its reference, for ever. When its slot comes, what has
    moved since it was told is told. So nothing waits longer than an interval, and nothing is told twice in one for small moves alone.
Why a slot, and not "an interval after the last time"?  vCenter sends the numbers of all hosts within one breath every 20 s, and a restart
    reads them all at one moment: by last time they would be due together for ever after. By slot, 1,000 hosts are 17 a second.
What does it cost?  A look into one dictionary a change, and into one slot of 60 a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar
from zlib import crc32

from msgspec.structs import replace

from .model import Host, HostStats, VirtualMachine, VirtualMachineStats

SLOT_COUNT = 60
ASSUMED_VCPU_MHZ = 2000
"""What a vCPU counts for: its true clock is its host's, which a Machine does not know, and here it only says what a large move is."""

Stats = HostStats | VirtualMachineStats
EntityT = TypeVar("EntityT", Host, VirtualMachine)


class StatsThrottle:
    """Decides, of each change of one vCenter's hosts and VMs, whether to tell it now; `run` tells the rest in its time."""

    def __init__(
        self, interval_seconds: float, share: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_disabled = interval_seconds <= 0
        self.slot_seconds = (interval_seconds if interval_seconds > 0 else 60.0) / SLOT_COUNT
        self._change_threshold, self.clock = share, clock
        self.published_stats: dict[str, Stats] = {}
        self.pending_by_slot: list[dict[str, Stats]] = [{} for _ in range(SLOT_COUNT)]
        """By slot: what has moved since it was told, with the newest numbers."""
        self._last_slot = self.current_slot()

    def current_slot(self) -> int:
        """The number of the slot that we are in, counted without end."""
        return int(self.clock() // self.slot_seconds)

    def should_publish(
        self,
        old: Host | VirtualMachine | None,
        new: Host | VirtualMachine | None,
        *,
        dependency_changed: bool = False,
    ) -> bool:
        """Whether to tell this change now; if not, it is told when its slot comes. `surroundings`: these have changed with it."""
        if new is None:
            return self.forget(old)
        told = self.published_stats.get(new.ref)
        if (
            told is None
            or self._is_disabled
            or dependency_changed
            or not _only_stats_changed(old, new)
            or _largest_relative_change(told, new) > self._change_threshold
        ):
            self._mark_published(new.ref, new.stats)
            return True
        self._defer(new.ref, told, new.stats)
        return False

    def forget(self, gone: Host | VirtualMachine | None) -> bool:
        """It has left."""
        if gone is not None:
            self.published_stats.pop(gone.ref, None)
            self.pending_by_slot[slot_of(gone.ref)].pop(gone.ref, None)
        return True

    def _mark_published(self, ref: str, stats: Stats) -> None:
        """These numbers are told now, and nothing is left to tell."""
        self.published_stats[ref] = stats
        self.pending_by_slot[slot_of(ref)].pop(ref, None)

    def _defer(self, ref: str, told: Stats, stats: Stats) -> None:
        """Remember what moved; what has moved back is no news."""
        slot = self.pending_by_slot[slot_of(ref)]
        if stats == told:
            slot.pop(ref, None)
        else:
            slot[ref] = stats

    def with_published_stats(self, entity: EntityT) -> EntityT:
        """The entity with the numbers that were told last, so that what is shown moves at this pace and no other."""
        stats = self.published_stats.get(entity.ref, entity.stats)
        return entity if stats == entity.stats else replace(entity, stats=stats)

    def take_due(self) -> list[str]:
        """The references whose slot has come since the last call and which have moved since they were told; they count as told now."""
        now = self.current_slot()
        slots = range(max(self._last_slot, now - SLOT_COUNT) + 1, now + 1)
        self._last_slot = now
        moved: list[str] = []
        for slot in slots:
            waiting = self.pending_by_slot[slot % SLOT_COUNT]
            self.published_stats.update(waiting)
            moved.extend(waiting)
            waiting.clear()
        return moved

    async def run(self, tell: Callable[[str], None]) -> NoReturn:
        """Call `tell` with each reference when its time has come."""
        while True:
            await asyncio.sleep(self.slot_seconds)
            for ref in self.take_due():
                tell(ref)


def slot_of(ref: str) -> int:
    """The slot of a reference, the same in every process."""
    return crc32(ref.encode()) % SLOT_COUNT


def _only_stats_changed(old: Host | VirtualMachine | None, new: Host | VirtualMachine) -> bool:
    """Whether the numbers are all that differs. A change without any difference is one of its surroundings, such as a cluster's name."""
    return old is not None and old.stats != new.stats and replace(new, stats=old.stats) == old


def _largest_relative_change(told: Stats, new: Host | VirtualMachine) -> float:
    """By which part of its total any number has moved, the largest of them; a number that came or went has moved by all of it."""
    return max((relative_change(*number) for number in _compare_stats(told, new)), default=1.0)


def relative_change(before: int | None, now: int | None, total: float) -> float:
    """By which part of the total one number has moved; 0 where the total is not known, since free is not known either."""
    if before is None or now is None:
        return float(before is not now)
    return abs(now - before) / total if total else 0.0


def _compare_stats(
    told: Stats, new: Host | VirtualMachine
) -> Iterator[tuple[int | None, int | None, float]]:
    """Each number as (told, now, total)."""
    if isinstance(new, Host) and isinstance(told, HostStats):
        yield told.cpu_usage_mhz, new.stats.cpu_usage_mhz, (new.cpu_mhz or 0) * (new.cpu_cores or 0)
        yield told.memory_usage_mb, new.stats.memory_usage_mb, (new.memory_bytes or 0) / 2**20
    if isinstance(new, VirtualMachine) and isinstance(told, VirtualMachineStats):
        yield told.cpu_usage_mhz, new.stats.cpu_usage_mhz, (new.cpus or 0) * ASSUMED_VCPU_MHZ
        yield told.cpu_demand_mhz, new.stats.cpu_demand_mhz, (new.cpus or 0) * ASSUMED_VCPU_MHZ
        yield told.guest_memory_mb, new.stats.guest_memory_mb, new.memory_mb or 0
