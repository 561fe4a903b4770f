"""Loads the inventory, then keeps it current by one WaitForUpdatesEx call that is always open.

    open -> read everything, page by page -> replace the inventory -> wait -> apply -> wait ...
     ^          vCenter lost the collector, or our version of it is invalid             |
     +----------------------------------------------------------------------------------+

What ends `run`?  Cancellation, or an error for the caller to handle: the session ended, or vCenter
    does not respond. The next `run` reads everything again and notifies only of differences.
What if vCenter has new quickStats all the time?  In a large one, hundreds of objects report them
    each second, and a call would return at once with a few of them. So after a response with
    nothing else, the next call waits for 0.1 s.
How is a call that hangs noticed?  The server promises a response within 15 s, with or without
    changes. After 35 s the call is Unreachable.
And during a load?  vCenter collects a large inventory for minutes before its first response. So a
    load has a limit of its own, and every 30 s another call tests whether vCenter still responds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

from .faults import Denied, NotAuthenticated, TimedOut, VCenterError
from .inventory import Inventory
from .inventory_reload import InventoryReload
from .log import Log
from .properties import CUSTOM_FIELDS_MANAGER, find_properties_to_reread, have_only_stats
from .property_collector import CollectorOptions, ServerCollector
from .session import Session
from .transport import SERVICE_INSTANCE, SoapClient
from .updates import ObjectUpdate, UpdateSet

# Faults of WaitForUpdatesEx after which everything must be read again. RequestCanceled is the
# response when the collector is destroyed during an open call.
_LOST_COLLECTOR_FAULTS = ("InvalidCollectorVersion", "ManagedObjectNotFound", "RequestCanceled")


class UpdateMetrics(Protocol):
    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        """Count updates of objects of a type that entered, were modified, or left."""
        ...


class InventoryWatcher:
    """Fills one inventory from one vCenter.

    `on_loaded` is called whenever everything has been read, `on_response` for each later response,
    `on_slow_load` with a message while a load waits for vCenter, and `on_replacing` before a reload
    replaces large parts of the inventory: until `on_loaded` it is inconsistent.
    """

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        metrics: UpdateMetrics,
        *,
        on_loaded: Callable[[], None] = lambda: None,
        on_response: Callable[[], None] = lambda: None,
        on_slow_load: Callable[[VCenterError], None] = lambda error: None,
        on_replacing: Callable[[], None] = lambda: None,
        options: CollectorOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._soap, self._session, self._inventory = soap, session, inventory
        self._log, self._metrics, self._clock = log, metrics, clock
        self._on_loaded, self._on_response = on_loaded, on_response
        self._on_slow_load, self._on_caller_replacing = on_slow_load, on_replacing
        self._options = options or CollectorOptions()
        # When the last response arrived; before the first one, when this object was created.
        self.last_response_at = clock()
        # The number of responses since everything was read.
        self.response_count = 0
        # The session's login_count when everything was last read; 0 before the first load.
        self.loaded_by_login = 0
        self._collector_lost_at = -math.inf
        # Keys of custom attributes, of which the name was requested. Some have no name.
        self._requested_attribute_keys: set[str] = set()

    async def run(self) -> NoReturn:
        """Load the inventory, then apply updates. Starts again if vCenter lost the collector."""
        while True:
            try:
                await self._watch_once()
            except VCenterError as error:
                # Lost twice within a short time: the caller decides how long to wait.
                is_repeated = (
                    self._clock() - self._collector_lost_at
                    < self._options.min_reload_interval_seconds
                )
                self._collector_lost_at = self._clock()
                if (
                    error.fault not in _LOST_COLLECTOR_FAULTS
                    or not self.response_count
                    or is_repeated
                ):
                    raise
                self._log.warning(
                    "vCenter lost the property collector; reading the inventory again", error=error
                )

    async def _watch_once(self) -> NoReturn:
        collector = ServerCollector(self._soap, self._options, self._log)
        has_session, self.response_count = True, 0
        try:
            await collector.open()
            version = await self._load(collector)
            while True:
                version = await self._wait_and_apply(collector, version)
        except NotAuthenticated:
            # Everything on the server ended with the session.
            has_session = False
            raise
        finally:
            if self._session.logged_in and has_session:
                await collector.close()

    async def _load(self, collector: ServerCollector) -> str:
        """Read everything, then replace the inventory at once. Returns the version to
        continue from.
        """
        # After `open`: had the session been replaced meanwhile, the collector would be lost.
        login_count = self._session.login_count
        reload = InventoryReload(self._inventory, collector.instance_uuid, self._on_replacing)
        partial_updates = list[ObjectUpdate]()
        version, truncated, object_count = "", True, 0
        deadline = self._clock() + self._options.load_timeout_seconds
        while truncated:
            page = await self._wait_for_page(collector, version, deadline, object_count)
            self.last_response_at = self._clock()
            if page is None and version:
                break
            if page is None:
                raise Denied(
                    f"vCenter {self._soap.address.display_name} returns nothing of its inventory, "
                    "not even the root folder. Grant this account the Read-only role on the root "
                    "folder, with 'Propagate to children'."
                )
            version, truncated = page.version, page.truncated
            object_count += len(page.updates)
            reload.add(page.updates)
            partial_updates += [update for update in page.updates if update.partial]
            self._count_updates(page.updates)
        for _ in reload.commit_in_slices():
            await asyncio.sleep(0)
        await self._read_incomplete(collector, partial_updates)
        self.loaded_by_login = login_count
        self._on_loaded()
        return version

    def _on_replacing(self) -> None:
        # Nothing may be sent that was decided from an inconsistent inventory.
        self.loaded_by_login = 0
        self._on_caller_replacing()

    async def _wait_for_page(
        self, collector: ServerCollector, version: str, deadline: float, object_count: int
    ) -> UpdateSet | None:
        """One response of a load, which may take as long as the load."""
        # Not 0: that means the default.
        timeout_seconds = max(0.001, deadline - self._clock())
        page = asyncio.create_task(
            collector.wait_for_updates(version, timeout_seconds=timeout_seconds),
            name=f"vcenter load: {self._soap.address.display_name}",
        )
        try:
            while not page.done():
                await asyncio.wait([page], timeout=self._options.load_probe_seconds)
                if not page.done():
                    await self._probe(object_count)
            return page.result()
        except TimedOut as error:
            if self._clock() < deadline:
                raise
            raise self._load_timeout_error(object_count) from error
        finally:
            page.cancel()
            await asyncio.wait([page])
            if not page.cancelled():
                # asyncio logs an exception that is never retrieved.
                page.exception()

    async def _probe(self, object_count: int) -> None:
        """Raise an error if vCenter does not respond at all, or has ended the session."""
        vcenter = self._soap.address.display_name
        self._log.info(
            "vCenter is still collecting its inventory", vCenter=vcenter, objects=object_count
        )
        self._on_slow_load(
            TimedOut(
                f"vCenter {vcenter} has not sent its inventory yet. A large vCenter takes minutes; "
                "-vcenter-load-timeout is the limit"
            )
        )
        # CurrentTime is the cheapest call, and needs no privilege.
        await self._soap.invoke(
            SERVICE_INSTANCE,
            "CurrentTime",
            {},
            timeout_seconds=self._options.call_timeout_seconds,
        )

    def _load_timeout_error(self, object_count: int) -> TimedOut:
        return TimedOut(
            f"The inventory of vCenter {self._soap.address.display_name} could not be read within "
            f"{self._options.load_timeout_seconds:g} s; {object_count} objects arrived. vCenter "
            "responds to other calls, so it is large or slow: raise -vcenter-load-timeout. It is "
            "read again from the beginning."
        )

    async def _wait_and_apply(self, collector: ServerCollector, version: str) -> str:
        update_set = await collector.wait_for_updates(version)
        self.last_response_at = self._clock()
        self.response_count += 1
        self._on_response()
        if update_set is None:
            return version
        self._inventory.apply(update_set.updates)
        self._count_updates(update_set.updates)
        await self._read_incomplete(collector, update_set.updates)
        if not update_set.truncated and have_only_stats(update_set.updates):
            await asyncio.sleep(self._options.stats_pause_seconds)
        return update_set.version

    async def _read_incomplete(
        self, collector: ServerCollector, updates: Iterable[ObjectUpdate]
    ) -> None:
        """Read properties of which only a part arrived, and names of new custom attributes."""
        paths = find_properties_to_reread(update for update in updates if update.kind != "leave")
        unnamed = self._inventory.unnamed_attribute_keys
        if collector.custom_fields_manager and not unnamed <= self._requested_attribute_keys:
            self._requested_attribute_keys |= unnamed
            paths[CUSTOM_FIELDS_MANAGER, collector.custom_fields_manager] = {"field"}
        if paths:
            self._inventory.apply(await collector.read_properties(paths))

    def _count_updates(self, updates: Iterable[ObjectUpdate]) -> None:
        counts = Counter((update.type, update.kind) for update in updates)
        for (type_name, kind), count in counts.items():
            self._metrics.count_updates(type_name, kind, count)
