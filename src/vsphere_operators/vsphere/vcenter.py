"""One vCenter: logs in, keeps the inventory current, and recovers from every failure.

    log in -> load -> wait for updates, without end
      ^         the session ended: log in again at once
      |         no response: try again after 1, 2, 4... 15 s
      +-------- a rejected password: when the credentials change, or session.py allows a retry

What is `problem`?  Why the inventory may be out of date, for conditions. It is set at once when
    vCenter rejects the login, or if nothing was loaded yet. Otherwise it is set after failures have
    lasted longer than GRACE_SECONDS, so that the restart of a vCenter service, or a session that
    an administrator ended, does not change the status of every object.
What remains during an outage?  The inventory as it was last received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn, Protocol, TypeAlias

from .address import Address
from .credentials import CredentialSource
from .decode_errors import DecodeErrors
from .devices import DEVICES_PROPERTY, AssignableHardwareCache, decode_passthrough_devices
from .disks import RELEVANT_TASKS, Disks
from .faults import Denied, NotAuthenticated, Unreachable, VCenterError, WrongLogin
from .inventory import Inventory, Signal
from .inventory_watcher import InventoryWatcher, UpdateMetrics
from .log import Log
from .model import Datastore, Host, Task, VirtualMachine
from .property_collector import CollectorOptions
from .scheduled_tasks import ScheduledTasks
from .session import Session
from .tags import Tags
from .task_limiter import MAX_RUNNING_TASKS, TaskLimiter
from .transport import CallMetrics, SoapClient
from .vm_calls import VM_CONFIG_PROPERTIES, VmCalls, decode_vm_config
from .vm_property_cache import VmPropertyCache

GRACE_SECONDS = 10.0
# WaitForUpdatesEx returns every 15 s: after two missed responses the inventory is out of date.
_STALE_SECONDS = 30.0
_MIN_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 15.0


class ClientMetrics(CallMetrics, UpdateMetrics, Protocol): ...


SoapBuilder: TypeAlias = Callable[[Address, CallMetrics], SoapClient]


class VCenter:
    """One vCenter. Its parts are read from memory while `run` keeps them current."""

    def __init__(
        self,
        name: str,
        address: Address,
        credentials: CredentialSource,
        log: Log,
        metrics: ClientMetrics,
        *,
        disk_interval_seconds: float = 60.0,
        tag_interval_seconds: float = 300.0,
        max_running_tasks: int = MAX_RUNNING_TASKS,
        build_soap: SoapBuilder = SoapClient,
        load_timeout_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.log, self.clock = name, log, clock
        self.soap = soap = build_soap(replace(address, name=name), metrics)
        soap.decode_errors = DecodeErrors(metrics, log)
        self.session = session = Session(soap, credentials, log)
        self.inventory = inventory = Inventory(name, log, soap.decode_errors.report)
        shared = (soap, session, inventory, log)
        self.inventory_watcher = self._build_watcher(metrics, load_timeout_seconds)
        self.disks = Disks(*shared, interval_seconds=disk_interval_seconds)
        self.tags = Tags(
            soap, session, credentials, inventory, log, interval_seconds=tag_interval_seconds
        )
        self.passthrough_devices = VmPropertyCache(
            [DEVICES_PROPERTY], decode_passthrough_devices, *shared
        )
        self.assignable_hardware = AssignableHardwareCache(*shared)
        self.scheduled_tasks = ScheduledTasks(soap, session, log)
        self.vm_configs = VmPropertyCache(
            VM_CONFIG_PROPERTIES,
            decode_vm_config,
            *shared,
            is_inventory_current=lambda: self.is_inventory_of_session,
        )
        self.vm_calls = VmCalls(soap, session)
        self.task_limiter = TaskLimiter(
            inventory, log, max_running_tasks=max_running_tasks, clock=clock
        )
        self._connect_parts()
        self.loaded, self.failures, self._renewals = False, 0, 0
        # No change was missed since this time: when everything was last read.
        self.watching_since = clock()
        self.problem: VCenterError | None = None
        self._failing_since: float | None = None
        # Until when the inventory was accurate. Meaningful only together with `problem`.
        self.accurate_until = datetime.now(UTC)
        # `loaded` or `problem` changed, which affects the status of all objects.
        self.state_changed: Signal[()] = Signal(log)
        # Everything was read, for the first time or again.
        self.inventory_loaded: Signal[()] = Signal(log)

    def _build_watcher(
        self, metrics: UpdateMetrics, load_timeout_seconds: float
    ) -> InventoryWatcher:
        return InventoryWatcher(
            self.soap,
            self.session,
            self.inventory,
            self.log,
            metrics,
            on_loaded=self._on_inventory_loaded,
            on_response=self.on_response,
            on_slow_load=self._on_slow_load,
            on_replacing=self._on_replacing,
            options=CollectorOptions(load_timeout_seconds=load_timeout_seconds),
        )

    def _connect_parts(self) -> None:
        inventory, disks = self.inventory, self.disks
        inventory.connect(self.task_limiter.on_task_change, Task)
        inventory.connect_tasks(disks.on_task_change, *RELEVANT_TASKS)
        inventory.connect(disks.on_datastore_change, Datastore, include_related=False)
        inventory.connect(
            self.tags.on_host_change, Host, include_related=False, include_stats=False
        )
        for part in (disks, self.passthrough_devices, self.vm_configs):
            inventory.connect(
                part.on_vm_change, VirtualMachine, include_related=False, include_stats=False
            )

    async def run(self) -> None:
        """Run until cancelled, then log out."""
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (
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
                    group.create_task(self._run_forever(loop))
        finally:
            await self.session.logout()
            await self.soap.close()

    async def _run_forever(self, loop: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        # An unexpected error, such as a malformed response, must not end the manager.
        while True:
            try:
                await loop()
            except Exception as error:
                self.log.error("unexpected error, starting again", vCenter=self.name, error=error)
                await asyncio.sleep(_MAX_BACKOFF_SECONDS)

    async def _watch_credentials(self) -> NoReturn:
        """Replace a working session when the credentials change."""
        while True:
            await self.session.wait_for_credentials_change()
            try:
                if self.session.logged_in:
                    self.log.info("the credentials changed, logging in again", vCenter=self.name)
                await self.session.renew(self.session.login_count)
            except VCenterError as error:
                self.on_failure(error)
                await asyncio.sleep(_MIN_BACKOFF_SECONDS)

    async def _stay_connected(self) -> NoReturn:
        while True:
            login_count = self.session.login_count
            try:
                await self.session.login()
                login_count = self.session.login_count
                await self.inventory_watcher.run()
            except NotAuthenticated as error:
                await self._renew_session(login_count, error)
            except VCenterError as error:
                self.on_failure(error)
                await self._back_off(error)
            except Exception as error:
                self.on_failure(
                    Unreachable(
                        f"A response of vCenter {self.name} could not be processed: "
                        f"{type(error).__name__}. See the manager's log"
                    )
                )
                self.log.error(
                    "unexpected error, loading the inventory again", vCenter=self.name, error=error
                )
                await asyncio.sleep(_MAX_BACKOFF_SECONDS)

    async def _renew_session(self, login_count: int, cause: VCenterError) -> None:
        self.log.info("the session ended on the server, logging in again", vCenter=self.name)
        # The first time at once; again and again only with a pause, or a vCenter that drops every
        # session would be flooded with logins.
        if self._renewals:
            self.on_failure(cause)
            await self._back_off(cause)
        self._renewals += 1
        try:
            await self.session.renew(login_count)
        except VCenterError as error:
            self.on_failure(error)
            await self._back_off(error)

    async def _back_off(self, error: VCenterError) -> None:
        if isinstance(error, WrongLogin):
            # A rejected login is worth another try only with other credentials, or when
            # FailedLoginLimiter allows it.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(error.retry_after_seconds, _MIN_BACKOFF_SECONDS)):
                    await self.session.wait_for_credentials_change()
            return
        await asyncio.sleep(
            min(_MIN_BACKOFF_SECONDS * 2.0 ** min(self.failures - 1, 10), _MAX_BACKOFF_SECONDS)
        )

    def _on_inventory_loaded(self) -> None:
        self.watching_since = self.clock()
        self.on_response()
        self.inventory_loaded.emit()

    def _on_slow_load(self, message: VCenterError) -> None:
        # Before the first load there is nothing that could be out of date; objects wait for it.
        if self.loaded:
            self.on_failure(message)

    def _on_replacing(self) -> None:
        # Objects wait, as during the first load. Its end notifies all of them.
        self.loaded = False

    def on_response(self) -> None:
        """The inventory is loaded and current."""
        self.failures, self._renewals, self._failing_since = 0, 0, None
        if self.loaded and self.problem is None:
            return
        if self.problem is not None:
            self.log.info("vCenter is available again", vCenter=self.name)
        self.loaded, self.problem = True, None
        self.state_changed.emit()

    def on_failure(self, error: VCenterError) -> None:
        """A call failed. The error becomes `problem` if it lasts, or if nothing was ever loaded."""
        self.failures += 1
        if self._failing_since is None:
            self._failing_since = self.clock()
        is_lasting = (
            self.clock() - self._failing_since > GRACE_SECONDS
            or self.seconds_since_response > _STALE_SECONDS
        )
        if self.loaded and not is_lasting and not isinstance(error, WrongLogin):
            self.log.debug("vCenter did not respond, retrying", vCenter=self.name, error=error)
            return
        if self.problem is None or str(self.problem) != str(error):
            state = "vCenter denies access" if isinstance(error, Denied) else "vCenter unavailable"
            self.log.error(
                f"{state}; its inventory may be out of date. Retrying automatically",
                vCenter=self.name,
                error=error,
            )
            if self.problem is None:
                self.accurate_until = datetime.now(UTC) - timedelta(
                    seconds=self.seconds_since_response
                )
            self.problem = error
            self.state_changed.emit()

    @property
    def is_inventory_of_session(self) -> bool:
        """Whether the inventory was read in the present session.

        A new session may be one with a restored vCenter, or with another one at the same address:
        what was decided from the inventory of the last session must not be sent.
        """
        return self.inventory_watcher.loaded_by_login == self.session.login_count

    @property
    def seconds_since_response(self) -> float:
        """Seconds since the last response about the inventory."""
        return self.clock() - self.inventory_watcher.last_response_at
