"""The collector on the simulator: what it loads, what reaches it by push, and what it does when something breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from pyVmomi import vim, vmodl

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from truth import Truth
from vsphere_operators.vsphere.faults import Denied, NotAuthenticated, NotFound, Unreachable
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.model import (
    AssignedDevice,
    Entity,
    GraphicsDevice,
    Host,
    HostStats,
    VirtualMachine,
)
from vsphere_operators.vsphere.server_view import CollectorOptions, ServerCollector
from vsphere_operators.vsphere.updates import ObjectUpdate, UpdateSet

from .conftest import Simulators
from .following import SHORT, Follower, following


@pytest.fixture
async def follower(simulators: Simulators) -> AsyncIterator[Follower]:
    """One that may change the inventory, so on a simulator of its own."""
    async with following(
        await simulators(
            "--datacenters=2",
            "--hosts=2",
            "--vms=2",
            "--template=base",
            "--without-tools=DC0_C0_RP0_VM1",
        )
    ) as follower:
        yield follower


def plain(value: Any) -> Any:
    """pyVmomi's value as the model has it."""
    if isinstance(value, vim.ManagedEntity):
        return value._moId
    return tuple(plain(each) for each in value) if isinstance(value, list) else value


def shown(value: Any, default: Any) -> Any:
    return default if value is None else plain(value)


HOST_FIELDS = {
    "name": "name", "parent": "parent", "connection": "runtime.connectionState", "power": "runtime.powerState",
    "in_maintenance": "runtime.inMaintenanceMode", "boot_time": "runtime.bootTime", "cpu_mhz": "summary.hardware.cpuMhz",
    "cpu_cores": "summary.hardware.numCpuCores", "memory_bytes": "summary.hardware.memorySize", "vendor": "summary.hardware.vendor",
    "model": "summary.hardware.model", "version": "summary.config.product.version", "build": "summary.config.product.build",
    "stats.cpu_usage_mhz": "summary.quickStats.overallCpuUsage", "stats.memory_usage_mb": "summary.quickStats.overallMemoryUsage",
    "vgpu_profiles": "config.sharedPassthruGpuTypes",
}  # fmt: skip
MACHINE_FIELDS = {
    "name": "name", "parent": "parent", "host": "runtime.host", "connection": "runtime.connectionState", "power": "runtime.powerState",
    "is_template": "config.template", "bios_uuid": "config.uuid", "config_version": "config.changeVersion",
    "instance_uuid": "config.instanceUuid", "configured_guest_id": "config.guestId",
    "hardware_version": "config.version", "cpus": "summary.config.numCpu", "memory_mb": "summary.config.memorySizeMB",
    "cpu_reservation_mhz": "summary.config.cpuReservation", "memory_reservation_mb": "summary.config.memoryReservation",
    "vmx_path": "summary.config.vmPathName", "datastores": "datastore", "resource_pool": "resourcePool",
    "tools_running": "summary.guest.toolsRunningStatus", "tools_version": "summary.guest.toolsVersionStatus2",
    "guest_id": "summary.guest.guestId", "guest_hardware_version": "summary.guest.hwVersion",
    "ip_address": "summary.guest.ipAddress", "stats.cpu_usage_mhz": "summary.quickStats.overallCpuUsage",
    "stats.cpu_demand_mhz": "summary.quickStats.overallCpuDemand", "stats.guest_memory_mb": "summary.quickStats.guestMemoryUsage",
}  # fmt: skip


HOST_LISTS = ("customValue", "config.graphicsInfo", "config.assignableHardwareBinding")


def flat(item: Host | VirtualMachine) -> dict[str, Any]:
    own = {
        name: getattr(item, name) for name in item.__struct_fields__ if name not in ("ref", "stats")
    }
    return own | {
        f"stats.{name}": getattr(item.stats, name) for name in item.stats.__struct_fields__
    }


