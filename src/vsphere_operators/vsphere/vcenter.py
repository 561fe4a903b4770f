"""All of one vCenter: logs in, keeps the inventory live, and comes back by itself after whatever went wrong.

    login -> load -> wait for updates, for ever
      ^         the session died: log in again at once, nobody notices
      |         no answer: again after 1, 2, 4... 15 s
      +-------- a refused password: when the credentials change, or when the budget allows

What is `problem`?  What a person should read when the answers cannot be trusted. It is set when failures have lasted longer than
    GRACE_SECONDS, so that a restart of one of its services, or a session that an administrator ended, is not shown on every object.
What stays during an outage?  The inventory as it was last seen. Whoever shows it, shows `problem` with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn, Protocol

from .address import Address
from .assignable import Assignable
from .credentials import CredentialSource
from .devices import Devices
from .disks import Disks
from .faults import Denied, NotAuthenticated, Unreachable, VCenterError, WrongLogin
from .inventory import Inventory
from .property_collector import Collector, UpdateMeter
from .scheduled_tasks import Scheduled
from .session import Session
from .tags import Tags
from .task_limiter import AT_ONCE, Operations
from .transport import Log, Meter, Soap
from .vm_calls import BELONGINGS, Hands, belongings_of
from .vm_details import Reading

GRACE_SECONDS = 10.0
# An open wait is answered every 15 s: once two answers are due, what is shown has to be called out of date.
SILENCE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0


class VCenterMeter(Meter, UpdateMeter, Protocol):
    """Who counts calls and updates."""


class VCenter:
    """One vCenter; what it holds (`inventory`, `disks`, `devices`, `scheduled`...) answers from memory while `run` keeps it true."""

    def __init__(
        self,
        name: str,
        address: Address,
        credentials: CredentialSource,
        log: Log,
        meter: VCenterMeter,
        *,
        disk_interval_seconds: float = 60.0,
        tag_interval_seconds: float = 300.0,
        operations_at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.log, self.clock = name, log, clock
        self.soap = Soap(replace(address, name=name), meter)
        self.session = Session(self.soap, credentials, log)
        self.inventory = Inventory(name, self.listener_failed)
        self.collector = Collector(self.soap, self.session, self.inventory, log, meter, loaded=self.read_anew, answered=self.heard)
        self.disks = Disks(self.soap, self.session, self.inventory, log, interval_seconds=disk_interval_seconds)
        self.tags = Tags(self.soap, self.session, credentials, self.inventory, log, interval_seconds=tag_interval_seconds)
        self.devices = Devices(self.soap, self.session, self.inventory, log)
        self.assignable = Assignable(self.soap, self.session, self.inventory, log)
        self.scheduled = Scheduled(self.soap, self.session, log)
        self.belongings = Reading(BELONGINGS, belongings_of, self.soap, self.session, self.inventory, log)
        self.hands = Hands(self.soap, self.session)
        self.operations = Operations(self.session, self.inventory, log, at_once=operations_at_once, clock=clock)
        self.loaded = False
        self.watching_since = clock()
        """Since when no change was missed: when everything was last read."""
        self.problem: VCenterError | None = None
        self.failures = self.renewals = 0
        self.failing_since: float | None = None
        self.true_until = datetime.now(UTC)
        """Until when the answers were true; of meaning only beside `problem`."""
        self.listeners: list[Callable[[], None]] = []
        """Called when `loaded` or `problem` changed: every answer may be another one now."""

    async def run(self) -> None:
        """Live until cancelled, then log out; nothing that vCenter does ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for life in (
                    self.stay_connected,
                    self.follow_credentials,
                    self.session.keep_alive,
                    self.disks.run,
                    self.tags.run,
                    self.devices.run,
                    self.assignable.run,
                    self.scheduled.run,
                    self.belongings.run,
                ):
                    group.create_task(self.for_ever(life))
        finally:
            await self.session.logout()
            await self.soap.close()

    async def for_ever(self, life: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        """Begin anew after an error that nobody expected, such as an answer that no vCenter should give: it must not end the process."""
        while True:
            try:
                await life()
            except Exception as error:
                self.log.error("unexpected error, beginning anew", vCenter=self.name, error=error)
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)

    async def follow_credentials(self) -> NoReturn:
        """A session that lives is exchanged when the credentials change: whoever gives us another account means it from now on."""
        while True:
            await self.session.credentials_changed()
            try:
                if self.session.logged_in:
                    self.log.info("the credentials changed, logging in anew", vCenter=self.name)
                await self.session.renew(self.session.generation)
            except VCenterError as error:
                self.failed(error)
                await asyncio.sleep(FIRST_PAUSE_SECONDS)

    async def stay_connected(self) -> NoReturn:
        """Follow the inventory, and start again after each failure."""
        while True:
            generation = self.session.generation
            try:
                await self.session.login()
                generation = self.session.generation
                await self.collector.follow()
            except NotAuthenticated as error:
                await self.renew(generation, error)
            except VCenterError as error:
                self.failed(error)
                await self.pause(error)
            except Exception as error:
                words = f"an answer of vCenter {self.name} could not be understood: {type(error).__name__}; the manager's log has more"
                self.failed(Unreachable(words))
                self.log.error("unexpected error, loading the inventory anew", vCenter=self.name, error=error)
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)

    async def renew(self, generation: int, cause: VCenterError) -> None:
        """The session died: log in again at once, but with a pause where vCenter forgets sessions as fast as it gives them."""
        self.log.info("the session ended on the server, logging in again", vCenter=self.name)
        if self.renewals:
            self.failed(cause)
            await self.pause(cause)
        self.renewals += 1
        try:
            await self.session.renew(generation)
        except VCenterError as error:
            self.failed(error)
            await self.pause(error)

    async def pause(self, error: VCenterError) -> None:
        """Wait before the next try: ever longer, or, after a refused login, until there is a reason to hope."""
        if isinstance(error, WrongLogin):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(error.again_in_seconds, FIRST_PAUSE_SECONDS)):
                    await self.session.credentials_changed()
            return
        await asyncio.sleep(min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE_SECONDS))

    def listener_failed(self, error: Exception) -> None:
        """A fault of ours in one who hears of changes; it must not look like one of vCenter, nor have everything read anew."""
        self.log.error("unexpected error of one who follows the inventory; the others go on", vCenter=self.name, error=error)

    def read_anew(self) -> None:
        """Everything was read."""
        self.watching_since = self.clock()
        self.heard()

    def heard(self) -> None:
        """The inventory is loaded and true."""
        self.failures, self.renewals, self.failing_since = 0, 0, None
        if self.loaded and self.problem is None:
            return
        if self.problem is not None:
            self.log.info("vCenter answers again", vCenter=self.name)
        self.loaded, self.problem = True, None
        self.tell()

    def failed(self, error: VCenterError) -> None:
        """No answer, or a refusal; it becomes the problem of every object when it has lasted, or when nothing was ever heard."""
        self.failures += 1
        if self.failing_since is None:
            self.failing_since = self.clock()
        lasting = self.clock() - self.failing_since > GRACE_SECONDS or self.silent_seconds > SILENCE_SECONDS
        if self.loaded and not lasting and not isinstance(error, WrongLogin):
            self.log.debug("vCenter did not answer, trying again", vCenter=self.name, error=error)
            return
        if self.problem is None or str(self.problem) != str(error):
            what = "vCenter refuses us" if isinstance(error, Denied) else "vCenter cannot be used"
            self.log.error(f"{what}; what is known of it may be out of date. It is tried again by itself", vCenter=self.name, error=error)
            if self.problem is None:
                self.true_until = datetime.now(UTC) - timedelta(seconds=self.silent_seconds)
            self.problem = error
            self.tell()

    @property
    def silent_seconds(self) -> float:
        """How long ago the last answer of the inventory was."""
        return self.clock() - self.collector.heard_at

    def tell(self) -> None:
        """Call every listener."""
        for listener in self.listeners:
            listener()
