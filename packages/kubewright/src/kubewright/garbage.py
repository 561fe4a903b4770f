"""When Python's collector of reference cycles runs, and what it visits.

What is the problem?  A full collection visits every list and dictionary of the process. Those of
    100,000 cached objects take it 0.5 s, in which the event loop serves nothing. It runs whenever
    their number has grown by a quarter, and finds nothing: objects of the API have no cycles.
What is done instead?  What has survived a collection is frozen, so that later ones visit only what
    is new. They run by time, so often that each takes some milliseconds. While much is loaded that
    would not be often enough, so what the automatic collections of new objects leave is frozen as
    soon as it is much.
And a cycle of objects that were frozen while in use?  It stays until the daily collection of
    everything. Such cycles are rare: what a request creates is usually freed by its reference
    counts, and is younger than the last collection otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import NoReturn

_MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 1.0, 30.0
# A collection that takes longer is followed by one after the minimum interval.
_SHORT_SECONDS = 0.01
_FULL_INTERVAL_SECONDS = 24 * 3600.0
# Never: the collections of the oldest generation are those of GarbageCollector.
_NO_FULL_COLLECTION = 1_000_000
# A collection visits so many objects in about 5 ms.
_MAX_SURVIVORS = 50_000


def tune_garbage_collector() -> None:
    """For a process that has imported and built everything, but not yet loaded anything."""
    # Modules, classes and schemas live as long as the process. Not collected before: that would
    # visit all of them, and imports leave few cycles.
    gc.freeze()
    # A request creates thousands of short-lived objects. A collection after every 700 of them, as
    # is the default, took about 3 % of the CPU.
    gc.set_threshold(10_000, 5, _NO_FULL_COLLECTION)
    gc.callbacks.append(_freeze_survivors)
    # The main function of an operator may have disabled it during its imports.
    gc.enable()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    is_middle = phase == "stop" and info["generation"] == 1
    if is_middle and len(gc.get_objects(generation=2)) > _MAX_SURVIVORS:
        gc.freeze()


class GarbageCollector:
    """Collects by time; `run` it next to the controllers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._interval_seconds = _MIN_INTERVAL_SECONDS
        self._full_at = clock() + _FULL_INTERVAL_SECONDS

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._interval_seconds)
            self._collect()

    def _collect(self) -> None:
        began = self._clock()
        if began >= self._full_at:
            gc.unfreeze()
            self._full_at = began + _FULL_INTERVAL_SECONDS
        gc.collect()
        gc.freeze()
        if self._clock() - began > _SHORT_SECONDS:
            self._interval_seconds = _MIN_INTERVAL_SECONDS
        else:
            self._interval_seconds = min(2 * self._interval_seconds, _MAX_INTERVAL_SECONDS)
