"""Scheduled tasks that enter maintenance mode: as vCenter writes them on the wire, and by the real calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import VCenter as Simulator
from vsphere_operators.vsphere.faults import Busy, Denied, NotAuthenticated, Unreachable, VCenterError
from vsphere_operators.vsphere.polling import Rhythm
from vsphere_operators.vsphere.scheduled_tasks import Planned, Scheduled, moment, planned
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import Soap
from vsphere_operators.vsphere.updates import decode_objects
from vsphere_operators.vsphere.vcenter import VCenter

from .rig import Tally, account, address_of_simulator

ANSWER = b"""<?xml version="1.0"?>
<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Body><RetrievePropertiesExResponse xmlns="urn:vim25"><returnval>
  <objects><obj type="ScheduledTask">schedule-7</obj><propSet><name>info</name><val xsi:type="ScheduledTaskInfo">
  <name>patch day</name><description/><enabled>true</enabled>
  <scheduler xsi:type="OnceTaskScheduler"><runAt>2026-11-20T22:00:00Z</runAt></scheduler>
  <action xsi:type="MethodAction"><name>EnterMaintenanceMode_Task</name></action>
  <scheduledTask type="ScheduledTask">schedule-7</scheduledTask><entity type="HostSystem">host-12</entity>
  <lastModifiedTime>2026-11-01T08:00:00Z</lastModifiedTime><nextRunTime>2026-11-20T22:00:00Z</nextRunTime></val></propSet></objects>
</returnval></RetrievePropertiesExResponse></Body></Envelope>"""
PLAN = Planned("host-12", datetime(2026, 11, 20, 22, tzinfo=UTC), "patch day")


def info() -> dict[str, Any]:
    (update,) = decode_objects(ANSWER).updates
    found = update.changes["info"]
    assert isinstance(found, dict)
    return dict(found)


def test_a_task_that_enters_maintenance_mode_is_a_plan() -> None:
    assert planned(info()) == PLAN


def test_one_that_is_off_over_or_does_something_else_is_none() -> None:
    changes: list[dict[str, Any]] = [
        {"enabled": "false"},
        {"nextRunTime": ""},
        {"nextRunTime": None},
        {"entity": None},
        {"action": {"name": "PowerOffVM_Task"}},
    ]
    for change in changes:
        assert planned({**info(), **change}) is None
    assert planned(None) is None


@pytest.mark.parametrize(
    ("text", "year"), [("9999-12-31T12:00:00Z", 0), ("1999-12-31T12:00:00Z", 0), ("2000-01-01T00:00:00", 2000), ("", 0)]
)
def test_a_year_that_nobody_can_mean_is_no_time(text: str, year: int) -> None:
    found = moment(text)
    assert (found.year if found else 0) == year


async def test_hosts_hear_of_what_differs() -> None:
    heard: list[str] = []
    scheduled = Scheduled(Mock(), Mock(), Mock())
    scheduled.listeners.append(heard.append)
    assert not scheduled.wanted.is_set()
    assert scheduled.of("host-12") == ()
    assert scheduled.wanted.is_set()
    scheduled.learn([PLAN])
    scheduled.learn([PLAN])
    assert (scheduled.of("host-12"), heard) == ((PLAN,), ["host-12"])
    scheduled.learn([])
    assert (scheduled.of("host-12"), heard) == ((), ["host-12", "host-12"])


async def test_the_end_of_a_look_is_told_once() -> None:
    turned: list[tuple[bool, str]] = []
    scheduled = Scheduled(Mock(), Mock(), Mock())
    scheduled.turned.append(lambda: turned.append((scheduled.looked, scheduled.problem)))
    for problem in ("", "", "no", "no", ""):
        scheduled.end(problem)
    assert turned == [(True, ""), (True, "no"), (True, "")]


async def test_only_an_answer_ends_the_first_look() -> None:
    scheduled, errors = Scheduled(Mock(), Mock(), Mock()), list[VCenterError]()

    async def call(read: object) -> None:
        raise errors[-1]

    scheduled.session.call = call  # type: ignore[method-assign, assignment]
    for error in (Unreachable("cut off"), Busy("later"), NotAuthenticated("gone")):
        errors.append(error)
        await scheduled.look()
        assert (scheduled.looked, scheduled.problem) == (False, str(error))
    errors.append(Denied("no right"))
    await scheduled.look()
    assert (scheduled.looked, scheduled.problem) == (True, "no right")
    errors.append(Unreachable("cut off"))
    await scheduled.look()
    assert (scheduled.looked, scheduled.problem) == (True, "cut off")


async def test_a_vcenter_that_is_busy_for_ever_keeps_nobody_waiting_for_ever() -> None:
    scheduled = Scheduled(Mock(), Mock(), Mock())

    async def call(read: object) -> None:
        raise Busy("later")

    scheduled.session.call = call  # type: ignore[method-assign, assignment]
    looked = list[bool]()
    for _ in range(5):
        await scheduled.look()
        looked.append(scheduled.looked)
    assert looked == [False, False, False, False, True]


async def test_the_real_calls(simulator: Simulator, log: Log, meter: Tally) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    host = next(each for each in await simulator.entities() if each["type"] == "HostSystem")
    vcenter = VCenter("vc", address_of_simulator(simulator), account(simulator), log, meter)
    scheduled = vcenter.scheduled = Scheduled(
        vcenter.soap, vcenter.session, log, rhythm=Rhythm(0.1, settle_seconds=0.01, pause_seconds=0.01)
    )
    refs = list[str]()
    others: dict[str, dict[str, Any]] = {"patch day": {}, "off": {"disabled": True}, "other": {"method": "RebootHost_Task"}}
    for name, other in others.items():
        refs.append(await simulator.schedule(host["ref"], at, name=name, **other))
    life = asyncio.create_task(vcenter.run())
    try:
        await eventually(lambda: vcenter.loaded)
        assert (scheduled.looked, scheduled.of(host["ref"])) == (False, ())
        await eventually(lambda: scheduled.looked)
        assert scheduled.of(host["ref"]) == (Planned(host["ref"], at, "patch day"),)
        await simulator.fail("RetrieveEntityScheduledTask", "NoPermission", count=0)
        await eventually(lambda: "NoPermission" in scheduled.problem or "permission" in scheduled.problem.lower())
        assert scheduled.of(host["ref"]) == (Planned(host["ref"], at, "patch day"),)
        await simulator.clear_rules()
        await simulator.unschedule(refs[0])
        await eventually(lambda: not scheduled.problem and scheduled.of(host["ref"]) == ())
    finally:
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life
        for ref in refs[1:]:
            await simulator.unschedule(ref)


async def test_what_a_person_plans_is_found(simulator: Simulator, soap: Soap, session: Session, log: Log) -> None:
    scheduled = Scheduled(soap, session, log)
    assert await scheduled.read() == []
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    refs = [await simulator.schedule("DC0_H0", at, name="patch day"), await simulator.schedule("DC0_C0_H0", at, name="off", disabled=True)]
    refs.append(await simulator.schedule("DC0_C0_H1", at, name="reboot", method="RebootHost_Task"))
    host = next(each["ref"] for each in await simulator.entities() if each["type"] == "HostSystem" and each["name"] == "DC0_H0")
    assert await scheduled.read() == [Planned(host, at, "patch day")]
    for ref in refs:
        await simulator.unschedule(ref)
    assert await scheduled.read() == []
