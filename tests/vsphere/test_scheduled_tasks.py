"""Scheduled tasks that enter maintenance mode: decoding, and the real calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter as Simulator
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.faults import (
    Busy,
    Denied,
    NotAuthenticated,
    Unreachable,
    VCenterError,
)
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.scheduled_tasks import (
    MaintenanceTask,
    ScheduledTasks,
    _decode_maintenance_task,
    _parse_run_time,
)
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient
from vsphere_operators.vsphere.updates import ObjectUpdate, decode_object_page
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

TASKS_RESPONSE = b"""<?xml version="1.0"?>
<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"
xmlns:xsd="http://www.w3.org/2001/XMLSchema"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Body>
<RetrievePropertiesExResponse xmlns="urn:vim25"><returnval>
  <objects><obj type="ScheduledTask">schedule-7</obj><propSet><name>info</name>
<val xsi:type="ScheduledTaskInfo">
  <name>patch day</name><description/><enabled>true</enabled>
  <scheduler xsi:type="OnceTaskScheduler"><runAt>2026-11-20T22:00:00Z</runAt></scheduler>
  <action xsi:type="MethodAction"><name>EnterMaintenanceMode_Task</name></action>
  <scheduledTask type="ScheduledTask">schedule-7</scheduledTask>
<entity type="HostSystem">host-12</entity>
  <lastModifiedTime>2026-11-01T08:00:00Z</lastModifiedTime>
