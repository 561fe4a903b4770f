"""When the missing VM of a replica counts as deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.absence import Absence, AbsenceTracker
from vsphere_operators.kinds.vmgroup.ownership import instance_uuid_of
from vsphere_operators.vsphere.faults import Denied, NotFound, Rejected, Unreachable
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import Host, VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

UUID = instance_uuid_of("uid-1", "r0")
TIMEOUT_SECONDS = 300.0
HOST_CONNECTION = "runtime.connectionState"


class AbsenceHarness:
    """A vCenter with one VM, vm-9 on host-1; `read_error` is the answer to a read of it."""

    def __init__(self) -> None:
        self.inventory, self.time, self.watching_since = make_inventory(), 1000.0, 900.0
        self.vm_calls, self.read_refs = self, list[str]()
        self.is_inventory_of_session = True
        self.read_error: Exception | None = NotFound("gone")
        self.set_host(HOST_CONNECTION, "connected")
        self.tracker = AbsenceTracker(
            cast("Any", self), TIMEOUT_SECONDS, lambda: datetime(2026, 11, 17, 12, tzinfo=UTC)
        )
        self.inventory.connect(self.tracker.on_vm_change, VirtualMachine, include_related=False)
        self.inventory.connect(self.tracker.on_host_change, Host, include_related=False)
        self.add_vm()

    def clock(self) -> float:
        return self.time

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> object:
        self.read_refs.append(ref)
        if self.read_error is not None:
            raise self.read_error
        return {}

    def add_vm(self, ref: str = "vm-9") -> None:
        host = Ref("HostSystem", "host-1")
        self.inventory.apply(
            [
                enter_update(
                    "VirtualMachine",
                    ref,
                    "r0",
                    "group-v2",
                    config__instanceUuid=UUID,
                    runtime__host=host,
                )
            ]
        )

    def remove(self, type_name: str, ref: str) -> None:
        self.inventory.apply([ObjectUpdate("leave", type_name, ref)])

    def restart(self) -> None:
        """A new process knows only what is in the inventory now."""
        self.tracker = AbsenceTracker(
            cast("Any", self), TIMEOUT_SECONDS, lambda: datetime(2026, 11, 17, 12, tzinfo=UTC)
        )
        self.watching_since = self.time

    def destroy_vm(self, name: str = "r0") -> None:
        self.remove("VirtualMachine", "vm-9")
        task: dict[str, Value] = {
            "info.state": "success",
            "info.descriptionId": "VirtualMachine.destroy",
            "info.entity": Ref("VirtualMachine", "vm-9"),
            "info.entityName": name,
        }
        self.inventory.apply([ObjectUpdate("enter", "Task", "task-1", task)])

    def set_host(self, path: str, value: str | bool) -> None:
        self.inventory.apply([ObjectUpdate("modify", "HostSystem", "host-1", {path: value})])

    def reload_without_vm(self) -> None:
        """The session ended, and the VM is not there any more after the new login."""
        objects = list(self.inventory.raw_objects.items())
        reload = InventoryReload(self.inventory)
        reload._raw_objects = {ref: value for ref, value in objects if ref != "vm-9"}
        reload.commit()
        self.watching_since = self.time

    def judge(self) -> Absence:
        return self.tracker.judge("r0", UUID, "vm-9", ["domain-c1"])

    async def decide(self) -> Absence:
        """Like a step: read first if that is required."""
        if ref := self.judge().ref_to_read:
            await self.tracker.read([ref])
        return self.judge()


@pytest.fixture
def harness() -> AbsenceHarness:
    return AbsenceHarness()


async def test_a_vm_that_left_while_watched_was_deleted(harness: AbsenceHarness) -> None:
    harness.remove("VirtualMachine", "vm-9")
    # Its host might leave with the next update.
    assert (await harness.decide()).recheck_seconds == 2.0
    assert harness.read_refs == []
    harness.time += 2.0
    assert (await harness.decide()).deleted
    assert harness.read_refs == ["vm-9"]


async def test_a_leave_update_proves_nothing_after_a_reload(harness: AbsenceHarness) -> None:
    # A user hid the VM, then vCenter was restored from a backup without it.
    harness.remove("VirtualMachine", "vm-9")
    harness.time += 1.0
    harness.reload_without_vm()
    harness.time += 2.0
    assert not (await harness.decide()).deleted
    harness.time += TIMEOUT_SECONDS
    assert (await harness.decide()).deleted


async def test_a_destroy_task_needs_no_wait(harness: AbsenceHarness) -> None:
    harness.destroy_vm()
    assert harness.judge().deleted


async def test_the_end_of_an_earlier_vm_proves_nothing_about_its_replacement(
    harness: AbsenceHarness,
) -> None:
    """The new VM has the same instanceUuid. Its host was removed before it was ever visible."""
    harness.destroy_vm()
    assert harness.judge().deleted
    harness.tracker.forget_vm(UUID)
    absence = harness.tracker.judge("r0", UUID, "", ["domain-c1"])
    assert (absence.deleted, absence.recheck_seconds) == (False, TIMEOUT_SECONDS)


@pytest.mark.parametrize(("name", "is_deleted"), [("r0", True), ("finance-1", False)])
async def test_after_a_restart_the_destroy_task_has_to_name_the_replica(
    harness: AbsenceHarness, name: str, is_deleted: bool
) -> None:
    harness.destroy_vm(name)
    harness.restart()
    assert harness.judge().deleted == is_deleted


async def test_after_a_reload_the_destroy_task_has_to_name_the_replica(
    harness: AbsenceHarness,
) -> None:
    """A restored vCenter had given the reference to another VM, which this process never saw."""
    harness.time += 1
    harness.reload_without_vm()
    harness.destroy_vm("finance-1")
    assert not (await harness.decide()).deleted
    harness.destroy_vm("r0")
    assert (await harness.decide()).deleted


async def test_the_destroy_task_of_another_vm_proves_nothing(harness: AbsenceHarness) -> None:
    # After a restore from backup, another VM has the reference of the missing one.
    harness.reload_without_vm()
    other = instance_uuid_of("uid-2", "r0")
    harness.inventory.apply(
        [enter_update("VirtualMachine", "vm-9", "r0", "group-v2", config__instanceUuid=other)]
    )
    harness.destroy_vm()
    assert not harness.judge().deleted


async def test_a_vm_missing_after_a_reload_is_not_deleted(harness: AbsenceHarness) -> None:
    harness.reload_without_vm()
    harness.time += 60.0
    absence = await harness.decide()
    assert not absence.deleted
    assert "If it is still missing at 2026-11-17T12:05:00Z" in absence.message
    harness.time += TIMEOUT_SECONDS - 1.0
    # The text does not change with each reconcile.
    assert (await harness.decide()).message == absence.message
    harness.time += 1.0
    assert (await harness.decide()).deleted


@pytest.mark.parametrize("interruption", ["reload", "host", "vm"])
async def test_an_interruption_starts_the_time_again(
    harness: AbsenceHarness, interruption: str
) -> None:
    harness.reload_without_vm()
    assert not harness.judge().deleted
    harness.time += TIMEOUT_SECONDS - 1.0
    match interruption:
        case "reload":
            harness.reload_without_vm()
        case "host":
            harness.set_host(HOST_CONNECTION, "notResponding")
            harness.set_host(HOST_CONNECTION, "connected")
        case "vm":
            harness.add_vm("vm-10")
            harness.reload_without_vm()
            harness.remove("VirtualMachine", "vm-10")
            harness.remove("HostSystem", "host-1")
    harness.time += 10.0
    assert not (await harness.decide()).deleted
    harness.time += TIMEOUT_SECONDS
    assert (await harness.decide()).deleted


@pytest.mark.parametrize("order", ["before", "after", "maintenance"])
async def test_a_host_that_leaves_takes_its_vms_along(harness: AbsenceHarness, order: str) -> None:
    if order == "before":
        harness.set_host(HOST_CONNECTION, "disconnected")
    if order == "maintenance":
        harness.set_host("runtime.inMaintenanceMode", True)
    harness.remove("VirtualMachine", "vm-9")
    harness.time += 1.0
    assert not (await harness.decide()).deleted
    harness.remove("HostSystem", "host-1")
    assert not (await harness.decide()).deleted
    harness.time += TIMEOUT_SECONDS - 1.0
    assert not (await harness.decide()).deleted
    harness.time += 1.0
    assert (await harness.decide()).deleted


async def test_disconnected_hosts_are_named_and_no_time_counts(harness: AbsenceHarness) -> None:
    harness.reload_without_vm()
    harness.set_host(HOST_CONNECTION, "notResponding")
    harness.time += 10 * TIMEOUT_SECONDS
    absence = await harness.decide()
    assert "not connected: esxi-1. Reconnect them" in absence.message
    harness.set_host(HOST_CONNECTION, "connected")
    harness.time += TIMEOUT_SECONDS - 1.0
    assert not (await harness.decide()).deleted
    harness.time += 1.0
    assert (await harness.decide()).deleted


@pytest.mark.parametrize("error", [None, Denied("no"), Rejected("no name")])
@pytest.mark.parametrize("left", [True, False])
async def test_a_hidden_vm_is_never_deleted(
    harness: AbsenceHarness, error: Exception | None, left: bool
) -> None:
    harness.read_error = error
    if left:
        harness.remove("VirtualMachine", "vm-9")
    else:
        harness.reload_without_vm()
    assert not harness.judge().deleted
    for _ in range(3):
        harness.time += TIMEOUT_SECONDS
        absence = await harness.decide()
        assert not absence.deleted
        assert "does not show it to the manager's account" in absence.message
    harness.read_error = NotFound("deleted while hidden")
    harness.time += 20.0
    assert (await harness.decide()).deleted


async def test_the_answer_of_a_new_session_decides_nothing(harness: AbsenceHarness) -> None:
    harness.remove("VirtualMachine", "vm-9")
    harness.time += 2.0
    # The read logged in again, at another vCenter that does not have the reference.
    harness.is_inventory_of_session = False
    assert not (await harness.decide()).deleted
    harness.is_inventory_of_session = True
    assert (await harness.decide()).deleted


async def test_without_a_response_nothing_is_decided(harness: AbsenceHarness) -> None:
    harness.read_error = Unreachable("timeout")
    harness.remove("VirtualMachine", "vm-9")
    harness.time += 2.0
    assert not (await harness.decide()).deleted
    assert harness.judge().recheck_seconds == 1.0


async def test_a_reference_that_another_vm_has_needs_no_read(harness: AbsenceHarness) -> None:
    harness.reload_without_vm()
    harness.inventory.apply([enter_update("VirtualMachine", "vm-9", "other", "group-v2")])
    assert not harness.judge().deleted
    harness.time += TIMEOUT_SECONDS
    assert harness.judge().deleted
    assert harness.read_refs == []
