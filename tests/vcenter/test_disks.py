"""First Class Disks as they are kept in memory, beside what the simulator has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.disk_catalog import GlobalCatalog, RefreshScope
from vsphere_operators.vsphere.disks import FULL_REFRESH_SECONDS, Disks
from vsphere_operators.vsphere.faults import Ambiguous, Busy, NotFound, Unreachable, VCenterError
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.updates import ObjectUpdate

from .diskrig import Lines, Meddling, apart, disks_by_pyvmomi, inventory_of
from .rig import Clock, Tally, account, address_of_simulator, envelope

NAMED = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"
NAMED_ID = "7d0a1d4c-0000-4000-8000-000000000001"
FLAGS = ("--datacenters=2", "--datastores=3", "--fcds=9", f"--fcd={NAMED}={NAMED_ID}")

Simulators = Callable[..., Awaitable[SimulatedVCenter]]


@dataclass
class Room:
    """A simulator, and our disks of it."""

    simulator: SimulatedVCenter
    soap: Meddling
    session: Session
    inventory: Inventory
    disks: Disks
    log: Lines
    clock: Clock
    heard: list[tuple[Disk | None, Disk | None]]

    def problem(self) -> VCenterError | None:
        return self.disks.problem

    def on_the_first_road(self) -> bool:
        return self.disks.catalog is self.disks.global_catalog

    async def retrieves(self) -> int:
        """How many disks were read one by one since the last time."""
        calls = await self.simulator.call_counts()
        await self.simulator.reset_call_counts()
        return calls.get("VslmRetrieveVStorageObject", 0) + calls.get("RetrieveVStorageObject", 0)


@pytest.fixture
async def room(simulators: Simulators) -> AsyncIterator[Room]:
    simulator = await simulators(*FLAGS)
    soap, log, clock = Meddling(address_of_simulator(simulator), Tally()), Lines(), Clock()
    session, inventory = Session(soap, account(simulator), log), await inventory_of(simulator)
    disks = Disks(
        soap,
        session,
        inventory,
        log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05, min_interval_seconds=0.05),
        clock=clock,
    )
    room = Room(simulator, soap, session, inventory, disks, log, clock, [])
    disks.listeners.append(lambda old, new: room.heard.append((old, new)))
    yield room
    await session.logout()
    await soap.close()


@pytest.fixture(params=["global catalog", "by datastores"])
def road(request: pytest.FixtureRequest, room: Room) -> str:
    """Both roads, each by itself."""
    if request.param == "by datastores":
        room.disks.global_catalog = room.disks.datastore_catalog  # type: ignore[assignment]
    return str(request.param)


async def test_all_disks_of_all_datastores_as_others_see_them(room: Room, road: str) -> None:
    await room.simulator.create_disk(
        "pvc-thick",
        sizeMB=77,
        provisioning="eagerZeroedThick",
        datastore="/DC1/datastore/LocalDS_2",
    )
    await room.simulator.attach_disk("pvc-thick", "DC1_H0_VM0")
    await room.disks.poll()
    assert set(room.disks.disks.values()) == await apart(lambda: disks_by_pyvmomi(room.simulator))
    told = {
        (disk["name"], disk["id"], disk["sizeMB"], disk["path"], tuple(disk["consumers"]))
        for disk in await room.simulator.disks()
    }
    assert {
        (d.name, d.id, d.size_mb, d.file_path, d.consumers) for d in room.disks.disks.values()
    } == told
    assert len(told) == 11
    thick = room.disks.find_by_name("pvc-thick")
    assert (thick.size_mb, thick.provisioning, len(thick.consumers)) == (77, "eagerZeroedThick", 1)
    assert room.inventory.path(thick.datastore) == "/DC1/datastore/LocalDS_2"
    assert room.disks.find_by_id(NAMED_ID) is room.disks.find_by_name(NAMED)
    assert len(room.heard) == 11


async def test_before_the_first_look_nothing_is_claimed(room: Room) -> None:
    with pytest.raises(Busy, match="not been read yet"):
        room.disks.find_by_name(NAMED)
    assert not room.disks.loaded


async def test_no_such_disk(room: Room) -> None:
    await room.disks.poll()
    with pytest.raises(
        NotFound, match=r'vCenter "lab" has no First Class Disk named "pvc-none"; check the name'
    ):
        room.disks.find_by_name("pvc-none")
    with pytest.raises(NotFound, match='with the id "7d"'):
        room.disks.find_by_id("7d")


async def test_two_of_one_name(room: Room) -> None:
    # Both with their place said: where the simulator puts a disk without one differs from start to start.
    one = await room.simulator.create_disk("twin", datastore="/DC0/datastore/LocalDS_0")
    other = await room.simulator.create_disk("twin", datastore="/DC1/datastore/LocalDS_1")
    await room.disks.poll()
    with pytest.raises(Ambiguous) as caught:
        room.disks.find_by_name("twin")
    assert set(caught.value.paths) == {
        f"/DC0/datastore/LocalDS_0 (id {one})",
        f"/DC1/datastore/LocalDS_1 (id {other})",
    }
    assert all(path in str(caught.value) for path in caught.value.paths)
    await room.simulator.delete_disk(other)
    await room.disks.poll()
    assert room.disks.find_by_name("twin").id == one
    await room.simulator.delete_disk(one)


async def test_the_list_has_pages(room: Room) -> None:
    catalog = GlobalCatalog(room.soap, room.session, room.inventory, page_size=3)
    assert len((await catalog.list_disks({}, RefreshScope.ALL)).disks) == 10
    assert (await room.simulator.call_counts())["VslmListVStorageObjectForSpec"] == 4


async def test_a_look_reads_no_more_than_it_must(room: Room, road: str) -> None:
    await room.disks.poll()
    assert await room.retrieves() == 10
    await room.disks.poll()
    assert await room.retrieves() == 0
    await room.simulator.create_disk("pvc-late")
    await room.disks.poll()
    assert await room.retrieves() == 1
    # Who uses a disk: this server tells only when asked for each one.
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert await room.retrieves() == 11
    room.clock.seconds += FULL_REFRESH_SECONDS
    await room.disks.poll()
    assert await room.retrieves() == 11


def users(told: dict[str, str]) -> bytes:
    """An answer of VslmRetrieveVStorageObjectAssociations."""
    use = "<vmDiskAssociation><vmId>{}</vmId><diskKey>2001</diskKey></vmDiskAssociation>"
    rows = "".join(
        f"<returnval><id><id>{id}</id></id>{use.format(vm) if vm else ''}</returnval>"
        for id, vm in told.items()
    )
    method = "VslmRetrieveVStorageObjectAssociationsResponse"
    return envelope(f'<{method} xmlns="urn:vslm">{rows}</{method}>').encode()


async def test_where_the_server_tells_users_only_those_that_changed_are_read(room: Room) -> None:
    told = {disk["id"]: "" for disk in await room.simulator.disks()}

    async def answer(call: str) -> bytes | None:
        return users(told) if call.startswith("VslmRetrieveVStorageObjectAssociations") else None

    room.soap.hook = answer
    await room.disks.poll()
    assert await room.retrieves() == 10
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert await room.retrieves() == 0
    await room.simulator.attach_disk(NAMED, "DC0_H0_VM0")
    told[NAMED_ID] = "vm-77"
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert await room.retrieves() == 1
    assert len(room.disks.find_by_id(NAMED_ID).consumers) == 1
    # A look that does not ask for users remembers what was said of them.
    room.disks.request_scope(RefreshScope.NEW)
    await room.disks.poll()
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert await room.retrieves() == 0


async def test_a_disk_deleted_between_list_and_turn_is_not_there(room: Room, road: str) -> None:
    doomed: list[str] = []
    alone = asyncio.Lock()

    async def delete_it_first(call: str) -> None:
        async with alone:
            if "RetrieveVStorageObject " in call and not doomed:
                doomed.append(
                    next(disk["id"] for disk in await room.simulator.disks() if disk["id"] in call)
                )
                await room.simulator.delete_disk(doomed[0])

    room.soap.hook = delete_it_first
    await room.disks.poll()
    assert len(doomed) == 1
    assert set(room.disks.disks) == {disk["id"] for disk in await room.simulator.disks()}
    assert len(room.disks.disks) == 9
    assert (room.disks.problem, room.disks.unreadable_datastores) == (None, {})
    assert room.log.about("", "warning") == []


async def test_the_second_road_when_the_first_is_closed(room: Room) -> None:
    await room.simulator.fail_calls("VslmListVStorageObjectForSpec", "NoPermission", count=0)
    await room.disks.poll()
    room.disks.request_scope(RefreshScope.NEW)
    await room.disks.poll()
    assert len(room.disks.disks) == 10
    assert not room.on_the_first_road()
    calls = await room.simulator.call_counts()
    assert (calls["VslmListVStorageObjectForSpec"], calls["ListVStorageObject"]) == (1, 12)
    room.clock.seconds += FULL_REFRESH_SECONDS
    await room.disks.poll()
    assert len(room.log.about("each datastore is asked instead", "info")) == 1
    await room.simulator.clear_rules()
    room.clock.seconds += FULL_REFRESH_SECONDS
    await room.disks.poll()
    assert room.on_the_first_road()


async def test_the_second_road_when_there_is_no_first(room: Room) -> None:
    async def no_such_page(call: str) -> None:
        if call.startswith("Vslm"):
            raise Unreachable("VslmListVStorageObjectForSpec: it answered HTTP 404")

    room.soap.hook = no_such_page
    await room.disks.poll()
    assert len(room.disks.disks) == 10
    assert room.problem() is None


async def test_a_datastore_that_refuses_takes_only_its_own_disks_down(room: Room) -> None:
    room.disks.global_catalog = room.disks.datastore_catalog  # type: ignore[assignment]
    await room.disks.poll()
    room.heard.clear()
    await room.simulator.fail_calls(
        "ListVStorageObject", "NoPermission", count=1, fields={"privilegeId": "Datastore.Browse"}
    )
    await room.disks.poll()
    [(ref, why)] = room.disks.unreadable_datastores.items()
    lost = {old for old, new in room.heard if new is None}
    assert lost == {old for old, _ in room.heard}
    assert {disk.datastore for disk in lost if disk} == {ref}
    assert len(room.disks.disks) + len(lost) == 10
    assert "Datastore.Browse" in why
    [line] = room.log.about("cannot be read", "warning")
    assert room.inventory.path(ref) in line
    with pytest.raises(NotFound, match=rf"could not be read: {room.inventory.path(ref)} \("):
        room.disks.find_by_name("pvc-none")
    await room.disks.poll()
    assert len(room.disks.disks) == 10
    assert len(room.log.about("can be read again", "info")) == 1


async def test_a_datastore_that_no_host_reaches(room: Room, road: str) -> None:
    await room.disks.poll()
    ref = room.disks.find_by_id(NAMED_ID).datastore
    room.inventory.listeners.append(room.disks.on_inventory_change)
    room.inventory.apply([ObjectUpdate("modify", "Datastore", ref, {"summary.accessible": False})])
    for _ in range(2):
        await room.disks.poll()
    with pytest.raises(NotFound, match=r"LocalDS_0 \(no host can reach it"):
        room.disks.find_by_name(NAMED)
    assert room.disks.disks
    assert len(room.log.about("count as gone", "warning")) == 1
    room.inventory.apply([ObjectUpdate("modify", "Datastore", ref, {"summary.accessible": True})])
    await room.disks.poll()
    assert room.disks.find_by_name(NAMED).id == NAMED_ID


async def test_a_disk_that_cannot_be_read_names_its_datastore(room: Room, road: str) -> None:
    await room.disks.poll()
    for method in ("VslmRetrieveVStorageObject", "RetrieveVStorageObject"):
        await room.simulator.fail_calls(method, "InvalidDatastore", count=1)
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert len(room.disks.disks) == 9
    assert len(room.disks.unreadable_datastores) == 1
    assert set(room.disks.unreadable_datastores) <= set(room.inventory.datastores)


async def test_a_failed_look_keeps_what_is_known(room: Room) -> None:
    await room.disks.poll()
    before = room.disks.disks
    room.heard.clear()
    await room.simulator.set_outage("503")
    await room.disks.poll()
    await room.disks.poll()
    assert isinstance(room.problem(), Unreachable)
    assert room.disks.disks is before
    assert len(room.log.about("the last known ones stay", "warning")) == 1
    await room.simulator.set_outage("")
    await room.disks.poll()
    assert room.problem() is None
    assert room.heard == []


async def test_a_session_that_ends_is_renewed(room: Room, road: str) -> None:
    await room.disks.poll()
    assert await room.simulator.expire_sessions() == 1
    await room.simulator.create_disk("pvc-late")
    await room.disks.poll()
    assert room.disks.find_by_name("pvc-late").size_mb == 1024
    assert room.session.generation == 2
    assert len(await room.simulator.sessions()) == 1
    assert room.problem() is None


async def test_listeners_hear_of_what_differs(room: Room) -> None:
    await room.disks.poll()
    room.heard.clear()
    before = room.disks.find_by_name(NAMED)
    await room.simulator.attach_disk(NAMED, "DC0_H0_VM0")
    room.disks.request_scope(RefreshScope.ASSOCIATIONS)
    await room.disks.poll()
    assert room.heard == [(before, room.disks.find_by_name(NAMED))]
    await room.simulator.delete_disk(NAMED)
    await room.disks.poll()
    assert room.heard[1:] == [(room.heard[0][1], None)]


async def running(disks: Disks, room: Room) -> asyncio.Task[None]:
    task = asyncio.create_task(disks.run())
    await eventually(lambda: disks.loaded)
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_by_interval_what_nobody_told_is_seen(room: Room) -> None:
    disks = Disks(
        room.soap,
        room.session,
        room.inventory,
        room.log,
        poll_schedule=PollSchedule(0.2, debounce_seconds=0, min_interval_seconds=0),
    )
    task = await running(disks, room)
    await room.simulator.attach_disk(NAMED, "DC0_H0_VM0")
    await eventually(lambda: disks.find_by_name(NAMED).consumers, within=20)
    await room.simulator.attach_disk(NAMED, "")
    await eventually(lambda: not disks.find_by_name(NAMED).consumers, within=20)
    await ended(task)
    assert room.inventory.listeners == []


async def test_refresh_soon(room: Room) -> None:
    task = await running(room.disks, room)
    await room.simulator.create_disk("pvc-late")
    await room.retrieves()
    room.disks.request_refresh()
    await eventually(lambda: room.disks.find_by_name("pvc-late"), within=20)
    assert await room.retrieves() == 1
    await ended(task)


async def test_the_first_look_waits_for_datastores(room: Room) -> None:
    inventory = Inventory("lab")
    disks = Disks(
        room.soap,
        room.session,
        inventory,
        room.log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05),
    )
    task = asyncio.create_task(disks.run())
    await eventually(lambda: inventory.listeners)
    assert (await room.simulator.call_counts()).get("VslmListVStorageObjectForSpec", 0) == 0
    inventory.apply(
        [
            ObjectUpdate(
                "enter", "Datastore", "datastore-1", {"name": "a", "summary.accessible": True}
            )
        ]
    )
    await eventually(lambda: disks.loaded, within=20)
    await ended(task)
