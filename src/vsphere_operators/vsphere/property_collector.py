"""Keeps the inventory true: loads it, then waits for updates for ever, on one call that is always open.

    open a watch -> read everything, page by page -> exchange the inventory -> wait -> apply -> wait ...
       ^               vCenter forgot the watch, or our version of it                   |
       +--------------------------------------------------------------------------------+

What ends it?  Being cancelled, or an error that is somebody else's to mend: the session is gone, or there is no answer. Whoever
    calls `follow` again has everything read anew, and hears only of what differs.
How is a call that hangs noticed?  The server promises to answer within 15 s, changes or not. After 35 s it is Unreachable.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
from .retrieve import (
    build_object_spec,
    build_property_spec,
    build_traversal_spec,
    managed_object,
    retrieve_all_pages,
)
from .transport import Log, SoapClient
from .updates import ObjectUpdate, UpdateSet, decode_updates

PropertyCollector = vmodl.query.PropertyCollector
_LOST_WATCH_FAULTS = ("InvalidCollectorVersion", "ManagedObjectNotFound", "RequestCanceled")
"""Faults of WaitForUpdatesEx that say: start again. The last is the answer to a collector that is destroyed under an open call."""


class LoginState(Protocol):
    """What has to be known of a session."""

    @property
    def logged_in(self) -> bool: ...


class UpdateMetrics(Protocol):
    """Who counts updates."""

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        """Updates came: of objects of a type, which entered, were modified or left."""
        ...


class InventoryWatcher:
    """Feeds one inventory from one vCenter. `loaded` is called whenever everything has been read, `answered` with each answer after."""

    def __init__(
        self,
        soap: SoapClient,
        session: LoginState,
        inventory: Inventory,
        log: Log,
        meter: UpdateMetrics,
        *,
        on_loaded: Callable[[], None] = lambda: None,
        on_answer: Callable[[], None] = lambda: None,
        options: CollectorOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.session, self.inventory, self.log, self.metrics = (
            soap,
            session,
            inventory,
            log,
            meter,
        )
        self.on_loaded, self.on_answer, self.options, self.clock = (
            on_loaded,
            on_answer,
            options or CollectorOptions(),
            clock,
        )
        self.last_answer_at = clock()
        """When the last answer came; before the first one, when we began to hope for it."""
        self.answer_count = 0
        """Since everything was read."""
        self._watch_lost_at = -math.inf
        self._requested_attribute_keys: set[str] = set()
        """Keys of custom attributes whose names were asked for; some have none."""

    async def run(self) -> NoReturn:
        """Load, then follow for ever; starts again by itself when vCenter forgot what it was to watch."""
        while True:
            try:
                await self._watch_once()
            except VCenterError as error:
                # Lost again so soon: whoever calls us knows how long to wait.
                soon = self.clock() - self._watch_lost_at < self.options.min_reload_interval_seconds
                self._watch_lost_at = self.clock()
                if error.fault not in _LOST_WATCH_FAULTS or not self.answer_count or soon:
                    raise
                self.log.warning(
                    "vCenter no longer watches the inventory for us; reading everything again",
                    error=error,
                )

    async def _watch_once(self) -> NoReturn:
        """One watch, from its opening to its end."""
        watch, dead, self.answer_count = (
            ServerCollector(self.soap, self.options, self.log),
            False,
            0,
        )
        try:
            await watch.open()
            version = await self.load(watch)
            while True:
                version = await self._wait_and_apply(watch, version)
        except NotAuthenticated:
            dead = True  # and with the session all that was watched
            raise
        finally:
            if self.session.logged_in and not dead:
                await watch.close()

    async def load(self, watch: ServerCollector) -> str:
        """Read everything, page by page, then exchange the inventory at once; returns the version from which on to follow."""
        reload, version, truncated, in_parts = (
            InventoryReload(self.inventory),
            "",
            True,
            list[ObjectUpdate](),
        )
        while truncated:
            answer = await watch.wait_for_updates(version)
            self.last_answer_at = self.clock()
            if answer is None:
                raise Denied(
                    f"vCenter {self.soap.address.display_name} shows nothing of its inventory, not even the root folder. "
                    "Give this account the Read-only role on the root folder, with 'Propagate to children'."
                )
            version, truncated = answer.version, answer.truncated
            reload.add(answer.updates)
            in_parts += [update for update in answer.updates if update.partial]
            self.count_updates(answer.updates)
        reload.commit()
        await self._read_incomplete(watch, in_parts)
        self.on_loaded()
        return version

    async def _wait_and_apply(self, watch: ServerCollector, version: str) -> str:
        """One answer."""
        answer = await watch.wait_for_updates(version)
        self.last_answer_at = self.clock()
        self.answer_count += 1
        self.on_answer()
        if answer is None:
            return version
        self.inventory.apply(answer.updates)
        self.count_updates(answer.updates)
        await self._read_incomplete(watch, answer.updates)
        return answer.version

    async def _read_incomplete(
        self, watch: ServerCollector, updates: Iterable[ObjectUpdate]
    ) -> None:
        """Read what the updates left open: properties that came in parts, and names of new custom attributes."""
        wanted = find_properties_to_reread(update for update in updates if update.kind != "leave")
        if (
            watch.custom_fields_manager
            and not self.inventory.unnamed_attribute_keys <= self._requested_attribute_keys
        ):
            self._requested_attribute_keys |= self.inventory.unnamed_attribute_keys
            wanted[CUSTOM_FIELDS_MANAGER, watch.custom_fields_manager] = {"field"}
        if wanted:
            self.inventory.apply(await watch.read_properties(wanted))

    def count_updates(self, updates: Iterable[ObjectUpdate]) -> None:
        """Tell the meter."""
        for (type_name, kind), count in Counter(
            (update.type, update.kind) for update in updates
        ).items():
            self.metrics.count_updates(type_name, kind, count)


@dataclass(frozen=True)
class CollectorOptions:
    """How long and how much."""

    max_wait_seconds: int = 15
    """How long the server waits for a change before it says that there was none."""
    call_timeout_seconds: float = 35.0
    """When an answer has been so long in coming, something hangs. With the wait before it, which may be answered still: within a minute."""
    max_object_updates: int = 100
    """In one answer: some milliseconds of work, then the loop serves others."""
    close_timeout_seconds: float = 3.0
    min_reload_interval_seconds: float = 30.0
    """What is lost twice in this time is not read again at once."""


class ServerCollector:
    """One view, one collector, two filters; `close` leaves none of them behind."""

    def __init__(self, soap: SoapClient, limits: CollectorOptions, log: Log) -> None:
        self.soap, self.options, self.log = soap, limits, log
        self._created_objects: list[Any] = []
        self.collector: Any = None
        self.custom_fields_manager = ""
        """The reference of the object that knows the names of custom attributes, "" where there is none."""

    async def open(self) -> None:
        """Put everything up on the server; nothing is read yet."""
        content = await self.soap.get_service_content()
        kinds = [getattr(vim, kind) for kind in ENTITY_MAPPINGS]
        view = await content.viewManager.CreateContainerView(content.rootFolder, kinds, True)
        self._created_objects.append(view)
        self.collector = await content.propertyCollector.CreatePropertyCollector()
        self._created_objects.append(self.collector)
        entities = [
            build_object_spec(content.rootFolder),
            build_traversal_spec(view, vim.view.ContainerView, "view"),
        ]
        properties = [
            build_property_spec(kind, sort.paths) for kind, sort in ENTITY_MAPPINGS.items()
        ]
        if content.customFieldsManager is not None:
            self.custom_fields_manager = content.customFieldsManager._moId
            entities.append(build_object_spec(content.customFieldsManager))
            properties.append(build_property_spec(CUSTOM_FIELDS_MANAGER, ["field"]))
        await self.collector.CreateFilter(
            PropertyCollector.FilterSpec(objectSet=entities, propSet=properties), False
        )
        tasks = build_traversal_spec(content.taskManager, vim.TaskManager, "recentTask")
        await self.collector.CreateFilter(
            PropertyCollector.FilterSpec(
                objectSet=[tasks], propSet=[build_property_spec("Task", TASK_MAPPING.paths)]
            ),
            False,
        )

    async def wait_for_updates(self, version: str) -> UpdateSet | None:
        """What changed since a version, "" for everything; None when nothing did for a while."""
        options = PropertyCollector.WaitOptions(
            maxWaitSeconds=self.options.max_wait_seconds,
            maxObjectUpdates=self.options.max_object_updates,
        )
        return decode_updates(await self.call("WaitForUpdatesEx", version, options))

    async def read_properties(
        self, wanted: Mapping[tuple[str, str], Iterable[str]]
    ) -> list[ObjectUpdate]:
        """Properties of objects as they are now, by type and reference; an object that is gone is left out, its update is on the way."""
        specs = [
            PropertyCollector.FilterSpec(
                objectSet=[build_object_spec(managed_object(kind, ref))],
                propSet=[build_property_spec(kind, paths)],
                reportMissingObjectsInResults=True,
            )
            for (kind, ref), paths in wanted.items()
        ]
        found = await retrieve_all_pages(
            self.call,
            specs,
            PropertyCollector.RetrieveOptions(maxObjects=self.options.max_object_updates),
        )
        return [
            _with_unset_properties(update, wanted.get((update.type, update.ref), ()))
            for update in found
        ]

    async def call(self, method: str, *arguments: Any) -> bytes:
        """One call of the collector, answered in bytes."""
        body = self.soap.build_envelope(self.collector, method, *arguments)
        return await self.soap.post(
            body, method=method, timeout_seconds=self.options.call_timeout_seconds
        )

    async def close(self) -> None:
        """Take everything down, the filters with their collector; not for long: what stays ends with the session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.close_timeout_seconds):
                while self._created_objects:
                    await self.destroy(self._created_objects.pop())

    async def destroy(self, made: Any) -> None:
        """Take one thing down; one that is gone already must not keep the next one up."""
        try:
            await (
                made.DestroyView()
                if isinstance(made, vim.view.View)
                else made.DestroyPropertyCollector()
            )
        except VCenterError as error:
            self.log.debug(
                "could not take down what watched the inventory; it ends with the session",
                error=error,
            )


def _with_unset_properties(update: ObjectUpdate, asked: Iterable[str]) -> ObjectUpdate:
    """The same with what was asked for and is not set: RetrievePropertiesEx leaves it out."""
    return structs.replace(update, changes={**dict.fromkeys(asked), **update.changes})
