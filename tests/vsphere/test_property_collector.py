"""The inventory watcher on the simulator: load, push, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyVmomi import vim, vmodl

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from support.pyvmomi_session import PyVmomiSession
from vsphere_operators.vsphere.faults import (
    Denied,
    NotAuthenticated,
    NotFound,
    Unreachable,
)
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.model import (
    AssignedDevice,
    ComputeResource,
    Datastore,
    Entity,
    GraphicsDevice,
    Host,
    HostStats,
    VirtualMachine,
)
from vsphere_operators.vsphere.properties import InventoryObject
from vsphere_operators.vsphere.property_collector import CollectorOptions, ServerCollector
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS
from vsphere_operators.vsphere.updates import ObjectUpdate, UpdateSet

from .conftest import SimulatorFactory
from .watcher_harness import SHORT_TIMEOUTS, WatcherHarness, run_watcher


@pytest.fixture
async def harness(start_simulator: SimulatorFactory) -> AsyncIterator[WatcherHarness]:
    """On a simulator of its own, since the tests change its inventory."""
    async with run_watcher(
        await start_simulator(
            "--datacenters=2",
            "--hosts=2",
            "--vms=2",
            "--template=base",
            "--without-tools=DC0_C0_RP0_VM1",
        )
    ) as follower:
        yield follower


def to_plain(value: Any) -> Any:
    """pyVmomi's value as the model has it."""
    if isinstance(value, vim.ManagedEntity):
        return value._moId
    return tuple(to_plain(item) for item in value) if isinstance(value, list) else value


def plain_or_default(value: Any, default: Any) -> Any:
    return default if value is None else to_plain(value)


HOST_FIELDS = {
    "name": "name",
    "parent": "parent",
    "connection": "runtime.connectionState",
    "power": "runtime.powerState",
    "in_maintenance": "runtime.inMaintenanceMode",
    "boot_time": "runtime.bootTime",
    "cpu_mhz": "summary.hardware.cpuMhz",
    "cpu_cores": "summary.hardware.numCpuCores",
    "memory_bytes": "summary.hardware.memorySize",
    "vendor": "summary.hardware.vendor",
    "model": "summary.hardware.model",
    "version": "summary.config.product.version",
    "build": "summary.config.product.build",
    "stats.cpu_usage_mhz": "summary.quickStats.overallCpuUsage",
    "stats.memory_usage_mb": "summary.quickStats.overallMemoryUsage",
    "vgpu_profiles": "config.sharedPassthruGpuTypes",
}
VIRTUAL_MACHINE_FIELDS = {
    "name": "name",
    "parent": "parent",
    "host": "runtime.host",
    "connection": "runtime.connectionState",
    "power": "runtime.powerState",
    "is_template": "config.template",
    "bios_uuid": "config.uuid",
    "config_version": "config.changeVersion",
    "instance_uuid": "config.instanceUuid",
    "configured_guest_id": "config.guestId",
    "hardware_version": "config.version",
    "cpus": "summary.config.numCpu",
    "cores_per_socket": "config.hardware.numCoresPerSocket",
    "memory_mb": "summary.config.memorySizeMB",
    "cpu_reservation_mhz": "summary.config.cpuReservation",
    "memory_reservation_mb": "summary.config.memoryReservation",
    "vmx_path": "summary.config.vmPathName",
    "datastores": "datastore",
    "resource_pool": "resourcePool",
    "tools_running": "summary.guest.toolsRunningStatus",
    "tools_version": "summary.guest.toolsVersionStatus2",
    "guest_id": "summary.guest.guestId",
    "guest_hardware_version": "summary.guest.hwVersion",
    "ip_address": "summary.guest.ipAddress",
    "stats.cpu_usage_mhz": "summary.quickStats.overallCpuUsage",
    "stats.cpu_demand_mhz": "summary.quickStats.overallCpuDemand",
    "stats.guest_memory_mb": "summary.quickStats.guestMemoryUsage",
    "stats.cpu_readiness_percent": "summary.quickStats.overallCpuReadiness",
    "stats.ballooned_memory_mb": "summary.quickStats.balloonedMemory",
    "stats.swapped_memory_mb": "summary.quickStats.swappedMemory",
}
DATASTORE_FIELDS = {
    "name": "name",
    "url": "summary.url",
    "accessible": "summary.accessible",
    "type": "summary.type",
    "capacity_bytes": "summary.capacity",
    "free_bytes": "summary.freeSpace",
    "uncommitted_bytes": "summary.uncommitted",
    "maintenance_mode": "summary.maintenanceMode",
}
CLUSTER_FIELDS = {
    "name": "name",
    "drs_enabled": "configurationEx.drsConfig.enabled",
    "drs_automation": "configurationEx.drsConfig.defaultVmBehavior",
    "ha_enabled": "configurationEx.dasConfig.enabled",
    "ha_admission_control": "configurationEx.dasConfig.admissionControlEnabled",
}


