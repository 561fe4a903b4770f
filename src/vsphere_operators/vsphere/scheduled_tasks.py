"""vCenter's scheduled tasks that put a host into maintenance mode, in memory.

When?  From when somebody asks for the first time, and every 5 minutes then.
Why by interval?  The ScheduledTaskManager is watched by nobody's filter: its tasks are no entities. Two calls a look: which there are, and
    what they do. A person who plans a maintenance does it hours ahead, so 5 minutes are early enough.
What if it fails, or the account may not see them?  The last known ones stay; `problem` has the words, for whoever shows what they lead to.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, NoReturn

from msgspec import Struct
from pyVmomi import vmodl

from .faults import UNAVAILABLE_ERRORS, Busy, VCenterError
from .polling import PollSchedule
from .properties import to_bool, to_name, to_ref, to_text
from .retrieve import build_object_spec, retrieve_selected
from .session import Session
from .signal import Signal
from .transport import Log, SoapClient
from .updates import Value

PropertyCollector = vmodl.query.PropertyCollector
INTERVAL_SECONDS = 300.0
_ENTER_MAINTENANCE = "EnterMaintenanceMode_Task"
_INFO_PROPERTY = "info"
_MAX_BUSY_POLLS = 4
"""Over 5, 10 and 20 seconds."""
EARLIEST_YEAR, LATEST_YEAR = 2000, 9000


class PlannedMaintenance(Struct, frozen=True):
    """A host will be put into maintenance mode."""

    host: str
    """Its reference."""
    starts_at: datetime
    task_name: str
    """What people call the scheduled task."""


class ScheduledTasks:
    """What is planned for which host; `of` answers from memory."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        log: Log,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        self.soap, self.session, self.log = soap, session, log
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        self.requested = asyncio.Event()
        self.by_host: dict[str, tuple[PlannedMaintenance, ...]] = {}
        self.changed: Signal[str] = Signal(log)
        """The planned maintenance of a host changed: its reference."""
        self.has_polled = False
        """Whether a look has ended, well or with a no: before that nobody can tell whether anything is planned."""
        self.problem = ""
        """Why the last look failed, "" if it did not."""
        self.state_changed: Signal[()] = Signal(log)
        """`has_polled` or `problem` changed."""

    def get(self, host: str) -> tuple[PlannedMaintenance, ...]:
        """What is planned for the host of this reference; the first who asks starts the looking."""
        self.requested.set()
        return self.by_host.get(host, ())

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled, from when somebody asks."""
        await self.requested.wait()
        await self.poll_schedule.run(self.poll)

    async def poll(self) -> None:
        """Look once; a failure is told once, and never raised."""
        try:
            with self.poll_schedule.track_poll():
                self.apply(await self.session.call(self.read_planned))
            self.finish_poll("")
        except VCenterError as error:
            words = str(error)
            if words != self.problem:
                self.log.warning(
                    "scheduled tasks cannot be read, the last known ones stay", error=error
                )
            self.finish_poll(words, has_polled=not self._is_retryable(error))
        except Exception:
            self.finish_poll(
                "an answer of vCenter could not be understood; the manager's log has more"
            )
            raise

    def _is_retryable(self, error: VCenterError) -> bool:
        """Whether the next looks may tell more; a vCenter that is here and busy with nothing else for minutes has said no."""
        return isinstance(error, UNAVAILABLE_ERRORS) or (
            isinstance(error, Busy) and self.poll_schedule.failures <= _MAX_BUSY_POLLS
        )

    def finish_poll(self, problem: str, *, has_polled: bool = True) -> None:
        """A look has ended; one that could not tell anything leaves `looked` as it was."""
        before, self.has_polled, self.problem = (
            (self.has_polled, self.problem),
            self.has_polled or has_polled,
            problem,
        )
        if before != (self.has_polled, problem):
            self.state_changed.emit()

    async def read_planned(self) -> list[PlannedMaintenance]:
        """All scheduled tasks of this vCenter that enter maintenance mode; a vCenter without such a manager has none."""
        content = await self.soap.get_service_content()
        if content.scheduledTaskManager is None:
            return []
        tasks = await content.scheduledTaskManager.RetrieveEntityScheduledTask(None)
        if not tasks:
            return []
        paths = PropertyCollector.PropertySpec(
            type=type(tasks[0]), all=False, pathSet=[_INFO_PROPERTY]
        )
        spec = PropertyCollector.FilterSpec(
            objectSet=[build_object_spec(task) for task in tasks],
            propSet=[paths],
            reportMissingObjectsInResults=True,
        )
        updates = await retrieve_selected(self.soap, spec)
        return [
            found
            for update in updates
            if (found := decode_planned_maintenance(update.changes.get(_INFO_PROPERTY))) is not None
        ]

    def apply(self, found: list[PlannedMaintenance]) -> None:
        """Take what was read, and tell for which hosts it differs."""
        old, self.by_host = self.by_host, {}
        for each in sorted(found, key=lambda each: (each.starts_at, each.task_name)):
            self.by_host[each.host] = (*self.by_host.get(each.host, ()), each)
        for host in {**old, **self.by_host}:
            if old.get(host) != self.by_host.get(host):
                self.changed.emit(host)


def decode_planned_maintenance(info: Value) -> PlannedMaintenance | None:
    """What a ScheduledTaskInfo means; None for one that is switched off, is over, or does something else."""
    if (
        not isinstance(info, dict)
        or not _is_enabled(info)
        or not isinstance(action := info.get("action"), dict)
    ):
        return None
    host, at = to_ref(info.get("entity")), parse_time(info.get("nextRunTime"))
    if to_text(action.get("name")) != _ENTER_MAINTENANCE or not host or at is None:
        return None
    return PlannedMaintenance(host, at, to_name(info.get("name")))


def _is_enabled(info: dict[str, Any]) -> bool:
    """Whether it will run; inside a data object a truth is text."""
    return to_bool(info.get("enabled")) or to_text(info.get("enabled")) in ("true", "1")


def parse_time(value: Value) -> datetime | None:
    """A time, also as text; without an offset it is UTC. A year that nobody can mean, such as 9999 for never, is no time."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(to_text(value))
    except ValueError:
        return None
    if not EARLIEST_YEAR <= found.year <= LATEST_YEAR:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
