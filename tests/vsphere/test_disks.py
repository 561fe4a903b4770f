"""First Class Disks in memory, compared with those of the simulator."""

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
from vsphere_operators.vsphere.faults import (
    Ambiguous,
    Busy,
    NotFound,
    TimedOut,
    Unreachable,
    VCenterError,
)
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import Datastore, Disk
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.updates import ObjectUpdate

from .canned_server import (
    FakeClock,
    RecordingMetrics,
    simulator_address,
    simulator_credentials,
    soap_envelope,
)
from .intercepting_soap import (
    InterceptingSoap,
    RecordingLog,
    apart,
    load_inventory,
    read_disks_with_pyvmomi,
)

DISK_NAME = "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"
DISK_ID = "7d0a1d4c-0000-4000-8000-000000000001"
VCSIM_FLAGS = ("--datacenters=2", "--datastores=3", "--fcds=9", f"--fcd={DISK_NAME}={DISK_ID}")

SimulatorFactory = Callable[..., Awaitable[SimulatedVCenter]]


@dataclass
class DiskHarness:
    """A simulator, and the Disks that read it."""

    simulator: SimulatedVCenter
    soap: InterceptingSoap
    session: Session
    inventory: Inventory
    disks: Disks
    log: RecordingLog
    clock: FakeClock
    changes: list[tuple[Disk | None, Disk | None]]

    def problem(self) -> VCenterError | None:
        return self.disks.problem

    def uses_global_catalog(self) -> bool:
        return self.disks.catalog is self.disks.global_catalog

    async def count_retrieves(self) -> int:
        """How many disks were read one by one since the last call."""
        calls = await self.simulator.call_counts()
        await self.simulator.reset_call_counts()
        return calls.get("VslmRetrieveVStorageObject", 0) + calls.get("RetrieveVStorageObject", 0)


@pytest.fixture
async def harness(start_simulator: SimulatorFactory) -> AsyncIterator[DiskHarness]:
    simulator = await start_simulator(*VCSIM_FLAGS)
    soap, log, clock = (
        InterceptingSoap(simulator_address(simulator), RecordingMetrics()),
        RecordingLog(),
        FakeClock(),
    )
    session, inventory = (
        Session(soap, simulator_credentials(simulator), log),
        await load_inventory(simulator),
    )
    disks = Disks(
        soap,
        session,
        inventory,
        log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05, min_interval_seconds=0.05),
        clock=clock,
    )
    harness = DiskHarness(simulator, soap, session, inventory, disks, log, clock, [])
    disks.changed.connect(lambda old, new: harness.changes.append((old, new)))
    yield harness
    await session.logout()
    await soap.close()


@pytest.fixture(params=["global catalog", "by datastores"])
def catalog_source(request: pytest.FixtureRequest, harness: DiskHarness) -> str:
    """Each of the two catalogs."""
    if request.param == "by datastores":
        harness.disks.global_catalog = harness.disks.datastore_catalog  # type: ignore[assignment]
    return str(request.param)


async def test_all_disks_of_all_datastores_are_listed(
    harness: DiskHarness, catalog_source: str
) -> None:
    await harness.simulator.create_disk(
        "pvc-thick",
        sizeMB=77,
        provisioning="eagerZeroedThick",
        datastore="/DC1/datastore/LocalDS_2",
    )
    await harness.simulator.attach_disk("pvc-thick", "DC1_H0_VM0")
    await harness.disks.poll()
    assert set(harness.disks.disks.values()) == await apart(
        lambda: read_disks_with_pyvmomi(harness.simulator)
    )
    expected = {
        (disk["name"], disk["id"], disk["sizeMB"], disk["path"], tuple(disk["consumers"]))
        for disk in await harness.simulator.disks()
    }
    assert {
        (d.name, d.id, d.size_mb, d.file_path, d.attached_vm_uuids)
        for d in harness.disks.disks.values()
    } == expected
    assert len(expected) == 11
    thick = harness.disks.find_by_name("pvc-thick")
    assert (thick.size_mb, thick.provisioning, len(thick.attached_vm_uuids)) == (
        77,
        "eagerZeroedThick",
        1,
    )
    assert harness.inventory.path(thick.datastore) == "/DC1/datastore/LocalDS_2"
    assert harness.disks.find_by_id(DISK_ID) is harness.disks.find_by_name(DISK_NAME)
    assert len(harness.changes) == 11