HOST_LIST_PROPERTIES = ("customValue", "config.graphicsInfo", "config.assignableHardwareBinding")


def flatten_fields(item: Host | VirtualMachine) -> dict[str, Any]:
    own = {
        name: getattr(item, name) for name in item.__struct_fields__ if name not in ("ref", "stats")
    }
    return own | {
        f"stats.{name}": getattr(item.stats, name) for name in item.stats.__struct_fields__
    }


def expected_fields(
    item: Host | VirtualMachine,
    properties: dict[str, str],
    received: dict[str, Any],
    attributes: dict[int, str],
) -> dict[str, Any]:
    blank = flatten_fields(type(item)(ref=""))
    fields = {
        name: plain_or_default(received[path], blank[name]) for name, path in properties.items()
    }
    fields["attributes"] = {
        attributes[item.key]: item.value for item in received["customValue"] or ()
    }
    if "config.graphicsInfo" in received:
        fields["graphics"] = tuple(
            GraphicsDevice(
                item.deviceName,
                item.pciId,
                item.graphicsType,
                item.memorySizeInKB,
                to_plain(item.vm),
            )
            for item in received["config.graphicsInfo"] or ()
        )
        bound = received["config.assignableHardwareBinding"] or ()
        fields["assigned_devices"] = tuple(
            sorted(
                AssignedDevice(item.vm._moId, item.instanceId.removeprefix("pci:"))
                for item in bound
            )
        )
    if "guest.net" in received:
        fields["ip_addresses"] = tuple(
            address for card in received["guest.net"] or () for address in card.ipAddress
        )
    return fields


def assert_equal_fields(
    entity: Datastore | ComputeResource, properties: dict[str, str], received: dict[str, Any]
) -> None:
    blank = type(entity)(ref="")
    for name, path in properties.items():
        assert getattr(entity, name) == plain_or_default(received[path], getattr(blank, name)), path


async def test_loaded_values_equal_those_of_pyvmomi(harness: WatcherHarness) -> None:
    simulator, inventory = harness.simulator, harness.inventory
    await simulator.set_attribute("DC0_C0_H0", "owner", "me")
    await simulator.set_attribute("DC0_H0_VM0", "purpose", "tests & <more>")
    await eventually(lambda: inventory.find_vm("DC0_H0_VM0").attributes)
    async with PyVmomiSession(simulator) as truth:
        names = {
            item.key: item.name
            for item in await asyncio.to_thread(lambda: truth.content.customFieldsManager.field)
        }
        hosts = await truth.read_all(vim.HostSystem, [*HOST_FIELDS.values(), *HOST_LIST_PROPERTIES])
        vms = await truth.read_all(
            vim.VirtualMachine, [*VIRTUAL_MACHINE_FIELDS.values(), "customValue", "guest.net"]
        )
        assert {ref: flatten_fields(host) for ref, host in inventory.hosts.items()} == {
            item["obj"]._moId: expected_fields(Host(ref=""), HOST_FIELDS, item, names)
            for item in hosts
        }
        assert {ref: flatten_fields(vm) for ref, vm in inventory.vms.items()} == {
            item["obj"]._moId: expected_fields(
                VirtualMachine(ref=""), VIRTUAL_MACHINE_FIELDS, item, names
            )
            for item in vms
        }
        for item in (*hosts, *vms):
            assert inventory.path(item["obj"]._moId) == await truth.inventory_path(item["obj"])
            assert inventory.location(item["obj"]._moId).datacenter == await truth.ancestor_name(
                item["obj"], vim.Datacenter
            )
        for item in hosts:
            assert inventory.location(item["obj"]._moId).cluster == await truth.ancestor_name(
                item["obj"], vim.ClusterComputeResource
            )
        datastores = await truth.read_all(vim.Datastore, [*DATASTORE_FIELDS.values(), "host"])
        for item in datastores:
            datastore = inventory.datastores[item["obj"]._moId]
            mounting_hosts = tuple(sorted(mount.key._moId for mount in item["host"]))
            assert datastore.hosts == mounting_hosts != ()
            assert_equal_fields(datastore, DATASTORE_FIELDS, item)
        clusters = await truth.read_all(vim.ClusterComputeResource, list(CLUSTER_FIELDS.values()))
        for item in clusters:
            assert_equal_fields(
                inventory.compute_resources[item["obj"]._moId], CLUSTER_FIELDS, item
            )
    assert len(hosts) == len(inventory.hosts) == 6
    assert len(datastores) == len(inventory.datastores) > 0
    assert len(clusters) == 2
    assert {cluster.drs_enabled for cluster in inventory.compute_resources.values()} == {True, None}
    assert len(vms) == 10
    assert inventory.find_host("DC0_C0_H0").attributes == {"owner": "me"}