def expected(
    item: Host | VirtualMachine,
    properties: dict[str, str],
    told: dict[str, Any],
    attributes: dict[int, str],
) -> dict[str, Any]:
    blank = flat(type(item)(ref=""))
    fields = {name: shown(told[path], blank[name]) for name, path in properties.items()}
    fields["attributes"] = {attributes[each.key]: each.value for each in told["customValue"] or ()}
    if "config.graphicsInfo" in told:
        fields["graphics"] = tuple(
            GraphicsDevice(
                each.deviceName, each.pciId, each.graphicsType, each.memorySizeInKB, plain(each.vm)
            )
            for each in told["config.graphicsInfo"] or ()
        )
        bound = told["config.assignableHardwareBinding"] or ()
        fields["assigned_devices"] = tuple(
            sorted(
                AssignedDevice(each.vm._moId, each.instanceId.removeprefix("pci:"))
                for each in bound
            )
        )
    if "guest.net" in told:
        fields["ip_addresses"] = tuple(
            address for card in told["guest.net"] or () for address in card.ipAddress
        )
    return fields


async def test_everything_is_loaded_as_pyvmomi_itself_reads_it(follower: Follower) -> None:
    simulator, inventory = follower.simulator, follower.inventory
    await simulator.set_attribute("DC0_C0_H0", "owner", "me")
    await simulator.set_attribute("DC0_H0_VM0", "purpose", "tests & <more>")
    await eventually(lambda: inventory.find_vm("DC0_H0_VM0").attributes)
    async with Truth(simulator) as truth:
        names = {
            each.key: each.name
            for each in await asyncio.to_thread(lambda: truth.content.customFieldsManager.field)
        }
        hosts = await truth.all(vim.HostSystem, [*HOST_FIELDS.values(), *HOST_LISTS])
        machines = await truth.all(
            vim.VirtualMachine, [*MACHINE_FIELDS.values(), "customValue", "guest.net"]
        )
        assert {ref: flat(host) for ref, host in inventory.hosts.items()} == {
            each["obj"]._moId: expected(Host(ref=""), HOST_FIELDS, each, names) for each in hosts
        }
        assert {ref: flat(machine) for ref, machine in inventory.vms.items()} == {
            each["obj"]._moId: expected(VirtualMachine(ref=""), MACHINE_FIELDS, each, names)
            for each in machines
        }
        for each in (*hosts, *machines):
            assert inventory.path(each["obj"]._moId) == await truth.path(each["obj"])
            assert inventory.location(each["obj"]._moId).datacenter == await truth.above(
                each["obj"], vim.Datacenter
            )
        for each in hosts:
            assert inventory.location(each["obj"]._moId).cluster == await truth.above(
                each["obj"], vim.ClusterComputeResource
            )
        stores = await truth.all(vim.Datastore, ["name", "summary.url", "summary.accessible"])
        assert {(d.name, d.url, d.accessible) for d in inventory.datastores.values()} == {
            tuple(value for path, value in each.items() if path != "obj") for each in stores
        }
    assert len(hosts) == len(inventory.hosts) == 6
    assert len(machines) == 10
    assert inventory.find_host("DC0_C0_H0").attributes == {"owner": "me"}


async def test_the_tree_is_the_simulators(follower: Follower) -> None:
    told = {each["ref"]: each["path"] for each in await follower.simulator.entities()}
    ours = {
        ref: follower.inventory.path(ref)
        for ref, item in follower.inventory.objects.items()
        if isinstance(item, Entity) and item.parent
    }
    assert {ref: told[ref] for ref in ours} == ours
    assert {each["type"] for each in await follower.simulator.entities() if each["ref"] not in ours and each["path"]} <= {
        "Network", "DistributedVirtualPortgroup", "VmwareDistributedVirtualSwitch", "DistributedVirtualSwitch", "OpaqueNetwork",
    }  # fmt: skip


