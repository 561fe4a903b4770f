"""A vCenter with values that this version does not know: it loads, without these values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.decode_errors import _MAX_NAMES, DecodeErrors
from vsphere_operators.vsphere.faults import Rejected
from vsphere_operators.vsphere.transport import SoapClient
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials
from .conftest import SimulatorFactory
from .intercepting_soap import RecordingLog

HOST, OTHER_HOST, VM_NAME = "DC0_C0_H0", "DC0_H0", "DC0_C0_RP0_VM0"


@asynccontextmanager
async def run_vcenter(
    simulator: SimulatedVCenter,
    alter: Callable[[str, bytes], bytes] = lambda method, body: body,
) -> AsyncIterator[tuple[VCenter, RecordingMetrics, RecordingLog]]:
    """A running vCenter of which the responses are altered."""

    class AlteringSoap(SoapClient):
        async def post(self, body: bytes, *, method: str, **options: Any) -> bytes:
            return alter(method, await super().post(body, method=method, **options))

    metrics, log = RecordingMetrics(), RecordingLog()
    vcenter = VCenter(
        "vc",
        simulator_address(simulator),
        simulator_credentials(simulator),
        log,
        metrics,
        build_soap=AlteringSoap,
    )
    task = asyncio.create_task(vcenter.run())
    try:
        await eventually(lambda: vcenter.loaded, within=60)
        yield vcenter, metrics, log
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def set_cores_to_text(method: str, body: bytes) -> bytes:
    path = b"summary.hardware.numCpuCores"
    return re.sub(
        rb"(<name>" + re.escape(path) + rb"</name><op>assign</op><val[^>]*>)\d+", rb"\1many", body
    )


async def test_vcenter_loads_without_a_value_that_does_not_decode(
    simulator: SimulatedVCenter,
) -> None:
    async with run_vcenter(simulator, set_cores_to_text) as (vcenter, metrics, log):
        hosts = vcenter.inventory.hosts.values()
        assert len(hosts) > 1
        assert {host.cpu_cores for host in hosts} == {None}
        assert None not in {host.cpu_mhz for host in hosts}
        assert metrics.undecodable == [("HostSystem", "summary.hardware.numCpuCores")] * len(hosts)
        assert len(log.find_messages("does not know", "warning")) == 1
        assert vcenter.problem is None


async def test_new_value_of_an_enumeration_is_unset(start_simulator: SimulatorFactory) -> None:
    simulator = await start_simulator()
    await simulator.set_property(HOST, "runtime.connectionState", "entangled")
    async with run_vcenter(simulator) as (vcenter, metrics, log):
        assert vcenter.inventory.find_host(HOST).connection == ""
        assert vcenter.inventory.find_host(OTHER_HOST).connection == "connected"
        assert metrics.undecodable == [("HostSystem", "runtime.connectionState")]
        # By push too: the old value must not remain.
        await simulator.set_property(OTHER_HOST, "runtime.connectionState", "entangled")
        await eventually(lambda: vcenter.inventory.find_host(OTHER_HOST).connection == "")
        assert len(log.find_messages("does not know", "warning")) == 1
        await simulator.set_property(HOST, "runtime.connectionState", "connected")
        await eventually(lambda: vcenter.inventory.find_host(HOST).connection == "connected")


def drop_disk_files(method: str, body: bytes) -> bytes:
    return re.sub(rb"<fileName>[^<]*</fileName>", b"", body)


async def test_vm_with_an_unknown_disk_is_not_touched(simulator: SimulatedVCenter) -> None:
    async with run_vcenter(simulator, drop_disk_files) as (vcenter, metrics, _):
        vm = vcenter.inventory.find_vm(VM_NAME)
        # `read_vm` precedes Destroy_Task.
        with pytest.raises(Rejected, match="has an unknown form, so it is left unchanged"):
            await vcenter.vm_calls.read_vm(vm.ref)
        await vcenter.vm_configs.refresh([vm.ref])
        assert vm.ref in vcenter.vm_configs.unreadable
        assert len(metrics.undecodable) == 2


async def test_new_managers_and_fields_of_a_vcenter_are_ignored(
    simulator: SimulatedVCenter,
) -> None:
    def add_novelties(method: str, body: bytes) -> bytes:
        if method == "RetrieveServiceContent":
            novelty = b'<quantumManager type="QuantumManager">q</quantumManager>'
            body = body.replace(b"</about>", b"<mood>calm</mood></about>" + novelty)
        return body.replace(b"<loginTime>", b"<mood>calm</mood><loginTime>at dawn, ")

    async with run_vcenter(simulator, add_novelties) as (vcenter, metrics, _):
        assert vcenter.inventory.hosts
        content = await vcenter.soap.get_service_content()
        assert content.about.instanceUuid == simulator.instance_uuid
        assert metrics.undecodable == []


def test_names_from_the_wire_are_limited() -> None:
    metrics, log = RecordingMetrics(), RecordingLog()
    errors = DecodeErrors(metrics, log)
    for number in range(3 * _MAX_NAMES):
        errors.report("HostSystem", f"property-{number}", "host-1", ValueError("x" * 10_000))
    assert len(metrics.undecodable) == 3 * _MAX_NAMES
    assert len(set(metrics.undecodable)) == len(log.entries) == _MAX_NAMES + 1
    assert metrics.undecodable[-1] == ("other", "other")
