"""Every caller of RetrievePropertiesEx reads all pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubewright.log import Log
from vsphere_operators.vsphere.decode_errors import DecodeErrors
from vsphere_operators.vsphere.devices import AssignableHardwareCache
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.property_collector import retrieve_properties
from vsphere_operators.vsphere.scheduled_tasks import ScheduledTasks
from vsphere_operators.vsphere.updates import Ref

from .canned_server import RecordingMetrics

PAGE_XML = """<?xml version="1.0"?><Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<Body><{method}Response xmlns="urn:vim25"><returnval>{token}<objects>
<obj type="ScheduledTask">schedule-{number}</obj>
<propSet><name>info</name><val xsi:type="ScheduledTaskInfo"><name>task {number}</name>
<enabled>true</enabled>
<action xsi:type="MethodAction"><name>EnterMaintenanceMode_Task</name></action>
<entity type="HostSystem">host-{number}</entity>
<nextRunTime>2026-11-20T22:00:00Z</nextRunTime></val></propSet></objects></returnval>
</{method}Response></Body></Envelope>"""
PAGE_COUNT = 3
TASKS_XML = """<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>
<RetrieveEntityScheduledTaskResponse xmlns="urn:vim25">
<returnval type="ScheduledTask">schedule-1</returnval>
</RetrieveEntityScheduledTaskResponse></Body></Envelope>"""


class PagedVCenter:
    """A vCenter that returns one object per page, and its session."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.scheduledTaskManager = Ref("ScheduledTaskManager", "tasks")
        self.propertyCollector = Ref("PropertyCollector", "collector")
        self.decode_errors = DecodeErrors(RecordingMetrics())

    async def get_service_content(self) -> PagedVCenter:
        return self

    async def invoke(self, target: Ref, method: str, arguments: dict[str, Any]) -> bytes:
        if method == "RetrieveEntityScheduledTask":
            return TASKS_XML.encode()
        self.calls.append((method, arguments.get("token")))
        number = len(self.calls)
        token = f"<token>page-{number + 1}</token>" if number < PAGE_COUNT else ""
        return PAGE_XML.format(method=method, token=token, number=number).encode()

    async def call(self, function: Callable[[], Awaitable[Any]]) -> Any:
        return await function()


async def read_scheduled_tasks(paged: Any) -> list[str]:
    return [
        task.host
        for task in await ScheduledTasks(paged, paged, Log("test"))._read_maintenance_tasks()
    ]


async def read_assignable_hardware(paged: Any) -> list[str]:
    updates = await AssignableHardwareCache(
        paged, paged, Inventory("lab"), Log("test")
    )._read_managers(["host-1"])
    return [update.ref.replace("schedule", "host") for update in updates]


async def read_vm_properties(paged: Any) -> list[str]:
    updates = await retrieve_properties(paged, paged, "VirtualMachine", ["vm-1"], ["config"])
    return [update.ref.replace("schedule", "host") for update in updates]


@pytest.mark.parametrize(
    "read", [read_scheduled_tasks, read_assignable_hardware, read_vm_properties]
)
async def test_every_page_is_read(read: Callable[[Any], Awaitable[list[str]]]) -> None:
    paged = PagedVCenter()
    assert await read(paged) == ["host-1", "host-2", "host-3"]
    more = "ContinueRetrievePropertiesEx"
    assert paged.calls == [("RetrievePropertiesEx", None), (more, "page-2"), (more, "page-3")]
