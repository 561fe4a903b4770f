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
from vsphere_operators.vsphere.model import Host
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.rest import API, LEGACY_API, RestApi, RestSession
from vsphere_operators.vsphere.session import MAX_LOGIN_FAILURES, Session
from vsphere_operators.vsphere.tags import REJECTED_RETRY_SECONDS, Tags
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.updates import ObjectUpdate

from .canned_server import FakeClock, RecordingMetrics, simulator_address, simulator_credentials
from .conftest import SimulatorFactory
from .intercepting_soap import RecordingLog, load_inventory

HOST, OTHER_HOST = "DC0_H0", "DC0_C0_H0"
LOGIN_CALL = f"POST {API.session_path}"
LEGACY_LOGIN_CALL = f"POST {LEGACY_API.session_path}"


class IncompleteSoap(SoapClient):
    """A client for which paths with a certain begin or end do not exist."""

    missing_path_suffix = ""
    missing_path_prefixes: tuple[str, ...] = ()
    before_call: Callable[[str], object] | None = None

    async def request_json(
        self,
        verb: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> tuple[int, Any]:
        if self.before_call is not None:
            asyncio.get_running_loop().call_soon(self.before_call, path)
        if path.startswith(self.missing_path_prefixes) or (
            self.missing_path_suffix and path.endswith(self.missing_path_suffix)
        ):
            return 404, {"type": "com.vmware.vapi.std.errors.not_found", "value": {"messages": []}}
        return await super().request_json(verb, path, body, headers, timeout_seconds)


@dataclass
class TagHarness:
    """A simulator, and the Tags that read it."""

    simulator: SimulatedVCenter
    soap: IncompleteSoap
    session: Session
    credentials: FixedCredentials
    inventory: Inventory
    tags: Tags
    log: RecordingLog
    clock: FakeClock
    changed_refs: list[str]

    def host_ref(self, name: str) -> str:
        return self.inventory.find_host(name).ref

    def tags_of(self, name: str) -> tuple[str, ...]:
        return self.tags.get(self.host_ref(name))

    def problem(self) -> VCenterError | None:
        return self.tags.problem

    async def count_rest_calls(self) -> int:
        return sum(
            count
            for name, count in (await self.simulator.call_counts()).items()
            if "/rest/" in name or "/api/" in name
        )


@pytest.fixture
def served_apis() -> str:
    """The REST APIs of the simulator: `api`, `rest` or `both`."""
    return "both"


@pytest.fixture
async def harness(start_simulator: SimulatorFactory, served_apis: str) -> AsyncIterator[TagHarness]:
    simulator = await start_simulator(f"--rest={served_apis}", password="canary")
    soap, log, clock, credentials = (
        IncompleteSoap(simulator_address(simulator), RecordingMetrics()),
        RecordingLog(),
        FakeClock(),
        simulator_credentials(simulator),
    )
    session, inventory = (
        Session(soap, credentials, log, clock=clock),
        await load_inventory(simulator),
    )
    tags = Tags(
        soap,
        session,
        credentials,
        inventory,
        log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05, min_interval_seconds=0.05),
        clock=clock,
    )
    harness = TagHarness(simulator, soap, session, credentials, inventory, tags, log, clock, [])
    tags.changed.connect(harness.changed_refs.append)
    yield harness
    assert "canary" not in str(log.entries)
    assert await simulator.rest_sessions() == []
    await session.logout()
    await soap.close()


@pytest.mark.parametrize(
    ("served_apis", "api", "calls"),
    [
        # Login, one for all hosts, three tags, two categories, logout.
        ("both", API, 8),
        ("api", API, 8),
        # And the login that is not served.
        ("rest", LEGACY_API, 9),
    ],
)
async def test_tags_of_hosts(
    harness: TagHarness, served_apis: str, api: RestApi, calls: int
) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.simulator.set_tag(HOST, "owner", "team-1")
    await harness.simulator.set_tag(HOST, "owner", "team-0")
    await harness.simulator.set_tag(OTHER_HOST, "zone", "a")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("owner:team-0", "owner:team-1", "zone:a")
    assert harness.tags_of(OTHER_HOST) == ("zone:a",)
    assert harness.tags_of("DC0_C0_H1") == ()
    assert set(harness.changed_refs) == {harness.host_ref(HOST), harness.host_ref(OTHER_HOST)}
    assert await harness.count_rest_calls() == calls
    assert harness.tags.rest_endpoint.apis[0] is api
    # The next poll knows which API works.
    await harness.simulator.reset_call_counts()
    await harness.tags.poll()
    assert await harness.count_rest_calls() == 8