async def test_changes_in_vcenter_arrive_by_push(follower: Follower) -> None:
    simulator, inventory = follower.simulator, follower.inventory
    await simulator.reset_call_counts()
    await simulator.rename("DC0_C0_H0", "esxi/1")
    await eventually(lambda: inventory.find_host("esxi/1"))
    ref = inventory.find_host("esxi/1").ref
    with pytest.raises(NotFound):
        inventory.find_host("DC0_C0_H0")
    await simulator.set_maintenance("esxi/1")
    await eventually(lambda: inventory.hosts[ref].in_maintenance)
    await simulator.set_stats("esxi/1", overallCpuUsage=17)
    await eventually(lambda: inventory.hosts[ref].stats.cpu_usage_mhz == 17)
    await simulator.set_host_connected("esxi/1", connected=False)
    await eventually(lambda: inventory.hosts[ref].connection == "disconnected")
    assert inventory.hosts[ref].stats == HostStats()
    await simulator.set_host_connected("esxi/1")
    await eventually(lambda: inventory.hosts[ref].stats.cpu_usage_mhz)
    await simulator.set_power("DC0_H0_VM0", on=False)
    await eventually(lambda: inventory.find_vm("DC0_H0_VM0").power == "poweredOff")
    await eventually(lambda: inventory.find_vm("DC0_H0_VM0").ip_addresses == ())
    assert set(await simulator.call_counts()) == {"WaitForUpdatesEx"}


async def test_vms_come_move_and_go_by_push_and_hosts_count_them(follower: Follower) -> None:
    simulator, inventory = follower.simulator, follower.inventory
    first, second = inventory.find_host("DC0_C0_H0"), inventory.find_host("DC0_C0_H1")
    before = len(inventory.vms_on(first.ref))
    ref = await simulator.create_vm("new", host="DC0_C0_H0", on=True)
    await eventually(lambda: inventory.find_vm("new").power == "poweredOn")
    assert len(inventory.vms_on(first.ref)) == before + 1
    await eventually(
        lambda: any(
            change.only_dependency_changed and change.new == inventory.hosts[first.ref]
            for change in follower.changes
        )
    )
    await simulator.move_vm("new", "DC0_C0_H1")
    await eventually(lambda: inventory.find_vm("new").host == second.ref)
    assert len(inventory.vms_on(first.ref)) == before
    await simulator.rename("DC1_H0_VM0", "new")
    await eventually(lambda: len(inventory.relations.by_name[VirtualMachine].get("new")) == 2)
    follower.changes.clear()
    await simulator.delete(ref)
    await eventually(lambda: ref not in inventory.vms)
    assert inventory.find_vm("new").ref != ref
    assert [
        change.old.name
        for change in follower.changes
        if change.new is None and isinstance(change.old, VirtualMachine)
    ] == ["new"]
    assert follower.meter.updates["VirtualMachine", "leave"] == 1


async def test_custom_attributes_get_their_names_without_a_reload(follower: Follower) -> None:
    await follower.simulator.set_attribute("DC0_C0_H0", "owner", "me")
    await eventually(
        lambda: follower.inventory.find_host("DC0_C0_H0").attributes == {"owner": "me"}
    )
    await follower.simulator.set_attribute("DC0_C0_H0", "owner", "you")
    await eventually(
        lambda: follower.inventory.find_host("DC0_C0_H0").attributes == {"owner": "you"}
    )
    assert follower.loads == 1


def is_task(state: str, inventory: Inventory, ref: str) -> bool:
    return inventory.tasks[ref].state == state


async def test_a_task_is_followed_to_its_end(follower: Follower) -> None:
    machine = follower.inventory.find_vm("DC0_H0_VM0")
    await follower.simulator.fail_calls("PowerOffVM_Task", "InvalidPowerState", where="task")
    for state, fault in (("error", "InvalidPowerState"), ("success", "")):
        task = await vim.VirtualMachine(machine.ref, follower.soap.stub).PowerOffVM_Task()
        await eventually(partial(is_task, state, follower.inventory, task._moId))
        told = follower.inventory.tasks[task._moId]
        assert (told.fault, told.entity, told.user) == (fault, machine.ref, follower.simulator.user)
        assert told.description == "VirtualMachine.powerOff"
        assert bool(told.message) == bool(fault)


