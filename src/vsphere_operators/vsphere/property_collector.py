"""Reads properties by PropertyCollector: once, or as updates of everything that a view contains.

Why a property collector of our own?  The default one is shared within the session: any other call
    of WaitForUpdatesEx on it would take our updates.
Why two filters?  Tasks come and go all the time, and must not make the server evaluate the whole
    view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec import structs

from .decode_errors import ReportUndecodable
from .faults import VCenterError
from .log import Log
from .properties import (
    CUSTOM_FIELDS_MANAGER,
    ENTITY_MAPPINGS,
    TASK_MAPPING,
)
from .session import Session
from .soap_request import Argument, DataObject
from .transport import SoapClient
from .updates import (
    ObjectUpdate,
    Ref,
    UpdateSet,
    decode_object_page,
    decode_results,
    decode_updates,
)


@dataclass(frozen=True)
class CollectorOptions:
    # How long the server waits for a change before it responds that there was none.
    max_wait_seconds: int = 15
    # A call without a response is given up then: an outage is noticed within a minute.
    call_timeout_seconds: float = 35.0
    # Per response: a few milliseconds of work, after which the event loop serves others.
    max_object_updates: int = 100
    # How long new quickStats are collected by vCenter before the next response.
    stats_pause_seconds: float = 0.1
    # For reading everything, all pages together.
    load_timeout_seconds: float = 600.0
    # A load that waits longer for one response tests whether vCenter responds to other calls.
    load_probe_seconds: float = 30.0
    close_timeout_seconds: float = 3.0
    # A collector that is lost twice within this time is not opened again at once.
    min_reload_interval_seconds: float = 30.0


class ServerCollector:
    """A view, a property collector and two filters on the server; `close` removes all of them."""

    def __init__(self, soap: SoapClient, options: CollectorOptions, log: Log) -> None:
        self._soap, self._options, self._log = soap, options, log
        self._created_objects: list[Ref] = []
        self._collector = Ref("PropertyCollector", "")
        # The reference of the object with the names of custom attributes, or "".
        self.custom_fields_manager = ""
        # Identifies the vCenter that this collector reads.
        self.instance_uuid = ""

    async def open(self) -> None:
        """Create everything on the server, without reading anything yet."""
        content = await self._soap.get_service_content()
        self.instance_uuid = content.about.instanceUuid or ""
        view = await self._create(
            content.viewManager,
            "CreateContainerView",
            {"container": content.rootFolder, "type": list(ENTITY_MAPPINGS), "recursive": True},
        )
        self._collector = await self._create(
            content.propertyCollector, "CreatePropertyCollector", {}
        )
        # A ContainerView does not contain its own container, the root folder.
        entities = [
            build_object_spec(content.rootFolder),
            build_traversal_spec(view, "ContainerView", "view"),
        ]
        properties = [
            build_property_spec(type_name, mapping.paths)
            for type_name, mapping in ENTITY_MAPPINGS.items()
        ]
        if content.customFieldsManager is not None:
            self.custom_fields_manager = content.customFieldsManager.value
            entities.append(build_object_spec(content.customFieldsManager))
            properties.append(build_property_spec(CUSTOM_FIELDS_MANAGER, ["field"]))
        await self._create_filter(build_filter_spec(entities, properties))
        if content.taskManager is not None:
            tasks = build_traversal_spec(content.taskManager, "TaskManager", "recentTask")
            task_info = build_property_spec("Task", TASK_MAPPING.paths)
            await self._create_filter(build_filter_spec([tasks], [task_info]))

    async def _create(
        self, manager: Ref | None, method: str, arguments: Mapping[str, Argument]
    ) -> Ref:
        if manager is None:
            raise self._soap.not_vsphere_error(method)
        results = decode_results(await self._soap.invoke(manager, method, arguments), method)
        if not results or not isinstance(created := results[0], Ref):
            raise self._soap.not_vsphere_error(method)
        self._created_objects.append(created)
        return created

    async def _create_filter(self, spec: DataObject) -> None:
        # It is destroyed with its collector.
        arguments: dict[str, Argument] = {"spec": spec, "partialUpdates": False}
        await self._soap.invoke(self._collector, "CreateFilter", arguments)

    async def wait_for_updates(
        self, version: str, *, timeout_seconds: float = 0.0
    ) -> UpdateSet | None:
        """Changes since a version, "" for everything; None if there were none for a while."""
        options = DataObject(
            {
                "maxWaitSeconds": self._options.max_wait_seconds,
                "maxObjectUpdates": self._options.max_object_updates,
            }
        )
        body = await self._call(
            "WaitForUpdatesEx",
            {"version": version, "options": options},
            timeout_seconds=timeout_seconds,
        )
        return decode_updates(body, self._soap.decode_errors.report)

    async def read_properties(
        self, paths_by_object: Mapping[tuple[str, str], Iterable[str]]
    ) -> list[ObjectUpdate]:
        """Current properties of objects, by type and reference; deleted objects are left out."""
        specs = [
            build_filter_spec(
                [build_object_spec(Ref(type_name, ref))],
                [build_property_spec(type_name, paths)],
                report_missing=True,
            )
            for (type_name, ref), paths in paths_by_object.items()
        ]
        updates = await _retrieve_all_pages(
            self._call,
            specs,
            self._options.max_object_updates,
            self._soap.decode_errors.report,
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

    async def _call(
        self, method: str, arguments: Mapping[str, Argument], *, timeout_seconds: float = 0.0
    ) -> bytes:
        return await self._soap.invoke(
            self._collector,
            method,
            arguments,
            timeout_seconds=timeout_seconds or self._options.call_timeout_seconds,
        )

    async def close(self) -> None:
        """Remove everything, but not at any cost: what remains ends with the session."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_timeout_seconds):
                while self._created_objects:
                    await self._destroy(self._created_objects.pop())

    async def _destroy(self, created: Ref) -> None:
        try:
            is_collector = created == self._collector
            method = "DestroyPropertyCollector" if is_collector else "DestroyView"
            await self._soap.invoke(created, method, {})
        except VCenterError as error:
            self._log.debug(
                "could not remove a view or collector; it ends with the session", error=error
            )


