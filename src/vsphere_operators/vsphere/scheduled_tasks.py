"""vCenter's scheduled tasks that put a host into maintenance mode, in memory.

When?  Every 5 minutes, from the first call of `get` on.
Why by interval?  Scheduled tasks are not entities, so no property filter covers them. A poll takes
    two calls. Maintenance is planned hours ahead, so 5 minutes are early enough.
What if it fails, or the account lacks permission?  The last known tasks remain, and `problem` has
    the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NoReturn

from msgspec import Struct

from .converters import require_text, to_bool, to_name, to_ref, to_text
from .decode_errors import DECODE_ERRORS
from .faults import UNAVAILABLE_ERRORS, Busy, VCenterError
from .inventory import Signal
from .log import Log
from .polling import PollSchedule, changed_keys
from .property_collector import (
    build_filter_spec,
    build_object_spec,
    build_property_spec,
    retrieve_selected,
)
from .session import Session
from .transport import SoapClient
from .updates import ObjectUpdate, Ref, Value, decode_results

_INTERVAL_SECONDS = 300.0
_ENTER_MAINTENANCE = "EnterMaintenanceMode_Task"
_INFO_PROPERTY = "info"
# With the pauses of PollSchedule: over 5, 10 and 20 seconds.
_MAX_BUSY_POLLS = 4
# Some clients write a date such as 9999-12-31 for "never", to which no time can be added.
_EARLIEST_YEAR, _LATEST_YEAR = 2000, 9000


class MaintenanceTask(Struct, frozen=True):
    host: str
    starts_at: datetime
    task_name: str


class ScheduledTasks:
    """The planned maintenance of all hosts of one vCenter."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        log: Log,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        self._soap, self._session, self._log = soap, session, log
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        self.requested = asyncio.Event()
        self.by_host: dict[str, tuple[MaintenanceTask, ...]] = {}
        # The planned maintenance of the host with this reference changed.
        self.changed: Signal[str] = Signal(log)
        # Whether a poll succeeded or failed for good. Until then, what is planned is unknown.
        self.is_first_poll_done = False
        # Why the last poll failed; "" if it succeeded.
        self.problem = ""
        # `is_first_poll_done` or `problem` changed.
        self.state_changed: Signal[()] = Signal(log)

    def get(self, host: str) -> tuple[MaintenanceTask, ...]:
        """What is planned for the host with this reference. The first call starts the polling."""
        self.requested.set()
        return self.by_host.get(host, ())

    async def run(self) -> NoReturn:
        await self.requested.wait()
        await self.poll_schedule.run(self.poll)

    async def poll(self) -> None:
        """Read once. A failure is logged once and kept in `problem`, not raised."""
        try:
            with self.poll_schedule.track_poll():
                self.apply(await self._session.call(self._read_maintenance_tasks))
            self._finish_poll("")
        except VCenterError as error:
            message = str(error)
            if message != self.problem:
                self._log.warning(
                    "scheduled tasks cannot be read, keeping the last known ones", error=error
                )
            # After several Busy responses in a row, stop waiting and report the problem.
            may_recover = isinstance(error, UNAVAILABLE_ERRORS) or (
                isinstance(error, Busy) and self.poll_schedule.failures <= _MAX_BUSY_POLLS
            )
            self._finish_poll(message, is_done=not may_recover)
        except Exception:
            self._finish_poll("a response of vCenter could not be processed; see the manager's log")
            raise

    def _finish_poll(self, problem: str, *, is_done: bool = True) -> None:
        before = (self.is_first_poll_done, self.problem)
        self.is_first_poll_done, self.problem = self.is_first_poll_done or is_done, problem
        if before != (self.is_first_poll_done, problem):
            self.state_changed.emit()

    async def _read_maintenance_tasks(self) -> list[MaintenanceTask]:
        content = await self._soap.get_service_content()
        if content.scheduledTaskManager is None:
            return []
        method = "RetrieveEntityScheduledTask"
        body = await self._soap.invoke(content.scheduledTaskManager, method, {})
        results = decode_results(body, method, self._soap.decode_errors.report)
        tasks = [task for task in results if isinstance(task, Ref)]
        if not tasks:
            return []
        spec = build_filter_spec(
            [build_object_spec(task) for task in tasks],
            [build_property_spec("ScheduledTask", [_INFO_PROPERTY])],
            # A task may be deleted between the two calls.
            report_missing=True,
        )
        return self._decode_tasks(await retrieve_selected(self._soap, spec))

    def _decode_tasks(self, updates: Iterable[ObjectUpdate]) -> list[MaintenanceTask]:
        tasks = list[MaintenanceTask]()
        for update in updates:
            try:
                task = _decode_maintenance_task(update.changes.get(_INFO_PROPERTY))
            except DECODE_ERRORS as error:
                self._soap.decode_errors.report(update.type, _INFO_PROPERTY, update.ref, error)
            else:
                tasks += [task] if task else []
        return tasks

    def apply(self, tasks: list[MaintenanceTask]) -> None:
        old, self.by_host = self.by_host, {}
        for task in sorted(tasks, key=lambda task: (task.starts_at, task.task_name)):
            self.by_host[task.host] = (*self.by_host.get(task.host, ()), task)
        for host in changed_keys(old, self.by_host):
            self.changed.emit(host)


def _decode_maintenance_task(info: Value) -> MaintenanceTask | None:
    """None for a ScheduledTaskInfo that is disabled, is over, or does something else."""
    if not isinstance(info, dict) or not isinstance(action := info.get("action"), dict):
        return None
    # Inside a data object a boolean is text.
    is_enabled = to_bool(info.get("enabled")) or to_text(info.get("enabled")) in ("true", "1")
    host, starts_at = to_ref(info.get("entity")), _parse_run_time(info.get("nextRunTime"))
    if (
        not is_enabled
        or to_text(action.get("name")) != _ENTER_MAINTENANCE
        or not host
        or starts_at is None
    ):
        return None
    return MaintenanceTask(host, starts_at, to_name(info.get("name")))


def _parse_run_time(value: Value) -> datetime | None:
    """A time, also as text; without an offset it is UTC. None for an implausible year."""
    if value in (None, ""):
        return None
    time = value if isinstance(value, datetime) else datetime.fromisoformat(require_text(value))
    if not _EARLIEST_YEAR <= time.year <= _LATEST_YEAR:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
