"""The replayed vCenter of the benchmarks serves what the simulator serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from bench.replayed_vcenter import values
from bench.replayed_vcenter.collector import Collector, InvalidVersion
from bench.replayed_vcenter.inventory import ReplayedInventory, generate_inventory
from bench.replayed_vcenter.recording import add_response, read_inventory, write_inventory
from bench.replayed_vcenter.server import open_replay
from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.kinds.hostinfo import HostInfoStatus, count_vms, host_status_of
from vsphere_operators.kinds.vminfo import VMInfoStatus, vm_status_of
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import XSI_TYPE
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_watcher import InventoryWatcher
from vsphere_operators.vsphere.model import Task
from vsphere_operators.vsphere.recording import Exchange, RecordingSoapClient
from vsphere_operators.vsphere.session import Session

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials
from .conftest import SimulatorFactory

HOSTS, VMS = 100, 900
PREFIXES = {
    "xsi": "http://www.w3.org/2001/XMLSchema-instance",
    "xsd": "http://www.w3.org/2001/XMLSchema",
}


@asynccontextmanager
async def load(
    address: Address, credentials: FixedCredentials, exchanges: list[Exchange]
) -> AsyncIterator[tuple[Inventory, RecordingMetrics]]:
    """An inventory that is loaded and followed."""
    metrics, loaded = RecordingMetrics(), asyncio.Event()
    soap = RecordingSoapClient(address, metrics, exchanges)
    session = Session(soap, credentials, Log("test"))
    await session.login()
    inventory = Inventory("lab", report_undecodable=soap.decode_errors.report)
    watcher = InventoryWatcher(soap, session, inventory, Log("test"), metrics, on_loaded=loaded.set)
    following = asyncio.create_task(watcher.run())
    try:
        await asyncio.wait(
            [following, waiting := asyncio.create_task(loaded.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert waiting.done(), following.exception()
        yield inventory, metrics
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await session.logout()
        await soap.close()


def statuses_of(inventory: Inventory) -> Iterator[HostInfoStatus | VMInfoStatus]:
    """What the manager would write about every host and VM."""
    for host in inventory.hosts.values():
        vms = count_vms(inventory.vms_on(host.ref))
        yield host_status_of(host, inventory.location(host.ref), vms, (), "lab")
    for vm in inventory.vms.values():
        stores = [inventory.name_of(ref) for ref in vm.datastores]
        location, host_name = inventory.location(vm.ref), inventory.name_of(vm.host)
        yield vm_status_of(vm, location, host_name, stores, "lab")


def entities_of(inventory: Inventory) -> dict[str, Any]:
    # A task of the simulator may end between two loads.
    return {ref: obj for ref, obj in inventory.objects.items() if not isinstance(obj, Task)}


def record(exchanges: list[Exchange], instance_uuid: str) -> ReplayedInventory:
    recorded = ReplayedInventory(instance_uuid=instance_uuid)
    for exchange in exchanges:
        if exchange.method == "WaitForUpdatesEx" and exchange.status == 200:
            add_response(recorded, exchange.response)
    return recorded


async def test_the_same_inventory_as_the_simulator(
    start_simulator: SimulatorFactory, tmp_path: Path
) -> None:
    size = ("--clusters=10", f"--hosts={HOSTS // 10}", f"--vms={VMS // 10}")
    simulator = await start_simulator(*size)
    exchanges: list[Exchange] = []
    account = simulator_credentials(simulator)
    async with load(simulator_address(simulator), account, exchanges) as (expected, _):
        assert (len(expected.hosts), len(expected.vms)) >= (HOSTS, VMS)
        write_inventory(record(exchanges, expected.instance_uuid), tmp_path / "recorded")
        async with open_replay(read_inventory(tmp_path / "recorded"), tmp_path) as replay:
            address = Address(replay.host, replay.port, ca_file=str(replay.certificate))
            any_account = FixedCredentials(Credentials(username="any", password="any"))
            async with load(address, any_account, []) as (inventory, metrics):
                assert entities_of(inventory) == entities_of(expected)
                assert inventory.instance_uuid == expected.instance_uuid
                assert list(statuses_of(inventory)) == list(statuses_of(expected))
                assert metrics.undecodable == []
            assert replay.api.unknown_methods == set()


async def test_generated_values_have_the_types_of_the_simulator(
    simulator: SimulatedVCenter,
) -> None:
    exchanges: list[Exchange] = []
    account = simulator_credentials(simulator)
    async with load(simulator_address(simulator), account, exchanges):
        declared = value_types(record(exchanges, ""))
    generated = value_types(generate_inventory(HOSTS, VMS))
    common = generated.keys() & declared.keys()
    assert {key: generated[key] for key in common} == {key: declared[key] for key in common}
    assert {("HostSystem", "summary.hardware.numCpuCores"), ("VirtualMachine", "guest.net")} < (
        common
    )


def value_types(inventory: ReplayedInventory) -> dict[tuple[str, str], str]:
    namespaces = " ".join(f'xmlns:{name}="{uri}"' for name, uri in PREFIXES.items())
    return {
        (obj.type, path): etree.fromstring(f"<a {namespaces}>{value.decode()}</a>")[0].get(
            XSI_TYPE, ""
        )
        for obj in inventory.objects.values()
        for path, value in obj.properties.items()
    }


async def test_lost_answer_is_repeated_and_unknown_version_is_rejected() -> None:
    collector = Collector(generated := generate_inventory(60, 0))
    collector.add_filter({"HostSystem": ["name"]})
    first = await collector.wait_for_updates("", 1, 50)
    assert first.count(b"<kind>enter</kind>") == 50
    assert b"<truncated>true</truncated>" in first
    second = await collector.wait_for_updates("1", 1, 50)
    assert second.count(b"<kind>enter</kind>") == 10
    assert await collector.wait_for_updates("1", 1, 50) == second
    with pytest.raises(InvalidVersion):
        await collector.wait_for_updates("7", 1, 50)
    assert await collector.wait_for_updates("2", 0.01, 50) == b""
    host = generated.of_type("HostSystem")[0]
    generated.change(host.ref, {"name": values.text("renamed"), "other": values.text("x")})
    changed = await collector.wait_for_updates("2", 1, 50)
    assert changed.count(b"<changeSet>") == 1
    assert b"renamed" in changed


async def test_changes_arrive(tmp_path: Path) -> None:
    generated = generate_inventory(60, 120)
    async with open_replay(generated, tmp_path) as replay:
        address = Address(replay.host, replay.port, ca_file=str(replay.certificate))
        account = FixedCredentials(Credentials(username="any", password="any"))
        async with load(address, account, []) as (inventory, _):
            vm = next(iter(inventory.vms.values()))
            other = next(ref for ref in inventory.hosts if ref != vm.host)
            replay.churn.move(vm.ref, other)
            await eventually(lambda: inventory.vms[vm.ref].host == other)
            replay.churn.changes_stats = True
            await eventually(lambda: inventory.vms[vm.ref].stats != vm.stats, within=60)
