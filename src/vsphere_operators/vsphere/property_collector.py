"""Reads properties by PropertyCollector: once, or continuously to keep the inventory current.

InventoryWatcher loads the inventory, then applies updates from one WaitForUpdatesEx call that is
always open:

    open -> read everything, page by page -> replace the inventory -> wait -> apply -> wait ...
     ^          vCenter lost the collector, or our version of it is invalid             |
     +----------------------------------------------------------------------------------+

What ends `run`?  Cancellation, or an error for the caller to handle: the session ended, or vCenter
    does not respond. The next `run` reads everything again and notifies only of differences.
How is a call that hangs noticed?  The server promises a response within 15 s, with or without
    changes. After 35 s the call is Unreachable.
Why a property collector of our own?  The default one is shared within the session: any other call
    of WaitForUpdatesEx on it would take our updates.
Why two filters?  Tasks come and go all the time, and must not make the server evaluate the whole
    view.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from msgspec import structs
from pyVmomi import vim, vmodl

from .faults import Denied, NotAuthenticated, VCenterError
from .inventory import Inventory, InventoryReload
from .properties import (
    CUSTOM_FIELDS_MANAGER,
    ENTITY_MAPPINGS,
    TASK_MAPPING,
    find_properties_to_reread,
)
from .session import Session
from .transport import Log, SoapClient
from .updates import ObjectUpdate, UpdateSet, decode_object_page, decode_updates

PropertyCollector = vmodl.query.PropertyCollector
# Faults of WaitForUpdatesEx after which everything must be read again. RequestCanceled is the
# response when the collector is destroyed during an open call.
_LOST_COLLECTOR_FAULTS = ("InvalidCollectorVersion", "ManagedObjectNotFound", "RequestCanceled")


class UpdateMetrics(Protocol):
    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        """Count updates of objects of a type that entered, were modified, or left."""
        ...


@dataclass(frozen=True)
class CollectorOptions:
    # How long the server waits for a change before it responds that there was none.
    max_wait_seconds: int = 15
    # A call without a response is given up then: an outage is noticed within a minute.
    call_timeout_seconds: float = 35.0
    # Per response: a few milliseconds of work, after which the event loop serves others.
    max_object_updates: int = 100
    close_timeout_seconds: float = 3.0
    # A collector that is lost twice within this time is not opened again at once.
    min_reload_interval_seconds: float = 30.0


class ServerCollector:
    """A view, a property collector and two filters on the server; `close` removes all of them."""

    def __init__(self, soap: SoapClient, options: CollectorOptions, log: Log) -> None:
        self._soap, self._options, self._log = soap, options, log
        self._created_objects: list[Any] = []
        self._collector: Any = None
        # The reference of the object with the names of custom attributes, or "".
        self.custom_fields_manager = ""

    async def open(self) -> None:
        """Create everything on the server, without reading anything yet."""
        content = await self._soap.get_service_content()
        types = [getattr(vim, type_name) for type_name in ENTITY_MAPPINGS]
        view = await content.viewManager.CreateContainerView(content.rootFolder, types, True)
        self._created_objects.append(view)
        self._collector = await content.propertyCollector.CreatePropertyCollector()
        self._created_objects.append(self._collector)
        # A ContainerView does not contain its own container, the root folder.
        entities = [
            build_object_spec(content.rootFolder),
            build_traversal_spec(view, vim.view.ContainerView, "view"),
        ]
        properties = [
            build_property_spec(type_name, mapping.paths)
            for type_name, mapping in ENTITY_MAPPINGS.items()
        ]
        if content.customFieldsManager is not None:
            self.custom_fields_manager = content.customFieldsManager._moId
            entities.append(build_object_spec(content.customFieldsManager))
            properties.append(build_property_spec(CUSTOM_FIELDS_MANAGER, ["field"]))
        await self._collector.CreateFilter(
            PropertyCollector.FilterSpec(objectSet=entities, propSet=properties), False
        )
        tasks = build_traversal_spec(content.taskManager, vim.TaskManager, "recentTask")
        await self._collector.CreateFilter(
            PropertyCollector.FilterSpec(
                objectSet=[tasks], propSet=[build_property_spec("Task", TASK_MAPPING.paths)]
            ),
            False,
        )

    async def wait_for_updates(self, version: str) -> UpdateSet | None:
        """Changes since a version, "" for everything; None if there were none for a while."""
        options = PropertyCollector.WaitOptions(
            maxWaitSeconds=self._options.max_wait_seconds,
            maxObjectUpdates=self._options.max_object_updates,
        )
        return decode_updates(await self._call("WaitForUpdatesEx", version, options))

    async def read_properties(
        self, paths_by_object: Mapping[tuple[str, str], Iterable[str]]
    ) -> list[ObjectUpdate]:
        """Current properties of objects, by type and reference; deleted objects are left out."""
        specs = [
            PropertyCollector.FilterSpec(
                objectSet=[build_object_spec(_managed_object(type_name, ref))],
                propSet=[build_property_spec(type_name, paths)],
                # Without it, one deleted object fails the whole call.
                reportMissingObjectsInResults=True,
            )
            for (type_name, ref), paths in paths_by_object.items()
        ]
        updates = await _retrieve_all_pages(
            self._call,
            specs,
            PropertyCollector.RetrieveOptions(maxObjects=self._options.max_object_updates),
        )
        # RetrievePropertiesEx leaves out properties that are not set.
        return [
            structs.replace(
                update,
                changes={
                    **dict.fromkeys(paths_by_object.get((update.type, update.ref), ())),
                    **update.changes,
                },
            )
            for update in updates
        ]

    async def _call(self, method: str, *arguments: Any) -> bytes:
        body = self._soap.build_envelope(self._collector, method, *arguments)
        return await self._soap.post(
            body, method=method, timeout_seconds=self._options.call_timeout_seconds
        )

    async def close(self) -> None:
        """Remove everything, but not at any cost: what remains ends with the session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_timeout_seconds):
                while self._created_objects:
                    await self._destroy(self._created_objects.pop())

    async def _destroy(self, created: Any) -> None:
        try:
            # The filters are destroyed with their collector.
            await (
                created.DestroyView()
                if isinstance(created, vim.view.View)
                else created.DestroyPropertyCollector()
            )
        except VCenterError as error:
            self._log.debug(
                "could not remove a view or collector; it ends with the session", error=error
            )