async def test_tree_equals_that_of_the_simulator(harness: WatcherHarness) -> None:
    received = {item["ref"]: item["path"] for item in await harness.simulator.entities()}
    paths = {
        ref: harness.inventory.path(ref)
        for ref, item in harness.inventory.objects.items()
        if isinstance(item, Entity) and item.parent
    }
    assert {ref: received[ref] for ref in paths} == paths
    unread_types = {
        entity["type"]
        for entity in await harness.simulator.entities()
        if entity["ref"] not in paths and entity["path"]
    }
    assert unread_types <= {
        "Network",
        "DistributedVirtualPortgroup",
        "VmwareDistributedVirtualSwitch",
        "DistributedVirtualSwitch",
        "OpaqueNetwork",
    }


async def test_changes_arrive_by_push(harness: WatcherHarness) -> None:
    simulator, inventory = harness.simulator, harness.inventory
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


async def test_vms_enter_move_and_leave_by_push(harness: WatcherHarness) -> None:
    simulator, inventory = harness.simulator, harness.inventory
    first, second = inventory.find_host("DC0_C0_H0"), inventory.find_host("DC0_C0_H1")
    before = len(inventory.vms_on(first.ref))
    ref = await simulator.create_vm("new", host="DC0_C0_H0", on=True)
    await eventually(lambda: inventory.find_vm("new").power == "poweredOn")
    assert len(inventory.vms_on(first.ref)) == before + 1
    await eventually(
        lambda: any(
            change.old is change.new and change.new == inventory.hosts[first.ref]
            for change in harness.changes
        )
    )
    await simulator.move_vm("new", "DC0_C0_H1")
    await eventually(lambda: inventory.find_vm("new").host == second.ref)
    assert len(inventory.vms_on(first.ref)) == before
    await simulator.rename("DC1_H0_VM0", "new")
    await eventually(lambda: len(inventory.by_name(VirtualMachine, "new")) == 2)
    harness.changes.clear()
    await simulator.delete(ref)
    await eventually(lambda: ref not in inventory.vms)
    assert inventory.find_vm("new").ref != ref
    assert [
        change.old.name
        for change in harness.changes
        if change.new is None and isinstance(change.old, VirtualMachine)
    ] == ["new"]
    assert harness.metrics.update_counts["VirtualMachine", "leave"] == 1


async def test_custom_attributes_get_names_without_a_reload(harness: WatcherHarness) -> None:
    await harness.simulator.set_attribute("DC0_C0_H0", "owner", "me")
    await eventually(lambda: harness.inventory.find_host("DC0_C0_H0").attributes == {"owner": "me"})
    await harness.simulator.set_attribute("DC0_C0_H0", "owner", "you")
    await eventually(
        lambda: harness.inventory.find_host("DC0_C0_H0").attributes == {"owner": "you"}
    )
    assert harness.load_count == 1


def has_task_state(state: str, inventory: Inventory, ref: str) -> bool:
    return inventory.tasks[ref].state == state