async def test_disks_are_unknown_before_the_first_poll(harness: DiskHarness) -> None:
    with pytest.raises(Busy, match="not been read yet"):
        harness.disks.find_by_name(DISK_NAME)
    assert not harness.disks.loaded


async def test_missing_disk_is_not_found(harness: DiskHarness) -> None:
    await harness.disks.poll()
    with pytest.raises(
        NotFound,
        match=r'vCenter "lab" has no First Class Disk named "pvc-none"\. Check the name',
    ):
        harness.disks.find_by_name("pvc-none")
    with pytest.raises(NotFound, match='with the id "7d"'):
        harness.disks.find_by_id("7d")


async def test_two_disks_of_one_name_are_ambiguous(harness: DiskHarness) -> None:
    # With a datastore: without one, the simulator chooses another at each start.
    one = await harness.simulator.create_disk("twin", datastore="/DC0/datastore/LocalDS_0")
    other = await harness.simulator.create_disk("twin", datastore="/DC1/datastore/LocalDS_1")
    await harness.disks.poll()
    with pytest.raises(Ambiguous) as caught:
        harness.disks.find_by_name("twin")
    paths = (f"/DC0/datastore/LocalDS_0 (id {one})", f"/DC1/datastore/LocalDS_1 (id {other})")
    assert all(path in str(caught.value) for path in paths)
    await harness.simulator.delete_disk(other)
    await harness.disks.poll()
    assert harness.disks.find_by_name("twin").id == one
    await harness.simulator.delete_disk(one)


async def test_disks_are_listed_in_pages(harness: DiskHarness) -> None:
    catalog = GlobalCatalog(harness.soap, harness.session, harness.inventory, page_size=3)
    assert len((await catalog.list_disks({}, RefreshScope.ALL)).disks) == 10
    assert (await harness.simulator.call_counts())["VslmListVStorageObjectForSpec"] == 4


async def test_poll_reads_only_what_its_scope_needs(
    harness: DiskHarness, catalog_source: str
) -> None:
    await harness.disks.poll()
    assert await harness.count_retrieves() == 10
    await harness.disks.poll()
    assert await harness.count_retrieves() == 0
    await harness.simulator.create_disk("pvc-late")
    await harness.disks.poll()
    assert await harness.count_retrieves() == 1
    # This server reports the VM of a disk only in the disk itself.
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert await harness.count_retrieves() == 11
    harness.clock.seconds += FULL_REFRESH_SECONDS
    await harness.disks.poll()
    assert await harness.count_retrieves() == 11


def associations_response(expected: dict[str, str]) -> bytes:
    """A response of VslmRetrieveVStorageObjectAssociations."""
    use = "<vmDiskAssociation><vmId>{}</vmId><diskKey>2001</diskKey></vmDiskAssociation>"
    rows = "".join(
        f"<returnval><id><id>{id}</id></id>{use.format(vm) if vm else ''}</returnval>"
        for id, vm in expected.items()
    )
    method = "VslmRetrieveVStorageObjectAssociationsResponse"
    return soap_envelope(f'<{method} xmlns="urn:vslm">{rows}</{method}>').encode()


async def test_with_associations_only_changed_disks_are_read(
    harness: DiskHarness,
) -> None:
    expected = {disk["id"]: "" for disk in await harness.simulator.disks()}

    async def answer(call: str) -> bytes | None:
        return (
            associations_response(expected)
            if call.startswith("VslmRetrieveVStorageObjectAssociations")
            else None
        )

    harness.soap.hook = answer
    await harness.disks.poll()
    assert await harness.count_retrieves() == 10
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert await harness.count_retrieves() == 0
    await harness.simulator.attach_disk(DISK_NAME, "DC0_H0_VM0")
    expected[DISK_ID] = "vm-77"
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert await harness.count_retrieves() == 1
    assert len(harness.disks.find_by_id(DISK_ID).attached_vm_uuids) == 1
    # A poll without associations keeps the known ones.
    harness.disks._request_scope(RefreshScope.NEW)
    await harness.disks.poll()
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert await harness.count_retrieves() == 0