async def test_a_dead_session_is_raised(follower: Follower) -> None:
    calls = len(follower.meter.calls)
    await follower.simulator.expire_sessions()
    assert isinstance(await follower.ended(), NotAuthenticated)
    assert {method for method, _ in follower.meter.calls[calls:]} == {"WaitForUpdatesEx"}
    assert follower.inventory.hosts


async def test_who_follows_again_reads_all_and_hears_what_differs(follower: Follower) -> None:
    await follower.stop()
    await follower.simulator.rename("DC0_C0_H0", "renamed")
    await follower.simulator.delete("DC0_C0_RP0_VM0")
    changes: list[Change] = []
    follower.inventory.listeners[:] = [changes.append]
    follower.task = asyncio.create_task(follower.collector.run())
    await follower.load(2)
    ends = {
        (name_of(change.old), name_of(change.new))
        for change in changes
        if isinstance(change.old or change.new, Host | VirtualMachine)
    }
    assert {(old, new) for old, new in ends if old != new} == {
        ("DC0_C0_H0", "renamed"),
        ("DC0_C0_RP0_VM0", ""),
    }
    assert not [
        change
        for change in changes
        if not change.only_dependency_changed
        and name_of(change.old) == name_of(change.new)
        and isinstance(change.new, Host)
    ]


def name_of(item: object) -> str:
    return item.name if isinstance(item, Entity) else ""


async def heard_something(follower: Follower) -> None:
    await follower.simulator.churn_stats()
    await eventually(lambda: follower.collector.answer_count)


async def test_a_collector_that_is_destroyed_is_made_again(follower: Follower) -> None:
    await heard_something(follower)
    [session] = await follower.simulator.sessions()
    destroyed = session["collectors"][0]
    await vmodl.query.PropertyCollector(destroyed, follower.soap.stub).DestroyPropertyCollector()
    await follower.simulator.rename("DC0_C0_H0", "renamed")
    await follower.load(2)
    assert follower.inventory.find_host("renamed")
    await eventually(lambda: standing(follower.simulator, 2, 1, 1))
    await follower.simulator.rename("renamed", "again")
    await eventually(lambda: follower.inventory.find_host("again"))


@pytest.mark.parametrize("fault", ["InvalidCollectorVersion", "ManagedObjectNotFound"])
async def test_a_lost_version_leads_to_a_reload(follower: Follower, fault: str) -> None:
    await heard_something(follower)
    await follower.simulator.fail_calls(
        "WaitForUpdatesEx",
        fault,
        fields={"obj": {"type": "PropertyFilter", "value": "x"}} if fault.startswith("M") else None,
    )
    await follower.simulator.churn_stats()
    await follower.load(2)
    assert not follower.task.done()
    assert await standing(follower.simulator, 2, 1, 1)


async def test_what_is_lost_again_and_again_is_raised(follower: Follower) -> None:
    await heard_something(follower)
    await follower.simulator.fail_calls("WaitForUpdatesEx", "InvalidCollectorVersion", count=0)
    await follower.simulator.churn_stats()
    error = await follower.ended()
    assert getattr(error, "fault", "") == "InvalidCollectorVersion"


async def test_a_call_that_hangs_is_noticed(follower: Follower) -> None:
    await follower.simulator.set_outage("hang")
    loop = asyncio.get_running_loop()
    began = loop.time()
    error = await follower.ended()
    assert isinstance(error, Unreachable)
    assert "WaitForUpdatesEx" in str(error)
    assert (
        loop.time() - began
        < SHORT.max_wait_seconds + SHORT.call_timeout_seconds + SHORT.close_timeout_seconds + 2
    )
    await follower.simulator.set_outage("")


async def test_silence_is_an_answer(follower: Follower) -> None:
    heard_at, answers = follower.collector.last_answer_at, follower.collector.answer_count
    await eventually(lambda: follower.collector.answer_count >= answers + 2)
    assert follower.collector.last_answer_at > heard_at


