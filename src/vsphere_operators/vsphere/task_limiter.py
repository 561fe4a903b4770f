"""Limits running vCenter tasks to N, fairly among their owners, and reports their end.

    with limiter.reserve_slot(group_uid):
        task_ref = await vm_calls.clone(spec)
    limiter.track(group_uid, task_ref)

A task slot is the permission to have one task running. Nothing waits for the end of a task. It
arrives through the inventory, and the signal `task_ended` reports it.

How is it fair?  An owner that finds no free slot is queued and gets NoFreeSlot. A free slot belongs
    to the owner that has waited longest, and `slot_freed` enqueues that owner. So an owner that
    wants 50 tasks does not block one that wants a single task.
What if the end arrives before the response that names the task?  The inventory can be faster than
    the call. So `track` also checks the inventory.
What if vCenter forgets a task before its end was seen?  That takes an outage, since vCenter lists
    ended tasks for minutes. The end is then reported as unknown (None), and the owner must read
    what exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .faults import Busy
from .inventory import Change, Inventory, Signal
from .log import Log
from .model import FINAL_TASK_STATES, Task

MAX_RUNNING_TASKS = 3
# An owner that did not try again within this time no longer wants a slot, or no longer exists.
WAITING_OWNER_SECONDS = 60.0
# A task appears in the inventory a moment after the call. One that does not was lost in a restart
# of vCenter.
_LOST_TASK_SECONDS = 60.0


class NoFreeSlot(Busy):
    """The owner has to wait. Nothing was sent to vCenter."""


class TaskLimiter:
    """All tasks that this process started in one vCenter."""

    def __init__(
        self,
        inventory: Inventory,
        log: Log,
        *,
        max_running_tasks: int = MAX_RUNNING_TASKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inventory, self._log, self._clock = inventory, log, clock
        self.max_running_tasks = max_running_tasks
        self.running: dict[str, float] = {}
        """When each running task was started, by its reference."""
        self.starting_count = 0
        self._waiting_owners: dict[str, float] = {}
        """When each owner without a slot last tried to get one, in the order in which they came."""
        self.task_ended: Signal[str, Task | None] = Signal(log)
        """The reference of a task, and the task at its end; None if the end is unknown."""
        self.slot_freed: Signal[str] = Signal(log)
        """The owner that may start now."""

    @contextmanager
    def reserve_slot(self, owner: str) -> Iterator[None]:
        """Hold a slot while the owner starts a task. Raises NoFreeSlot if no slot is free.

        `track` takes the slot over for the started task. Nothing may be awaited between the two.
        """
        self._take_slot(owner)
        self.starting_count += 1
        try:
            yield
        except BaseException:
            self.starting_count -= 1
            self._offer_free_slots()
            raise
        self.starting_count -= 1

    def track(self, owner: str, task_ref: str) -> None:
        """Follow a task that was started in a reserved slot until its end. `owner` is logged."""
        self.running[task_ref] = self._clock()
        self._log.debug("task started", owner=owner, task=task_ref)
        self._end_if_final(self._inventory.tasks.get(task_ref))

    def _take_slot(self, owner: str) -> None:
        """Queue the owner and raise NoFreeSlot, unless a slot is free and no owner is ahead."""
        now = self._clock()
        lost_tasks = [
            task_ref
            for task_ref, started_at in self.running.items()
            if now - started_at >= _LOST_TASK_SECONDS and task_ref not in self._inventory.tasks
        ]
        for task_ref in lost_tasks:
            self._end(task_ref, None)
        self._waiting_owners = {
            waiting: tried_at
            for waiting, tried_at in self._waiting_owners.items()
            if now - tried_at < WAITING_OWNER_SECONDS
        }
        owners_ahead = 0
        for waiting in self._waiting_owners:
            if waiting == owner:
                break
            owners_ahead += 1
        if self.free_slots > owners_ahead:
            self._waiting_owners.pop(owner, None)
            return
        self._waiting_owners[owner] = now
        raise NoFreeSlot(
            f"{self.max_running_tasks} tasks are running in this vCenter, which is the limit; "
            "waiting for a free slot"
        )

    def is_waiting(self, owner: str) -> bool:
        """Whether the owner has to try again within WAITING_OWNER_SECONDS to keep its place."""
        return owner in self._waiting_owners

    def stop_waiting(self, owner: str) -> None:
        if self._waiting_owners.pop(owner, None) is not None:
            self._offer_free_slots()

    @property
    def free_slots(self) -> int:
        return self.max_running_tasks - len(self.running) - self.starting_count

    def on_task_change(self, change: Change[Task]) -> None:
        if change.new is not None:
            self._end_if_final(change.new)
        elif change.old is not None and change.old.ref in self.running:
            # It left the list of recent tasks, and its end was never seen.
            self._end(change.old.ref, None)

    def _end_if_final(self, task: Task | None) -> None:
        if task is not None and task.state in FINAL_TASK_STATES and task.ref in self.running:
            self._end(task.ref, task)

    def _end(self, task_ref: str, task: Task | None) -> None:
        del self.running[task_ref]
        self.task_ended.emit(task_ref, task)
        self._offer_free_slots()

    def _offer_free_slots(self) -> None:
        for owner in list(self._waiting_owners)[: max(self.free_slots, 0)]:
            self.slot_freed.emit(owner)