async def test_disk_deleted_during_the_poll_is_left_out(
    harness: DiskHarness, catalog_source: str
) -> None:
    doomed: list[str] = []
    alone = asyncio.Lock()

    async def delete_it_first(call: str) -> None:
        async with alone:
            if "RetrieveVStorageObject " in call and not doomed:
                doomed.append(
                    next(
                        disk["id"] for disk in await harness.simulator.disks() if disk["id"] in call
                    )
                )
                await harness.simulator.delete_disk(doomed[0])

    harness.soap.hook = delete_it_first
    await harness.disks.poll()
    assert len(doomed) == 1
    assert set(harness.disks.disks) == {disk["id"] for disk in await harness.simulator.disks()}
    assert len(harness.disks.disks) == 9
    assert (harness.disks.problem, harness.disks.unreadable_datastores) == (None, {})
    assert harness.log.find_messages("", "warning") == []


async def test_datastores_are_listed_if_the_global_catalog_fails(harness: DiskHarness) -> None:
    await harness.simulator.fail_calls("VslmListVStorageObjectForSpec", "NoPermission", count=0)
    await harness.disks.poll()
    harness.disks._request_scope(RefreshScope.NEW)
    await harness.disks.poll()
    assert len(harness.disks.disks) == 10
    assert not harness.uses_global_catalog()
    calls = await harness.simulator.call_counts()
    assert (calls["VslmListVStorageObjectForSpec"], calls["ListVStorageObject"]) == (1, 12)
    harness.clock.seconds += FULL_REFRESH_SECONDS
    await harness.disks.poll()
    assert len(harness.log.find_messages("listing each datastore", "info")) == 1
    await harness.simulator.clear_rules()
    harness.clock.seconds += FULL_REFRESH_SECONDS
    await harness.disks.poll()
    assert harness.uses_global_catalog()


async def test_datastores_are_listed_without_a_global_catalog(harness: DiskHarness) -> None:
    async def no_such_page(call: str) -> None:
        if call.startswith("Vslm"):
            raise Unreachable("VslmListVStorageObjectForSpec: it answered HTTP 404")

    harness.soap.hook = no_such_page
    await harness.disks.poll()
    assert len(harness.disks.disks) == 10
    assert harness.problem() is None


async def test_unreadable_datastore_affects_only_its_own_disks(harness: DiskHarness) -> None:
    harness.disks.global_catalog = harness.disks.datastore_catalog  # type: ignore[assignment]
    await harness.disks.poll()
    harness.changes.clear()
    await harness.simulator.fail_calls(
        "ListVStorageObject", "NoPermission", count=1, fields={"privilegeId": "Datastore.Browse"}
    )
    await harness.disks.poll()
    [(ref, why)] = harness.disks.unreadable_datastores.items()
    lost = {old for old, new in harness.changes if new is None}
    assert lost == {old for old, _ in harness.changes}
    assert {disk.datastore for disk in lost if disk} == {ref}
    assert len(harness.disks.disks) + len(lost) == 10
    assert "Datastore.Browse" in why
    [line] = harness.log.find_messages("cannot be read", "warning")
    assert harness.inventory.path(ref) in line
    with pytest.raises(NotFound, match=rf"could not be read: {harness.inventory.path(ref)} \("):
        harness.disks.find_by_name("pvc-none")
    await harness.disks.poll()
    assert len(harness.disks.disks) == 10
    assert len(harness.log.find_messages("can be read again", "info")) == 1


@pytest.mark.parametrize("hanging", ["one datastore", "all datastores"])
async def test_disks_stay_while_the_list_of_a_datastore_hangs(
    harness: DiskHarness, hanging: str
) -> None:
    harness.disks.global_catalog = harness.disks.datastore_catalog  # type: ignore[assignment]
    await harness.disks.poll()
    harness.changes.clear()
    calls: list[str] = []

    async def hang(call: str) -> None:
        if call.startswith("ListVStorageObject "):
            calls.append(call)
            if hanging == "all datastores" or len(calls) == 1:
                raise TimedOut("vCenter did not respond to ListVStorageObject in time")

    harness.soap.hook = hang
    await harness.disks.poll()
    assert len(calls) > 1
    assert (len(harness.disks.disks), harness.changes) == (10, [])
    if hanging == "all datastores":
        assert isinstance(harness.problem(), TimedOut)
    else:
        assert len(harness.disks.unreadable_datastores) == 1
        assert harness.problem() is None
        [line] = harness.log.find_messages("cannot be read", "warning")
        assert "stay as last read" in line


