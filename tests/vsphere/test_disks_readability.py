"""Whether the disks of a datastore can be read, and when that is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.fake_environment import FakeEnvironment
from vsphere_operators.vsphere.disk_catalog import DiskListing
from vsphere_operators.vsphere.disks import Disks
from vsphere_operators.vsphere.faults import Rejected, Unreachable
from vsphere_operators.vsphere.model import Disk

from .canned_server import FakeClock

DISK = Disk(id="id-1", name="pvc-1", datastore="datastore-1")


class FailingCatalog:
    async def list_disks(self, known_disks: object, scope: object) -> DiskListing:
        raise Unreachable("the catalog does not respond")


class EmptyCatalog:
    """Lists nothing, and calls a function while it does."""

    def __init__(self, while_listing: Callable[[], None]) -> None:
        self.while_listing = while_listing

    async def list_disks(self, known_disks: object, scope: object) -> DiskListing:
        self.while_listing()
        return DiskListing()


async def test_datastore_counts_as_listed_after_a_poll_that_began_later() -> None:
    environment, reported = FakeEnvironment(), list[str]()
    disks = environment.vcenter.disks
    disks.readability_changed.connect(reported.append)
    environment.enter("Datastore", "datastore-1", name="nfs-1", summary__accessible=True)
    environment.enter("Datastore", "datastore-2", name="nfs-2", summary__accessible=False)

    def change() -> None:
        environment.enter("Datastore", "datastore-3", name="nfs-3", summary__accessible=True)
        environment.modify("Datastore", "datastore-2", summary__accessible=True)

    catalog: Any = EmptyCatalog(change)
    disks.global_catalog = disks.catalog = catalog
    await disks.poll()
    assert disks.listed_datastores == {"datastore-1"}
    assert reported == ["datastore-1"]
    catalog.while_listing = lambda: None
    await disks.poll()
    assert disks.listed_datastores == {"datastore-1", "datastore-2", "datastore-3"}
    assert sorted(reported) == ["datastore-1", "datastore-2", "datastore-3"]


def make_disks() -> tuple[Disks, FakeClock, list[str]]:
    """Two datastores, a clock, and the references that were reported."""
    environment, clock, reported = FakeEnvironment(), FakeClock(), list[str]()
    for number in (1, 2):
        environment.enter("Datastore", f"datastore-{number}", name=f"nfs-{number}")
    disks = environment.vcenter.disks
    disks.clock = clock
    # They were listed before.
    disks.apply(DiskListing())
    disks.readability_changed.connect(reported.append)
    return disks, clock, reported


def test_unreadable_datastore_is_reported_once_until_it_can_be_read_again() -> None:
    disks, _, reported = make_disks()
    disks.apply(DiskListing({DISK.id: DISK}))
    assert reported == []
    for _ in range(2):
        disks.apply(DiskListing({}, {"datastore-1": "no permission"}))
    assert reported == ["datastore-1"]
    assert disks.explain_unreadable("datastore-1") == "no permission"
    assert disks.explain_unreadable("datastore-2") == ""
    disks.apply(DiskListing({DISK.id: DISK}))
    assert reported == ["datastore-1", "datastore-1"]
    assert disks.explain_unreadable("datastore-1") == ""


def test_hanging_datastore_keeps_its_disks_for_several_polls() -> None:
    disks, clock, reported = make_disks()
    hanging = DiskListing({DISK.id: DISK}, {"datastore-1": "timed out"}, {"datastore-1"})
    disks.apply(hanging)
    assert disks.explain_unreadable("datastore-1") == ""
    clock.seconds += 4 * disks.poll_schedule.interval_seconds
    disks.apply(hanging)
    assert disks.explain_unreadable("datastore-1") == "timed out"
    assert reported == ["datastore-1"]


async def test_failed_polls_affect_all_datastores_after_a_while() -> None:
    disks, clock, reported = make_disks()
    disks.apply(DiskListing({DISK.id: DISK}))
    disks.global_catalog = disks.datastore_catalog = FailingCatalog()  # type: ignore[assignment]
    disks.catalog = disks.global_catalog
    await disks.poll()
    assert reported == []
    clock.seconds += 4 * disks.poll_schedule.interval_seconds
    await disks.poll()
    assert sorted(reported) == ["datastore-1", "datastore-2"]
    assert "does not respond" in disks.explain_unreadable("datastore-1")
    assert disks.disks_by_datastore == {"datastore-1": [DISK]}


def test_disks_that_were_never_read() -> None:
    disks = FakeEnvironment().vcenter.disks
    assert disks.explain_unreadable("datastore-1") == ""
    disks.problem = Rejected("not supported")
    assert disks.explain_unreadable("datastore-1") == "not supported"