async def test_task_is_followed_to_its_end(harness: WatcherHarness) -> None:
    vm = harness.inventory.find_vm("DC0_H0_VM0")
    await harness.simulator.fail_calls("PowerOffVM_Task", "InvalidPowerState", where="task")
    for state, fault in (("error", "InvalidPowerState"), ("success", "")):
        task = await vim.VirtualMachine(vm.ref, harness.soap.stub).PowerOffVM_Task()
        await eventually(partial(has_task_state, state, harness.inventory, task._moId))
        received = harness.inventory.tasks[task._moId]
        assert (received.fault, received.entity) == (fault, vm.ref)
        assert received.description_id == "VirtualMachine.powerOff"
        assert bool(received.message) == bool(fault)


async def test_ended_session_is_raised(harness: WatcherHarness) -> None:
    calls = len(harness.metrics.calls)
    await harness.simulator.expire_sessions()
    assert isinstance(await harness.wait_for_end(), NotAuthenticated)
    assert {method for method, _ in harness.metrics.calls[calls:]} == {"WaitForUpdatesEx"}
    assert harness.inventory.hosts


async def test_second_run_reports_only_differences(harness: WatcherHarness) -> None:
    await harness.stop()
    await harness.simulator.rename("DC0_C0_H0", "renamed")
    await harness.simulator.delete("DC0_C0_RP0_VM0")
    changes: list[Change[InventoryObject]] = []
    harness.inventory.connect(changes.append)
    harness.task = asyncio.create_task(harness.watcher.run())
    await harness.wait_for_load(2)
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
        if change.old is not change.new
        and name_of(change.old) == name_of(change.new)
        and isinstance(change.new, Host)
    ]


def name_of(item: object) -> str:
    return item.name if isinstance(item, Entity) else ""


async def wait_for_update(follower: WatcherHarness) -> None:
    await follower.simulator.churn_stats()
    await eventually(lambda: follower.watcher.response_count)


async def test_destroyed_collector_is_created_again(harness: WatcherHarness) -> None:
    await wait_for_update(harness)
    [session] = await harness.simulator.sessions()
    destroyed = session["collectors"][0]
    await vmodl.query.PropertyCollector(destroyed, harness.soap.stub).DestroyPropertyCollector()
    await harness.simulator.rename("DC0_C0_H0", "renamed")
    await harness.wait_for_load(2)
    assert harness.inventory.find_host("renamed")
    await eventually(lambda: has_server_objects(harness.simulator, 2, 1, 1))
    await harness.simulator.rename("renamed", "again")
    await eventually(lambda: harness.inventory.find_host("again"))


@pytest.mark.parametrize("fault", ["InvalidCollectorVersion", "ManagedObjectNotFound"])
async def test_invalid_version_causes_a_reload(harness: WatcherHarness, fault: str) -> None:
    await wait_for_update(harness)
    await harness.simulator.fail_calls(
        "WaitForUpdatesEx",
        fault,
        fields={"obj": {"type": "PropertyFilter", "value": "x"}} if fault.startswith("M") else None,
    )
    await harness.simulator.churn_stats()
    await harness.wait_for_load(2)
    assert not harness.task.done()
    assert await has_server_objects(harness.simulator, 2, 1, 1)


async def test_repeatedly_lost_collector_is_raised(harness: WatcherHarness) -> None:
    await wait_for_update(harness)
    await harness.simulator.fail_calls("WaitForUpdatesEx", "InvalidCollectorVersion", count=0)
    await harness.simulator.churn_stats()
    error = await harness.wait_for_end()
    assert getattr(error, "fault", "") == "InvalidCollectorVersion"


async def test_hanging_call_is_noticed(simulator: SimulatedVCenter) -> None:
    async with run_watcher(simulator, replace(SHORT_TIMEOUTS, call_timeout_seconds=3.0)) as harness:
        await harness.simulator.set_outage("hang")
        loop = asyncio.get_running_loop()
        began = loop.time()
        error = await harness.wait_for_end()
        await harness.simulator.set_outage("")
    assert isinstance(error, Unreachable)
    assert "WaitForUpdatesEx" in str(error)
    # Not the default. A busy machine may add many seconds to the short limit.
    assert loop.time() - began < CollectorOptions().call_timeout_seconds


async def test_response_without_changes_is_an_answer(harness: WatcherHarness) -> None:
    last_response_at, count = harness.watcher.last_response_at, harness.watcher.response_count
    await eventually(lambda: harness.watcher.response_count >= count + 2)
    assert harness.watcher.last_response_at > last_response_at


