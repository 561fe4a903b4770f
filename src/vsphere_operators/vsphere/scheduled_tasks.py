"""vCenter's scheduled tasks that put a host into maintenance mode, in memory.

When?  From when somebody asks for the first time, and every 5 minutes then.
Why by interval?  The ScheduledTaskManager is watched by nobody's filter: its tasks are no entities. Two calls a look: which there are, and
    what they do. A person who plans a maintenance does it hours ahead, so 5 minutes are early enough.
What if it fails, or the account may not see them?  The last known ones stay; `problem` has the words, for whoever shows what they lead to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

from msgspec import Struct
from pyVmomi import vmodl

from .faults import AWAY, Busy, VCenterError
from .polling import Rhythm
from .properties import flag, name, ref, text
from .retrieve import all_selected
from .server_view import on
from .session import Session
from .transport import Log, Soap
from .updates import Value

Query = vmodl.query.PropertyCollector
INTERVAL_SECONDS = 300.0
ENTER_MAINTENANCE = "EnterMaintenanceMode_Task"
INFO = "info"
PATIENT_LOOKS = 4
"""Over 5, 10 and 20 seconds."""
EARLIEST_YEAR, LATEST_YEAR = 2000, 9000
Listener = Callable[[str], None]


class Planned(Struct, frozen=True):
    """A host will be put into maintenance mode."""

    host: str
    """Its reference."""
    at: datetime
    task: str
    """What people call the scheduled task."""


class Scheduled:
    """What is planned for which host; `of` answers from memory."""

    def __init__(
        self, soap: Soap, session: Session, log: Log, *, interval_seconds: float = INTERVAL_SECONDS, rhythm: Rhythm | None = None
    ) -> None:
        self.soap, self.session, self.log = soap, session, log
        self.rhythm = rhythm or Rhythm(interval_seconds)
        self.wanted = asyncio.Event()
        self.known: dict[str, tuple[Planned, ...]] = {}
        self.listeners: list[Listener] = []
        self.looked = False
        """Whether a look has ended, well or with a no: before that nobody can tell whether anything is planned."""
        self.problem = ""
        """Why the last look failed, "" if it did not."""
        self.turned: list[Callable[[], None]] = []
        """Called when `looked` or `problem` has changed."""

    def of(self, host: str) -> tuple[Planned, ...]:
        """What is planned for the host of this reference; the first who asks starts the looking."""
        self.wanted.set()
        return self.known.get(host, ())

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled, from when somebody asks."""
        await self.wanted.wait()
        await self.rhythm.keep(self.look)

    async def look(self) -> None:
        """Look once; a failure is told once, and never raised."""
        try:
            with self.rhythm.looking():
                self.learn(await self.session.call(self.read))
            self.end("")
        except VCenterError as error:
            words = str(error)
            if words != self.problem:
                self.log.warning("scheduled tasks cannot be read, the last known ones stay", error=error)
            self.end(words, looked=not self.will_pass(error))
        except Exception:
            self.end("an answer of vCenter could not be understood; the manager's log has more")
            raise

    def will_pass(self, error: VCenterError) -> bool:
        """Whether the next looks may tell more; a vCenter that is here and busy with nothing else for minutes has said no."""
        return isinstance(error, AWAY) or (isinstance(error, Busy) and self.rhythm.failures <= PATIENT_LOOKS)

    def end(self, problem: str, *, looked: bool = True) -> None:
        """A look has ended; one that could not tell anything leaves `looked` as it was."""
        before, self.looked, self.problem = (self.looked, self.problem), self.looked or looked, problem
        if before != (self.looked, problem):
            for listener in self.turned:
                listener()

    async def read(self) -> list[Planned]:
        """All scheduled tasks of this vCenter that enter maintenance mode; a vCenter without such a manager has none."""
        content = await self.soap.content()
        if content.scheduledTaskManager is None:
            return []
        tasks = await content.scheduledTaskManager.RetrieveEntityScheduledTask(None)
        if not tasks:
            return []
        paths = Query.PropertySpec(type=type(tasks[0]), all=False, pathSet=[INFO])
        spec = Query.FilterSpec(objectSet=[on(task) for task in tasks], propSet=[paths], reportMissingObjectsInResults=True)
        updates = await all_selected(self.soap, spec)
        return [found for update in updates if (found := planned(update.changes.get(INFO))) is not None]

    def learn(self, found: list[Planned]) -> None:
        """Take what was read, and tell for which hosts it differs."""
        old, self.known = self.known, {}
        for each in sorted(found, key=lambda each: (each.at, each.task)):
            self.known[each.host] = (*self.known.get(each.host, ()), each)
        for host in {**old, **self.known}:
            if old.get(host) != self.known.get(host):
                for listener in self.listeners:
                    listener(host)


def planned(info: Value) -> Planned | None:
    """What a ScheduledTaskInfo means; None for one that is switched off, is over, or does something else."""
    if not isinstance(info, dict) or not enabled(info) or not isinstance(action := info.get("action"), dict):
        return None
    host, at = ref(info.get("entity")), moment(info.get("nextRunTime"))
    if text(action.get("name")) != ENTER_MAINTENANCE or not host or at is None:
        return None
    return Planned(host, at, name(info.get("name")))


def enabled(info: dict[str, Any]) -> bool:
    """Whether it will run; inside a data object a truth is text."""
    return flag(info.get("enabled")) or text(info.get("enabled")) in ("true", "1")


def moment(value: Value) -> datetime | None:
    """A time, also as text; without an offset it is UTC. A year that nobody can mean, such as 9999 for never, is no time."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(text(value))
    except ValueError:
        return None
    if not EARLIEST_YEAR <= found.year <= LATEST_YEAR:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