async def test_removed_legacy_api_is_replaced(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    harness.soap.missing_path_prefixes = ("/api/",)
    await harness.tags.poll()
    assert harness.tags.rest_endpoint.apis[0] is LEGACY_API
    await harness.simulator.set_tag(HOST, "zone", "b")
    harness.soap.missing_path_prefixes = ("/rest/",)
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:a", "zone:b")
    assert harness.tags.rest_endpoint.apis[0] is API
    assert harness.problem() is None


async def test_api_with_sessions_but_without_tags_is_not_used(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    harness.soap.missing_path_prefixes = (API.tagging_path,)
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:a",)
    assert harness.tags.rest_endpoint.apis[0] is LEGACY_API


async def test_server_without_rest_apis_is_reported(harness: TagHarness) -> None:
    harness.soap.missing_path_prefixes = ("/api/", "/rest/")
    await harness.tags.poll()
    await harness.tags.poll()
    assert len(harness.log.find_messages("neither under /api nor under /rest", "warning")) == 1
    harness.soap.missing_path_prefixes = ()
    await harness.tags.poll()
    assert harness.problem() is None


async def test_attached_and_detached_tags(harness: TagHarness) -> None:
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ()
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:a",)
    await harness.tags.poll()
    await harness.simulator.set_tag(HOST, "zone", "a", detach=True)
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ()
    assert harness.changed_refs == [harness.host_ref(HOST)] * 2


def open_rest_session(harness: TagHarness) -> RestSession:
    simulator = harness.simulator
    return RestSession(harness.soap, API, simulator.user, simulator.password, harness.log)


async def rename_in_catalog(harness: TagHarness, what: str, id: str, name: str) -> None:
    async with open_rest_session(harness) as rest:
        await rest._call("PATCH", f"{API.tagging_path}/{what}/{id}", {"name": name})


async def test_renamed_tags_and_categories(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    async with open_rest_session(harness) as rest:
        [[tag]] = (await rest.list_attached_tags("HostSystem", [harness.host_ref(HOST)])).values()
        category = (await rest.read_tags([tag]))[tag][1]
    await harness.tags.poll()
    await rename_in_catalog(harness, "tag", tag, "b")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:b",)
    await rename_in_catalog(harness, "category", category, "region")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("region:b",)
    assert harness.changed_refs == [harness.host_ref(HOST)] * 3


async def test_tag_deleted_during_the_read_is_left_out(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.simulator.set_tag(HOST, "zone", "b")
    async with open_rest_session(harness) as rest:
        [tags] = (await rest.list_attached_tags("HostSystem", [harness.host_ref(HOST)])).values()
        names = await rest.read_tags(tags)
    harness.soap.missing_path_suffix = next(id for id, (name, _) in names.items() if name == "a")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:b",)


async def test_a_thousand_hosts_need_few_calls(harness: TagHarness) -> None:
    harness.inventory.apply(
        ObjectUpdate("enter", "HostSystem", f"host-{9000 + number}", {"name": f"h{number}"})
        for number in range(997)
    )
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.tags.poll()
    assert len(harness.inventory.hosts) > 1000
    # Login, three for up to 1,500 hosts, a tag, a category, logout.
    assert await harness.count_rest_calls() == 7


async def test_tags_of_hosts_that_enter_and_leave(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    [host] = [
        entity
        for entity in await harness.simulator.entities()
        if entity["name"] == HOST and entity["type"] == "HostSystem"
    ]
    harness.inventory.apply([ObjectUpdate("leave", "HostSystem", host["ref"])])
    harness.inventory.connect(harness.tags.on_host_change, Host)
    task = asyncio.create_task(harness.tags.run())
    await eventually(
        lambda: harness.tags.poll_schedule.ended_at > harness.tags.poll_schedule.started_at
    )
    assert harness.tags.get(host["ref"]) == ()
    harness.inventory.apply([ObjectUpdate("enter", "HostSystem", host["ref"], {"name": HOST})])
    await eventually(lambda: harness.tags.get(host["ref"]) == ("zone:a",))
    harness.inventory.apply([ObjectUpdate("leave", "HostSystem", host["ref"])])
    assert harness.tags.get(host["ref"]) == ()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("path", [API.session_path, f"{API.tagging_path}/tag-association"])
async def test_rest_session_is_ended_after_a_cancelled_poll(harness: TagHarness, path: str) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.session.login()
    poll = asyncio.create_task(harness.tags.poll())
    # Once: a second cancellation would interrupt the call that ends the session.
    harness.soap.before_call = lambda call: (
        poll.cancel() if call.startswith(path) and not poll.cancelling() else None
    )
    with pytest.raises(asyncio.CancelledError):
        await poll
    harness.soap.before_call = None
    assert (await harness.simulator.call_counts())[LOGIN_CALL] == 1
    assert await harness.simulator.rest_sessions() == []


async def test_without_a_password_tags_are_left_out(harness: TagHarness) -> None:
    harness.credentials.credentials = Credentials(saml_token="<token/>")
    await harness.tags.poll()
    await harness.tags.poll()
    assert len(harness.log.find_messages("tags are left out", "info")) == 1
    assert await harness.count_rest_calls() == 0
    assert harness.problem() is None


async def test_failed_poll_keeps_the_known_tags(harness: TagHarness) -> None:
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.tags.poll()
    await harness.simulator.set_outage("503")
    await harness.tags.poll()
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:a",)
    assert isinstance(harness.problem(), Unreachable)
    assert len(harness.log.find_messages("tags cannot be read", "warning")) == 1
    await harness.simulator.set_outage("")
    await harness.tags.poll()
    assert harness.problem() is None
    assert harness.changed_refs == [harness.host_ref(HOST)]


async def test_rejected_password_counts_for_the_session(
    harness: TagHarness,
) -> None:
    await harness.session.login()
    await harness.simulator.set_password(harness.simulator.user, "changed")
    await harness.tags.poll()
    assert isinstance(harness.problem(), WrongLogin)
    # A second attempt at the other API would count towards the lockout too.
    assert LEGACY_LOGIN_CALL not in await harness.simulator.call_counts()
    assert list(harness.session.failed_login_limiter.failure_times) == [harness.clock.seconds]
    for _ in range(3):
        harness.clock.seconds += 500
        await harness.tags.poll()
    assert (await harness.simulator.call_counts())[LOGIN_CALL] == 1
    assert isinstance(harness.problem(), WrongLogin)
    harness.credentials.credentials = Credentials(
        username=harness.simulator.user, password="changed"
    )
    await harness.simulator.set_tag(HOST, "zone", "a")
    await harness.tags.poll()
    assert harness.tags_of(HOST) == ("zone:a",)
    assert harness.problem() is None


async def test_rejected_password_is_tried_again_later(harness: TagHarness) -> None:
    await harness.session.login()
    await harness.simulator.set_password(harness.simulator.user, "changed")
    await harness.tags.poll()
    await harness.simulator.set_password(harness.simulator.user, harness.simulator.password)
    harness.clock.seconds += REJECTED_RETRY_SECONDS
    await harness.tags.poll()
    assert harness.problem() is None
    assert (await harness.simulator.call_counts())[LOGIN_CALL] == 2


async def test_exhausted_failed_login_limit_stops_tags_too(harness: TagHarness) -> None:
    credentials = harness.credentials.read()
    await harness.session.login()
    for _ in range(MAX_LOGIN_FAILURES):
        harness.session.count_failed_login(credentials)
    await harness.tags.poll()
    assert isinstance(harness.problem(), WrongLogin)
    assert await harness.count_rest_calls() == 0