async def test_nothing_remains_on_the_server(harness: WatcherHarness) -> None:
    assert await has_server_objects(harness.simulator, 2, 1, 1)
    await harness.stop()
    assert await has_server_objects(harness.simulator, 0, 0, 0)
    await eventually(lambda: has_waiting_calls(harness.simulator, 0))


async def has_server_objects(
    simulator: SimulatedVCenter, filters: int, views: int, collectors: int
) -> bool:
    [session] = await simulator.sessions()
    return (len(session["filters"]), len(session["views"]), len(session["collectors"])) == (
        filters,
        views,
        collectors,
    )


async def has_waiting_calls(simulator: SimulatedVCenter, calls: int) -> bool:
    [session] = await simulator.sessions()
    return bool(session["waiting"] == calls)


async def test_failed_start_leaves_nothing_on_the_server(harness: WatcherHarness) -> None:
    await harness.stop()
    await harness.simulator.fail_calls("CreateFilter", "NoPermission")
    harness.task = asyncio.create_task(harness.watcher.run())
    assert isinstance(await harness.wait_for_end(), Denied)
    assert await has_server_objects(harness.simulator, 0, 0, 0)


async def test_stop_does_not_wait_for_an_unreachable_server(harness: WatcherHarness) -> None:
    await harness.simulator.set_outage("hang")
    # Without the short limit, it would wait for CALL_TIMEOUT_SECONDS.
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS / 2):
        await harness.stop()
    await harness.simulator.set_outage("")


class PartialUpdateView(ServerCollector):
    """Its first response after the load has only a part of a property."""

    async def wait_for_updates(
        self, version: str, *, timeout_seconds: float = 0.0
    ) -> UpdateSet | None:
        answer = await super().wait_for_updates(version, timeout_seconds=timeout_seconds)
        if answer is None or not version:
            return answer
        parts = [
            ObjectUpdate(
                item.kind, item.type, item.ref, {}, (), ("name", "guest.net", "customValue")
            )
            for item in answer.updates
        ]
        return UpdateSet(
            answer.version,
            answer.truncated,
            [item for item in parts if item.type == "VirtualMachine"],
        )


async def test_partial_property_is_read_again(
    harness: WatcherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stop()
    monkeypatch.setattr(
        "vsphere_operators.vsphere.inventory_watcher.ServerCollector", PartialUpdateView
    )
    harness.task = asyncio.create_task(harness.watcher.run())
    await harness.wait_for_load(2)
    vm = harness.inventory.find_vm("DC0_H0_VM0")
    assert vm.ip_addresses
    await harness.simulator.rename(vm.ref, "renamed")
    await eventually(lambda: harness.inventory.find_vm("renamed").ip_addresses == vm.ip_addresses)
    await harness.simulator.set_power(vm.ref, on=False)
    await eventually(lambda: harness.inventory.find_vm("renamed").ip_addresses == ())
    assert harness.inventory.find_vm("renamed").power == "poweredOn"
    assert ("RetrievePropertiesEx", "ok") in harness.metrics.calls


async def test_all_pages_of_a_read_are_returned(harness: WatcherHarness) -> None:
    watch = ServerCollector(harness.soap, CollectorOptions(max_object_updates=3), Log("vcenter"))
    await watch.open()
    try:
        requested = {
            ("VirtualMachine", ref): {"name", "config.uuid"}
            for ref in [*harness.inventory.vms, "vm-99999"]
        }
        updates = await watch.read_properties(requested)
        assert {item.ref: item.changes for item in updates} == {
            item.ref: {"name": item.name, "config.uuid": item.bios_uuid}
            for item in harness.inventory.vms.values()
        }
        assert harness.metrics.calls.count(("ContinueRetrievePropertiesEx", "ok")) >= 3
    finally:
        await watch.close()


async def test_load_reads_all_small_pages(start_simulator: SimulatorFactory) -> None:
    simulator = await start_simulator("--vms=30", "--hosts=3")
    async with run_watcher(
        simulator,
        CollectorOptions(max_wait_seconds=1, call_timeout_seconds=10.0, max_object_updates=7),
    ) as follower:
        assert len(follower.inventory.vms) == 60
        assert len(follower.inventory.hosts) == 4
        pages = [method for method, _ in follower.metrics.calls if method == "WaitForUpdatesEx"]
        assert len(pages) >= 64 / 7
