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
from .assignable import AssignableHardwareCache
from .credentials import CredentialSource
from .devices import PassthroughDevices
from .disks import Disks
from .faults import Denied, NotAuthenticated, Unreachable, VCenterError, WrongLogin
from .inventory import Inventory
from .property_collector import InventoryWatcher, UpdateMetrics
from .scheduled_tasks import ScheduledTasks
from .session import Session
from .tags import Tags
from .task_limiter import MAX_RUNNING_TASKS, TaskLimiter
from .transport import CallMetrics, Log, SoapClient
from .vm_calls import VM_CONFIG_PROPERTIES, VmCalls, decode_vm_config
from .vm_details import VmPropertyCache

GRACE_SECONDS = 10.0
# An open wait is answered every 15 s: once two answers are due, what is shown has to be called out of date.
_STALE_SECONDS = 30.0
_MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 15.0


class ClientMetrics(CallMetrics, UpdateMetrics, Protocol):
    """Who counts calls and updates."""


class VCenter:
    """One vCenter; what it holds (`inventory`, `disks`, `devices`, `scheduled`...) answers from memory while `run` keeps it true."""

    def __init__(
        self,
        name: str,
        address: Address,
        credentials: CredentialSource,
        log: Log,
        meter: ClientMetrics,
        *,
        disk_interval_seconds: float = 60.0,
        tag_interval_seconds: float = 300.0,
        max_running_tasks: int = MAX_RUNNING_TASKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.log, self.clock = name, log, clock
        self.soap = SoapClient(replace(address, name=name), meter)
        self.session = Session(self.soap, credentials, log)
        self.inventory = Inventory(name, self.on_listener_error)
        self.inventory_watcher = InventoryWatcher(
            self.soap,
            self.session,
            self.inventory,
            log,
            meter,
            on_loaded=self._on_inventory_loaded,
            on_answer=self.on_answer,
        )
        self.disks = Disks(
            self.soap, self.session, self.inventory, log, interval_seconds=disk_interval_seconds
        )
        self.tags = Tags(
            self.soap,
            self.session,
            credentials,
            self.inventory,
            log,
            interval_seconds=tag_interval_seconds,
        )
        self.passthrough_devices = PassthroughDevices(self.soap, self.session, self.inventory, log)
        self.assignable_hardware = AssignableHardwareCache(
            self.soap, self.session, self.inventory, log
        )
        self.scheduled_tasks = ScheduledTasks(self.soap, self.session, log)
        self.vm_configs = VmPropertyCache(
            VM_CONFIG_PROPERTIES, decode_vm_config, self.soap, self.session, self.inventory, log
        )
        self.vm_calls = VmCalls(self.soap, self.session)
        self.task_limiter = TaskLimiter(
            self.session, self.inventory, log, max_running_tasks=max_running_tasks, clock=clock
        )
        self.loaded = False
        self.watching_since = clock()
        """Since when no change was missed: when everything was last read."""
        self.problem: VCenterError | None = None
        self.failures = self._renewals = 0
        self._failing_since: float | None = None
        self.accurate_until = datetime.now(UTC)
        """Until when the answers were true; of meaning only beside `problem`."""
        self.listeners: list[Callable[[], None]] = []
        """Called when `loaded` or `problem` changed: every answer may be another one now."""

    async def run(self) -> None:
        """Live until cancelled, then log out; nothing that vCenter does ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for life in (
                    self._stay_connected,
                    self._watch_credentials,
                    self.session.keep_alive,
                    self.disks.run,
                    self.tags.run,
                    self.passthrough_devices.run,
                    self.assignable_hardware.run,
                    self.scheduled_tasks.run,
                    self.vm_configs.run,
                ):
                    group.create_task(self._run_forever(life))
        finally:
            await self.session.logout()
            await self.soap.close()

    async def _run_forever(self, life: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        """Begin anew after an error that nobody expected, such as an answer that no vCenter should give: it must not end the process."""
        while True:
            try:
                await life()
            except Exception as error:
                self.log.error("unexpected error, beginning anew", vCenter=self.name, error=error)
                await asyncio.sleep(MAX_BACKOFF_SECONDS)

    async def _watch_credentials(self) -> NoReturn:
        """A session that lives is exchanged when the credentials change: whoever gives us another account means it from now on."""
        while True:
            await self.session.wait_for_credentials_change()
            try:
                if self.session.logged_in:
                    self.log.info("the credentials changed, logging in anew", vCenter=self.name)
                await self.session.renew(self.session.generation)
            except VCenterError as error:
                self.on_failure(error)
                await asyncio.sleep(_MIN_BACKOFF_SECONDS)

    async def _stay_connected(self) -> NoReturn:
        """Follow the inventory, and start again after each failure."""
        while True:
            generation = self.session.generation
            try:
                await self.session.login()
                generation = self.session.generation
                await self.inventory_watcher.run()
            except NotAuthenticated as error:
                await self._renew_session(generation, error)
            except VCenterError as error:
                self.on_failure(error)
                await self._back_off(error)
            except Exception as error:
                words = f"an answer of vCenter {self.name} could not be understood: {type(error).__name__}; the manager's log has more"
                self.on_failure(Unreachable(words))
                self.log.error(
                    "unexpected error, loading the inventory anew", vCenter=self.name, error=error
                )
                await asyncio.sleep(MAX_BACKOFF_SECONDS)

    async def _renew_session(self, generation: int, cause: VCenterError) -> None:
        """The session died: log in again at once, but with a pause where vCenter forgets sessions as fast as it gives them."""
        self.log.info("the session ended on the server, logging in again", vCenter=self.name)
        if self._renewals:
            self.on_failure(cause)
            await self._back_off(cause)
        self._renewals += 1
        try:
            await self.session.renew(generation)
        except VCenterError as error:
            self.on_failure(error)
            await self._back_off(error)

    async def _back_off(self, error: VCenterError) -> None:
        """Wait before the next try: ever longer, or, after a refused login, until there is a reason to hope."""
        if isinstance(error, WrongLogin):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(error.retry_after_seconds, _MIN_BACKOFF_SECONDS)):
                    await self.session.wait_for_credentials_change()
            return
        await asyncio.sleep(
            min(_MIN_BACKOFF_SECONDS * 2.0 ** min(self.failures - 1, 10), MAX_BACKOFF_SECONDS)
        )

    def on_listener_error(self, error: Exception) -> None:
        """A fault of ours in one who hears of changes; it must not look like one of vCenter, nor have everything read anew."""
        self.log.error(
            "unexpected error of one who follows the inventory; the others go on",
            vCenter=self.name,
            error=error,
        )

    def _on_inventory_loaded(self) -> None:
        """Everything was read."""
        self.watching_since = self.clock()
        self.on_answer()

    def on_answer(self) -> None:
        """The inventory is loaded and true."""
        self.failures, self._renewals, self._failing_since = 0, 0, None
        if self.loaded and self.problem is None:
            return
        if self.problem is not None:
            self.log.info("vCenter answers again", vCenter=self.name)
        self.loaded, self.problem = True, None
        self.notify()

    def on_failure(self, error: VCenterError) -> None:
        """No answer, or a refusal; it becomes the problem of every object when it has lasted, or when nothing was ever heard."""
        self.failures += 1
        if self._failing_since is None:
            self._failing_since = self.clock()
        lasting = (
            self.clock() - self._failing_since > GRACE_SECONDS
            or self.seconds_since_answer > _STALE_SECONDS
        )
        if self.loaded and not lasting and not isinstance(error, WrongLogin):
            self.log.debug("vCenter did not answer, trying again", vCenter=self.name, error=error)
            return
        if self.problem is None or str(self.problem) != str(error):
            what = "vCenter refuses us" if isinstance(error, Denied) else "vCenter cannot be used"
            self.log.error(
                f"{what}; what is known of it may be out of date. It is tried again by itself",
                vCenter=self.name,
                error=error,
            )
            if self.problem is None:
                self.accurate_until = datetime.now(UTC) - timedelta(
                    seconds=self.seconds_since_answer
                )
            self.problem = error
            self.notify()

    @property
    def seconds_since_answer(self) -> float:
        """How long ago the last answer of the inventory was."""
        return self.clock() - self.inventory_watcher.last_answer_at

    def notify(self) -> None:
        """Call every listener."""
        for listener in self.listeners:
            listener()
