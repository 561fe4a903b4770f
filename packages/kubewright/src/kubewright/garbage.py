"""When Python's collector of reference cycles runs, and what it visits.

What is the problem?  A full collection visits every list and dictionary of the process. With
    100,000 cached objects it blocks the event loop for 0.5 s. Python runs one whenever the number
    of objects has grown by a quarter, and it finds nothing: objects of the API have no cycles.
What is done instead?  Objects that survive a collection are frozen, so that later collections visit
    only newer ones. Collections run by time, so often that each takes some milliseconds. During a
    load that is not often enough, so the survivors of Python's automatic collections are also
    frozen, as soon as there are 50,000.
And a cycle of objects that were frozen while in use?  It stays until the daily collection of
    everything. Such cycles are rare: reference counts free most of what a request creates, and the
    next collection frees its cycles.
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
# Never reached: GarbageCollector collects the oldest generation.
_NO_FULL_COLLECTION = 1_000_000
# A collection visits 50,000 objects in about 5 ms.
_MAX_SURVIVORS = 50_000


def tune_garbage_collector() -> None:
    """Call it when everything is imported and built, and before anything is loaded."""
    # Modules, classes and schemas live as long as the process. Without a collection first: it would
    # visit all of them, and imports leave few cycles.
    gc.freeze()
    # A request creates thousands of short-lived objects. A collection after every 700 of them, as
    # is the default, took about 3 % of the CPU.
    gc.set_threshold(10_000, 5, _NO_FULL_COLLECTION)
    gc.callbacks.append(_freeze_survivors)
    # The main function of an operator may have disabled collections during its imports.
    gc.enable()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    is_middle = phase == "stop" and info["generation"] == 1
    if is_middle and len(gc.get_objects(generation=2)) > _MAX_SURVIVORS:
        gc.freeze()


class GarbageCollector:
    """Collects periodically. `run` it next to the controllers."""

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