# Calls a method of a property collector with arguments, and returns the response's bytes.
_CollectorCall = Callable[[str, Mapping[str, Argument]], Awaitable[bytes]]


async def _retrieve_all_pages(
    call: _CollectorCall, specs: Sequence[DataObject], max_objects: int, report: ReportUndecodable
) -> list[ObjectUpdate]:
    """What the specs select. A token is valid only with the collector that returned it."""
    options = DataObject({"maxObjects": max_objects})
    arguments: dict[str, Argument] = {"specSet": specs, "options": options}
    page = decode_object_page(await call("RetrievePropertiesEx", arguments), report)
    updates = list(page.updates)
    while page.token:
        page = decode_object_page(
            await call("ContinueRetrievePropertiesEx", {"token": page.token}), report
        )
        updates += page.updates
    return updates


async def retrieve_selected(soap: SoapClient, spec: DataObject) -> list[ObjectUpdate]:
    """What the spec selects, by the session's default collector: for reads without a filter."""
    collector = (await soap.get_service_content()).propertyCollector

    async def call(method: str, arguments: Mapping[str, Argument]) -> bytes:
        return await soap.invoke(collector, method, arguments)

    return await _retrieve_all_pages(
        call, [spec], CollectorOptions.max_object_updates, soap.decode_errors.report
    )


async def retrieve_properties(
    soap: SoapClient, session: Session, type_name: str, refs: Sequence[str], paths: Sequence[str]
) -> list[ObjectUpdate]:
    """Properties of objects of one type as vCenter has them now; deleted objects are left out."""
    spec = build_filter_spec(
        [build_object_spec(Ref(type_name, ref)) for ref in refs],
        [build_property_spec(type_name, paths)],
        report_missing=True,
    )
    return await session.call(lambda: retrieve_selected(soap, spec))


def build_filter_spec(
    objects: Sequence[DataObject], properties: Sequence[DataObject], *, report_missing: bool = False
) -> DataObject:
    """Which properties of which objects. Without `report_missing`, one deleted object fails the
    whole call.
    """
    return DataObject(
        {
            "propSet": properties,
            "objectSet": objects,
            "reportMissingObjectsInResults": True if report_missing else None,
        }
    )


def build_object_spec(obj: Ref) -> DataObject:
    return DataObject({"obj": obj, "skip": False})


def build_traversal_spec(obj: Ref, type_name: str, path: str) -> DataObject:
    """The objects that a property refers to, without the object that has the property."""
    traversal = DataObject(
        {"name": path, "type": type_name, "path": path, "skip": False}, type="TraversalSpec"
    )
    return DataObject({"obj": obj, "skip": True, "selectSet": [traversal]})


def build_property_spec(type_name: str, paths: Iterable[str]) -> DataObject:
    return DataObject({"type": type_name, "all": False, "pathSet": sorted(paths)})