<nextRunTime>2026-11-20T22:00:00Z</nextRunTime></val></propSet></objects>
</returnval></RetrievePropertiesExResponse></Body></Envelope>"""
PLANNED = MaintenanceTask("host-12", datetime(2026, 11, 20, 22, tzinfo=UTC), "patch day")


def task_info() -> dict[str, Any]:
    (update,) = decode_object_page(TASKS_RESPONSE).updates
    info = update.changes["info"]
    assert isinstance(info, dict)
    return dict(info)


def test_task_that_enters_maintenance_mode_is_planned() -> None:
    assert _decode_maintenance_task(task_info()) == PLANNED


def test_other_scheduled_tasks_are_ignored() -> None:
    changes: list[dict[str, Any]] = [
        {"enabled": "false"},
        {"nextRunTime": ""},
        {"nextRunTime": None},
        {"entity": None},
        {"action": {"name": "PowerOffVM_Task"}},
    ]
    for change in changes:
        assert _decode_maintenance_task({**task_info(), **change}) is None
    assert _decode_maintenance_task(None) is None


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("9999-12-31T12:00:00Z", 0),
        ("1999-12-31T12:00:00Z", 0),
        ("2000-01-01T00:00:00", 2000),
        ("", 0),
    ],
)
def test_implausible_year_is_not_a_time(text: str, year: int) -> None:
    info = _parse_run_time(text)
    assert (info.year if info else 0) == year


def test_task_that_does_not_decode_is_left_out_and_counted() -> None:
    metrics = RecordingMetrics()
    soap = SoapClient(Address("vc.invalid"), metrics)
    updates = [
        ObjectUpdate("modify", "ScheduledTask", "schedule-1", {"info": info})
        for info in ({**task_info(), "nextRunTime": "soon"}, task_info())
    ]
    assert len(ScheduledTasks(soap, Mock(), Mock())._decode_tasks(updates)) == 1
    assert metrics.undecodable == [("ScheduledTask", "info")]


async def test_only_differing_hosts_are_reported() -> None:
    changed_hosts: list[str] = []
    scheduled = ScheduledTasks(Mock(), Mock(), Mock())
    scheduled.changed.connect(changed_hosts.append)
    assert not scheduled.requested.is_set()
    assert scheduled.get("host-12") == ()
    assert scheduled.requested.is_set()
    scheduled.apply([PLANNED])
    scheduled.apply([PLANNED])
    assert (scheduled.get("host-12"), changed_hosts) == ((PLANNED,), ["host-12"])
    scheduled.apply([])
    assert (scheduled.get("host-12"), changed_hosts) == ((), ["host-12", "host-12"])


async def test_end_of_a_poll_is_reported_once() -> None:
    turned: list[tuple[bool, str]] = []
    scheduled = ScheduledTasks(Mock(), Mock(), Mock())
    scheduled.state_changed.connect(
        lambda: turned.append((scheduled.is_first_poll_done, scheduled.problem))
    )
    for problem in ("", "", "no", "no", ""):
        scheduled._finish_poll(problem)
    assert turned == [(True, ""), (True, "no"), (True, "")]


async def test_only_an_answer_ends_the_first_poll() -> None:
    scheduled, errors = ScheduledTasks(Mock(), Mock(), Mock()), list[VCenterError]()

    async def call(read: object) -> None:
        raise errors[-1]

    scheduled._session.call = call  # type: ignore[method-assign, assignment]
    for error in (Unreachable("cut off"), Busy("later"), NotAuthenticated("gone")):
        errors.append(error)
        await scheduled.poll()
        assert (scheduled.is_first_poll_done, scheduled.problem) == (False, str(error))
    errors.append(Denied("permission denied"))
    await scheduled.poll()
    assert (scheduled.is_first_poll_done, scheduled.problem) == (True, "permission denied")
    errors.append(Unreachable("cut off"))
    await scheduled.poll()
    assert (scheduled.is_first_poll_done, scheduled.problem) == (True, "cut off")


async def test_busy_vcenter_counts_as_an_answer_after_a_while() -> None:
    scheduled = ScheduledTasks(Mock(), Mock(), Mock())

    async def call(read: object) -> None:
        raise Busy("later")

    scheduled._session.call = call  # type: ignore[method-assign, assignment]
    polled = list[bool]()
    for _ in range(5):
        await scheduled.poll()
        polled.append(scheduled.is_first_poll_done)
    assert polled == [False, False, False, False, True]


async def test_real_calls_succeed(
    simulator: Simulator, log: Log, metrics: RecordingMetrics
) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    host = next(entity for entity in await simulator.entities() if entity["type"] == "HostSystem")
    vcenter = VCenter(
        "vc", simulator_address(simulator), simulator_credentials(simulator), log, metrics
    )
    scheduled = vcenter.scheduled_tasks = ScheduledTasks(
        vcenter.soap,
        vcenter.session,
        log,
        poll_schedule=PollSchedule(0.1, debounce_seconds=0.01, min_interval_seconds=0.01),
    )
    refs = list[str]()
    others: dict[str, dict[str, Any]] = {
        "patch day": {},
        "off": {"disabled": True},
        "other": {"method": "RebootHost_Task"},
    }
    for name, other in others.items():
        refs.append(await simulator.schedule_maintenance(host["ref"], at, name=name, **other))
    assert (scheduled.is_first_poll_done, scheduled.get(host["ref"])) == (False, ())
    task = asyncio.create_task(vcenter.run())
    try:
        await eventually(lambda: scheduled.is_first_poll_done)
        assert scheduled.get(host["ref"]) == (MaintenanceTask(host["ref"], at, "patch day"),)
        await simulator.fail_calls("RetrieveEntityScheduledTask", "NoPermission", count=0)
        await eventually(
            lambda: "NoPermission" in scheduled.problem or "permission" in scheduled.problem.lower()
        )
        assert scheduled.get(host["ref"]) == (MaintenanceTask(host["ref"], at, "patch day"),)
        await simulator.clear_rules()
        await simulator.remove_scheduled_task(refs.pop(0))
        await eventually(lambda: not scheduled.problem and scheduled.get(host["ref"]) == ())
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await simulator.clear_rules()
        for ref in refs:
            await simulator.remove_scheduled_task(ref)


async def test_planned_maintenance_is_found(
    simulator: Simulator, soap: SoapClient, session: Session, log: Log
) -> None:
    scheduled = ScheduledTasks(soap, session, log)
    assert await scheduled._read_maintenance_tasks() == []
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    refs = [
        await simulator.schedule_maintenance("DC0_H0", at, name="patch day"),
        await simulator.schedule_maintenance("DC0_C0_H0", at, name="off", disabled=True),
    ]
    refs.append(
        await simulator.schedule_maintenance(
            "DC0_C0_H1", at, name="reboot", method="RebootHost_Task"
        )
    )
    host = next(
        entity["ref"]
        for entity in await simulator.entities()
        if entity["type"] == "HostSystem" and entity["name"] == "DC0_H0"
    )
    assert await scheduled._read_maintenance_tasks() == [MaintenanceTask(host, at, "patch day")]
    for ref in refs:
        await simulator.remove_scheduled_task(ref)
    assert await scheduled._read_maintenance_tasks() == []
