"""What stands on the server for us: one view of everything, and a property collector of our own with two filters, on entities and on tasks.

A collector of our own, for the session's default one belongs to everybody: any other call of WaitForUpdatesEx on it would take our updates.
Two filters, for tasks come and go all the time, and must not have the server look through the whole view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec import structs
from pyVmomi import vim, vmodl

from .faults import VCenterError
from .properties import CUSTOM_FIELDS_MANAGER, ENTITY_MAPPINGS, TASK_MAPPING
from .retrieve import retrieve_all_pages
from .transport import Log, SoapClient
from .updates import ObjectUpdate, UpdateSet, decode_updates

PropertyCollector = vmodl.query.PropertyCollector


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


def build_object_spec(obj: Any) -> Any:
    """An object itself."""
    return PropertyCollector.ObjectSpec(obj=obj, skip=False)


def build_traversal_spec(obj: Any, kind: Any, path: str) -> Any:
    """What a property of an object refers to, without the object itself."""
    return PropertyCollector.ObjectSpec(
        obj=obj,
        skip=True,
        selectSet=[PropertyCollector.TraversalSpec(name=path, type=kind, path=path, skip=False)],
    )


def build_property_spec(kind: str, paths: Iterable[str]) -> Any:
    """Which properties of a type."""
    return PropertyCollector.PropertySpec(type=getattr(vim, kind), all=False, pathSet=sorted(paths))


def managed_object(kind: str, ref: str) -> Any:
    """A managed object by its reference."""
    return getattr(vim, kind)(ref)


def _with_unset_properties(update: ObjectUpdate, asked: Iterable[str]) -> ObjectUpdate:
    """The same with what was asked for and is not set: RetrievePropertiesEx leaves it out."""
    return structs.replace(update, changes={**dict.fromkeys(asked), **update.changes})