async def test_disks_stay_while_their_reads_hang(harness: DiskHarness, catalog_source: str) -> None:
    await harness.disks.poll()
    harness.changes.clear()
    disk = harness.disks.find_by_name(DISK_NAME)
    calls: list[str] = []

    async def hang(call: str) -> None:
        if "RetrieveVStorageObject " in call and disk.id in call:
            calls.append(call)
            raise TimedOut("vCenter did not respond to RetrieveVStorageObject in time")

    harness.soap.hook = hang
    await harness.simulator.attach_disk(DISK_NAME, "DC1_H0_VM0")
    harness.clock.seconds += FULL_REFRESH_SECONDS
    await harness.disks.poll()
    assert calls
    assert (len(harness.disks.disks), harness.changes) == (10, [])
    assert harness.disks.unreadable_datastores.keys() == {disk.datastore}
    assert harness.disks.explain_stale(disk) == ""
    harness.clock.seconds += 4 * harness.disks.poll_schedule.interval_seconds
    await harness.disks.poll()
    assert "did not respond to RetrieveVStorageObject" in harness.disks.explain_stale(disk)
    harness.soap.hook = None
    harness.disks.request_refresh()
    harness.clock.seconds += FULL_REFRESH_SECONDS if catalog_source == "by datastores" else 1
    await harness.disks.poll()
    assert harness.disks.explain_stale(disk) == ""
    assert harness.disks.find_by_name(DISK_NAME).attached_vm_uuids


async def test_a_deleted_disk_is_noticed_while_another_read_of_its_datastore_hangs(
    harness: DiskHarness, catalog_source: str
) -> None:
    await harness.simulator.create_disk("pvc-new", sizeMB=1, datastore="/DC1/datastore/LocalDS_2")
    await harness.simulator.create_disk("pvc-old", sizeMB=1, datastore="/DC1/datastore/LocalDS_2")
    await harness.disks.poll()
    disk = harness.disks.find_by_name("pvc-new")

    async def hang(call: str) -> None:
        if "RetrieveVStorageObject " in call and disk.id in call:
            raise TimedOut("vCenter did not respond to RetrieveVStorageObject in time")

    harness.soap.hook = hang
    await harness.simulator.delete_disk("pvc-old")
    harness.clock.seconds += FULL_REFRESH_SECONDS
    await harness.disks.poll()
    assert harness.disks.find_by_name("pvc-new") == disk
    with pytest.raises(NotFound):
        harness.disks.find_by_name("pvc-old")


async def test_inaccessible_datastore_drops_its_disks(
    harness: DiskHarness, catalog_source: str
) -> None:
    await harness.disks.poll()
    ref = harness.disks.find_by_id(DISK_ID).datastore
    harness.inventory.connect(harness.disks.on_datastore_change, Datastore)
    harness.inventory.apply(
        [ObjectUpdate("modify", "Datastore", ref, {"summary.accessible": False})]
    )
    for _ in range(2):
        await harness.disks.poll()
    with pytest.raises(NotFound, match=r"LocalDS_0 \(no host can access it"):
        harness.disks.find_by_name(DISK_NAME)
    assert harness.disks.disks
    assert len(harness.log.find_messages("count as deleted", "warning")) == 1
    harness.inventory.apply(
        [ObjectUpdate("modify", "Datastore", ref, {"summary.accessible": True})]
    )
    await harness.disks.poll()
    assert harness.disks.find_by_name(DISK_NAME).id == DISK_ID