class InventoryWatcher:
    """Fills one inventory from one vCenter.

    `on_loaded` is called whenever everything has been read, `on_response` for each later response.
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
        options: CollectorOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._soap, self._session, self._inventory = soap, session, inventory
        self._log, self._metrics, self._clock = log, metrics, clock
        self._on_loaded, self._on_response = on_loaded, on_response
        self._options = options or CollectorOptions()
        # When the last response arrived; before the first one, when this object was created.
        self.last_response_at = clock()
        # The number of responses since everything was read.
        self.response_count = 0
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
        reload, partial_updates = InventoryReload(self._inventory), list[ObjectUpdate]()
        version, truncated = "", True
        while truncated:
            page = await collector.wait_for_updates(version)
            self.last_response_at = self._clock()
            if page is None:
                raise Denied(
                    f"vCenter {self._soap.address.display_name} returns nothing of its inventory, "
                    "not even the root folder. Grant this account the Read-only role on the root "
                    "folder, with 'Propagate to children'."
                )
            version, truncated = page.version, page.truncated
            reload.add(page.updates)
            partial_updates += [update for update in page.updates if update.partial]
            self._count_updates(page.updates)
        reload.commit()
        await self._read_incomplete(collector, partial_updates)
        self._on_loaded()
        return version

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


# Calls a method of a property collector with arguments, and returns the response's bytes.
_CollectorCall = Callable[..., Awaitable[bytes]]


async def _retrieve_all_pages(
    call: _CollectorCall, specs: Sequence[Any], options: Any
) -> list[ObjectUpdate]:
    """What the specs select. A token is valid only with the collector that returned it."""
    page = decode_object_page(await call("RetrievePropertiesEx", specs, options))
    updates = list(page.updates)
    while page.token:
        page = decode_object_page(await call("ContinueRetrievePropertiesEx", page.token))
        updates += page.updates
    return updates


async def retrieve_selected(soap: SoapClient, spec: Any) -> list[ObjectUpdate]:
    """What the spec selects, by the session's default collector: for reads without a filter."""
    collector = (await soap.get_service_content()).propertyCollector

    async def call(method: str, *arguments: Any) -> bytes:
        return await soap.post(soap.build_envelope(collector, method, *arguments), method=method)

    return await _retrieve_all_pages(call, [spec], PropertyCollector.RetrieveOptions())


async def retrieve_properties(
    soap: SoapClient, session: Session, type_name: str, refs: Sequence[str], paths: Sequence[str]
) -> list[ObjectUpdate]:
    """Properties of objects of one type as vCenter has them now; deleted objects are left out."""
    spec = PropertyCollector.FilterSpec(
        objectSet=[build_object_spec(_managed_object(type_name, ref)) for ref in refs],
        propSet=[build_property_spec(type_name, paths)],
        # Without it, one deleted object fails the whole call.
        reportMissingObjectsInResults=True,
    )
    return await session.call(lambda: retrieve_selected(soap, spec))


def build_object_spec(obj: Any) -> Any:
    return PropertyCollector.ObjectSpec(obj=obj, skip=False)


def build_traversal_spec(obj: Any, managed_type: Any, path: str) -> Any:
    """The objects that a property refers to, without the object that has the property."""
    traversal = PropertyCollector.TraversalSpec(name=path, type=managed_type, path=path, skip=False)
    return PropertyCollector.ObjectSpec(obj=obj, skip=True, selectSet=[traversal])


def build_property_spec(type_name: str, paths: Iterable[str]) -> Any:
    return PropertyCollector.PropertySpec(
        type=getattr(vim, type_name), all=False, pathSet=sorted(paths)
    )


def _managed_object(type_name: str, ref: str) -> Any:
    return getattr(vim, type_name)(ref)
