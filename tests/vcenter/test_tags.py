from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import Unreachable, VCenterError, WrongLogin
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.rest import SESSION_PATH, TAGGING_PATH, RestSession
from vsphere_operators.vsphere.session import MAX_LOGIN_FAILURES, Session
from vsphere_operators.vsphere.tags import REJECTED_RETRY_SECONDS, Tags
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.updates import ObjectUpdate

from .conftest import Simulators
from .diskrig import Lines, inventory_of
from .rig import Clock, Tally, account, address_of_simulator

HOST, OTHER = "DC0_H0", "DC0_C0_H0"
LOGIN = "POST /rest/com/vmware/cis/session"


class Gaps(SoapClient):
    """A connection on which what a path ends with is not there."""

    missing = ""
    before: Callable[[str], object] | None = None

    async def request_json(
        self,
        verb: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> tuple[int, Any]:
        if self.before is not None:
            asyncio.get_running_loop().call_soon(self.before, path)
        if self.missing and path.endswith(self.missing):
            return 404, {"type": "com.vmware.vapi.std.errors.not_found", "value": {"messages": []}}
        return await super().request_json(verb, path, body, headers, timeout_seconds)


@dataclass
class Room:
    """A simulator, and our tags of it."""

    simulator: SimulatedVCenter
    soap: Gaps
    session: Session
    credentials: FixedCredentials
    inventory: Inventory
    tags: Tags
    log: Lines
    clock: Clock
    heard: list[str]

    def host(self, name: str) -> str:
        return self.inventory.find_host(name).ref

    def of(self, name: str) -> tuple[str, ...]:
        return self.tags.get(self.host(name))

    def problem(self) -> VCenterError | None:
        return self.tags.problem

    async def rest_calls(self) -> int:
        return sum(
            count
            for name, count in (await self.simulator.call_counts()).items()
            if "/rest/" in name
        )


@pytest.fixture
async def room(simulators: Simulators) -> AsyncIterator[Room]:
    simulator = await simulators(password="canary")
    soap, log, clock, credentials = (
        Gaps(address_of_simulator(simulator), Tally()),
        Lines(),
        Clock(),
        account(simulator),
    )
    session, inventory = Session(soap, credentials, log, clock=clock), await inventory_of(simulator)
    tags = Tags(
        soap,
        session,
        credentials,
        inventory,
        log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05, min_interval_seconds=0.05),
        clock=clock,
    )
    room = Room(simulator, soap, session, credentials, inventory, tags, log, clock, [])
    tags.listeners.append(room.heard.append)
    yield room
    assert "canary" not in str(log.lines)
    assert await simulator.rest_sessions() == []
    await session.logout()
    await soap.close()


async def test_tags_of_hosts(room: Room) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.simulator.set_tag(HOST, "owner", "team-1")
    await room.simulator.set_tag(HOST, "owner", "team-0")
    await room.simulator.set_tag(OTHER, "zone", "a")
    await room.tags.poll()
    assert room.of(HOST) == ("owner:team-0", "owner:team-1", "zone:a")
    assert room.of(OTHER) == ("zone:a",)
    assert room.of("DC0_C0_H1") == ()
    assert set(room.heard) == {room.host(HOST), room.host(OTHER)}
    # Login, one for all hosts, three tags, two categories, logout.
    assert await room.rest_calls() == 8


async def test_attached_and_taken_off(room: Room) -> None:
    await room.tags.poll()
    assert room.of(HOST) == ()
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.tags.poll()
    assert room.of(HOST) == ("zone:a",)
    await room.tags.poll()
    await room.simulator.set_tag(HOST, "zone", "a", detach=True)
    await room.tags.poll()
    assert room.of(HOST) == ()
    assert room.heard == [room.host(HOST)] * 2


async def rename(room: Room, what: str, id: str, name: str) -> None:
    async with RestSession(
        room.soap, room.simulator.user, room.simulator.password, room.log
    ) as rest:
        await rest.call("PATCH", f"{TAGGING_PATH}/{what}/id:{id}", {"update_spec": {"name": name}})


async def test_tags_and_categories_are_renamed(room: Room) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    async with RestSession(
        room.soap, room.simulator.user, room.simulator.password, room.log
    ) as rest:
        [[tag]] = (await rest.list_attached_tags("HostSystem", [room.host(HOST)])).values()
        category = (await rest.read_tags([tag]))[tag][1]
    await room.tags.poll()
    await rename(room, "tag", tag, "b")
    await room.tags.poll()
    assert room.of(HOST) == ("zone:b",)
    await rename(room, "category", category, "region")
    await room.tags.poll()
    assert room.of(HOST) == ("region:b",)
    assert room.heard == [room.host(HOST)] * 3