async def test_unreadable_disk_reports_its_datastore(
    harness: DiskHarness, catalog_source: str
) -> None:
    await harness.disks.poll()
    for method in ("VslmRetrieveVStorageObject", "RetrieveVStorageObject"):
        await harness.simulator.fail_calls(method, "InvalidDatastore", count=1)
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert len(harness.disks.disks) == 9
    assert len(harness.disks.unreadable_datastores) == 1
    assert set(harness.disks.unreadable_datastores) <= set(harness.inventory.datastores)


async def test_failed_poll_keeps_the_known_disks(harness: DiskHarness) -> None:
    await harness.disks.poll()
    before = harness.disks.disks
    harness.changes.clear()
    await harness.simulator.set_outage("503")
    await harness.disks.poll()
    await harness.disks.poll()
    assert isinstance(harness.problem(), Unreachable)
    assert harness.disks.disks is before
    assert len(harness.log.find_messages("keeping the last known ones", "warning")) == 1
    await harness.simulator.set_outage("")
    await harness.disks.poll()
    assert harness.problem() is None
    assert harness.changes == []


async def test_ended_session_is_renewed(harness: DiskHarness, catalog_source: str) -> None:
    await harness.disks.poll()
    assert await harness.simulator.expire_sessions() == 1
    await harness.simulator.create_disk("pvc-late")
    await harness.disks.poll()
    assert harness.disks.find_by_name("pvc-late").size_mb == 1024
    assert harness.session.login_count == 2
    assert len(await harness.simulator.sessions()) == 1
    assert harness.problem() is None


async def test_only_differing_disks_are_reported(harness: DiskHarness) -> None:
    await harness.disks.poll()
    harness.changes.clear()
    before = harness.disks.find_by_name(DISK_NAME)
    await harness.simulator.attach_disk(DISK_NAME, "DC0_H0_VM0")
    harness.disks._request_scope(RefreshScope.ATTACHMENTS)
    await harness.disks.poll()
    assert harness.changes == [(before, harness.disks.find_by_name(DISK_NAME))]
    await harness.simulator.delete_disk(DISK_NAME)
    await harness.disks.poll()
    assert harness.changes[1:] == [(harness.changes[0][1], None)]


async def start_disks(disks: Disks, harness: DiskHarness) -> asyncio.Task[None]:
    task = asyncio.create_task(disks.run())
    await eventually(lambda: disks.loaded)
    return task


async def cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_changes_without_an_event_are_found_by_interval(harness: DiskHarness) -> None:
    disks = Disks(
        harness.soap,
        harness.session,
        harness.inventory,
        harness.log,
        poll_schedule=PollSchedule(0.2, debounce_seconds=0, min_interval_seconds=0),
    )
    task = await start_disks(disks, harness)
    await harness.simulator.attach_disk(DISK_NAME, "DC0_H0_VM0")
    await eventually(lambda: disks.find_by_name(DISK_NAME).attached_vm_uuids, within=60)
    await harness.simulator.attach_disk(DISK_NAME, "")
    await eventually(lambda: not disks.find_by_name(DISK_NAME).attached_vm_uuids, within=60)
    await cancel_task(task)


async def test_requested_refresh_finds_a_new_disk(harness: DiskHarness) -> None:
    task = await start_disks(harness.disks, harness)
    await harness.simulator.create_disk("pvc-late")
    await harness.count_retrieves()
    harness.disks.request_refresh()
    await eventually(lambda: harness.disks.find_by_name("pvc-late"), within=60)
    assert await harness.count_retrieves() == 1
    await cancel_task(task)


async def test_first_poll_waits_for_datastores(harness: DiskHarness) -> None:
    inventory = Inventory("lab")
    disks = Disks(
        harness.soap,
        harness.session,
        inventory,
        harness.log,
        poll_schedule=PollSchedule(600, debounce_seconds=0.05),
    )
    inventory.connect(disks.on_datastore_change, Datastore)
    task = asyncio.create_task(disks.run())
    await asyncio.sleep(0.1)
    assert (await harness.simulator.call_counts()).get("VslmListVStorageObjectForSpec", 0) == 0
    inventory.apply(
        [
            ObjectUpdate(
                "enter", "Datastore", "datastore-1", {"name": "a", "summary.accessible": True}
            )
        ]
    )
    await eventually(lambda: disks.loaded, within=60)
    await cancel_task(task)