async def test_nothing_is_left_on_the_server(follower: Follower) -> None:
    assert await standing(follower.simulator, 2, 1, 1)
    await follower.stop()
    assert await standing(follower.simulator, 0, 0, 0)
    await eventually(lambda: waiting(follower.simulator, 0))


async def standing(simulator: SimulatedVCenter, filters: int, views: int, collectors: int) -> bool:
    [session] = await simulator.sessions()
    return (len(session["filters"]), len(session["views"]), len(session["collectors"])) == (
        filters,
        views,
        collectors,
    )


async def waiting(simulator: SimulatedVCenter, calls: int) -> bool:
    [session] = await simulator.sessions()
    return bool(session["waiting"] == calls)


async def test_a_failed_start_leaves_nothing_either(follower: Follower) -> None:
    await follower.stop()
    await follower.simulator.fail_calls("CreateFilter", "NoPermission")
    follower.task = asyncio.create_task(follower.collector.run())
    assert isinstance(await follower.ended(), Denied)
    assert await standing(follower.simulator, 0, 0, 0)


async def test_stopping_does_not_wait_for_a_server_that_is_gone(follower: Follower) -> None:
    await follower.simulator.set_outage("hang")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await follower.stop()
    assert loop.time() - began < SHORT.close_timeout_seconds + 1
    await follower.simulator.set_outage("")


class Partial(ServerCollector):
    """A watch whose first answer after the load tells a part of a property only."""

    async def wait_for_updates(self, version: str) -> UpdateSet | None:
        answer = await super().wait_for_updates(version)
        if answer is None or not version:
            return answer
        parts = [
            ObjectUpdate(
                each.kind, each.type, each.ref, {}, (), ("name", "guest.net", "customValue")
            )
            for each in answer.updates
        ]
        return UpdateSet(
            answer.version,
            answer.truncated,
            [each for each in parts if each.type == "VirtualMachine"],
        )


async def test_what_comes_in_parts_is_read_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    await follower.stop()
    monkeypatch.setattr("vsphere_operators.vsphere.property_collector.Watch", Partial)
    follower.task = asyncio.create_task(follower.collector.run())
    await follower.load(2)
    machine = follower.inventory.find_vm("DC0_H0_VM0")
    assert machine.ip_addresses
    await follower.simulator.rename(machine.ref, "renamed")
    await eventually(
        lambda: follower.inventory.find_vm("renamed").ip_addresses == machine.ip_addresses
    )
    await follower.simulator.set_power(machine.ref, on=False)
    await eventually(lambda: follower.inventory.find_vm("renamed").ip_addresses == ())
    assert follower.inventory.find_vm("renamed").power == "poweredOn"
    assert ("RetrievePropertiesEx", "ok") in follower.meter.calls


async def test_a_read_is_continued_to_its_end(follower: Follower) -> None:
    watch = ServerCollector(follower.soap, CollectorOptions(max_object_updates=3), Log("vcenter"))
    await watch.open()
    try:
        wanted = {
            ("VirtualMachine", ref): {"name", "config.uuid"}
            for ref in [*follower.inventory.vms, "vm-99999"]
        }
        found = await watch.read_properties(wanted)
        assert {each.ref: each.changes for each in found} == {
            each.ref: {"name": each.name, "config.uuid": each.bios_uuid}
            for each in follower.inventory.vms.values()
        }
        assert follower.meter.calls.count(("ContinueRetrievePropertiesEx", "ok")) >= 3
    finally:
        await watch.close()


async def test_pages_are_small_and_all_are_read(simulators: Simulators) -> None:
    simulator = await simulators("--vms=30", "--hosts=3")
    async with following(
        simulator,
        CollectorOptions(max_wait_seconds=1, call_timeout_seconds=10.0, max_object_updates=7),
    ) as follower:
        assert len(follower.inventory.vms) == 60
        assert len(follower.inventory.hosts) == 4
        pages = [method for method, _ in follower.meter.calls if method == "WaitForUpdatesEx"]
        assert len(pages) >= 64 / 7