async def test_a_tag_deleted_between_two_calls_is_left_out(room: Room) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.simulator.set_tag(HOST, "zone", "b")
    async with RestSession(
        room.soap, room.simulator.user, room.simulator.password, room.log
    ) as rest:
        [tags] = (await rest.list_attached_tags("HostSystem", [room.host(HOST)])).values()
        names = await rest.read_tags(tags)
    room.soap.missing = next(id for id, (name, _) in names.items() if name == "a")
    await room.tags.poll()
    assert room.of(HOST) == ("zone:b",)


async def test_a_thousand_hosts_need_few_calls(room: Room) -> None:
    room.inventory.apply(
        ObjectUpdate("enter", "HostSystem", f"host-{9000 + number}", {"name": f"h{number}"})
        for number in range(997)
    )
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.tags.poll()
    assert len(room.inventory.hosts) > 1000
    # Login, three for up to 1,500 hosts, a tag, a category, logout.
    assert await room.rest_calls() == 7


async def running(tags: Tags) -> asyncio.Task[None]:
    task = asyncio.create_task(tags.run())
    await eventually(lambda: tags.inventory.listeners)
    return task


async def test_a_host_that_enters_and_one_that_leaves(room: Room) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    [host] = [
        entity
        for entity in await room.simulator.entities()
        if entity["name"] == HOST and entity["type"] == "HostSystem"
    ]
    room.inventory.apply([ObjectUpdate("leave", "HostSystem", host["ref"])])
    task = await running(room.tags)
    await eventually(lambda: room.tags.poll_schedule.ended_at > room.tags.poll_schedule.started_at)
    assert room.tags.get(host["ref"]) == ()
    room.inventory.apply([ObjectUpdate("enter", "HostSystem", host["ref"], {"name": HOST})])
    await eventually(lambda: room.tags.get(host["ref"]) == ("zone:a",))
    room.inventory.apply([ObjectUpdate("leave", "HostSystem", host["ref"])])
    assert room.tags.get(host["ref"]) == ()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert room.inventory.listeners == []


@pytest.mark.parametrize("path", [SESSION_PATH, f"{TAGGING_PATH}/tag-association"])
async def test_the_session_is_ended_also_when_the_look_is_cut_short(room: Room, path: str) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.session.login()
    look = asyncio.create_task(room.tags.poll())
    # Once: a second one would cut short the very call that ends the session.
    room.soap.before = lambda asked: (
        look.cancel() if asked.startswith(path) and not look.cancelling() else None
    )
    with pytest.raises(asyncio.CancelledError):
        await look
    room.soap.before = None
    assert (await room.simulator.call_counts())[LOGIN] == 1
    assert await room.simulator.rest_sessions() == []


async def test_without_a_password_tags_are_left_out(room: Room) -> None:
    room.credentials.credentials = Credentials(saml_token="<token/>")
    await room.tags.poll()
    await room.tags.poll()
    assert len(room.log.about("tags are left out", "info")) == 1
    assert await room.rest_calls() == 0
    assert room.problem() is None


async def test_a_failure_keeps_what_is_known(room: Room) -> None:
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.tags.poll()
    await room.simulator.set_outage("503")
    await room.tags.poll()
    await room.tags.poll()
    assert room.of(HOST) == ("zone:a",)
    assert isinstance(room.problem(), Unreachable)
    assert len(room.log.about("tags cannot be read", "warning")) == 1
    await room.simulator.set_outage("")
    await room.tags.poll()
    assert room.problem() is None
    assert room.heard == [room.host(HOST)]


async def test_a_refused_password_is_tried_once_and_counts_for_the_session(room: Room) -> None:
    await room.session.login()
    await room.simulator.set_password(room.simulator.user, "changed")
    await room.tags.poll()
    assert isinstance(room.problem(), WrongLogin)
    assert list(room.session.budget.failure_times) == [room.clock.seconds]
    for _ in range(3):
        room.clock.seconds += 500
        await room.tags.poll()
    assert (await room.simulator.call_counts())[LOGIN] == 1
    assert isinstance(room.problem(), WrongLogin)
    room.credentials.credentials = Credentials(username=room.simulator.user, password="changed")
    await room.simulator.set_tag(HOST, "zone", "a")
    await room.tags.poll()
    assert room.of(HOST) == ("zone:a",)
    assert room.problem() is None


async def test_a_refused_password_is_tried_again_after_a_while(room: Room) -> None:
    await room.session.login()
    await room.simulator.set_password(room.simulator.user, "changed")
    await room.tags.poll()
    await room.simulator.set_password(room.simulator.user, room.simulator.password)
    room.clock.seconds += REJECTED_RETRY_SECONDS
    await room.tags.poll()
    assert room.problem() is None
    assert (await room.simulator.call_counts())[LOGIN] == 2


async def test_a_session_that_may_not_log_in_stops_tags_too(room: Room) -> None:
    credentials = room.credentials.read()
    await room.session.login()
    for _ in range(MAX_LOGIN_FAILURES):
        room.session.count_failed_login(credentials)
    await room.tags.poll()
    assert isinstance(room.problem(), WrongLogin)
    assert await room.rest_calls() == 0
