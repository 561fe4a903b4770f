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
from .properties import ATTRIBUTES, ENTITIES, TASK
from .retrieve import all_pages
from .transport import Log, Soap
from .updates import ObjectUpdate, UpdateSet, decode

Query = vmodl.query.PropertyCollector


@dataclass(frozen=True)
class Limits:
    """How long and how much."""

    wait_seconds: int = 15
    """How long the server waits for a change before it says that there was none."""
    answer_seconds: float = 35.0
    """When an answer has been so long in coming, something hangs. With the wait before it, which may be answered still: within a minute."""
    objects: int = 100
    """In one answer: some milliseconds of work, then the loop serves others."""
    close_seconds: float = 3.0
    reload_seconds: float = 30.0
    """What is lost twice in this time is not read again at once."""


class Watch:
    """One view, one collector, two filters; `close` leaves none of them behind."""

    def __init__(self, soap: Soap, limits: Limits, log: Log) -> None:
        self.soap, self.limits, self.log = soap, limits, log
        self.made: list[Any] = []
        self.collector: Any = None
        self.attributes = ""
        """The reference of the object that knows the names of custom attributes, "" where there is none."""

    async def open(self) -> None:
        """Put everything up on the server; nothing is read yet."""
        content = await self.soap.content()
        kinds = [getattr(vim, kind) for kind in ENTITIES]
        view = await content.viewManager.CreateContainerView(content.rootFolder, kinds, True)
        self.made.append(view)
        self.collector = await content.propertyCollector.CreatePropertyCollector()
        self.made.append(self.collector)
        entities = [on(content.rootFolder), through(view, vim.view.ContainerView, "view")]
        properties = [properties_of(kind, sort.paths) for kind, sort in ENTITIES.items()]
        if content.customFieldsManager is not None:
            self.attributes = content.customFieldsManager._moId
            entities.append(on(content.customFieldsManager))
            properties.append(properties_of(ATTRIBUTES, ["field"]))
        await self.collector.CreateFilter(Query.FilterSpec(objectSet=entities, propSet=properties), False)
        tasks = through(content.taskManager, vim.TaskManager, "recentTask")
        await self.collector.CreateFilter(Query.FilterSpec(objectSet=[tasks], propSet=[properties_of("Task", TASK.paths)]), False)

    async def wait(self, version: str) -> UpdateSet | None:
        """What changed since a version, "" for everything; None when nothing did for a while."""
        options = Query.WaitOptions(maxWaitSeconds=self.limits.wait_seconds, maxObjectUpdates=self.limits.objects)
        return decode(await self.call("WaitForUpdatesEx", version, options))

    async def read(self, wanted: Mapping[tuple[str, str], Iterable[str]]) -> list[ObjectUpdate]:
        """Properties of objects as they are now, by type and reference; an object that is gone is left out, its update is on the way."""
        specs = [
            Query.FilterSpec(objectSet=[on(reference(kind, ref))], propSet=[properties_of(kind, paths)], reportMissingObjectsInResults=True)
            for (kind, ref), paths in wanted.items()
        ]
        found = await all_pages(self.call, specs, Query.RetrieveOptions(maxObjects=self.limits.objects))
        return [complete(update, wanted.get((update.type, update.ref), ())) for update in found]

    async def call(self, method: str, *arguments: Any) -> bytes:
        """One call of the collector, answered in bytes."""
        body = self.soap.envelope(self.collector, method, *arguments)
        return await self.soap.post(body, method=method, timeout_seconds=self.limits.answer_seconds)

    async def close(self) -> None:
        """Take everything down, the filters with their collector; not for long: what stays ends with the session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.close_seconds):
                while self.made:
                    await self.destroy(self.made.pop())

    async def destroy(self, made: Any) -> None:
        """Take one thing down; one that is gone already must not keep the next one up."""
        try:
            await (made.DestroyView() if isinstance(made, vim.view.View) else made.DestroyPropertyCollector())
        except VCenterError as error:
            self.log.debug("could not take down what watched the inventory; it ends with the session", error=error)


def on(obj: Any) -> Any:
    """An object itself."""
    return Query.ObjectSpec(obj=obj, skip=False)


def through(obj: Any, kind: Any, path: str) -> Any:
    """What a property of an object refers to, without the object itself."""
    return Query.ObjectSpec(obj=obj, skip=True, selectSet=[Query.TraversalSpec(name=path, type=kind, path=path, skip=False)])


def properties_of(kind: str, paths: Iterable[str]) -> Any:
    """Which properties of a type."""
    return Query.PropertySpec(type=getattr(vim, kind), all=False, pathSet=sorted(paths))


def reference(kind: str, ref: str) -> Any:
    """A managed object by its reference."""
    return getattr(vim, kind)(ref)


def complete(update: ObjectUpdate, asked: Iterable[str]) -> ObjectUpdate:
    """The same with what was asked for and is not set: RetrievePropertiesEx leaves it out."""
    return structs.replace(update, changes={**dict.fromkeys(asked), **update.changes})
