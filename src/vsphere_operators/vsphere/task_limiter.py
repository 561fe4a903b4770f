"""Changes in vCenter: started, then followed through the inventory; at most so many at once, fair among those who want some.

    with limiter.reserve_slot("team-a/web"):
        task = await session.call(lambda: template.CloneVM_Task(folder, name, spec))
    limiter.track("team-a/web", "clone the VM web-1", task)
    ...                                  # does not wait: task_ended is emitted at the end

How is it fair?  Who finds no room is written down and gets Busy. Free room is for who has waited longest; when room comes, the first
    of those who wait hears of it. So one who wants 50 operations does not keep out one who wants 1.
What if the end comes before the answer that names the task?  The inventory may be faster than the call. Ends of tasks that nobody knows are
    looked up when the answer comes.
What if vCenter forgets a task before its end was seen (a reload, a restart)?  Its end is told as unknown: whoever started it must look at
    what there is. vCenter keeps ended tasks in its list for minutes, so this takes an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from .faults import Busy
from .inventory import Change, Inventory
from .model import Task
from .signal import Signal
from .transport import Log

MAX_RUNNING_TASKS = 3
# Who asked for room and did not come again has changed his mind, or is gone.
WAITING_OWNER_SECONDS = 60.0
# A task is shown a moment after it was named. One that is not, vCenter forgot in a restart.
_LOST_TASK_SECONDS = 60.0
FINAL_STATES = ("success", "error")


class Operation(Struct, frozen=True):
    """One change under way."""

    owner: str
    description: str
    task: str
    """MoRef of the task."""
    started_at: float = 0.0


class TaskLimiter:
    """All operations of this process on one vCenter."""

    def __init__(
        self,
        inventory: Inventory,
        log: Log,
        *,
        max_running_tasks: int = MAX_RUNNING_TASKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inventory, self.log, self.max_running_tasks, self.clock = (
            inventory,
            log,
            max_running_tasks,
            clock,
        )
        self.running: dict[str, Operation] = {}
        self.starting_count = 0
        self._waiting_owners: dict[str, float] = {}
        """Owners who found no room, in the order in which they came, and when they last asked."""
        self.task_ended: Signal[Operation, Task | None] = Signal(log)
        """An operation, and its task at the end; None if the end is unknown."""
        self.slot_freed: Signal[str] = Signal(log)
        """The owner that may start now."""

    @contextmanager
    def reserve_slot(self, owner: str) -> Iterator[None]:
        """Hold a slot while the owner starts a task; raises Busy if none is free for it now.

        `track` takes the slot over for the started task. Nothing may be awaited between the two.
        """
        self.admit(owner)
        self.starting_count += 1
        try:
            yield
        except BaseException:
            self.starting_count -= 1
            self._offer_free_slots()
            raise
        self.starting_count -= 1

    def track(self, owner: str, description: str, task: Any) -> Operation:
        """Follow a task that was started in a reserved slot until its end."""
        operation = Operation(owner, description, str(task._moId), self.clock())
        self.running[operation.task] = operation
        self.log.debug("operation started", operation=description, owner=owner, task=operation.task)
        self._end_if_final(self.inventory.tasks.get(operation.task))
        return operation

    def admit(self, owner: str) -> None:
        """Raise Busy, and write the owner down, unless there is room that nobody has waited for longer."""
        now = self.clock()
        for lost in [
            each
            for each in self.running.values()
            if now - each.started_at >= _LOST_TASK_SECONDS and each.task not in self.inventory.tasks
        ]:
            self.end(lost, None)
        self._waiting_owners = {
            each: asked
            for each, asked in self._waiting_owners.items()
            if now - asked < WAITING_OWNER_SECONDS
        }
        ahead = 0
        for each in self._waiting_owners:
            if each == owner:
                break
            ahead += 1
        if self.free_slots > ahead:
            self._waiting_owners.pop(owner, None)
            return
        self._waiting_owners[owner] = now
        raise Busy(
            f"{self.max_running_tasks} operations are running in this vCenter, which is the limit; this one waits for its turn"
        )

    def stop_waiting(self, owner: str) -> None:
        """The owner wants nothing any more; whoever waits behind is let through."""
        if self._waiting_owners.pop(owner, None) is not None:
            self._offer_free_slots()

    @property
    def free_slots(self) -> int:
        """How many more may start."""
        return self.max_running_tasks - len(self.running) - self.starting_count

    def on_task_change(self, change: Change) -> None:
        """A task changed; a task of ours that left without an end, ended without one that anybody can tell."""
        if isinstance(change.new, Task):
            self._end_if_final(change.new)
        elif isinstance(change.old, Task) and change.old.ref in self.running:
            self.end(self.running[change.old.ref], None)

    def _end_if_final(self, task: Task | None) -> None:
        """Take note of an end."""
        if task is not None and task.state in FINAL_STATES and task.ref in self.running:
            self.end(self.running[task.ref], task)

    def end(self, operation: Operation, task: Task | None) -> None:
        """Make room, then tell."""
        del self.running[operation.task]
        self.task_ended.emit(operation, task)
        self._offer_free_slots()

    def _offer_free_slots(self) -> None:
        """Let the first of those who wait ask again."""
        for owner in list(self._waiting_owners)[: max(self.free_slots, 0)]:
            self.slot_freed.emit(owner)
